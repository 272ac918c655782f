"""Figures 1 to 3, appendix B, and what section 2 and appendices B and C say of quadratics: all in closed form."""

import math
from collections.abc import Mapping, Sequence
from functools import partial

import numpy as np
from matplotlib.figure import Figure

from aggmo.damping import Damping
from aggmo.lab.paper import style
from aggmo.lab.paper.experiment import Evidence
from aggmo.lab.paper.result import Picture, Result, Table
from aggmo.lab.paper.rules import Check, below, near, verdict
from aggmo.theory.arguments import Floats
from aggmo.theory.quadratic import (
    characteristic_polynomial,
    difference_equation,
    nesterov_trajectory,
    trajectory,
    transition_matrix,
)
from aggmo.theory.stability import best_lr, classical_optimum, nesterov_optimum

LR, STEPS, NEAR = 0.33, 3000, 1e-2
CURVATURES = (1.0, 0.1, 0.01, 0.001)

# The last step at which the iterate is farther than NEAR from the minimum, by curvature; infinite if it never settles.
NEVER = math.inf
SETTLED: dict[str, tuple[float, ...]] = {
    "CM, β = 0.9": (84, 76, 84, 1359),
    "CM, β = 0.999": (NEVER,) * 4,
    "Nesterov, β = 0.999": (21, 260, 2134, NEVER),
    "AggMo, K = 4": (72, 209, 673, 1614),
}

KAPPAS = tuple(10.0**i for i in range(1, 8))
RATES = {
    "CM, β = 0.9": (5.13e-2, 5.13e-2, 5.13e-2, 3.94e-3, 3.81e-4, 3.80e-5, 3.80e-6),
    "CM, β = 0.99": (5.01e-3, 5.01e-3, 5.01e-3, 5.01e-3, 5.01e-3, 4.15e-4, 4.00e-5),
    "AggMo, K = 3": (5.40e-2, 3.09e-2, 1.034e-2, 5.55e-3, 1.232e-3, 1.105e-4, 1.095e-5),
}


def figure_1(_: Evidence) -> Result:
    """Figure 1: one-dimensional quadratics of four curvatures, at one learning rate."""
    runs = _runs(2 * STEPS)  # the second half is not shown: the envelope looks ahead
    found = {name: settling(x[: STEPS + 1]) for name, x in runs.items()}
    rows = [
        (name, f"{curvature:g}", step_shown(SETTLED[name][j]), step_shown(found[name][j]))
        for name in runs
        for j, curvature in enumerate(CURVATURES)
    ]
    letters = dict(zip(runs, "abcd", strict=True))
    pictures = [
        Picture(
            f"figure-1{letters[name]}",
            f"{name}: the distance from the minimum by curvature λ at learning rate {LR}, faint; the thick line is the"
            " largest from that step on.",
            f"{name}: " + ", ".join(f"λ = {c:g} {_settles(t)}" for c, t in zip(CURVATURES, found[name], strict=True)),
            partial(_draw_runs, iterates=x),
        )
        for name, x in runs.items()
    ]
    caption = f"The last of {STEPS} steps from 1 at which the distance from the minimum is {NEAR} or more."
    return Result(
        "figure-1",
        "Figure 1: minimising a quadratic function",
        "CM with β = 0.9 is slow where the curvature is low, and with 0.999 it oscillates; AggMo does neither, though"
        " its largest β is 0.999.",
        tuple(pictures),
        (Table("figure-1-settling", caption, ("optimizer", "curvature λ", "specified", "ours"), tuple(rows)),),
        verdict(figure_1_checks(found)),
        notes=(
            "The paper does not state its curvatures; these are 1, 0.1, 0.01 and 0.001. Nesterov's curve is the paper's"
            " θ, not the φ that torch's optimizer holds.",
        ),
    )


