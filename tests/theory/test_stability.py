"""Oracles: NumPy's eigenvalues of B on grids, and the closed forms of classical and Nesterov momentum."""

import math
import time

import numpy as np
import pytest
from random_dampings import random_dampings
from scipy.ndimage import minimum_filter1d

from aggmo import Damping
from aggmo.theory.quadratic import rate, transition_matrix
from aggmo.theory.stability import (
    best_lr,
    classical_optimum,
    critical_beta,
    design,
    limit,
    nesterov_optimum,
    real_windows,
    slowdown,
    underdamped,
)

DAMPINGS = random_dampings(2000, seed=20)
DEFAULT = Damping.exponential()
KAPPAS = 10.0 ** np.arange(1, 8)


def brute_eigenvalues(damping, steps):
    """Those of B for a row of steps; B is linear in the curvature."""
    at_0, at_1 = (transition_matrix(damping, 1, curvature) for curvature in (0, 1))
    return np.linalg.eigvals(at_0 + np.asarray(steps)[:, None, None] * (at_1 - at_0))


def brute_rate(damping, steps):
    return 1 - np.abs(brute_eigenvalues(damping, steps)).max(axis=1)


def brute_worst(damping, lr, kappa):
    """The least rate over curvatures in [1/kappa, 1]: the lowest of a dense grid, refined around it."""
    logs = np.linspace(-math.log(kappa), 0, 400)
    rates = brute_rate(damping, lr * np.exp(logs))
    at = int(rates.argmin())
    low, high = logs[max(at - 1, 0)], logs[min(at + 1, 399)]
    while high - low > 1e-9:
        around = np.linspace(low, high, 21)
        finer = brute_rate(damping, lr * np.exp(around))
        low, high = around[max(finer.argmin() - 1, 0)], around[min(finer.argmin() + 1, 20)]
    return min(rates.min(), finer.min())


def test_the_limit_is_where_the_matrix_stops_to_contract():
    for damping in DAMPINGS:
        top = limit(damping)
        inside, outside = top * np.array([1e-4, 0.01, 0.3, 0.8, 1 - 1e-6]), top * np.array([1 + 1e-6, 1.1, 2, 30])
        found = brute_rate(damping, [*inside, *outside])
        assert (found[:5] > 0).all()
        assert (found[5:] < 0).all()


def test_at_the_limit_an_eigenvalue_is_minus_1():
    for damping in DAMPINGS:
        assert np.abs(brute_eigenvalues(damping, [limit(damping)]) + 1).min() < 1e-8


@pytest.mark.parametrize("beta", [0, 0.5, 0.9, 0.9999])
def test_the_limits_of_classical_and_nesterov_momentum(beta):
    """Oracles: 2 (1 + beta), and 2 (1 + beta) / (1 + 2 beta) from Nesterov's own polynomial at z = -1."""
    assert math.isclose(limit((beta,)), 2 * (1 + beta))
    assert math.isclose(limit(Damping.nesterov(beta)), 2 * (1 + beta) / (1 + 2 * beta))
    c = limit(Damping.nesterov(beta))
    assert abs((-1) ** 2 - (1 + beta) * (1 - c) * -1 + beta * (1 - c)) < 1e-14


def complex_at(damping, steps):
    return np.abs(brute_eigenvalues(damping, steps).imag).max(axis=1) > 1e-9


def test_the_underdamped_range_is_where_the_matrix_has_complex_eigenvalues_at_both_ends():
    checked = 0
    for damping in DAMPINGS:
        found = underdamped(damping)
        if found is None:
            assert not any(beta * weight for beta, weight in zip(damping.betas, damping.weights, strict=True))
            assert not complex_at(damping, np.linspace(0.01, 3, 20)).any()
            continue
        windows = real_windows(damping)
        ends = [found[0], *np.ravel(windows), found[1]]
        just_inside = found[0] + 1e-3 * (ends[1] - found[0]), found[1] - 1e-3 * (found[1] - ends[-2])
        just_outside = 0.999 * found[0], 1.001 * found[1]
        assert complex_at(damping, [*just_inside, *just_outside]).tolist() == [True, True, False, False]
        checked += 1
    assert checked > 1700


