"""Oracles: closed forms for one velocity, exact fractions, and the eigenvalues themselves."""

import itertools
import math
from decimal import Decimal, localcontext
from fractions import Fraction

import numpy as np
import pytest
from random_dampings import random_dampings

from aggmo import Damping
from aggmo.theory.poles import Poles, felt_rate, meeting_steps, poles, roots, step_at
from aggmo.theory.quadratic import characteristic_polynomial, eigenvalues, rate
from aggmo.theory.stability import limit

DAMPINGS = random_dampings(1000, seed=10)


def test_poles_and_idle_betas_are_the_polynomial():
    """Oracle: prod (z - idle) * ((z - 1) prod (z - pole) + c (...)), which has to be the polynomial of all betas."""
    z = np.linspace(-1.5, 1.4, 9)
    for damping in DAMPINGS:
        p = poles(damping)
        assert len(p.idle) + len(p.distances) == len(damping)
        assert (np.diff(p.distances) > 0).all()
        away = z[:, None] - (1 - p.distances)
        rest = p.direct * away.prod(axis=1)
        for i, weight in enumerate(p.weights):
            rest += weight * z * np.delete(away, i, axis=1).prod(axis=1)
        idle = np.prod([np.ones(9)] + [z - beta for beta in p.idle], axis=0)
        expected = np.polyval(characteristic_polynomial(damping, 0.7), z)
        np.testing.assert_allclose(idle * ((z - 1) * away.prod(axis=1) + 0.7 * rest), expected, rtol=1e-9, atol=1e-9)


def test_equal_betas_are_one_pole_and_those_without_weight_none():
    one, other = poles(Damping((0.9, 0.5), (3, 1))), poles(Damping((0.9, 0.5, 0.9, 0.9), (1, 1, 2, 0)))
    for name in ("direct", "distances", "weights"):
        np.testing.assert_array_equal(getattr(one, name), getattr(other, name))
    assert one.idle == ()
    assert other.idle == (0.9, 0.9)


def test_a_beta_that_rounds_to_0_is_the_gradient_itself():
    assert poles(Damping((1e-300, 0.5))) == Poles(0.5, np.array([0.5]), np.array([0.5]), (1e-300,))


def test_at_a_root_the_step_is_c():
    checked = 0
    for damping in DAMPINGS:
        step = 0.7 * limit(damping)
        z = 1 - roots(poles(damping), np.array([step]))[:, 0]
        # Near a beta c is so steep that it tells rounding errors of z.
        z = z[(z.imag == 0) & (np.abs(z[:, None] - np.array(damping.betas)).min(axis=1) > 1e-3)].real
        np.testing.assert_allclose(step_at(damping, z), step, rtol=1e-6)
        checked += len(z)
    assert checked > 1000


def test_the_step_at_minus_1_is_the_limit_and_at_1_it_is_0():
    for damping in DAMPINGS:
        assert math.isclose(step_at(damping, -1), limit(damping), rel_tol=1e-13)
        assert step_at(damping, 1) == 0


def test_the_step_takes_arrays_and_is_0_at_the_betas():
    np.testing.assert_array_equal(step_at(Damping((0, 0.5), (0, 1)), [[0.5, 1.0], [-1.0, 3.0]]), [[0, 0], [3, -5 / 3]])
    with pytest.raises(ValueError, match=r"^z=nan: must be finite"):
        step_at((0.5,), math.nan)


@pytest.mark.parametrize("beta", [1e-6, 0.25, 0.5, 0.9, 0.9999, 1 - 2.0**-40])
def test_with_one_velocity_all_is_known(beta):
    """Oracle: the quadratic equation, in 50 digits."""
    with localcontext(prec=50):
        exact = Decimal(beta)
        low, high = (1 - exact.sqrt()) ** 2, (1 + exact.sqrt()) ** 2
        steps = [low * Decimal("0.3"), low * Decimal("0.9"), (low + high) / 2]
        if beta < 0.99:  # else the last range, to the limit, is too narrow for floats
            steps.append((high + 2 + 2 * exact) / 2)
        expected = [min(classical_rate(exact, step)) for step in steps]
    p = poles((beta,))
    np.testing.assert_allclose(meeting_steps(p), [float(low), float(high)], rtol=1e-9)
    found = felt_rate(p, np.array([float(step) for step in steps]))
    np.testing.assert_allclose(found, [float(one) for one in expected], rtol=1e-9)