def settling(iterates: Floats) -> tuple[float, ...]:
    """For each column, the last step at which it is NEAR or farther from 0; infinite if that is the last step.

    >>> settling(np.array([[1.0, 1.0], [0.5, 1.0], [0.0, 1.0]]))
    (1.0, inf)
    """
    far = np.abs(iterates) >= NEAR
    last = [float(np.flatnonzero(column)[-1]) for column in far.T]
    return tuple(NEVER if step == len(iterates) - 1 else step for step in last)


def step_shown(step: float) -> str | int:
    """A settling step in a table.

    >>> step_shown(84.0), step_shown(math.inf)
    (84, 'does not settle')
    """
    return "does not settle" if math.isinf(step) else int(step)


def figure_1_checks(found: Mapping[str, Sequence[float]]) -> list[Check]:
    """That each settles at its step, for each curvature.

    >>> figure_1_checks({"AggMo, K = 4": (72, 209, 673, 1614)})[0].holds
    True
    """
    at = " / ".join(f"{curvature:g}" for curvature in CURVATURES)
    return [
        near(f"the steps at which {name} settles at λ = {at}", steps, SETTLED[name]) for name, steps in found.items()
    ]


def figure_3(_: Evidence) -> Result:
    """Figure 3: the rate at the best learning rate, by condition number."""
    dampings = {
        "CM, β = 0.9": Damping.classical(0.9),
        "CM, β = 0.99": Damping.classical(0.99),
        "Nesterov, β = 0.9": Damping.nesterov(0.9),
        "Nesterov, β = 0.99": Damping.nesterov(0.99),
        "AggMo, K = 3": Damping.exponential(k=3),
    }
    kappas = np.logspace(1, 7, 181)
    curves = {name: best_lr(damping, kappas)[1] for name, damping in dampings.items()}
    optimum = np.array([classical_optimum(kappa).rate for kappa in kappas])
    found = {name: best_lr(damping, np.array(KAPPAS))[1].tolist() for name, damping in dampings.items()}
    rows: list[tuple[str | float, ...]] = []
    for name, rates in found.items():
        rows.append((name, *(float(f"{rate:.3g}") for rate in rates)))
        rows += [(f"{name}, specified", *RATES[name])] if name in RATES else []
    heads = ("optimizer", *(f"κ = 10{power}" for power in "¹²³⁴⁵⁶⁷"))
    return Result(
        "figure-3",
        "Figure 3: convergence on quadratics of varying condition number",
        "At its best learning rate each, AggMo with K = 3 interpolates between the rates of CM at β = 0.9 and 0.99, and"
        " is about three times as fast as Nesterov.",
        (
            Picture(
                "figure-3",
                "The rate 1 − ρ(B) at the best learning rate, by condition number. Dashed: the best CM at each.",
                "AggMo's rate lies near that of CM 0.9 at low condition numbers and of CM 0.99 at high ones.",
                lambda figure: _draw_rates(figure, kappas, curves, optimum),
            ),
        ),
        (Table("figure-3-rates", "The rate 1 − ρ at the best learning rate.", heads, tuple(rows)),),
        verdict(
            [*figure_3_checks(found), speed_up_check(kappas, curves["AggMo, K = 3"] / curves["Nesterov, β = 0.99"])]
        ),
        notes=("The paper calls ρ the spectral norm; what it must mean is the spectral radius.",),
    )


def figure_3_checks(found: Mapping[str, Sequence[float]]) -> list[Check]:
    """That the rates are those specified to 1 %, and AggMo's between CM's where these are far apart.

    >>> [check.holds for check in figure_3_checks(RATES)][-1]
    True
    """
    checks = [near(f"the rates of {name}, to 1 %", found[name], rates, relative=0.01) for name, rates in RATES.items()]
    low, high, own = (found[name] for name in RATES)
    between = [min(a, b) <= x <= 1.11 * max(a, b) for a, b, x in zip(low, high, own, strict=True)]
    known = not any(map(math.isnan, (*low, *high, *own)))
    return [
        *checks,
        Check("AggMo's rate lies between those of CM at every κ, or up to 11 % above", all(between) if known else None),
    ]