def test_inside_the_range_eigenvalues_are_real_in_the_windows_only():
    rng, windows = np.random.default_rng(21), 0
    for damping in DAMPINGS:
        found, real = underdamped(damping), real_windows(damping)
        windows += len(real)
        if found is None:
            assert real == ()
            continue
        assert all(found[0] < low < high < found[1] for low, high in real)
        steps = found[0] * (found[1] / found[0]) ** rng.uniform(0, 1, 5)
        if real:
            steps = np.append(steps, [(low + high) / 2 for low, high in real])
        # Closer to where a pair meets its imaginary part is lost among rounding errors.
        clear = [all(abs(c / end - 1) > 1e-3 for end in (*found, *np.ravel(real))) for c in steps]
        expected = np.array([not any(low <= c <= high for low, high in real) for c in steps])
        np.testing.assert_array_equal(complex_at(damping, steps)[clear], expected[clear])
    assert windows > 150


def test_windows_in_which_the_claim_of_one_interval_fails():
    """Two damping vectors, one with the paper's weights; the eigenvalues at three steps are the counterexample."""
    for damping, steps in (
        (Damping((0, 0.5, 0.9), (1, 0.01, 0.001)), [0.1, 0.2, 0.5]),
        (Damping((0, 0.01, 0.99)), [1.2, 1.33, 1.5]),
    ):
        assert len(real_windows(damping)) == 1
        np.testing.assert_array_equal(complex_at(damping, steps), [True, False, True])


@pytest.mark.parametrize("k", range(1, 7))
def test_the_papers_family_has_no_windows(k):
    damping = Damping.exponential(k)
    assert real_windows(damping) == ()
    if k > 1:
        low, high = underdamped(damping)
        assert complex_at(damping, np.geomspace(1.001 * low, 0.999 * high, 300)).all()


@pytest.mark.parametrize("beta", [0.0001, 0.25, 0.9, 0.9999])
def test_the_underdamped_range_of_classical_momentum(beta):
    """Oracle: (1 -+ sqrt(beta))^2, also when the velocity comes twice, or with one that has no weight."""
    expected = (1 - math.sqrt(beta)) ** 2, (1 + math.sqrt(beta)) ** 2
    for damping in (Damping((beta,)), Damping((beta, beta)), Damping((beta, 0.5, 0), (1, 0, 0))):
        np.testing.assert_allclose(underdamped(damping), expected, rtol=1e-9)


@pytest.mark.parametrize("beta", [0.25, 0.9, 0.9999])
def test_nesterov_is_underdamped_up_to_step_1(beta):
    """Oracle: ((1 + beta)(1 - c))^2 - 4 beta (1 - c), the discriminant, < 0 for 4 beta / (1 + beta)^2 > 1 - c > 0."""
    found = underdamped(Damping.nesterov(beta))
    np.testing.assert_allclose(found, [1 - 4 * beta / (1 + beta) ** 2, 1], rtol=1e-7)


@pytest.mark.parametrize("beta", [0, 0.25, 0.5, 0.9, 0.99, 0.9999])
def test_best_lr_of_classical_momentum(beta):
    """Oracle: 1 - sqrt(beta) while all curvatures oscillate, else lr = 2 (1 + beta) / (1 + 1/kappa)."""
    root = math.sqrt(beta)
    for kappa in (1, 1.5, 3, *KAPPAS):
        lr, found = best_lr((beta,), kappa)
        if (1 - root) ** 2 * kappa <= (1 + root) ** 2:
            assert (1 - root) ** 2 * kappa * (1 - 1e-6) <= lr <= (1 + root) ** 2 * (1 + 1e-6)
            assert math.isclose(found, 1 - root, rel_tol=1e-9)
        else:
            assert math.isclose(lr, 2 * (1 + beta) / (1 + 1 / kappa), rel_tol=1e-9)
            half = (1 + beta) * (kappa - 1) / (kappa + 1) / 2
            assert math.isclose(1 - found, half + math.sqrt(half**2 - beta), rel_tol=1e-12)


