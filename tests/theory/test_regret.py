"""Oracles: `aggmo.reference`, Adam of PyTorch, the printed formulas summed by brute force, and a thousand problems."""

import math

import numpy as np
import pytest
import strategies
import torch
from hypothesis import given
from hypothesis import strategies as st

from aggmo import Damping, reference
from aggmo.theory.online import absolute, linear, logistic, periodic, squares
from aggmo.theory.regret import Run, adam, aggregated, lemma, printed_bound, proved_bound, regret

DEFAULT = Damping.exponential()
DECAY = st.floats(0.05, 0.99)


def small(seed, d=2, radius=1.0, rounds=12):
    """Absolute losses of two rows a round, whose gradients jump."""
    rng = np.random.default_rng(seed)
    return absolute(rng.normal(size=(rounds, 2, d)), rng.normal(size=(rounds, 2)), radius)


@pytest.mark.parametrize("radius", [0.4, None])
@given(damping=strategies.dampings(), lr=st.floats(0.01, 1), decay=st.floats(0.05, 1), seed=st.integers(0, 99))
def test_aggregated_is_the_reference_under_schedules(radius, damping, lr, decay, seed):
    """Oracle: `aggmo.reference.step` with betas beta_i lambda^t and lr / sqrt(t), clipped to the box."""
    problem = small(seed, radius=radius)
    theta, velocities = np.array([0.3, -0.4]), [np.zeros(2) for _ in damping]
    run = aggregated(problem, damping, lr, decay, theta)
    for t in range(1, problem.rounds + 1):
        np.testing.assert_allclose(run.iterates[t - 1], theta, rtol=1e-9, atol=1e-12)
        gradient = problem.gradient(t - 1, theta)
        np.testing.assert_array_equal(run.gradients[t - 1], gradient)
        now = Damping([beta * decay**t for beta in damping], damping.weights)
        theta, velocities = reference.step(theta, velocities, gradient, now, lr / math.sqrt(t))
        if radius is not None:
            theta = np.clip(theta, -radius, radius)


@pytest.mark.parametrize("betas", [(0.9, 0.999), (0.0, 0.1), (0.5, 0.0)])
def test_adam_is_pytorchs_adam_under_a_schedule(betas):
    """Oracle: `torch.optim.Adam` with lr / sqrt(t), its parameter clipped to the box after every step."""
    problem, start = small(5, d=3, radius=0.6, rounds=60), np.array([0.5, -0.2, 0.0])
    theta = torch.tensor(start, requires_grad=True)
    optimizer = torch.optim.Adam([theta], lr=0.2, betas=betas)
    run = adam(problem, 0.2, start, betas)
    for t in range(problem.rounds):
        np.testing.assert_allclose(run.iterates[t], theta.detach().numpy(), rtol=1e-10, atol=1e-12)
        theta.grad = torch.tensor(problem.gradient(t, theta.detach().numpy()))
        optimizer.param_groups[0]["lr"] = 0.2 / math.sqrt(t + 1)
        optimizer.step()
        theta.data.clamp_(-0.6, 0.6)


def test_many_runs_are_one_after_the_other():
    problem, best = small(1), small(1).best()
    starts = np.random.default_rng(0).uniform(-1, 1, size=(4, 2))
    lrs = np.array([0.01, 0.1, 0.3, 2.0])
    for play in (
        lambda lr, start: aggregated(problem, DEFAULT, lr, 0.9, start),
        lambda lr, start: adam(problem, lr, start),
    ):
        many = play(lrs, starts)
        bounds = (
            proved_bound(many, best, DEFAULT, lrs, 0.9),
            printed_bound(many, DEFAULT, lrs, 0.9),
            printed_bound(many, DEFAULT, lrs, 0.9, best),
        )
        for i in range(4):
            one = play(lrs[i], starts[i])
            np.testing.assert_allclose(many.iterates[:, i], one.iterates, rtol=1e-12)
            np.testing.assert_allclose(
                regret(problem, many, best)[:, i], regret(problem, one, best), rtol=1e-9, atol=1e-12
            )
            alone = (
                proved_bound(one, best, DEFAULT, lrs[i], 0.9),
                printed_bound(one, DEFAULT, lrs[i], 0.9),
                printed_bound(one, DEFAULT, lrs[i], 0.9, best),
            )
            for bound, other in zip(bounds, alone, strict=True):
                np.testing.assert_allclose(bound.total[:, i], other.total, rtol=1e-12)
    assert play(lrs, starts[0]).iterates.shape == (12, 4, 2)


