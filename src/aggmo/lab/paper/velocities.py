"""Figure 2 and appendix B: the velocities along a trajectory in one dimension."""

import math
from collections.abc import Mapping, Sequence
from functools import partial

import numpy as np
from matplotlib.figure import Figure

from aggmo.damping import Damping
from aggmo.lab.paper import style
from aggmo.lab.paper.experiment import Evidence
from aggmo.lab.paper.quadratics import LR, NEAR
from aggmo.lab.paper.result import Picture, Result, Table
from aggmo.lab.paper.rules import Check, verdict
from aggmo.theory.arguments import Floats
from aggmo.theory.quadratic import nesterov_trajectory, trajectory


def figure_2(_: Evidence) -> Result:
    """Figure 2: one trajectory, with an arrow for each velocity."""
    damping = Damping.exponential(k=4)
    run = trajectory(damping, LR, 0.01, 600)
    turns = turning(run.velocities)
    names = [f"β = {beta:g}" for beta in damping.betas]
    rows = tuple((name, turn) for name, turn in zip(names, turns, strict=True))
    return Result(
        "figure-2",
        "Figure 2: breaking oscillations with passive damping",
        "Past the minimum the velocities with small β turn first and brake those with large β: the 0.9 velocity turns"
        " before the 0.999 one.",
        (
            Picture(
                "figure-2",
                "One trajectory of AggMo (K = 4, λ = 0.01) with an arrow for each velocity at several times.",
                "A curve that swings past zero, with arrows for each velocity, those of small β turning first.",
                lambda figure: _draw_arrows(figure, run.iterates, run.velocities, damping.betas),
            ),
        ),
        (Table("figure-2-turns", "The step at which a velocity first turns.", ("velocity", "turns at"), rows),),
        verdict(figure_2_checks(turns)),
    )


def turning(velocities: Floats) -> list[float]:
    """For each velocity the first step at which its sign is no more that of its first step; nan if it never turns.

    >>> turning(np.array([[0.0, 0.0], [-1.0, -1.0], [1.0, -1.0]]))
    [2.0, nan]
    """
    turned = np.sign(velocities[1:]) * np.sign(velocities[1]) < 0
    return [float(np.argmax(column)) + 1.0 if column.any() else math.nan for column in turned.T]


def figure_2_checks(turns: Sequence[float]) -> list[Check]:
    """That each velocity turns before the next one, whose damping is larger.

    >>> figure_2_checks([1, 2, 3, 4])[0].holds
    True
    """
    names = [f"{beta:g}" for beta in Damping.exponential(k=4).betas]
    return [
        Check(
            f"the {names[i]} velocity turns before the {names[j]} one",
            None if math.isnan(turns[i]) or math.isnan(turns[j]) else turns[i] < turns[j],
            f"steps {turns[i]:g} and {turns[j]:g}",
        )
        for i, j in ((1, 3), (1, 2), (2, 3))
    ]