def speed_up_check(kappas: Floats, ratios: Floats) -> Check:
    """That AggMo is at most about three times as fast as Nesterov at β = 0.99, and that near κ = 100.

    >>> speed_up_check(np.array([10.0, 100.0, 1000.0]), np.array([0.7, 2.7, 1.8])).holds
    True
    """
    at = int(np.argmax(ratios))
    known = not np.isnan(ratios).any()
    return Check(
        "AggMo is at most 2.5 to 3.5 times as fast as Nesterov with β = 0.99, at a κ between 30 and 300",
        bool(2.5 <= ratios[at] <= 3.5 and 30.0 <= kappas[at] <= 300.0) if known else None,
        f"{ratios[at]:.2f} times at κ = {kappas[at]:.0f}",
    )


def theorem(_: Evidence) -> Result:
    """Sutskever's theorem and the closed forms of the best learning rate (section 2, appendix B)."""
    found = theorem_errors()
    rows = tuple((what, float(f"{error:.1e}")) for what, error in found.items())
    return Result(
        "section-2",
        "Section 2 and appendix B: Nesterov's damping on a quadratic, and the best learning rates",
        "On a quadratic, Nesterov momentum at curvature λ acts as CM with damping β(1 − lr·λ) (Sutskever et al.,"
        " theorem 2); the best learning rates of CM and of Nesterov are known in closed form.",
        (),
        (Table("section-2-errors", "The largest relative difference.", ("identity", "difference"), rows),),
        verdict([below(what, error, 1e-6) for what, error in found.items()]),
    )


def theorem_errors() -> dict[str, float]:
    """The largest relative differences between both sides of the identities."""
    steps, beta, lr = 200, 0.9, 0.5
    theorem = 0.0
    for curvature in (1.0, 0.3, 0.01):
        theta = nesterov_trajectory(beta, lr, curvature, steps).theta
        # Theorem 2: theta moves as under CM whose damping is beta (1 - lr lambda).
        x, previous = 1.0, 1.0
        for t in range(1, steps + 1):
            x, previous = x - lr * curvature * x + beta * (1 - lr * curvature) * (x - previous), x
            theorem = max(theorem, abs(x - theta[t]))
    kappas = np.logspace(1, 6, 26)
    errors = {"Nesterov acts as CM with β(1 − lr·λ)": float(theorem)}
    for name, optimum, make in (
        ("CM", classical_optimum, Damping.classical),
        ("Nesterov", nesterov_optimum, Damping.nesterov),
    ):
        lrs, rates = [], []
        for kappa in kappas:
            known = optimum(kappa)
            lr_found, rate = best_lr(make(known.beta), kappa)
            lrs.append(abs(lr_found / known.lr - 1.0))
            rates.append(abs(rate / known.rate - 1.0))
        errors[f"best learning rate of {name}"] = float(max(lrs))
        errors[f"best rate of {name}"] = float(max(rates))
    return errors


def appendix_c(_: Evidence) -> Result:
    """The difference equation and the block-diagonal form of B."""
    found = identity_errors()
    rows = tuple((what, float(f"{error:.1e}")) for what, error in found.items())
    return Result(
        "appendix-c-identities",
        "Appendix C: difference equation and block-diagonal form",
        "AggMo's iterates follow a difference equation of order K + 1, and the matrix B of its step on a quadratic is"
        " similar to a block-diagonal one, with one block for each curvature.",
        (),
        (Table("appendix-c-errors", "The largest difference of both sides.", ("identity", "difference"), rows),),
        verdict(appendix_c_checks(found)),
        notes=("The equation as printed has three wrong signs (see the errata); this is the right one.",),
    )


def appendix_c_checks(found: Mapping[str, float]) -> list[Check]:
    """That both identities hold to rounding.

    >>> appendix_c_checks({"difference equation": 1e-14})[0].holds
    True
    """
    return [below(what, error, 1e-9) for what, error in found.items()]


