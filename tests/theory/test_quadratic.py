"""Oracles: NumPy's eigenvalues of B, exact fractions, equations (1) and (2) by hand, AggMo and SGD of PyTorch."""

import itertools
import math
import time
from fractions import Fraction

import numpy as np
import pytest
import strategies
import torch
from hypothesis import given
from hypothesis import strategies as st
from random_dampings import random_dampings

from aggmo import AggMo, Damping, reference
from aggmo.theory.averaging import descend, moments
from aggmo.theory.quadratic import (
    characteristic_polynomial,
    difference_equation,
    eigenvalues,
    nesterov_trajectory,
    rate,
    spectral_radius,
    trajectory,
    transient_peak,
    transition_matrix,
)
from aggmo.theory.stability import limit

DAMPINGS = random_dampings(3000, seed=0)
BETA = st.floats(0, 0.9999)
CURVATURES = np.array([2.0, 1.0, 0.1, 1e-3])


def some_steps(dampings, seed):
    """A step for each damping vector, from far below its stability limit to half as much again."""
    scales = 1.5 * 10.0 ** -np.random.default_rng(seed).uniform(0, 4, len(dampings))
    return [scale * limit(damping) for scale, damping in zip(scales, dampings, strict=True)]


def brute_eigenvalues(damping, step):
    return np.linalg.eigvals(transition_matrix(damping, 1, step))


@given(strategies.dampings(), st.floats(0.01, 2), st.integers(1, 4), st.integers(0, 99))
def test_one_step_is_the_transition_matrix(damping, lr, n, seed):
    """Oracle: `aggmo.reference.step` on x'Ax/2 + b'x, whose velocities have the other sign."""
    rng = np.random.default_rng(seed)
    a = rng.normal(size=(n, n))
    a = a + a.T
    x, v, minimum = rng.normal(size=n), rng.normal(size=(len(damping), n)), rng.normal(size=n)
    moved, velocities = reference.step(x, list(-v), a @ (x - minimum), damping, lr)
    after = transition_matrix(damping, lr, a) @ np.concatenate([v.ravel(), x - minimum])
    expected = np.concatenate([*(-w for w in velocities), moved - minimum])
    np.testing.assert_allclose(after, expected, rtol=1e-11, atol=1e-11)


@given(strategies.dampings(), st.floats(0.01, 2), st.integers(1, 4))
def test_the_full_matrix_is_block_diagonal_in_another_order(damping, lr, n):
    """Oracle: appendix C, coordinates of B taken by curvature instead of by velocity."""
    curvatures, size = np.arange(1.0, n + 1), len(damping) + 1
    order = np.arange(size * n).reshape(size, n).T.ravel()
    blocks = transition_matrix(damping, lr, curvatures)[np.ix_(order, order)].reshape(n, size, n, size)
    for i, j in itertools.product(range(n), repeat=2):
        expected = transition_matrix(damping, lr, curvatures[i]) if i == j else np.zeros((size, size))
        np.testing.assert_array_equal(blocks[i, :, j], expected)
    np.testing.assert_array_equal(
        transition_matrix(damping, lr, curvatures), transition_matrix(damping, lr, np.diag(curvatures))
    )


def test_the_polynomial_and_the_eigenvalues_are_those_of_the_matrix():
    for damping, step in zip(DAMPINGS, some_steps(DAMPINGS, seed=1), strict=True):
        of_matrix, polynomial = brute_eigenvalues(damping, step), characteristic_polynomial(damping, step)
        assert np.abs(polynomial - np.poly(of_matrix)).max() < 1e-8
        assert np.abs(np.polyval(polynomial, of_matrix)).max() < 1e-8
        # The matrix cannot tell eigenvalues that nearly coincide; that all together are right, the polynomial can.
        assert np.abs(np.poly(eigenvalues(damping, step)) - polynomial).max() < 1e-11
        assert abs(spectral_radius(damping, step) - np.abs(of_matrix).max()) < 1e-8


def test_single_eigenvalues_are_those_of_the_matrix_where_they_are_apart():
    compared = 0
    for damping, step in zip(DAMPINGS[:1000], some_steps(DAMPINGS[:1000], seed=2), strict=True):
        of_matrix, found = (
            np.sort_complex(brute_eigenvalues(damping, step)),
            np.sort_complex(eigenvalues(damping, step)),
        )
        apart = np.abs(of_matrix[:, None] - of_matrix) + np.eye(len(of_matrix))
        if apart.min() > 1e-3:
            compared += 1
            assert np.abs(found - of_matrix).max() < 1e-8
    assert compared > 400


