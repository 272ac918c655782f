"""Oracles: the printed formulas in decimal arithmetic and in complex steps, and the runs of the paper's appendix E."""

import decimal
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from aggmo import Damping, reference
from aggmo.theory.landscapes import Funnel, Quadratic, Rosenbrock

A, B = 8.0, 10.0
# What the paper prints, in operations that are analytic.
PRINTED = {
    "quadratic": (Quadratic(), lambda x, y: 1.0 * x * x + 0.001 * y * y),
    "Rosenbrock": (Rosenbrock(), lambda x, y: 100 * (y - x**2) ** 2 + (1 - x) ** 2),
    "Rosenbrock, printed": (Rosenbrock.printed(), lambda x, y: (y - x**2) ** 2 + 100 * (x - 1) ** 2),
    "funnel": (
        Funnel(a=A, b=B),
        lambda x, y: np.log(np.exp(x) + np.exp(-x)) + B * log_two_cosh(np.exp(x) * (y - np.sin(A * x))),
    ),
}
COORDINATE = st.floats(-3, 3)


def log_two_cosh(u):
    return np.log(np.exp(u) + np.exp(-u))


@pytest.mark.parametrize("name", PRINTED)
@given(x=COORDINATE, y=COORDINATE)
def test_values_are_those_of_the_printed_formula(name, x, y):
    landscape, printed = PRINTED[name]
    assert landscape([x, y]) == pytest.approx(printed(x, y), rel=1e-12, abs=1e-14)


