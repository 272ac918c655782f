"""Oracles: the definition of a subgradient, closed forms for means, medians and odds, and brute force."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from aggmo.theory.online import absolute, linear, logistic, periodic, squares

T, ROWS, D = 5, 2, 3


def make(kind, seed, radius=1.5):
    """A problem of random features, of this kind."""
    rng = np.random.default_rng(seed)
    features = rng.normal(size=(T, ROWS, D))
    match kind:
        case "squares":
            return squares(features, rng.normal(size=(T, ROWS)), radius)
        case "absolute":
            return absolute(features, rng.normal(size=(T, ROWS)), radius)
        case "logistic":
            return logistic(features, rng.choice([-1, 1], size=(T, ROWS)), radius)
        case "linear":
            return linear(features, radius)


KINDS = ["squares", "absolute", "logistic", "linear"]


@pytest.mark.parametrize("kind", KINDS)
@given(seed=st.integers(0, 1000))
def test_gradients_are_subgradients(kind, seed):
    """Oracle: f(y) >= f(x) + g . (y - x) for all y, which makes f convex as well."""
    problem, rng = make(kind, seed), np.random.default_rng(seed + 1)
    x = rng.normal(size=D)
    y = x + rng.normal(size=(50, D)) * 10 ** rng.uniform(-3, 1, size=(50, 1))
    at_x = problem.losses(x)
    at_y = problem.losses(np.broadcast_to(y, (T, *y.shape)))
    for t in range(T):
        assert np.all(at_y[t] - at_x[t] - (y - x) @ problem.gradient(t, x) >= -1e-12)


@pytest.mark.parametrize("kind", KINDS)
def test_gradients_are_differences_of_losses(kind):
    """Oracle: central differences; no kink of the absolute loss is as near as their width."""
    problem, x, h = make(kind, 0), np.array([0.3, -0.2, 0.7]), 1e-6
    differences = [(problem.losses(x + h * e) - problem.losses(x - h * e)) / (2 * h) for e in np.eye(D)]
    gradients = np.array([problem.gradient(t, x) for t in range(T)])
    np.testing.assert_allclose(gradients, np.transpose(differences), rtol=1e-7, atol=1e-8)


def test_losses_by_hand():
    """One row, one coordinate, a = 2, b or y = 1, at 3: (6 - 1)^2 / 2, |6 - 1|, log(1 + e^-6), 6."""
    a = [[[2.0]]]
    assert squares(a, [[1]]).losses([3]) == 12.5
    assert absolute(a, [[1]]).losses([3]) == 5
    assert logistic(a, [[1]], 4).losses([3])[0] == pytest.approx(math.log1p(math.exp(-6)), rel=1e-14)
    assert linear(a, 4).losses([3]) == 6
    assert logistic(a, [[-1]], 1e4).losses([1e4]) == 2e4  # log(1 + e^20000)


@pytest.mark.parametrize("kind", KINDS)
def test_many_points_are_one_after_the_other(kind):
    problem, points = make(kind, 3), np.random.default_rng(0).normal(size=(T, 4, 2, D))
    losses = problem.losses(points)
    assert losses.shape == (T, 4, 2)
    for i in np.ndindex(4, 2):
        for t in range(T):
            one = problem.losses(points[t][i])[t]
            assert losses[t][i] == pytest.approx(one, rel=1e-13)
            np.testing.assert_allclose(problem.gradient(t, points[t])[i], problem.gradient(t, points[t][i]), rtol=1e-13)


@pytest.mark.parametrize("kind", KINDS)
@given(seed=st.integers(0, 1000), radius=st.floats(0.05, 3))
def test_nothing_on_the_domain_is_better_than_the_best(kind, seed, radius):
    """Oracle: the definition, tried at points far and near, corners among them."""
    problem, rng = make(kind, seed, radius), np.random.default_rng(seed + 1)
    best = problem.best()
    assert np.abs(best).max() <= radius
    near = best + rng.normal(size=(200, D)) * 10 ** rng.uniform(-6, 0, size=(200, 1))
    others = np.concatenate(
        [rng.uniform(-radius, radius, size=(100, D)), near, rng.choice([-1, 1], size=(8, D)) * radius]
    )
    others = problem.project(others)
    totals = problem.losses(np.broadcast_to(others, (T, *others.shape))).sum(axis=0)
    assert np.all(totals >= problem.losses(best).sum() - 1e-9)


@given(st.lists(st.floats(-3, 3), min_size=1, max_size=9), st.sampled_from([None, 0.5, 5.0]))
def test_the_best_of_squares_is_the_mean_and_of_absolutes_a_median(targets, radius):
    """Oracle: both in closed form, clipped to the interval."""
    ones, column, end = np.ones((len(targets), 1, 1)), np.array(targets)[:, None], radius or math.inf
    mean = np.clip(np.mean(targets), -end, end)
    assert squares(ones, column, radius).best() == pytest.approx(mean, abs=1e-9)
    problem = absolute(ones, column, radius)
    median = np.clip([np.median(targets)], -end, end)
    # The linear programme is solved to 1e-7.
    assert problem.losses(problem.best()).sum() == pytest.approx(problem.losses(median).sum(), abs=1e-6)


@given(st.integers(0, 6), st.integers(0, 6), st.sampled_from([0.3, 4.0]))
def test_the_best_of_logistic_losses_is_the_log_odds(positive, negative, radius):
    """Oracle: log(n+ / n-) for one feature that is always 1, clipped to the interval."""
    if positive + negative == 0:
        return
    labels = np.array([1] * positive + [-1] * negative)[:, None]
    with np.errstate(divide="ignore"):
        expected = np.clip(np.log(positive / negative) if negative else math.inf, -radius, radius)
    found = logistic(np.ones((*labels.shape, 1)), labels, radius).best()
    assert found == pytest.approx(expected, abs=1e-6)


def test_fewer_rows_than_coordinates_have_a_best_point_too():
    """Oracle: one round can be fitted exactly."""
    rng = np.random.default_rng(0)
    for radius in (None, 10.0):
        for kind in (squares, absolute):
            problem = kind(rng.normal(size=(1, 1, 4)), rng.normal(size=(1, 1)), radius)
            assert problem.losses(problem.best()).sum() == pytest.approx(0, abs=1e-12)


@given(st.integers(1, 40), st.integers(2, 6), st.floats(0.01, 100))
def test_the_best_of_the_periodic_problem_is_minus_1(rounds, period, excess):
    """Oracle: the sum of the slopes as printed by Reddi et al., whose sign decides between the ends."""
    c = period - 1 + excess
    problem = periodic(rounds, c, period)
    slopes = [c if t % period == 1 else -1 for t in range(1, rounds + 1)]
    np.testing.assert_array_equal([problem.gradient(t, [0.3])[0] for t in range(rounds)], slopes)
    assert sum(slopes) > 0
    assert problem.best() == problem.project(np.array([-7.0])) == -1


A, B = np.ones((2, 1, 3)), np.ones((2, 1))
FEATURES = [1.0, np.ones((2, 3)), np.ones((0, 1, 3)), np.ones((2, 1, 0)), np.full((2, 1, 3), math.nan), "a", None]
RADII = [0, -1, math.inf, math.nan, "1", True]


@pytest.mark.parametrize(
    ("function", "good", "name", "values"),
    [
        (squares, (A, B, 1.0), "features", FEATURES),
        (squares, (A, B, 1.0), "targets", [1.0, np.ones(2), np.ones((1, 2)), B * math.inf]),
        (squares, (A, B, 1.0), "radius", RADII),
        (absolute, (A, B, 1.0), "features", FEATURES),
        (absolute, (A, B, 1.0), "targets", [1.0, np.ones(2), B * math.nan]),
        (absolute, (A, B, 1.0), "radius", RADII),
        (logistic, (A, B, 1.0), "features", FEATURES),
        (logistic, (A, B, 1.0), "labels", [1.0, np.ones(2), B * 0, B * 2, B * math.nan]),
        (logistic, (A, B, 1.0), "radius", [*RADII, None]),
        (linear, (A, 1.0), "features", FEATURES),
        (linear, (A, 1.0), "radius", [*RADII, None]),
        (periodic, (6, 3.0, 3), "rounds", [0, -1, 2.0, True]),
        (periodic, (6, 3.0, 3), "c", [2, -1, math.inf, math.nan, "3"]),
        (periodic, (6, 3.0, 3), "period", [1, 0, 3.0, True]),
    ],
    ids=lambda value: getattr(value, "__name__", value if isinstance(value, str) else ""),
)
def test_senseless_arguments_are_refused_by_name(function, good, name, values):
    names = function.__code__.co_varnames[: function.__code__.co_argcount]
    for value in values:
        with pytest.raises(ValueError, match=rf"(?s)^{name}="):
            function(**{**dict(zip(names, good, strict=True)), name: value})