def test_regret_by_hand():
    """f_1 = |x|, f_2 = |x - 2|: at 3 and 1 against 0 it is 3 - 0, then 1 - 2 more."""
    problem = absolute([[[1]], [[1]]], [[0], [2]])
    run = Run(np.array([[3.0], [1.0]]), np.zeros((2, 1)))
    np.testing.assert_array_equal(regret(problem, run, [0.0]), [3.0, 2.0])


def test_bounds_are_the_formulas_for_every_horizon():
    """Oracle: the formulas of theorem 1 and of the derivation in docs/regret.md, in sums over rounds and pairs."""
    run = aggregated(small(7, d=3), DEFAULT, 0.3, 0.7, [0.5, -1.0, 0.2])
    betas, k, lr, lam, star = DEFAULT.betas, 3, 0.3, 0.7, [0.1, 0.2, -0.3]
    free = Damping(betas, (0.5, 1.0, 0.25))
    printed, charitable = printed_bound(run, DEFAULT, lr, lam), printed_bound(run, DEFAULT, lr, lam, star)
    proved = proved_bound(run, star, free, lr, lam)
    for horizon in (1, 2, 5, 12):
        points, gradients = run.iterates[:horizon].tolist(), run.gradients[:horizon].tolist()
        fourth = sum(math.sqrt(sum(g[j] ** 4 for g in gradients)) for j in range(3))
        factor = lr * math.sqrt(1 + math.log(horizon)) * fourth
        for bound, others in ((printed, points), (charitable, [*points, star])):
            two = max(math.dist(p, q) for p in others for q in others)
            widest = max(abs(a - b) for p in others for q in others for a, b in zip(p, q, strict=True))
            terms = (
                widest**2 * math.sqrt(horizon) / lr,
                factor / (2 * k) * sum((1 + b) / (1 - b) ** 2 for b in betas),
                two**2 / (2 * k * lr * (1 - lam) ** 2) * sum(betas),
            )
            np.testing.assert_allclose([term[horizon - 1] for term in bound], terms, rtol=1e-12)
        away, w = max(math.dist(p, star) for p in points), sum(free.weights)
        terms = (
            away**2 * math.sqrt(horizon) / (2 * lr * w),
            factor / (2 * w) * sum(v * (w + b) / (1 - b) ** 2 for v, b in zip(free.weights, betas, strict=True)),
            away**2 / (2 * lr * w * (1 - lam) ** 2) * sum(v * b for v, b in zip(free.weights, betas, strict=True)),
        )
        np.testing.assert_allclose([term[horizon - 1] for term in proved], terms, rtol=1e-12)


