"""The reference is the oracle of everything else, so its own oracles are outside: closed forms and hand computation."""

import numpy as np
import pytest
import strategies
from hypothesis import given
from hypothesis import strategies as st

from aggmo import Damping
from aggmo.reference import step


def run(damping, gradients, theta, lr, **options):
    """All iterates under given gradients, one after the other."""
    velocities = [np.zeros_like(theta) for _ in damping]
    iterates = []
    for gradient in gradients:
        theta, velocities = step(theta, velocities, gradient, damping, lr, **options)
        iterates.append(theta)
    return iterates


def test_two_steps_by_hand():
    """lr 0.5, betas (0, 0.5), weights (1, 2), theta 4, gradients 2 then -1.

    v = (2, 2), theta = 4 - 0.5 (2 + 4) = 1; then v = (-1, 0.5 * 2 - 1 = 0), theta = 1 - 0.5 (-1 + 0) = 1.5.
    """
    iterates = run(Damping((0, 0.5), (1, 2)), [np.array([2.0]), np.array([-1.0])], np.array([4.0]), lr=0.5)
    np.testing.assert_array_equal(iterates, [[1.0], [1.5]])


def test_options_by_hand():
    """theta 2, g 3, lr 0.25, one velocity of beta 0: theta - lr d with d as each option defines it."""

    def one(**options):
        return step(np.array([2.0]), [np.zeros(1)], np.array([3.0]), Damping((0,)), 0.25, **options)[0].item()

    assert one() == 2 - 0.25 * 3
    assert one(maximize=True) == 2 + 0.25 * 3
    assert one(weight_decay=0.5) == 2 - 0.25 * (3 + 0.5 * 2)
    assert one(weight_decay=0.5, decoupled_weight_decay=True) == 2 - 0.25 * (3 + 0.5 * 2)
    assert one(weight_decay=0.5, maximize=True) == 2 - 0.25 * (-3 + 0.5 * 2)


def test_coupled_decay_enters_the_velocities_and_decoupled_does_not():
    theta, g = np.array([2.0]), np.array([3.0])
    _, (coupled,) = step(theta, [np.ones(1)], g, Damping((0.5,)), 0.25, weight_decay=0.5)
    _, (decoupled,) = step(theta, [np.ones(1)], g, Damping((0.5,)), 0.25, weight_decay=0.5, decoupled_weight_decay=True)
    assert (coupled.item(), decoupled.item()) == (0.5 + 3 + 0.5 * 2, 0.5 + 3)


@given(strategies.dampings(), st.lists(strategies.arrays((2,)), min_size=1, max_size=12), st.floats(0, 1))
def test_the_step_is_the_weighted_impulse_response(damping, gradients, lr):
    """Oracle: the closed form, theta_T = theta_0 - lr sum_t sum_i w_i sum_{l <= t} beta_i^(t-l) g_l."""
    theta = np.array([1.0, -2.0])
    expected = theta.copy()
    for t in range(len(gradients)):
        for beta, weight in zip(damping.betas, damping.weights, strict=True):
            expected = expected - lr * weight * sum(beta ** (t - lag) * gradients[lag] for lag in range(t + 1))
    np.testing.assert_allclose(run(damping, gradients, theta, lr)[-1], expected, rtol=1e-9, atol=1e-9)


def test_nesterov_is_the_papers_phi():
    """Oracle: Nesterov as printed, equation (2), on f = x^4/4 + x^2, observed at phi = theta + lr beta v."""

    def gradient(x):
        return x**3 + 2 * x

    lr, beta, theta, v = 0.05, 0.9, np.array([1.5]), np.zeros(1)
    phi, velocities, damping = theta, [np.zeros(1), np.zeros(1)], Damping.nesterov(beta)
    for _ in range(50):
        v = beta * v - gradient(theta + lr * beta * v)
        theta = theta + lr * v
        phi, velocities = step(phi, velocities, gradient(phi), damping, lr)
        np.testing.assert_allclose(phi, theta + lr * beta * v, rtol=1e-12)


def test_quasi_hyperbolic_is_the_published_update():
    """Oracle: QHM, m = beta m + (1 - beta) g, theta = theta - lr ((1 - nu) g + nu m), on the same function."""
    lr, beta, nu, theta, m = 0.3, 0.9, 0.7, np.array([1.5]), np.zeros(1)
    ours, velocities, damping = theta, [np.zeros(1), np.zeros(1)], Damping.quasi_hyperbolic(beta, nu)
    for _ in range(50):
        g = theta**3 + 2 * theta
        m = beta * m + (1 - beta) * g
        theta = theta - lr * ((1 - nu) * g + nu * m)
        ours, velocities = step(ours, velocities, ours**3 + 2 * ours, damping, lr)
        np.testing.assert_allclose(ours, theta, rtol=1e-12)


def test_the_arguments_are_left_alone():
    theta, velocity, gradient = np.ones(2), np.ones(2), np.ones(2)
    step(theta, [velocity], gradient, Damping((0.5,)), 0.1, weight_decay=0.1, maximize=True)
    for array in (theta, velocity, gradient):
        np.testing.assert_array_equal(array, np.ones(2))


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64, np.complex64])
def test_the_dtype_stays(dtype):
    theta, velocities = step(np.ones(2, dtype), [np.zeros(2, dtype)], np.ones(2, dtype), Damping((0.5,)), 0.1)
    assert theta.dtype == velocities[0].dtype == dtype


def test_velocities_of_another_number_are_refused():
    with pytest.raises(ValueError, match="zip"):
        step(np.ones(1), [np.zeros(1)], np.ones(1), Damping((0, 0.5)), 0.1)