@pytest.mark.parametrize("beta", [0.25, 0.5, 0.9, 0.99, 0.9999])
def test_best_lr_of_nesterov_momentum(beta):
    """Oracle: rho is the same at both ends. At step lr, z = -rho; at lr/kappa rho is real, or rho^2 = beta (1 - c).

    z^2 - (1 + beta)(1 - c) z + beta (1 - c) = 0 at z = -rho gives lr - 1 = rho^2 / ((1 + beta) rho + beta), and
    at z = rho 1 - lr/kappa = rho^2 / ((1 + beta) rho - beta).
    """
    for kappa in (1.5, 3, *KAPPAS):
        lr, found = best_lr(Damping.nesterov(beta), kappa)
        rho = 1 - found
        assert math.isclose(lr - 1, rho**2 / ((1 + beta) * rho + beta), rel_tol=1e-6)
        slow = 1 - lr / kappa
        if slow * (1 + beta) ** 2 <= 4 * beta:
            assert math.isclose(slow, rho**2 / beta, rel_tol=1e-6)
        else:
            assert math.isclose(slow, rho**2 / ((1 + beta) * rho - beta), rel_tol=1e-12)


def test_best_lr_of_gradient_descent():
    for kappa in (1, 3, 1e6):
        lr, found = best_lr((0,), kappa)
        assert math.isclose(lr, 2 / (1 + 1 / kappa))
        assert math.isclose(found, 2 / (kappa + 1))


def test_best_lr_is_never_worse_than_a_grid_and_keeps_its_word():
    """Oracle: 2000 learning rates times 30 curvatures; at the grid's best and at ours NumPy's eigenvalues decide."""
    rng = np.random.default_rng(22)
    for damping in random_dampings(40, seed=23):
        kappa = 10 ** rng.uniform(0.1, 5)
        lr, found = best_lr(damping, kappa)
        assert abs(brute_worst(damping, lr, kappa) - found) < 1e-7 * found + 1e-9
        grid = limit(damping) * np.arange(1, 2001) / 2001
        worst = rate(damping, grid[:, None] * np.geomspace(1 / kappa, 1, 30)).min(axis=1)
        assert found >= brute_worst(damping, grid[worst.argmax()], kappa) * (1 - 1e-7) - 1e-9


def test_best_lr_of_an_array_is_that_of_each():
    lr, found = best_lr(DEFAULT, KAPPAS.reshape(7, 1))
    assert lr.shape == found.shape == (7, 1)
    for i, kappa in enumerate(KAPPAS):
        np.testing.assert_allclose((lr[i, 0], found[i, 0]), best_lr(DEFAULT, kappa), rtol=1e-6)


# At 10^3 and 10^5 the default does better than a grid of 2000 learning rates says (1.02e-2, 1.20e-3), because the rate
# falls steeply towards the limit; the eigenvalues confirm it below.
FIGURE_3 = {
    Damping.classical(0.9): (5.13e-2, 5.13e-2, 5.13e-2, 3.94e-3, 3.81e-4, 3.80e-5, 3.80e-6),
    Damping.classical(0.99): (5.01e-3, 5.01e-3, 5.01e-3, 5.01e-3, 5.01e-3, 4.15e-4, 4.00e-5),
    DEFAULT: (5.40e-2, 3.08e-2, 1.034e-2, 5.54e-3, 1.232e-3, 1.11e-4, 1.10e-5),
}