def random_case(rng):
    """A problem of any kind with damping, lr, decay and start, some on the whole space and some projected."""
    rounds, rows, d, k = (int(n) for n in rng.integers((1, 1, 1, 1), (61, 4, 7, 5)))
    features = rng.normal(size=(rounds, rows, d)) * np.exp(rng.normal())
    if rng.random() < 0.3:
        features[:] = features[0]
    targets, end = 3 * rng.normal(size=(rounds, rows)), float(np.exp(rng.normal()))
    radius = end if rng.random() < 0.5 else None
    problem = [
        lambda: squares(features, targets, radius),
        lambda: absolute(features, targets, radius),
        lambda: logistic(features, np.sign(targets), end),
        lambda: linear(features, end),
    ][rng.integers(4)]()
    betas = 1 - 10 ** rng.uniform(-2.5, 0, k)
    damping = [Damping(betas), Damping(betas, rng.uniform(0.01, 2, k)), Damping((0,))][rng.integers(3)]
    size = np.abs(features).max() * rows * damping.terminal_velocity
    if problem.loss is squares(features, targets).loss:
        size *= np.abs(features).max() * d
    lr, decay = 10 ** rng.uniform(-3, 0.7) / size, rng.uniform(0.05, 0.999)
    reach = min(problem.radius, 2.0)
    start = reach * (rng.choice([-1, 1], d) if rng.random() < 0.5 else rng.uniform(-1, 1, d))
    return problem, damping, lr, decay, start


def test_no_regret_of_a_thousand_random_problems_exceeds_the_proved_bound():
    """For every T up to 60. That the bound is nearly attained in some shows that it is not just large."""
    rng, nearest = np.random.default_rng(0), []
    for _ in range(1000):
        problem, damping, lr, decay, start = random_case(rng)
        run, best = aggregated(problem, damping, lr, decay, start), problem.best()
        curve, bound = regret(problem, run, best), proved_bound(run, best, damping, lr, decay).total
        assert np.all(np.isfinite(bound))
        assert np.all(curve <= bound * (1 + 1e-9) + 1e-9)
        nearest.append((curve / bound).max())
    assert max(nearest) > 0.95
    assert np.quantile(nearest, 0.95) > 0.1


def test_the_printed_bound_holds_in_up_to_two_dimensions_if_its_distances_include_the_best_point():
    """Oracle: the proved bound, term by term: D_2^2 <= d D_inf^2, and d / 2 <= 1."""
    rng, seen = np.random.default_rng(1), 0
    while seen < 100:
        problem, damping, lr, decay, start = random_case(rng)
        if len(start) <= 2 and damping.weights == (1 / len(damping),) * len(damping):
            run, best = aggregated(problem, damping, lr, decay, start), problem.best()
            proved = proved_bound(run, best, damping, lr, decay)
            for one, other in zip(proved, printed_bound(run, damping, lr, decay, best), strict=True):
                assert np.all(one <= other * (1 + 1e-12))
            seen += 1


def distance_from_1(d, rounds):
    """|x_1| + ... + |x_d| in every round, on [-1, 1]^d: the regret from (1, ..., 1) is as far as one can go."""
    return absolute(np.broadcast_to(np.eye(d), (rounds, d, d)), np.zeros((rounds, d)), radius=1)


def test_the_printed_theorem_fails_to_the_letter_in_one_round():
    """One round, one coordinate: D = 0 as there is one iterate only, the bound is lr / 2, the regret 1."""
    problem = distance_from_1(d=1, rounds=1)
    run = aggregated(problem, Damping((0,)), lr=0.5, decay=0.5, start=[1.0])
    assert regret(problem, run, problem.best()) == [1.0]
    assert printed_bound(run, Damping((0,)), 0.5, 0.5).total == [0.25]


@pytest.mark.parametrize("d", [1, 2, 3, 10])
def test_the_printed_bound_fails_from_three_dimensions_on(d):
    """One round at lr 1, distances to theta* included: the regret is d, printed 1 + d/2, proved d/2 + d/2, attained."""
    problem = distance_from_1(d, rounds=1)
    run, best = aggregated(problem, Damping((0,)), 1.0, 0.5, np.ones(d)), problem.best()
    assert regret(problem, run, best) == [d]
    assert printed_bound(run, Damping((0,)), 1.0, 0.5, best).total == [1 + d / 2]
    assert proved_bound(run, best, Damping((0,)), 1.0, 0.5).total == [d]


