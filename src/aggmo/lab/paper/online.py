"""The regret bound of theorem 1 and Lemma 1 (appendix C), checked numerically."""

from collections.abc import Mapping

import numpy as np
from matplotlib.figure import Figure

from aggmo.damping import Damping
from aggmo.lab.paper import style
from aggmo.lab.paper.experiment import Evidence
from aggmo.lab.paper.result import Picture, Result, Table
from aggmo.lab.paper.rules import Check, below, verdict
from aggmo.theory.arguments import Floats
from aggmo.theory.online import Problem, absolute, logistic, periodic, squares
from aggmo.theory.regret import aggregated, lemma, proved_bound, regret

ROUNDS, DECAY, DIMENSION = 3000, 0.99, 5
DAMPING = Damping.exponential(k=3)
LRS = {"least squares": 0.1, "absolute loss": 0.1, "logistic regression": 0.5, "the problem on which Adam fails": 0.5}


def appendix_c_regret(_: Evidence) -> Result:
    """Theorem 1: the regret beside its bound, on four online problems."""
    curves = {name: _curves(problem, LRS[name]) for name, problem in _problems().items()}
    found = {
        name: (float((own / bound).max()), float(own[-1] / own[99]) * 100 / ROUNDS)
        for name, (own, bound) in curves.items()
    }
    rows = tuple(
        (name, float(curves[name][0][-1]), float(curves[name][1][-1]), float(f"{ratio:.3g}"))
        for name, (ratio, _) in found.items()
    )
    return Result(
        "appendix-c-regret",
        "Appendix C, theorem 1: the regret of AggMo",
        "The regret of AggMo at learning rate γ/√t and with dampings β·λᵗ is bounded, so that its mean tends to zero.",
        (
            Picture(
                "appendix-c-regret",
                "The mean regret R(T)/T (solid) and the bound that the paper's proof gives (dashed), by the number of"
                " rounds T.",
                "Each mean regret falls, and stays below its bound.",
                lambda figure: _draw_regrets(figure, curves),
            ),
        ),
        (
            Table(
                "appendix-c-regrets",
                f"Regret and bound after {ROUNDS} rounds.",
                ("problem", "regret", "bound", "largest ratio over all rounds"),
                rows,
            ),
        ),
        verdict(regret_checks(found)),
        notes=(
            "The bound is the one that the paper's proof gives; as printed it lacks a factor, and its rate is"
            " O(√(T log T)): see the errata.",
        ),
    )


def regret_checks(found: Mapping[str, tuple[float, float]]) -> list[Check]:
    """That the regret is below the bound in all rounds, and that its mean falls to half or less from T = 100 on.

    >>> [check.holds for check in regret_checks({"least squares": (0.1, 0.5)})]
    [True, True]
    """
    checks = []
    for name, (ratio, fall) in found.items():
        checks.append(below(f"{name}: regret over bound", ratio, 1.0))
        checks.append(below(f"{name}: the mean regret at the end over that at T = 100", fall, 0.5))
    return checks


def appendix_c_lemma(_: Evidence) -> Result:
    """Lemma 1, on random sequences of gradients."""
    found = lemma_ratios()
    rows = tuple((name, float(f"{ratio:.3g}")) for name, ratio in found.items())
    return Result(
        "appendix-c-lemma",
        "Appendix C, Lemma 1",
        "The squares of the velocities, divided by √t and added up, are bounded by the gradients' fourth powers.",
        (),
        (
            Table(
                "appendix-c-lemma",
                "The largest ratio of the left side to the right, over all rounds, coordinates and 20 sequences.",
                ("gradients", "ratio"),
                rows,
            ),
        ),
        verdict(lemma_checks(found)),
    )


def lemma_checks(found: Mapping[str, float]) -> list[Check]:
    """That the left side is at most the right.

    >>> lemma_checks({"normal": 0.5})[0].holds
    True
    """
    return [below(f"left side over right, {name} gradients", ratio, 1.0) for name, ratio in found.items()]


def lemma_ratios() -> dict[str, float]:
    """The largest ratios of both sides for three kinds of gradients."""
    rng = np.random.default_rng(0)
    shape = (1000, 20)
    kinds = {
        "normal": rng.normal(size=shape),
        "heavy-tailed": rng.standard_t(2, size=shape),
        "constant": np.ones(shape),
        "rare": (rng.random(shape) < 0.02).astype(float),
    }
    found = {}
    for name, gradients in kinds.items():
        left, right = lemma(gradients, DAMPING, DECAY)
        found[name] = float(np.divide(left, right, out=np.zeros_like(left), where=right > 0).max())
    return found


def _problems() -> dict[str, Problem]:
    """Four online problems."""
    rng = np.random.default_rng(0)
    features = rng.normal(size=(ROUNDS, 1, DIMENSION))
    truth = rng.normal(size=DIMENSION)
    noisy = (features @ truth) + 0.5 * rng.normal(size=(ROUNDS, 1))
    return {
        "least squares": squares(features, noisy, radius=3.0),
        "absolute loss": absolute(features, noisy, radius=3.0),
        "logistic regression": logistic(features, np.where(noisy > 0, 1.0, -1.0), radius=3.0),
        "the problem on which Adam fails": periodic(ROUNDS),
    }


def _curves(problem: Problem, lr: float) -> tuple[Floats, Floats]:
    """The regret and its bound by round."""
    best = problem.best()
    run = aggregated(problem, DAMPING, lr, DECAY, np.zeros_like(best))
    return regret(problem, run, best), proved_bound(run, best, DAMPING, lr, DECAY).total


def _draw_regrets(figure: Figure, curves: Mapping[str, tuple[Floats, Floats]]) -> None:
    """The mean regret and the bound by round."""
    figure.set_size_inches(style.WIDE)
    axis = figure.subplots()
    t = np.arange(1, ROUNDS + 1)
    for (name, (own, bound)), colour in zip(curves.items(), style.ordered(len(curves)), strict=True):
        mean = np.where(own > 0, own, np.nan) / t
        axis.plot(t[9:], mean[9:], color=colour, label=name)
        axis.plot(t[9:], (bound / t)[9:], color=colour, ls=(0, (4, 2)), lw=1.0)
    axis.set(xscale="log", yscale="log", xlim=(10, ROUNDS), xlabel="rounds T", ylabel="mean regret R(T) / T")
    style.label_lines(axis)