@pytest.mark.parametrize("damping", FIGURE_3, ids=["CM 0.9", "CM 0.99", "AggMo"])
def test_figure_3(damping):
    """Oracle: the rates on paper, to 1 %, and NumPy's eigenvalues at the learning rates found."""
    lr, found = best_lr(damping, KAPPAS)
    np.testing.assert_allclose(found, FIGURE_3[damping], rtol=0.01)
    for i, kappa in enumerate(KAPPAS[:5]):
        assert math.isclose(brute_worst(damping, lr[i], kappa), found[i], rel_tol=1e-6)


def test_figure_3_takes_less_than_five_seconds():
    """All methods and condition numbers, the optima with them, in time of the processor; measured are 0.03 s."""
    begun = time.process_time()
    for damping in (*FIGURE_3, Damping.nesterov(0.9), Damping.nesterov(0.99)):
        best_lr(damping, KAPPAS)
    for kappa in KAPPAS:
        classical_optimum(kappa)
    assert time.process_time() - begun < 5


def test_the_default_is_three_times_as_fast_as_nesterov_near_100_only():
    """The paper's text on figure 3 says so of all the under-damped regime."""
    ratio = best_lr(DEFAULT, KAPPAS)[1] / best_lr(Damping.nesterov(0.99), KAPPAS)[1]
    np.testing.assert_allclose(ratio, [0.75, 2.65, 1.82, 1.09, 0.78, 0.82, 0.82], atol=0.01)


def test_critical_beta_and_the_classical_optimum():
    """Oracle: appendix B, and a grid of betas, none of which does better."""
    for kappa in (1, 4, 100, 1e4, 1e8):
        found = classical_optimum(kappa)
        assert found.beta == critical_beta(kappa)
        assert math.isclose(critical_beta(kappa), ((math.sqrt(kappa) - 1) / (math.sqrt(kappa) + 1)) ** 2)
        assert math.isclose(found.rate, 1 - math.sqrt(found.beta), rel_tol=1e-12)
        mu, top = 1 / kappa, 1
        assert math.isclose(found.lr, 4 / (math.sqrt(top) + math.sqrt(mu)) ** 2)
        assert math.isclose(best_lr((found.beta,), kappa)[1], found.rate, rel_tol=1e-5)
        if kappa > 1:
            others = [best_lr((beta,), kappa)[1] for beta in np.linspace(0, 0.9999, 40)]
            assert max(others) < found.rate * (1 + 1e-9)


def test_the_nesterov_optimum():
    """Oracle: `best_lr` at its beta, and a grid of betas, none of which does better."""
    for kappa in (1, 4, 100, 1e4):
        found = nesterov_optimum(kappa)
        lr, reached = best_lr(Damping.nesterov(found.beta), kappa)
        assert math.isclose(reached, found.rate, rel_tol=1e-5)
        assert math.isclose(lr, found.lr, rel_tol=1e-4)
        if kappa > 1:
            others = [best_lr(Damping.nesterov(beta), kappa)[1] for beta in np.linspace(0, 0.9999, 40)]
            assert max(others) < found.rate * (1 + 1e-9)
            assert found.rate < classical_optimum(kappa).rate