@pytest.mark.parametrize("name", PRINTED)
@given(x=COORDINATE, y=COORDINATE)
def test_gradients_are_complex_steps_of_the_printed_formula(name, x, y):
    """Oracle: Im f(x + ih) / h, whose error is O(h^2) and which subtracts nothing; h = 1e-100."""
    landscape, printed = PRINTED[name]
    steps = [printed(x + 1e-100j, y).imag / 1e-100, printed(x, y + 1e-100j).imag / 1e-100]
    np.testing.assert_allclose(landscape.gradient([x, y]), steps, rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize("name", PRINTED)
@given(x=st.floats(-50, 50), y=st.floats(-50, 50))
def test_the_minimum_is_where_the_gradient_is_zero_and_nothing_is_lower(name, x, y):
    landscape, _ = PRINTED[name]
    assert landscape(landscape.minimum) == pytest.approx(landscape.least, abs=1e-15)
    np.testing.assert_array_equal(landscape.gradient(landscape.minimum), [0.0, 0.0])
    assert landscape([x, y]) >= landscape.least * (1 - 1e-15)


def decimal_funnel(x, y):
    """The printed formula in 400 digits; the sine is given, for it is the one thing that decimal does not have."""
    with decimal.localcontext(prec=400, Emax=10**9, Emin=-(10**9)):
        x, height = decimal.Decimal(x), decimal.Decimal(y) - decimal.Decimal(float(np.sin(A * x)))
        u = x.exp() * height
        pair = [(z.exp() + (-z).exp()).ln() for z in (x, u)]
        slope = (u.exp() - (-u).exp()) / (u.exp() + (-u).exp()) * x.exp() * int(B)
        return float(pair[0] + int(B) * pair[1]), float(slope)


@pytest.mark.parametrize(
    ("x", "y"), [(0.5, 0.3), (-2.0, 0.0), (0.0, 800.0), (5.0, -10.0), (-800.0, 3.0), (12.0, 1.0), (-3.0, 1e5)]
)
def test_the_funnel_is_right_where_the_printed_form_overflows(x, y):
    value, slope = decimal_funnel(x, y)
    assert Funnel(A, B)([x, y]) == pytest.approx(value, rel=1e-13)
    assert Funnel(A, B).gradient([x, y])[1] == pytest.approx(slope, rel=1e-13)


def test_the_funnel_overflows_with_its_value_only():
    """On the ridge y = sin(a x), here with a = 0, f is log 2cosh x + b log 2 whatever e^x may be."""
    funnel = Funnel(a=0, b=B)
    ridge = np.array([[710.0, 0.0], [1400.0, 0.0], [1e300, 0.0]])
    np.testing.assert_allclose(funnel(ridge), ridge[:, 0] + B * math.log(2), rtol=1e-15)
    np.testing.assert_array_equal(funnel.gradient(ridge), [[1.0, 0.0]] * 3)
    # e^800 1e-200 is a number, though e^800 is none; and e^800 is none.
    assert funnel([800.0, 1e-200]) == pytest.approx(B * math.exp(800 - 200 * math.log(10)), rel=1e-12)
    assert funnel([800.0, 1.0]) == math.inf


@pytest.mark.parametrize("landscape", [Quadratic((1, 2)), Rosenbrock(), Funnel()], ids=lambda f: type(f).__name__)
def test_arrays_of_points_are_one_point_after_the_other(landscape):
    points = np.random.default_rng(0).normal(size=(4, 3, 2))
    values, gradients = landscape(points), landscape.gradient(points)
    assert values.shape == (4, 3)
    assert gradients.shape == (4, 3, 2)
    for index in np.ndindex(4, 3):
        assert values[index] == pytest.approx(landscape(points[index]), rel=1e-15)
        np.testing.assert_allclose(gradients[index], landscape.gradient(points[index]), rtol=1e-15)


def test_the_quadratics_curvatures_are_twice_its_eigenvalues():
    """Oracle: the Hessian from differences of gradients, which are exact on a quadratic with these numbers."""
    quadratic = Quadratic((1, 0.5, 0.25))
    hessian = quadratic.gradient(np.eye(3)) - quadratic.gradient(np.zeros(3))
    np.testing.assert_array_equal(hessian, 2 * np.diag([1, 0.5, 0.25]))


@pytest.mark.parametrize(
    ("damping", "gap"),
    [
        (Damping.exponential(k=4), 0.000),
        (Damping.exponential(k=3), 0.004),
        (Damping.classical(0.9), 0.29),
        (Damping.classical(0.999), 0.43),
    ],
    ids=["K=4", "K=3", "CM .9", "CM .999"],
)
def test_appendix_e(damping, gap):
    """3000 steps at lr 1e-3 from (-2, 0): how far f is above its least value in the end, in as many digits as given."""
    funnel, theta, velocities = Funnel(a=8, b=10), np.array([-2.0, 0.0]), [np.zeros(2) for _ in damping]
    for _ in range(3000):
        theta, velocities = reference.step(theta, velocities, funnel.gradient(theta), damping, lr=1e-3)
    assert funnel(theta) - funnel.least == pytest.approx(gap, abs=0.0006 if gap < 0.1 else 0.006)


@pytest.mark.parametrize(
    ("landscape", "argument", "value"),
    [
        *(
            (Quadratic, "eigenvalues", bad)
            for bad in [(), (1, -1), (1, 0), (1, math.nan), (True, True), ("1", "2"), 3.0]
        ),
        *((Rosenbrock, name, bad) for name in ("parabola", "line") for bad in [0, -1, math.inf, math.nan, None, [1.0]]),
        *((Funnel, "a", bad) for bad in [math.nan, -math.inf, 10**400, True, "8", 1j]),
        *((Funnel, "b", bad) for bad in [math.nan, math.inf, 0, -1, False, "10"]),
    ],
    ids=lambda value: getattr(value, "__name__", repr(value)[:20]),
)
def test_senseless_parameters_are_refused_by_name(landscape, argument, value):
    with pytest.raises(ValueError, match=rf"^{argument}=.*: must be .*finite"):
        landscape(**{argument: value})


@pytest.mark.parametrize("landscape", [Quadratic(), Rosenbrock(), Funnel()], ids=lambda f: type(f).__name__)
@pytest.mark.parametrize(
    "points", [1.0, [1.0], [1, 2, 3], [math.nan, 0], [0, math.inf], [[0, 1], [2]], ["0", "1"], None]
)
def test_senseless_points_are_refused_by_name(landscape, points):
    for function in (landscape, landscape.gradient):
        with pytest.raises(ValueError, match=r"points=.*: must be finite and of shape \(\.\.\., 2\)"):
            function(points)