def appendix_b(_: Evidence) -> Result:
    """Appendix B: the velocities in one dimension."""
    damping = Damping((0, 0.9, 0.999))
    lr, curvature, steps = LR, 0.03, 400
    nesterov = nesterov_trajectory(0.999, lr, curvature, steps)
    classical = trajectory(Damping.classical(0.999), lr, curvature, steps)
    aggregated = trajectory(damping, lr, curvature, steps)
    runs = {
        "CM, β = 0.999": (classical.iterates, classical.velocities),
        "Nesterov, β = 0.999": (nesterov.theta, nesterov.velocity[:, None]),
        "AggMo, β = (0, 0.9, 0.999)": (aggregated.iterates, aggregated.velocities),
    }
    swings = {
        name: [float(abs(x[: steps // 4]).max()), float(abs(x[-steps // 4 :]).max())] for name, (x, _) in runs.items()
    }
    rows = tuple((name, float(f"{early:.3g}"), float(f"{late:.3g}")) for name, (early, late) in swings.items())
    optimizers = ("cm", "nesterov", "aggmo")
    return Result(
        "appendix-b",
        "Appendix B: velocities during the minimisation of a quadratic",
        "CM and Nesterov with β = 0.999 oscillate; AggMo's small velocities oppose its large one and damp it.",
        tuple(
            Picture(
                f"appendix-b-{optimizer}",
                f"{name}: the iterate, and bands from it that show direction and size of each velocity.",
                f"{name}: it swings by {swings[name][1]:.2g} in the last quarter of {steps} steps.",
                partial(_draw_bands, iterates=run[0], velocities=run[1], optimizer=optimizer),
            )
            for optimizer, (name, run) in zip(optimizers, runs.items(), strict=True)
        ),
        (
            Table(
                "appendix-b-swings",
                f"The largest distance from the minimum in two quarters of {steps} steps (λ = {curvature}).",
                ("optimizer", "first quarter", "last quarter"),
                rows,
            ),
        ),
        verdict(appendix_b_checks(swings)),
    )


def appendix_b_checks(swings: Mapping[str, Sequence[float]]) -> list[Check]:
    """That in the last quarter CM still swings, Nesterov too, and AggMo does not.

    >>> appendix_b_checks({"AggMo": (1.0, 0.01)})[0].holds
    True
    """
    checks = []
    for name, (_, last) in swings.items():
        still = not name.startswith("AggMo")
        claim = f"{name} {'still swings' if still else 'has settled'} (by {'more' if still else 'less'} than {NEAR})"
        checks.append(Check(claim, None if math.isnan(last) else (last > NEAR) == still, f"{last:.3g}"))
    return checks


def _draw_arrows(figure: Figure, iterates: Floats, velocities: Floats, betas: Sequence[float]) -> None:
    """The trajectory with an arrow for each velocity, all arrows of a velocity scaled alike."""
    figure.set_size_inches(style.WIDE)
    axis = figure.subplots()
    axis.axhline(0.0, color=style.FAINT[0], lw=1.0)
    axis.plot(iterates, color=style.INK[0], lw=1.2, zorder=1)
    shown = range(1, len(betas))
    colours = style.ordered(len(betas) - 1)
    largest = np.abs(velocities).max(axis=0)
    for t in range(15, len(iterates), 60):
        for place, i in enumerate(shown):
            length = 0.45 * velocities[t, i] / largest[i]
            at = t + 9 * place
            axis.annotate(
                "",
                (at, iterates[t] + length),
                (at, iterates[t]),
                arrowprops={"arrowstyle": "-|>", "color": colours[place], "lw": 1.6, "shrinkA": 0, "shrinkB": 0},
            )
    for place, i in enumerate(shown):
        axis.plot([], [], color=colours[place], label=f"velocity of β = {betas[i]:g}")
    axis.set(xlabel="step", ylabel="x", xlim=(0, len(iterates)), ylim=(-1.0, 1.25))
    axis.legend(loc="upper right", ncols=len(shown))


def _draw_bands(figure: Figure, iterates: Floats, velocities: Floats, optimizer: str) -> None:
    """The trajectory with a band from it for each velocity."""
    figure.set_size_inches(style.HALF)
    axis = figure.subplots()
    t = np.arange(len(iterates))
    count = velocities.shape[1]
    colours = [style.colour(optimizer)] if count == 1 else style.ordered(count)
    for i, colour in enumerate(colours):
        reach = 0.5 * velocities[:, i] / np.abs(velocities[:, i]).max()
        axis.fill_between(t, iterates, iterates + reach, color=colour, alpha=0.3, lw=0)
    axis.plot(t, iterates, color=style.INK[0], lw=1.2)
    axis.set(xlabel="step", ylabel="x", xlim=(0, len(t) - 1), ylim=(-1.6, 1.6))
    if count > 1:
        for beta, colour in zip((0, 0.9, 0.999), colours, strict=True):
            axis.fill_between([], [], [], color=colour, alpha=0.5, label=f"β = {beta:g}")
        axis.legend(loc="lower right", ncols=count, handlelength=1.0, columnspacing=1.0)