@pytest.mark.parametrize(
    ("damping", "d", "rounds", "lr"), [(Damping((0,)), 6, 1000, 0.01), (DEFAULT, 20, 10_000, 0.002)], ids=["K=1", "K=3"]
)
def test_the_printed_bound_fails_over_many_rounds_and_with_the_papers_betas(damping, d, rounds, lr):
    """Distances to theta* included. The coordinates are alike, so that one is simulated and repeated."""
    run = aggregated(distance_from_1(1, rounds), damping, lr, 0.1, [1.0])
    repeated = Run(np.repeat(run.iterates, d, axis=1), np.repeat(run.gradients, d, axis=1))
    found = d * regret(distance_from_1(1, rounds), run, [0.0])[-1]
    # The largest distances are those from the first iterate to theta*, for all the others lie between.
    assert np.all(np.diff(run.iterates, axis=0) < 0)
    assert run.iterates[-1] > 0
    proved = proved_bound(repeated, np.zeros(d), damping, lr, 0.1)
    printed = proved.total[-1] - proved.domain[-1] + 1.0 * math.sqrt(rounds) / lr
    assert printed < found <= proved.total[-1]
    if rounds <= 1000:
        assert printed_bound(repeated, damping, lr, 0.1, np.zeros(d)).total[-1] == pytest.approx(printed, rel=1e-12)


@given(
    st.lists(st.floats(-5, 5), min_size=1, max_size=40), strategies.dampings(), st.floats(0.05, 1), st.integers(0, 99)
)
def test_lemma_1(gradients, damping, decay, seed):
    """Oracle of the left side: velocities as sums of gradients under products of betas. Then, left <= right."""
    shown = np.stack([gradients, np.random.default_rng(seed).normal(size=len(gradients))], axis=1)
    left, right = lemma(shown, damping, decay)
    expected = np.zeros(2)
    for t in range(1, len(gradients) + 1):
        for beta in damping:
            products = [beta ** (t - h) * decay ** sum(range(h + 1, t + 1)) for h in range(1, t + 1)]
            expected += (np.array(products) @ shown[:t]) ** 2 / math.sqrt(t)
        np.testing.assert_allclose(left[t - 1], expected, rtol=1e-9, atol=1e-300)
    assert np.all(left <= right * (1 + 1e-12) + 1e-150)


def test_lemma_1_for_gradients_that_make_the_velocities_largest():
    """Constant gradients at constant betas, up to T = 20000; without damping and at T = 1 both sides are g^2."""
    for betas in ((0,), (0.9,), (0, 0.9, 0.99)):
        left, right = lemma(np.full((20_000, 1), -2.0), Damping(betas), decay=1)
        assert np.all(left <= right)
    left, right = lemma(np.full((2, 1), 3.0), Damping((0,)), decay=1)
    assert left[0] == right[0] == 9


ROUNDS, C = 30_000, 3.0
PERIODIC = periodic(ROUNDS, C)