def dense_slowdown(damping, low, high):
    """`slowdown` by brute force: steps on a logarithmic grid, of which a condition number spans so many."""
    spacing = 1e-3
    steps = limit(damping) * np.exp(-spacing * np.arange(1, int(math.log(100 * high) / spacing)))
    rates = brute_rate(damping, steps)
    worst = 0.0
    for kappa in np.geomspace(low, high, 150):
        span = math.ceil(math.log(kappa) / spacing) + 1
        lowest = minimum_filter1d(rates, span, origin=-(span // 2), mode="nearest")[: len(rates) - span]
        worst = max(worst, classical_optimum(kappa).rate / lowest.max())
    return worst


@pytest.mark.parametrize(
    ("damping", "factor"),
    [(DEFAULT, 8.9), (Damping.classical(0.9), 9.4), (Damping((0, 0.757, 0.9705), (0.204, 0.469, 0.327)), 4.2)],
    ids=["default", "CM", "simple search"],
)
def test_slowdown(damping, factor):
    """Oracle: a dense grid, which at its spacing can miss 1 % of a rate."""
    found = slowdown(damping, 10, 1e4)
    assert math.isclose(found, factor, rel_tol=0.01)
    assert found * (1 - 1e-4) < dense_slowdown(damping, 10, 1e4) < 1.01 * found


def test_designs_are_what_they_claim_and_one_more_velocity_is_never_worse():
    """Oracle: the dense grid. The factors to beat: 6.95 for one velocity, 4.2 for three from a simple search."""
    designs = [design(10, 1e4, k) for k in range(1, 6)]
    claimed = [slowdown(damping, 10, 1e4) for damping in designs]
    for damping, factor in zip(designs, claimed, strict=True):
        assert math.fsum(damping.weights) == pytest.approx(1)
        assert sorted(damping.betas) == list(damping.betas)
        assert factor * (1 - 1e-4) < dense_slowdown(damping, 10, 1e4) < 1.01 * factor
    assert [len(damping) for damping in designs] == [1, 2, 3, 4, 5]
    assert claimed == sorted(claimed, reverse=True)
    assert claimed[1] < 3.83
    assert claimed[2] < 3.80


def test_nothing_at_random_beats_a_design():
    ours = slowdown(design(10, 1e4, 3), 10, 1e4)
    rng = np.random.default_rng(24)
    near = design(10, 1e4, 3)
    for _ in range(8):
        distances = (1 - np.array(near.betas)) * np.exp(rng.normal(0, 0.05, 3))
        weights = np.array(near.weights) * np.exp(rng.normal(0, 0.05, 3))
        assert slowdown(Damping(1 - distances, weights), 10, 1e4) > ours * (1 - 1e-4)


def test_for_one_condition_number_the_design_is_the_classical_optimum():
    for k in (1, 2):
        damping = design(100, 100, k)
        assert damping.betas[-1] == critical_beta(100)
        assert math.isclose(slowdown(damping, 100, 100), 1, rel_tol=1e-5)


NO_CONDITION_NUMBERS = [0.5, 0, -1, math.nan, math.inf, "10", None, True]
GOOD = {
    limit: {"damping": (0.9,)},
    underdamped: {"damping": (0.9,)},
    real_windows: {"damping": (0.9,)},
    best_lr: {"damping": (0.9,), "condition_number": [1, 10]},
    critical_beta: {"condition_number": 1},
    classical_optimum: {"condition_number": 1},
    nesterov_optimum: {"condition_number": 1},
    slowdown: {"damping": (0.9,), "low": 1, "high": 10},
    design: {"low": 1, "high": 10, "k": 1},
}
SENSELESS = {
    "damping": [(), (1.0,), (-0.1,), (math.nan,), "0.9", 0.9],
    "condition_number": NO_CONDITION_NUMBERS,
    "low": [*NO_CONDITION_NUMBERS, [1]],
    "high": [*NO_CONDITION_NUMBERS, [1]],
    "k": [0, -1, 2.0, math.nan, True, "2", 1001],
}


@pytest.mark.parametrize("function", GOOD, ids=lambda function: function.__name__)
def test_senseless_arguments_are_refused_by_name(function):
    function(**GOOD[function])
    for name in SENSELESS.keys() & GOOD[function]:
        for value in SENSELESS[name]:
            with pytest.raises(ValueError, match="^betas" if name == "damping" else f"^{name}="):
                function(**{**GOOD[function], name: value})


def test_a_range_that_is_none_and_no_condition_numbers_are_refused():
    for function in (design, slowdown):
        with pytest.raises(ValueError, match=r"^high=10.0: must be >= low=100.0"):
            function(**{**GOOD[function], "low": 100, "high": 10})
    for value in ([], [10, 0.5], [10, math.nan]):
        with pytest.raises(ValueError, match=r"^condition_number=\["):
            best_lr((0.9,), value)