@pytest.mark.parametrize("k", range(1, 7))
def test_the_polynomial_is_the_product_formula_over_arrays_of_steps(k):
    """Oracle: (z - 1) prod_i (z - beta_i) + c z sum_i w_i prod_{k != i} (z - beta_k), term by term."""
    damping = next(damping for damping in DAMPINGS if len(damping) == k and len(set(damping.weights)) > k / 2)
    steps, z = np.array([[-1.0, 0.0, 0.3], [1.0, 2.5, 40.0]]), np.array([-1.3, 0.0, 0.45, 0.99, 1.0, 3.0])
    found = characteristic_polynomial(damping, steps)
    assert found.shape == (2, 3, k + 2)
    away = [z - beta for beta in damping]
    rest = sum(w * np.prod(away[:i] + away[i + 1 :], axis=0) for i, w in enumerate(damping.weights))
    for at in np.ndindex(2, 3):
        expected = (z - 1) * np.prod(away, axis=0) + steps[at] * z * rest
        np.testing.assert_allclose(np.polyval(found[at], z), expected, rtol=1e-11, atol=1e-11)


def test_one_pair_at_most_is_complex_and_it_comes_first():
    for damping, step in zip(DAMPINGS, some_steps(DAMPINGS, seed=3), strict=True):
        found = eigenvalues(damping, step)
        assert len(found) == len(damping) + 1
        assert not found[2:].imag.any()
        assert found[0] == found[1].conjugate() or not found.imag.any()


def test_rates_keep_their_digits_where_eigenvalues_are_close_to_1():
    """Oracle: the polynomial changes its sign within one part in 10^11 of the rate, in exact arithmetic."""
    checked = 0
    for damping in DAMPINGS[:400]:
        step = 1e-9 * limit(damping)
        found = float(rate(damping, step))
        if found >= min(1 - beta for beta in damping) or eigenvalues(damping, step)[0].imag:
            continue  # the rate of a velocity or of an oscillation, not of the slow descent
        checked += 1
        signs = [exact_sign(damping, step, Fraction(found) * (1 + Fraction(side, 10**11))) for side in (-1, 1)]
        assert signs[0] != signs[1]
    assert checked > 300


def exact_sign(damping, step, distance):
    """The sign of the characteristic polynomial at z = 1 - distance."""
    z, betas = 1 - distance, [Fraction(beta) for beta in damping.betas]
    product = math.prod(z - beta for beta in betas)
    rest = sum(
        Fraction(w) * math.prod(z - beta for k, beta in enumerate(betas) if k != i)
        for i, w in enumerate(damping.weights)
    )
    return (z - 1) * product + Fraction(step) * z * rest > 0


def test_a_grid_of_steps_is_one_step_after_the_other():
    """Each in well under a second of the processor, what the issue asks for with K = 3; 0.04 s there as measured."""
    grid = np.geomspace(1e-6, 3.5, 400 * 400).reshape(400, 400)
    for damping in (Damping.exponential(), Damping.exponential(k=1), Damping((0.3, 0.9, 0.9, 0.999), (1, 0, 2, 0.01))):
        begun = time.process_time()
        found = spectral_radius(damping, grid)
        assert time.process_time() - begun < 0.7
        assert found.shape == (400, 400)
        for at in zip(*np.random.default_rng(0).integers(400, size=(2, 60)), strict=True):
            assert math.isclose(found[at], np.abs(brute_eigenvalues(damping, grid[at])).max(), rel_tol=1e-10)
            assert math.isclose(found[at], spectral_radius(damping, grid[at]), rel_tol=1e-14)


@pytest.mark.parametrize("beta", [0.25, 0.9, 0.999])
def test_nesterov_is_classical_momentum_with_damping_scaled_by_curvature(beta):
    """Oracle: theorem 2 of Sutskever et al. (2013), beta (1 - lr lambda), whose damping is the paper's only if >= 0."""
    for step in (1e-6, 0.01, 0.5, 0.99):
        assert math.isclose(
            rate(Damping.nesterov(beta), step), rate(Damping.classical(beta * (1 - step)), step), rel_tol=1e-9
        )


