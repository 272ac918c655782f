"""Appendix A, where Nesterov momentum is an aggregated momentum, and the toy problem of appendix E: two coordinates."""

import math
from collections.abc import Callable, Mapping
from functools import partial

import numpy as np
from matplotlib.figure import Figure

from aggmo import reference
from aggmo.damping import Damping
from aggmo.lab.paper import style
from aggmo.lab.paper.experiment import Evidence
from aggmo.lab.paper.result import Picture, Result, Table
from aggmo.lab.paper.rules import Check, below, verdict
from aggmo.theory.arguments import Floats
from aggmo.theory.landscapes import Funnel, Quadratic, Rosenbrock

BETA = 0.999


def descend(gradient: Callable[[Floats], Floats], start: Floats, damping: Damping, lr: float, steps: int) -> Floats:
    """The iterates of an aggregated momentum, start first.

    >>> descend(lambda x: x, np.array([1.0]), Damping((0,)), lr=0.5, steps=2)[:, 0]
    array([1.  , 0.5 , 0.25])
    """
    theta, velocities = start, [np.zeros_like(start) for _ in damping.betas]
    iterates = [theta]
    for _ in range(steps):
        theta, velocities = reference.step(theta, velocities, gradient(theta), damping, lr)
        iterates.append(theta)
    return np.array(iterates)


def nesterov(gradient: Callable[[Floats], Floats], start: Floats, beta: float, lr: float, steps: int) -> Floats:
    """The φ of Nesterov momentum, equation (2) to the letter: θ with its velocity, and φ = θ + lr·β·v.

    >>> nesterov(lambda x: x, np.array([1.0]), beta=0.5, lr=0.5, steps=1)[:, 0]
    array([1.  , 0.25])
    """
    theta, velocity = start, np.zeros_like(start)
    phi = [start]
    for _ in range(steps):
        velocity = beta * velocity - gradient(theta + lr * beta * velocity)
        theta = theta + lr * velocity
        phi.append(theta + lr * beta * velocity)
    return np.array(phi)


# The two functions of appendix A, where from, at which learning rate, and how many steps are drawn.
PROBLEMS: dict[str, tuple[Quadratic | Rosenbrock, tuple[float, float], float, int]] = {
    "quadratic": (Quadratic(), (1.0, 1.0), 0.1, 200),
    "rosenbrock": (Rosenbrock(), (-1.5, 1.5), 2e-5, 500),
}
TITLES = {"quadratic": "xᵀAx with eigenvalues 1 and 0.001", "rosenbrock": "Rosenbrock's function"}


def appendix_a(_: Evidence) -> Result:
    """Appendix A: Nesterov momentum beside AggMo with betas (0, β)."""
    paths = {name: _paths(name) for name in PROBLEMS}
    found = {name: _distances(*path) for name, path in paths.items()}
    rows = tuple(
        (TITLES[name], float(f"{exact:.1e}"), float(f"{alike:.1e}"), float(f"{size:.2g}"))
        for name, (exact, alike, size) in found.items()
    )
    heads = ("function", "weights (1, β)", "equal learning rates", "length of the path")
    return Result(
        "appendix-a",
        "Appendix A: Nesterov momentum as AggMo",
        "Nesterov momentum is AggMo with damping (0, β) and velocities' learning rates (1, β), exactly; with equal"
        " learning rates and β = 0.999 approximately, first indistinguishable, later a little different.",
        tuple(
            Picture(
                f"appendix-a-{name}",
                f"{TITLES[name]}: Nesterov with β = {BETA} (squares) and AggMo with (0, {BETA}) and equal learning"
                " rates (circles).",
                "Both trajectories lie on each other.",
                partial(_draw_paths, name=name, paths=paths[name]),
            )
            for name in PROBLEMS
        ),
        (Table("appendix-a-distances", "The largest distance between AggMo and Nesterov's φ.", heads, rows),),
        verdict(appendix_a_checks(found)),
        notes=("Rosenbrock's function is the standard one, not the one printed (see the errata).",),
    )