def identity_errors() -> dict[str, float]:
    """The differences of both sides of the two identities, for random problems."""
    rng = np.random.default_rng(0)
    equation = block = 0.0
    for k in (1, 2, 3, 4):
        damping = Damping(rng.uniform(0, 0.99, k), rng.uniform(0.1, 1, k))
        x = trajectory(damping, 0.2, 0.7, 60).iterates
        order = difference_equation(damping)
        padded = np.concatenate([np.ones(k + 1), x])
        slopes = np.concatenate([np.zeros(k + 1), 0.7 * x])
        for t in range(60):
            past, gradients = (a[t + k + 1 - np.arange(k + 1)] for a in (padded, slopes))
            step = order.iterates @ past - 0.2 * order.gradients @ gradients[: len(order.gradients)]
            equation = max(equation, abs(step - x[t + 1]))
        q, _ = np.linalg.qr(rng.normal(size=(3, 3)))
        values = np.array([1.0, 0.3, 0.02])
        whole = np.poly(transition_matrix(damping, 0.5, q @ np.diag(values) @ q.T))
        blocks = np.array([1.0])
        for value in values:
            blocks = np.convolve(blocks, characteristic_polynomial(damping, 0.5 * value))
        block = max(block, float(np.abs(whole - blocks).max()))
    return {"difference equation": equation, "characteristic polynomial of B and of its blocks": block}


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


def _runs(steps: int) -> dict[str, Floats]:
    """The four optimizers of figure 1, each at all curvatures."""
    return {
        "CM, β = 0.9": trajectory(Damping.classical(0.9), LR, CURVATURES, steps).iterates,
        "CM, β = 0.999": trajectory(Damping.classical(0.999), LR, CURVATURES, steps).iterates,
        "Nesterov, β = 0.999": nesterov_trajectory(0.999, LR, CURVATURES, steps).theta,
        "AggMo, K = 4": trajectory(Damping.exponential(k=4), LR, CURVATURES, steps).iterates,
    }


def _settles(steps: float) -> str:
    return "does not settle" if math.isinf(steps) else f"settles at step {int(steps)}"


def _draw_runs(figure: Figure, iterates: Floats) -> None:
    """The distance from the minimum by step, faint, and the largest from each step on, for each curvature."""
    figure.set_size_inches(style.HALF)
    axis = figure.subplots()
    t, distances = np.arange(1, STEPS + 1), np.abs(iterates[1:])
    largest = np.maximum.accumulate(distances[::-1])[::-1]
    for j, colour in enumerate(style.ordered(len(CURVATURES))):
        axis.plot(t, distances[:STEPS, j], color=colour, lw=0.5, alpha=0.35)
        axis.plot(t, largest[:STEPS, j], color=colour, label=f"λ = {CURVATURES[j]:g}")
    axis.axhline(NEAR, color=style.MUTED[0], lw=0.8, ls=":")
    axis.set(xscale="log", yscale="log", ylim=(1e-5, 3), xlim=(1, STEPS), xlabel="step", ylabel="distance |x|")
    style.label_lines(axis)


LOOKS: dict[str, tuple[str, str | tuple[float, tuple[float, ...]]]] = {
    "CM, β = 0.9": ("cm", "solid"),
    "CM, β = 0.99": ("cm", (0, (2, 1))),
    "Nesterov, β = 0.9": ("nesterov", "solid"),
    "Nesterov, β = 0.99": ("nesterov", (0, (2, 1))),
    "AggMo, K = 3": ("aggmo", "solid"),
}


def _draw_rates(figure: Figure, kappas: Floats, curves: Mapping[str, Floats], optimum: Floats) -> None:
    """The rates by condition number."""
    figure.set_size_inches(style.WIDE)
    axis = figure.subplots()
    axis.plot(kappas, optimum, color=style.MUTED[0], ls=(0, (5, 3)), lw=1.2, label="best CM at each κ")
    for name, rates in curves.items():
        optimizer, dashes = LOOKS[name]
        axis.plot(kappas, rates, color=style.colour(optimizer), ls=dashes, label=name)
    axis.set(xscale="log", yscale="log", xlim=(kappas[0], kappas[-1]), xlabel="condition number κ", ylabel="rate 1 − ρ")
    style.label_lines(axis)


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
