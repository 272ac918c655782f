"""The first view: one-dimensional quadratics, from x = 1 at rest, with every velocity as a band."""

from functools import lru_cache

import numpy as np
import numpy.typing as npt

from aggmo.damping import Damping
from aggmo.explore.chart import Axis, Chart, key
from aggmo.explore.view import Number, View, digits
from aggmo.theory.quadratic import Trajectory, trajectory

CURVATURES = (1.0, 0.1, 0.01, 0.001)  # those of figure 1
LARGE, SMALL = 1.6, 1.1  # how far from 0 the charts of either size reach
NEAR = 0.01  # x has settled when it stays nearer to 0 than this


def settled(iterates: npt.NDArray[np.float64]) -> float:
    """The last step at which |x| >= 0.01, infinite if that is the last of all.

    >>> settled(np.array([1.0, 0.5, -0.01, 0.001]))
    2.0
    >>> settled(np.array([1.0, 0.5]))
    inf
    """
    far = np.flatnonzero(~(np.abs(iterates) < NEAR))
    return np.inf if len(far) and far[-1] == len(iterates) - 1 else float(far[-1])


def turned(velocity: npt.NDArray[np.float64]) -> float:
    """The first step at which a velocity points the other way than at first, infinite if it never does.

    >>> turned(np.array([0.0, -1.0, -0.5, 0.25]))
    3.0
    """
    against = np.flatnonzero(velocity * velocity[1] < 0.0)
    return float(against[0]) if len(against) else np.inf


@lru_cache(maxsize=64)
def runs(damping: Damping, lr: float, curvature: float, steps: int) -> Trajectory:
    """The trajectories along the chosen curvature, column 0, and those of figure 1.

    >>> runs(Damping((0.0,)), 0.5, 1.0, 1).iterates[1, :2]
    array([0.5, 0.5])
    """
    with np.errstate(over="ignore", invalid="ignore"):  # beyond the limit it grows without bound
        return trajectory(damping, lr, (curvature, *CURVATURES), steps)


def inside(iterates: npt.NDArray[np.float64], high: float) -> int:
    """How many iterates to draw: up to the first of those that all lie beyond +-high, to the end of the run.

    >>> inside(np.array([1.0, -2.0, 0.5, -3.0, 4.0, -5.0]), 1.6)
    4
    """
    return int(min(np.flatnonzero(np.abs(iterates) <= high)[-1] + 2, len(iterates)))


@lru_cache(maxsize=64)
def trajectories(damping: Damping, rival: Damping, name: str, lr: float, curvature: float, steps: int) -> View:
    """The view.

    >>> view = trajectories(Damping((0.0, 0.9)), Damping((0.9,)), "CM", 0.33, 0.1, 50)
    >>> len(view.charts), view.numbers["turned 2"].label
    (6, 'velocity of β = 0.9 turns')
    """
    ours, theirs = runs(damping, lr, curvature, steps), runs(rival, lr, curvature, steps)
    large = [
        _bands(f"{who}, λ = {curvature:g}, with its velocities", run, style, steps)
        for who, run, style in (("AggMo", ours, "aggmo"), (name, theirs, "rival"))
    ]
    small = [_small(i, ours, theirs, steps) for i in range(len(CURVATURES))]
    numbers: dict[str, Number] = {}
    both = (("aggmo", "AggMo", ours), ("rival", name, theirs))
    for i, at in enumerate((curvature, *CURVATURES)):
        for slot, who, run in both:
            last = settled(run.iterates[:, i])
            words = f"step {last:.0f}" if last < np.inf else f"not in {steps} steps"
            direction, label = (f"{at:g}", f"λ = {at:g}") if i else ("chosen", f"chosen λ = {at:g}")
            numbers[f"settled {slot} {direction}"] = Number(f"{who} settles, {label}", last, words)
    for slot, who, run in both:
        numbers[f"end {slot}"] = Number(f"x after {steps} steps, {who}", float(run.iterates[-1, 0]))
    for i, beta in enumerate(damping.betas):
        first = turned(ours.velocities[:, i, 0])
        words = f"step {first:.0f}" if first < np.inf else f"not in {steps} steps"
        numbers[f"turned {i + 1}"] = Number(f"velocity of β = {beta:g} turns", first, words)
    names = [("aggmo", "AggMo"), ("rival", name)]
    names += [(f"swatch v{i}", f"velocity, β = {digits(beta)}") for i, beta in enumerate(damping.betas)]
    text = (
        "Along an eigen-direction f = λx²/2, from x = 1 at rest. Each band is a velocity, drawn from the path "
        "outwards and scaled to its own largest: above the path it points up. Settled means that |x| stays below 0.01. "
        "What grows without bound is drawn until it leaves the picture for good."
    )
    return View("trajectories", "1. Trajectories", text, key(names), (*large, *small), numbers)


def _bands(title: str, run: Trajectory, style: str, steps: int) -> str:
    """The path at the chosen curvature with its velocities."""
    chart = Chart(title, Axis("step", 0, steps), Axis("x", -LARGE, LARGE))
    chart.level(0.0, "zero")
    path = run.iterates[:, 0]
    path = path[: inside(path, LARGE)]
    for i in range(run.velocities.shape[1]):
        velocity = run.velocities[: len(path), i, 0]
        largest = np.abs(velocity).max()
        outer = path + 0.5 * velocity / (largest if largest > 0.0 else 1.0)
        chart.band(path, outer, f"v{i}" if style == "aggmo" else f"r{i}")
    chart.curve(path, style)
    return chart.svg()


def _small(i: int, ours: Trajectory, theirs: Trajectory, steps: int) -> str:
    """Both at one of the curvatures of figure 1."""
    chart = Chart(f"λ = {CURVATURES[i]:g}", Axis("step", 0, steps), Axis("x", -SMALL, SMALL), width=240, height=170)
    chart.level(0.0, "zero")
    for run, style in ((ours, "aggmo"), (theirs, "rival")):  # this one dashed: both are seen where they coincide
        path = run.iterates[:, i + 1]
        chart.curve(path[: inside(path, SMALL)], style)
    return chart.svg()