def classical_rate(beta, step):
    """1 - |z| of both roots z of z^2 - (1 + beta - c) z + beta."""
    half = (1 + beta - step) / 2
    if half**2 < beta:
        return [1 - beta.sqrt()]
    return [1 - abs(half + sign * (half**2 - beta).sqrt()) for sign in (-1, 1)]


def test_without_a_positive_beta_there_is_gradient_descent():
    p = poles(Damping((0, 0, 0.9), (1, 1, 0)))
    assert len(meeting_steps(p)) == 0
    np.testing.assert_array_equal(felt_rate(p, np.array([0.25, 0.5, 0.75])), [0.5, 1, 0.5])
    np.testing.assert_array_equal(roots(p, np.array([0.25, 0.5])), [[0.5, 1.0]])
    np.testing.assert_array_equal(eigenvalues(Damping((0, 0, 0.9), (1, 1, 0)), 0.25), [0.5, 0, 0, 0.9])


def test_at_most_two_roots_are_not_held_between_poles():
    for damping in DAMPINGS[:500]:
        p = poles(damping)
        for u in roots(p, 10.0 ** np.linspace(-6, 3, 7))[2:].real.T:
            assert (p.distances[:-1] <= u).all()
            assert (u <= p.distances[1:]).all()


def test_where_roots_meet_the_polynomial_has_a_double_root():
    """Oracle: its discriminant, in exact arithmetic, changes sign within one part in 10^9 of every meeting step."""
    checked = 0
    for damping in random_dampings(150, seed=11):
        for step in meeting_steps(poles(damping)):
            below, above = (real_roots(damping, Fraction(step) * (1 + Fraction(side, 10**9))) for side in (-1, 1))
            assert {below, above} == {True, False}
            checked += 1
    assert checked > 250


def real_roots(damping, step):
    """Whether all roots of the characteristic polynomial are real, by Sturm's theorem on exact fractions."""
    remainders = sturm_chain(exact_polynomial(damping, step))
    signs = [[(p[0] > 0) == (side > 0 or len(p) % 2 == 1) for p in remainders] for side in (-1, 1)]
    changes = [sum(a != b for a, b in itertools.pairwise(row)) for row in signs]
    distinct = len(remainders[0]) - len(remainders[-1])  # the last is the greatest common divisor with the derivative
    return changes[0] - changes[1] == distinct


def exact_polynomial(damping, step):
    betas, size = [Fraction(beta) for beta in damping.betas], len(damping) + 2

    def product(factors):
        found = [Fraction(1)]
        for root in factors:
            found = [a - root * b for a, b in zip([*found, Fraction(0)], [Fraction(0), *found], strict=True)]
        return found

    total = product([Fraction(1), *betas])
    for i, weight in enumerate(damping.weights):
        term = [Fraction(0), *product(betas[:i] + betas[i + 1 :]), Fraction(0)]
        total = [a + step * Fraction(weight) * b for a, b in zip(total, term, strict=True)]
    assert len(total) == size
    return total


def sturm_chain(polynomial):
    """The polynomial, its derivative, and the remainders with their signs turned, highest power first."""
    degree = len(polynomial) - 1
    chain = [polynomial, [a * (degree - i) for i, a in enumerate(polynomial[:-1])]]
    while True:
        a, b = list(chain[-2]), chain[-1]
        while len(a) >= len(b):
            factor = a[0] / b[0]
            a = [x - factor * y for x, y in zip(a, b + [Fraction(0)] * (len(a) - len(b)), strict=True)][1:]
        while a and a[0] == 0:
            a = a[1:]
        if not a:
            return chain
        chain.append([-x / abs(a[0]) for x in a])


def test_sturm_counts_right():
    """The oracle itself, on polynomials whose roots are known."""
    assert real_roots(Damping((0.25,)), Fraction(1, 4))
    assert not real_roots(Damping((0.25,)), Fraction(1, 4) + Fraction(1, 10**30))
    assert real_roots(Damping((0.25, 0.25)), Fraction(9, 4))


def test_the_felt_rate_is_the_rate_where_nothing_is_idle():
    steps = np.linspace(0.1, 2, 5)
    for damping in DAMPINGS[:100]:
        p = poles(damping)
        if not p.idle:
            np.testing.assert_array_equal(rate(damping, steps), felt_rate(p, steps))