def appendix_a_checks(found: Mapping[str, tuple[float, float, float]]) -> list[Check]:
    """That the exact case is exact to 1e-12, and the other within 1 % of the path's length but not exact.

    >>> [check.holds for check in appendix_a_checks({"quadratic": (1e-15, 1e-3, 1.0)})]
    [True, True]
    """
    checks = []
    for name, (exact, alike, size) in found.items():
        checks.append(below(f"exact with weights (1, β) on the {name}", exact, 1e-12))
        claim = f"with equal learning rates within 1 % of the path on the {name}, and not exact"
        known = not math.isnan(alike + size)
        checks.append(Check(claim, 1e-12 < alike <= 0.01 * size if known else None, f"{alike:.2g} of {size:.2g}"))
    return checks


def _paths(name: str) -> tuple[Floats, Floats, Floats]:
    """Nesterov's φ, AggMo with weights (1, β), and AggMo with equal learning rates."""
    function, start, lr, steps = PROBLEMS[name]
    first = np.array(start)
    return (
        nesterov(function.gradient, first, BETA, lr, steps),
        descend(function.gradient, first, Damping.nesterov(BETA), lr, steps),
        descend(function.gradient, first, Damping((0, BETA), weights=(1, 1)), lr, steps),
    )


def _distances(phi: Floats, exact: Floats, alike: Floats) -> tuple[float, float, float]:
    """The largest distances of the two from φ, and the length of φ's path."""
    size = np.linalg.norm(np.diff(phi, axis=0), axis=1).sum()
    return float(abs(exact - phi).max()), float(np.linalg.norm(alike - phi, axis=1).max()), float(size)


