"""Oracles: exact fractions, the formulas of appendix F summed by brute force, and AggMo of PyTorch itself."""

import math
from fractions import Fraction

import numpy as np
import pytest
import strategies
import torch
from hypothesis import example, given
from hypothesis import strategies as st

from aggmo import AggMo, Damping, reference
from aggmo.theory.averaging import (
    descend,
    first_error,
    impulse_response,
    moments,
    response_error,
    sampled,
    sampling_error,
)

SHAPE = st.floats(0.2, 200)


def exact_moments(alpha, beta, lags):
    """E[b^l] as fractions, from the recursion E[b^(l+1)] = E[b^l] (alpha + l) / (alpha + beta + l)."""
    found = [Fraction(1)]
    for lag in range(lags - 1):
        found.append(found[-1] * (Fraction(alpha) + lag) / (Fraction(alpha) + Fraction(beta) + lag))
    return found


@given(SHAPE, SHAPE, st.integers(1, 60))
def test_moments_are_the_exact_ones(alpha, beta, lags):
    np.testing.assert_allclose(
        moments(alpha, beta, lags), [float(m) for m in exact_moments(alpha, beta, lags)], rtol=1e-13
    )


def test_moments_of_the_papers_distribution_far_out():
    """Oracle: with beta = 1 the product telescopes to alpha / (alpha + l)."""
    np.testing.assert_allclose(moments(100, 1, 100_000), 100 / (100 + np.arange(100_000)), rtol=1e-12)


@given(SHAPE, SHAPE, st.integers(1, 64))
@example(100.0, 1.0, 1000)
@example(1.0, 1.0, 500)
def test_quadrature_is_exact_up_to_lag_2k_minus_1(alpha, beta, nodes):
    """What the issue asks for: every moment up to lag 2K - 1 to 1e-12."""
    response = impulse_response(Damping.beta_distributed(alpha, beta, nodes), 2 * nodes)
    np.testing.assert_allclose(response, moments(alpha, beta, 2 * nodes), rtol=0, atol=1e-12)


@given(st.sampled_from([(1, 1), (2, 3), (0.5, 0.5), (1, 4), (10, 2)]), st.integers(1, 6))
def test_the_first_error_of_quadrature_is_at_lag_2k(shape, nodes):
    """Oracle: the moment as a fraction, less the quadrature's."""
    response = impulse_response(Damping.beta_distributed(*shape, nodes), 2 * nodes + 1)[-1]
    error = float(exact_moments(*shape, 2 * nodes + 1)[-1]) - response
    assert first_error(*shape, nodes) == pytest.approx(error, rel=1e-6, abs=2e-15)
    assert error > 0


@pytest.mark.parametrize("nodes", [1, 2, 5, 20])
def test_the_first_error_under_the_uniform_distribution(nodes):
    """Oracle: the squared norm of the monic Legendre polynomial on [0, 1], (K!)^4 / ((2K + 1) (2K)!^2)."""
    k = math.factorial(nodes)
    expected = Fraction(k**4, (2 * nodes + 1) * math.factorial(2 * nodes) ** 2)
    assert first_error(1, 1, nodes) == pytest.approx(float(expected), rel=1e-12)


@given(strategies.dampings(), st.integers(1, 12), st.floats(0.01, 0.2))
def test_descending_with_the_impulse_response_of_a_damping_is_its_aggregated_momentum(damping, steps, lr):
    """Oracle: `aggmo.reference.step` on a function whose gradient is sin(3x) + x."""
    theta = start = np.array([[1.0, -2.0], [0.5, 3.0]])
    velocities, expected = [np.zeros_like(theta) for _ in damping], [theta]
    for _ in range(steps):
        theta, velocities = reference.step(theta, velocities, np.sin(3 * theta) + theta, damping, lr)
        expected.append(theta)
    iterates = descend(lambda x: np.sin(3 * x) + x, start, lr, impulse_response(damping, steps), steps)
    np.testing.assert_allclose(iterates, expected, rtol=1e-9, atol=1e-9)