def test_adams_average_regret_stays_away_from_0():
    """Oracle: theorem 1 of Reddi, Kale and Kumar: beta_1 = 0, beta_2 = 1 / (1 + C^2) ends up near +1, the worst point,

    where three rounds cost 2 (C - 2) more than at -1.
    """
    for lr in (0.1, 0.5):
        run = adam(PERIODIC, lr, [0.0], betas=(0.0, 1 / (1 + C**2)))
        average = regret(PERIODIC, run, [-1.0]) / np.arange(1, ROUNDS + 1)
        assert average[ROUNDS // 3 :].min() > 0.6
        assert average[-1] == pytest.approx(2 * (C - 2) / 3, rel=0.02)
        assert run.iterates[-300:].min() > 0.9


@pytest.mark.parametrize("lr", [0.2, 0.5])
def test_aggmos_average_regret_goes_to_0_below_the_bound(lr):
    """On the same problem, projected onto the same interval. Oracles: the proved bound, and the regret by hand.

    Once the betas have decayed, a period starts at -1 + 2h, h = lr / sqrt(t); the gradient C takes it to -1, and the
    two of -1 back up. That costs 2h C + 0 - h = 5h in three rounds, which adds up to (10/3) lr sqrt(T).
    """
    run = aggregated(PERIODIC, DEFAULT, lr, 0.9, [0.0])
    curve, t = regret(PERIODIC, run, [-1.0]), np.arange(1, ROUNDS + 1)
    assert np.all(curve <= proved_bound(run, [-1.0], DEFAULT, lr, 0.9).total)
    half = ROUNDS // 2 - 1
    grown = (curve[-1] - curve[half]) / (math.sqrt(ROUNDS) - math.sqrt(half + 1))
    assert grown == pytest.approx(10 / 3 * lr, rel=0.01)
    assert (curve / t)[-1] < 0.12 * (curve / t)[299] < 0.02


def test_adam_does_not_fail_on_this_problem_at_its_usual_betas():
    """What docs/regret.md says: with (0.9, 0.999) and C = 3 Adam finds -1 as well."""
    run = adam(PERIODIC, 0.5, [0.0])
    assert regret(PERIODIC, run, [-1.0])[-1] / ROUNDS < 0.001


RUN = aggregated(small(0), DEFAULT, 0.1, 0.5, [0.0, 0.0])
GOOD = {
    aggregated: {"problem": small(0), "damping": DEFAULT, "lr": 0.1, "decay": 0.5, "start": [0, 0]},
    adam: {"problem": small(0), "lr": 0.1, "start": [0, 0], "betas": (0.9, 0.999), "eps": 1e-8},
    regret: {"problem": small(0), "run": RUN, "best": [0, 0]},
    proved_bound: {"run": RUN, "best": [0, 0], "damping": DEFAULT, "lr": 0.1, "decay": 0.5},
    printed_bound: {"run": RUN, "damping": DEFAULT, "lr": 0.1, "decay": 0.5, "best": [0, 0]},
    lemma: {"gradients": [1.0, 2.0], "damping": DEFAULT, "decay": 0.5},
}
SENSELESS = {
    "damping": [(), (1.0,), (-0.1,), (math.nan,), "0.9", 0.9],
    "lr": [0, -1, math.nan, math.inf, "0.1", [], [0.1, 0]],
    "decay": [0, -0.1, 1.1, math.nan, "0.5", True],
    "start": [0, [0], [0, 0, 0], [0, math.nan], [0, 1.5], ["0", "0"]],
    "best": [0, [0], [[0, 0]], [0, math.inf]],
    "betas": [(0.9,), (0.9, 1.0), (-0.1, 0.9), (0.9, math.nan)],
    "eps": [0, -1, math.nan, "x"],
    "gradients": [1.0, [], [math.nan], ["1"]],
}


@pytest.mark.parametrize("function", GOOD, ids=lambda function: function.__name__)
def test_senseless_arguments_are_refused_by_name(function):
    function(**GOOD[function])
    for name in SENSELESS.keys() & GOOD[function]:
        for value in SENSELESS[name]:
            with pytest.raises(ValueError, match="^betas" if name == "damping" else f"^{name}="):
                function(**{**GOOD[function], name: value})


@pytest.mark.parametrize("function", [aggregated, proved_bound, printed_bound, lemma])
def test_betas_are_their_damping(function):
    """Oracle: the same call with a whole `Damping`."""
    for one, other in zip(
        function(**GOOD[function]), function(**GOOD[function] | {"damping": [0, 0.9, 0.99]}), strict=True
    ):
        np.testing.assert_array_equal(one, other)


def test_a_bound_needs_a_decay_below_1_and_the_printed_one_the_papers_weights():
    for bound in (proved_bound, printed_bound):
        with pytest.raises(ValueError, match=r"^decay=1: must be a number in \(0, 1\)"):
            bound(**{**GOOD[bound], "decay": 1})
    with pytest.raises(ValueError, match=r"^damping=.* weights of 1/K each"):
        printed_bound(RUN, Damping.nesterov(0.9), 0.1, 0.5)