def _draw_paths(figure: Figure, name: str, paths: tuple[Floats, Floats, Floats]) -> None:
    """Both trajectories over the function's level lines."""
    figure.set_size_inches(style.HALF)
    axis = figure.subplots()
    function, phi, alike = PROBLEMS[name][0], paths[0], paths[2]
    low, high = phi.min(axis=0), phi.max(axis=0)
    margin = 0.15 * (high - low)
    x, y = (np.linspace(low[i] - margin[i], high[i] + margin[i], 120) for i in (0, 1))
    levels = np.log10(function(np.stack(np.meshgrid(x, y), axis=-1)) + 1e-6)
    axis.contour(x, y, levels, levels=12, colors=style.FAINT[0], linewidths=0.8, linestyles="solid")
    every = max(1, len(phi) // 25)
    for path, optimizer, marker, label in ((phi, "nesterov", "s", "Nesterov"), (alike, "aggmo", "o", "AggMo (0, β)")):
        colour = style.colour(optimizer)
        size = 5.5 if marker == "s" else 3.0
        axis.plot(*path.T, color=colour, lw=0.8, alpha=0.7)
        axis.plot(*path[::every].T, marker, color=colour, ms=size, mfc="none" if marker == "s" else colour, label=label)
    axis.plot(*function.minimum, "*", color=style.INK[0], ms=8, label="minimum")
    axis.set(xlabel="x", ylabel="y", xlim=(x[0], x[-1]), ylim=(y[0], y[-1]))
    figure.legend(*axis.get_legend_handles_labels(), loc="outside upper center", ncols=3, handletextpad=0.2)


TOY_LR, TOY_STEPS = 1e-3, 3000
TOY = {
    "CM, β = 0": Damping.classical(0.0),
    "CM, β = 0.9": Damping.classical(0.9),
    "CM, β = 0.999": Damping.classical(0.999),
    "AggMo, K = 3": Damping.exponential(k=3),
    "AggMo, K = 4": Damping.exponential(k=4),
}
GAPS = {"CM, β = 0.9": 0.29, "CM, β = 0.999": 0.43, "AggMo, K = 3": 0.004, "AggMo, K = 4": 0.0}
HALVES = {"CM, β = 0.9": 0.005, "CM, β = 0.999": 0.005, "AggMo, K = 3": 0.0005, "AggMo, K = 4": 0.0005}


def appendix_e_toy(_: Evidence) -> Result:
    """Appendix E: the winding funnels, from (−2, 0)."""
    funnel = Funnel(a=8.0, b=10.0)
    paths = {
        name: descend(funnel.gradient, np.array([-2.0, 0.0]), damping, TOY_LR, TOY_STEPS)
        for name, damping in TOY.items()
    }
    gaps = {name: np.maximum(funnel(path) - funnel.least, 1e-16) for name, path in paths.items()}
    found = {name: float(gap[-1]) for name, gap in gaps.items()}
    rows = tuple((name, GAPS.get(name), f"{gap:.3f}") for name, gap in found.items())
    return Result(
        "appendix-e-toy",
        "Appendix E: a toy problem with winding funnels",
        "CM with β = 0 and 0.9 does not leave the flat region in time, with 0.999 it oscillates and overshoots; AggMo"
        " crosses the flat region and the funnels, and stops at the optimum.",
        (
            Picture(
                "appendix-e-toy-gap",
                f"The gap above the least value, (1 + b)·ln 2, by step, at learning rate {TOY_LR:g}.",
                "AggMo's gap falls to zero, CM's stays at 0.3 or more.",
                lambda figure: _draw_gaps(figure, gaps),
            ),
            Picture(
                "appendix-e-toy-paths",
                "The trajectories over the level lines.",
                "AggMo's trajectory ends at the origin.",
                lambda figure: _draw_toy(figure, funnel, paths),
            ),
        ),
        (Table("appendix-e-toy-gaps", f"The gap after {TOY_STEPS} steps.", ("optimizer", "specified", "ours"), rows),),
        verdict(toy_checks(found)),
        notes=("The least value is not 0 but (1 + b)·ln 2: see the errata.",),
    )


def toy_checks(found: Mapping[str, float]) -> list[Check]:
    """That each gap rounds to the one specified.

    >>> toy_checks(GAPS)[0].holds
    True
    """
    return [
        Check(
            f"the gap of {name} rounds to {gap:g}",
            None if math.isnan(found[name]) else abs(found[name] - gap) <= HALVES[name],
            f"{found[name]:.4f}",
        )
        for name, gap in GAPS.items()
    ]


def _draw_gaps(figure: Figure, gaps: Mapping[str, Floats]) -> None:
    """The gap by step."""
    figure.set_size_inches(style.WIDE)
    axis = figure.subplots()
    for name, gap in gaps.items():
        axis.plot(gap, color=_toy_colour(name), ls=_toy_dashes(name), lw=1.2, label=name)
    axis.set(yscale="log", xlim=(0, TOY_STEPS), ylim=(1e-5, 30), xlabel="step", ylabel="gap above the least value")
    style.label_lines(axis)


def _draw_toy(figure: Figure, funnel: Funnel, paths: Mapping[str, Floats]) -> None:
    """The trajectories over the level lines."""
    figure.set_size_inches(style.WIDE)
    axis = figure.subplots()
    x, y = np.linspace(-2.3, 1.0, 240), np.linspace(-1.6, 1.6, 200)
    levels = funnel(np.stack(np.meshgrid(x, y), axis=-1)) - funnel.least
    axis.contour(x, y, levels, levels=np.logspace(-1, 1.4, 9), colors=style.FAINT[0], linewidths=0.8)
    for name, path in paths.items():
        axis.plot(*path.T, color=_toy_colour(name), ls=_toy_dashes(name), lw=1.0, label=name)
        axis.plot(*path[-1], "o", color=_toy_colour(name), ms=4)
    axis.plot(0.0, 0.0, "*", color=style.INK[0], ms=9)
    axis.set(xlabel="x", ylabel="y", xlim=(x[0], x[-1]), ylim=(y[0], y[-1]))
    figure.legend(*axis.get_legend_handles_labels(), loc="outside upper center", ncols=5, columnspacing=1.0)


def _toy_colour(name: str) -> str:
    return style.colour("aggmo" if name.startswith("AggMo") else "cm" if name != "CM, β = 0" else "sgd")


def _toy_dashes(name: str) -> str | tuple[float, tuple[float, ...]]:
    return {"CM, β = 0.999": (0, (2, 1)), "AggMo, K = 3": (0, (2, 1))}.get(name, "solid")