@given(st.integers(1, 8), st.integers(0, 8))
def test_a_truncated_history_forgets(length, steps):
    """Oracle: the last update rule of appendix F, summed as printed over the gradients that are kept."""
    given_gradients = np.random.default_rng(0).normal(size=8)
    left = iter(given_gradients)
    iterates = descend(lambda _: np.array(next(left)), 2.0, 0.1, moments(10, 2, length), steps)
    theta = 2.0
    for t in range(1, steps + 1):
        theta -= 0.1 * sum(
            given_gradients[t - i] * float(exact_moments(10, 2, i)[-1]) for i in range(1, t + 1) if i <= length
        )
        assert iterates[t] == pytest.approx(theta, rel=1e-12)
    assert len(iterates) == steps + 1


@pytest.mark.parametrize("length", [4, 30, 200])
def test_a_truncated_history_diverges(length):
    """On x^2/2 at lr 0.33, where the full history converges. Oracle: the roots of the characteristic polynomial,

    z^T - z^(T-1) + lr sum_l m_l z^(T-1-l), and their modulus as the growth of the iterates in a long run.
    """
    steps = 2000
    full = descend(lambda x: x, 1.0, 0.33, moments(100, 1, steps), steps)
    assert abs(full[-1]) < 1e-4
    m = moments(100, 1, length)
    polynomial = np.concatenate([[1.0, -1.0], np.zeros(length - 1)])
    polynomial[1:] += 0.33 * m
    growth = np.abs(np.roots(polynomial)).max()
    assert growth > 1.005
    iterates = np.abs(descend(lambda x: x, 1.0, 0.33, m, steps))
    measured = (iterates[1800:2000].max() / iterates[800:1000].max()) ** (1 / 1000)
    assert measured == pytest.approx(growth, rel=1e-3)


def test_response_error_by_hand():
    """Uniform: 1, 1/2, 1/3, 1/4. What the response has beyond the lags does not count, what it lacks is 0."""
    assert response_error([1.0, 0.25], 1, 1, lags=2) == 0.25
    assert response_error([1.0], 1, 1, lags=3) == 0.5
    assert response_error([0.0, 1.0, 9.0], 1, 1, lags=2) == 1.0


def test_samples_are_seeded_and_equally_weighted():
    damping = sampled(100, 1, 5, seed=3)
    assert damping == sampled(100, 1, 5, seed=3) != sampled(100, 1, 5, seed=4)
    assert damping == Damping(damping.betas)


def test_samples_have_the_distribution():
    """Oracle: b^100 is uniform under Beta(100, 1), and a sample of n is within 2/sqrt(n) of its distribution."""
    drawn = np.sort(np.array(sampled(100, 1, 10_000, seed=0).betas) ** 100)
    assert np.abs(drawn - (np.arange(10_000) + 0.5) / 10_000).max() < 2 / math.sqrt(10_000)


@pytest.mark.parametrize(("alpha", "beta"), [(100, 1), (2, 3)])
def test_the_sampling_error_is_that_of_many_draws(alpha, beta):
    """Oracle: the root mean square error over 1500 seeds, known to 2 to 3 % at every lag."""
    exact, seeds, lags = moments(alpha, beta, 40), 1500, 40
    draws = np.array([impulse_response(sampled(alpha, beta, 8, seed), lags) for seed in range(seeds)])
    measured = np.sqrt(((draws - exact) ** 2).mean(axis=0))
    np.testing.assert_allclose(measured, sampling_error(alpha, beta, 8, lags), rtol=0.1, atol=1e-15)


def test_monte_carlo_gains_a_digit_for_a_hundred_times_the_samples():
    """Oracle: the law 1/sqrt(n), as the slope of a line through measured errors, 40 seeds each."""
    counts = np.array([10, 40, 160, 640, 2560])
    errors = [
        math.sqrt(
            np.mean([response_error(impulse_response(sampled(100, 1, n, s), 60), 100, 1, 60) ** 2 for s in range(40)])
        )
        for n in counts.tolist()
    ]
    slope = np.polyfit(np.log(counts), np.log(errors), 1)[0]
    assert slope == pytest.approx(-0.5, abs=0.05)


def gradient_of(loss):
    """The gradient of a loss in PyTorch as a function on NumPy arrays."""

    def gradient(theta):
        point = torch.tensor(theta, requires_grad=True)
        return torch.autograd.grad(loss(point), point)[0].numpy()

    return gradient