@given(strategies.dampings(), st.floats(0.01, 1))
def test_a_trajectory_is_the_power_of_the_matrix(damping, lr):
    run = trajectory(damping, lr, CURVATURES, steps=12)
    assert run.iterates.shape == (13, 4)
    assert run.velocities.shape == (13, len(damping), 4)
    for j, curvature in enumerate(CURVATURES):
        state = np.append(np.zeros(len(damping)), 1.0)
        for t in range(13):
            found = np.append(run.velocities[t, :, j], run.iterates[t, j])
            np.testing.assert_allclose(found, state, rtol=1e-9, atol=1e-9 * np.abs(state).max())
            state = transition_matrix(damping, lr, curvature) @ state


def test_a_trajectory_is_what_the_optimizer_does():
    """Oracle: AggMo of PyTorch, whose stored velocities have the other sign."""
    damping = Damping((0, 0.9, 0.99), (0.5, 1, 2))
    theta = torch.ones(4, dtype=torch.float64, requires_grad=True)
    optimizer = AggMo([theta], lr=0.1, betas=damping)
    run = trajectory(damping, 0.1, CURVATURES, steps=50)
    for t in range(1, 51):
        theta.grad = torch.tensor(CURVATURES) * theta.detach()
        optimizer.step()
        np.testing.assert_allclose(run.iterates[t], theta.detach(), rtol=1e-12)
        np.testing.assert_allclose(run.velocities[t, 2], -optimizer.state[theta]["velocity_2"], rtol=1e-12)


@given(BETA, st.floats(0.01, 1))
def test_classical_momentum_is_equation_1(beta, lr):
    run, x, v = trajectory((beta,), lr, CURVATURES, steps=30), np.ones(4), np.zeros(4)
    for t in range(31):
        np.testing.assert_allclose(run.iterates[t], x, rtol=1e-10, atol=1e-12)
        np.testing.assert_allclose(run.velocities[t, 0], v, rtol=1e-10, atol=1e-12)
        v = beta * v - CURVATURES * x
        x = x + lr * v


@given(BETA, st.floats(0.01, 0.6))
def test_nesterov_momentum_is_equation_2_in_both_iterates(beta, lr):
    run, theta, v = nesterov_trajectory(beta, lr, CURVATURES, steps=30), np.ones(4), np.zeros(4)
    for t in range(31):
        np.testing.assert_allclose(run.theta[t], theta, rtol=1e-10, atol=1e-11)
        np.testing.assert_allclose(run.phi[t], theta + lr * beta * v, rtol=1e-10, atol=1e-11)
        np.testing.assert_allclose(run.velocity[t], v, rtol=1e-10, atol=1e-10)
        v = beta * v - CURVATURES * (theta + lr * beta * v)
        theta = theta + lr * v


def test_phi_is_the_nesterov_momentum_of_pytorch():
    theta = torch.ones(4, dtype=torch.float64, requires_grad=True)
    optimizer = torch.optim.SGD([theta], lr=0.3, momentum=0.99, nesterov=True)
    run = nesterov_trajectory(0.99, 0.3, CURVATURES, steps=60)
    for t in range(1, 61):
        theta.grad = torch.tensor(CURVATURES) * theta.detach()
        optimizer.step()
        np.testing.assert_allclose(run.phi[t], theta.detach(), rtol=1e-11, atol=1e-13)


def test_beta_averaged_momentum_is_the_full_history_for_two_steps_a_node():
    run = trajectory(Damping.beta_distributed(100, 1, nodes=6), 0.3, CURVATURES, steps=12)
    full = descend(lambda x: CURVATURES * x, np.ones(4), lr=0.3, response=moments(100, 1, lags=12), steps=12)
    np.testing.assert_allclose(run.iterates, full, rtol=1e-12, atol=1e-12)
    assert run.velocities.shape == (13, 6, 4)


def test_the_peak_is_that_of_a_long_run():
    rng, found = np.random.default_rng(4), []
    for damping in random_dampings(40, seed=5):
        steps = limit(damping) * np.append(10.0 ** -rng.uniform(0.1, 4, 3), 1 - 10 ** -rng.uniform(0.5, 3))
        highest = np.abs(trajectory(damping, 1, steps, steps=2000).iterates).max(axis=0)
        np.testing.assert_allclose(transient_peak(damping, steps), highest, rtol=1e-8)
        found += highest.tolist()
    assert max(found) > 10  # overshoots that the spectral radius, below 1, does not show
    assert found.count(1.0) > 10