def coupled(x):
    """Not quadratic and not convex, and every coordinate moves the others."""
    return torch.logsumexp(3 * x, 0) + torch.cos(2 * x).sum() + (x[1:] * x[:-1]).sum() ** 2 / 4


START = np.array([1.5, -0.5, 0.25, 2.0])


@pytest.mark.parametrize("nodes", [1, 2, 4, 10, 25])
@pytest.mark.parametrize(("alpha", "beta"), [(100, 1), (1, 1), (3, 2)])
def test_the_optimizer_takes_the_first_2k_steps_of_the_full_history(alpha, beta, nodes):
    """Oracle: the full history, whose every step sums all gradients so far under the exact moments."""
    steps, lr = 2 * nodes, 0.02
    theta = torch.tensor(START, requires_grad=True)
    optimizer = AggMo([theta], lr=lr, betas=Damping.beta_distributed(alpha, beta, nodes))
    iterates = [START]
    for _ in range(steps + 1):
        optimizer.zero_grad()
        coupled(theta).backward()
        optimizer.step()
        iterates.append(theta.detach().numpy().copy())
    full = descend(gradient_of(coupled), START, lr, moments(alpha, beta, steps + 1), steps + 1)
    assert np.abs(full[-2] - START).max() > 1e-2  # it has gone somewhere
    np.testing.assert_allclose(iterates[:-1], full[:-1], rtol=1e-11, atol=1e-11)
    # The step after these is off by the error at lag 2K alone, which belongs to the first gradient.
    error = lr * first_error(alpha, beta, nodes) * gradient_of(coupled)(START)
    np.testing.assert_allclose(iterates[-1] - full[-1], error, rtol=1e-6, atol=1e-11)


@pytest.mark.parametrize(("alpha", "beta"), [(1, 1), (3, 2)])
def test_the_error_after_these_steps_is_no_rounding(alpha, beta):
    """So that the test above is seen to tell the two apart."""
    assert 0.02 * first_error(alpha, beta, 4) * np.abs(gradient_of(coupled)(START)).min() > 1e-8


GOOD = {
    moments: {"alpha": 100, "beta": 1, "lags": 3},
    impulse_response: {"damping": Damping((0.5,)), "lags": 3},
    sampled: {"alpha": 100, "beta": 1, "samples": 3, "seed": 0},
    descend: {"gradient": np.sin, "start": 1.0, "lr": 0.1, "response": [1.0], "steps": 2},
    response_error: {"response": [1.0], "alpha": 100, "beta": 1, "lags": 3},
    sampling_error: {"alpha": 100, "beta": 1, "samples": 3, "lags": 3},
    first_error: {"alpha": 100, "beta": 1, "nodes": 3},
}
SENSELESS = {
    "damping": [(), (1.0,), (-0.1,), (math.nan,), "0.9", 0.9],
    "alpha": [0, -1, math.nan, math.inf, "1", True, None, 10**400],
    "beta": [0, -1, math.nan, math.inf, "1", True, None],
    "lags": [0, -1, 2.0, math.nan, True, "3"],
    "samples": [0, -1, 2.5, True],
    "seed": [-1, 0.5, None],
    "start": [math.nan, [math.inf, 1], "a", [[1], [1, 2]], None],
    "lr": [0, -1, math.nan, math.inf, "0.1", True],
    "response": [[], 1.0, [[1.0]], [math.nan], ["1"]],
    "steps": [-1, 1.0, False],
    "nodes": [0, -1, 1.0],
}


@pytest.mark.parametrize("function", GOOD, ids=lambda function: function.__name__)
def test_senseless_arguments_are_refused_by_name(function):
    function(**GOOD[function])
    for name in SENSELESS.keys() & GOOD[function]:
        for value in SENSELESS[name]:
            with pytest.raises(ValueError, match="^betas" if name == "damping" else f"^{name}="):
                function(**{**GOOD[function], name: value})


def test_a_distribution_so_near_1_that_samples_round_to_it_is_refused():
    with pytest.raises(ValueError, match=r"^beta=0\.001 .* take a larger beta"):
        sampled(1, 0.001, 100, seed=0)