def test_a_peak_late_in_a_run_is_found():
    """Oracle: at the limit z = -1 and -beta, which make |x_t| rise to (1 + beta) / (1 - beta)."""
    for beta in (0.5, 0.9, 0.99, 0.9999):  # the last takes some 10^5 steps to get there
        step = 2 * (1 + beta) * (1 - 1e-13)
        tolerance = 1e-4 if beta < 0.999 else 1e-3  # which 1e-13 below the limit costs
        assert math.isclose(transient_peak((beta,), step), (1 + beta) / (1 - beta), rel_tol=tolerance)


def test_nothing_decays_from_the_limit_on():
    for damping in DAMPINGS[:50]:
        assert transient_peak(damping, limit(damping) * (1 + 1e-9)) == math.inf


def test_the_difference_equation_is_the_iteration_on_any_function():
    """Oracle: `aggmo.reference.step` on a function that is no quadratic; thousands of damping vectors, any K."""
    for damping in DAMPINGS:
        lr = 0.3 * limit(damping)
        equation = difference_equation(damping)
        assert len(equation.iterates) == len(damping) + 1
        assert len(equation.gradients) == len(damping)
        theta, velocities = np.array(2.0), [np.array(0.0)] * len(damping)
        thetas, gradients = [2.0] * (len(damping) + 1), [0.0] * len(damping)  # most recent first
        for _ in range(20):
            gradients = [np.sin(theta), *gradients[:-1]]
            theta, velocities = reference.step(theta, velocities, np.sin(theta), damping, lr)
            following = equation.iterates @ thetas - lr * equation.gradients @ gradients
            assert abs(following - theta) < 1e-10
            thetas = [theta, *thetas[:-1]]


def test_the_difference_equation_for_two_velocities_is_the_papers_with_three_signs_turned():
    """Oracle: DESIGN's form of appendix C's equation."""
    b1, b2 = 0.9, 0.99
    equation = difference_equation((b1, b2))
    np.testing.assert_allclose(equation.iterates, [1 + b1 + b2, -(b1 + b2 + b1 * b2), b1 * b2], rtol=1e-15)
    np.testing.assert_allclose(2 * equation.gradients, [2, -(b1 + b2)], rtol=1e-15)


GOOD = {
    transition_matrix: {"damping": (0.9,), "lr": 0.1, "curvature": 1},
    characteristic_polynomial: {"damping": (0.9,), "step": 1},
    eigenvalues: {"damping": (0.9,), "step": 0},
    rate: {"damping": (0.9,), "step": [0, 1]},
    spectral_radius: {"damping": (0.9,), "step": 1},
    trajectory: {"damping": (0.9,), "lr": 0.1, "curvatures": [1, 2], "steps": 0},
    nesterov_trajectory: {"beta": 0.9, "lr": 0.1, "curvatures": 1, "steps": 3},
    transient_peak: {"damping": (0.9,), "step": 1},
    difference_equation: {"damping": (0.9,)},
}
NO_NUMBERS = [math.nan, math.inf, [1, math.nan], "1", None, [[1], [1, 2]]]
SENSELESS = {
    "damping": [(), (1.0,), (-0.1,), (math.nan,), "0.9", 0.9],
    "beta": [1, -0.1, math.nan, "0.9"],
    "lr": [0, -1, math.nan, math.inf, True, "0.1", [0.1]],
    "curvature": [*NO_NUMBERS, [], [[1, 2], [3, 4]], np.ones((2, 3)), np.ones((2, 2, 2))],
    "curvatures": NO_NUMBERS,
    "step": NO_NUMBERS,
    "steps": [-1, 3.0, True],
}


@pytest.mark.parametrize("function", GOOD, ids=lambda function: function.__name__)
def test_senseless_arguments_are_refused_by_name(function):
    function(**GOOD[function])
    for name in SENSELESS.keys() & GOOD[function]:
        for value in SENSELESS[name]:
            with pytest.raises(ValueError, match="^betas" if name == "damping" else f"^{name}( is |=)"):
                function(**{**GOOD[function], name: value})


def test_a_step_of_the_wrong_sign_is_refused():
    for function in (eigenvalues, rate, spectral_radius, transient_peak):
        with pytest.raises(ValueError, match=r"^step=\[1, -1\]: must be finite and >"):
            function((0.9,), [1, -1])
    with pytest.raises(ValueError, match=r"^step=0: must be finite and >"):
        transient_peak((0.9,), 0)
