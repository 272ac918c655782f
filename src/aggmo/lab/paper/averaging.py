"""Appendix F: Beta-averaged momentum, and how sampling and quadrature approximate it."""

import math
from collections.abc import Mapping, Sequence
from functools import partial

import numpy as np
from matplotlib.figure import Figure

from aggmo.damping import Damping
from aggmo.lab.paper import style
from aggmo.lab.paper.experiment import Evidence
from aggmo.lab.paper.quadratics import CURVATURES, LR, settling, step_shown
from aggmo.lab.paper.result import Cell, Picture, Result, Table
from aggmo.lab.paper.rules import Check, verdict
from aggmo.theory.arguments import Floats
from aggmo.theory.averaging import descend, impulse_response, moments, response_error, sampled, sampling_error

ALPHA, BETA, STEPS, LAGS = 100.0, 1.0, 3000, 1000
STORED = (1, 2, 4, 8, 16, 32, 64, 128)
SEEDS = 10


def appendix_f(_: Evidence) -> Result:
    """Appendix F: trajectories of the full history, the quadrature and AggMo; errors by the number of velocities."""
    nodes = Damping.beta_distributed(ALPHA, BETA, nodes=4)
    responses = {
        "Beta-averaged, full history": moments(ALPHA, BETA, STEPS),
        "Beta-averaged, 4 nodes": impulse_response(nodes, STEPS),
        "AggMo, K = 4": impulse_response(Damping.exponential(k=4), STEPS),
    }
    runs = {
        name: descend(lambda x: np.array(CURVATURES) * x, np.ones(len(CURVATURES)), LR, response, STEPS)
        for name, response in responses.items()
    }
    steps = {name: settling(run) for name, run in runs.items()}
    errors = _errors()
    rows: tuple[tuple[Cell, ...], ...] = tuple((name, *map(step_shown, own)) for name, own in steps.items())
    names = ("full", "quadrature", "aggmo")
    pictures = [
        Picture(
            f"appendix-f-{short}",
            f"{name}: the distance from the minimum by curvature, at learning rate {LR} (α = {ALPHA:g}, β = {BETA:g}).",
            f"{name}: the distance falls for every curvature.",
            partial(_draw_run, iterates=run),
        )
        for short, (name, run) in zip(names, runs.items(), strict=True)
    ]
    pictures.append(
        Picture(
            "appendix-f-errors",
            f"The largest error of the impulse response over {LAGS} lags, by the number of velocities, or of gradients"
            f" kept. Sampling: the root mean square over {SEEDS} draws.",
            "Sampling falls with the square root of K, quadrature far faster.",
            partial(_draw_errors, errors=errors),
        )
    )
    heads = ("optimizer", *(f"λ = {curvature:g}" for curvature in CURVATURES))
    error_rows: tuple[tuple[Cell, ...], ...] = tuple(
        (k, *(f"{errors[name][i]:.2g}" for name in errors)) for i, k in enumerate(STORED)
    )
    return Result(
        "appendix-f",
        "Appendix F: Beta-averaged momentum",
        "Momentum averaged under a Beta distribution of its damping (α = 100, β = 1) gives trajectories like AggMo's;"
        " damping coefficients sampled from the distribution approximate the integral.",
        tuple(pictures),
        (
            Table(
                "appendix-f-settling", f"The last of {STEPS} steps at 1e-2 or farther from the minimum.", heads, rows
            ),
            Table("appendix-f-errors", "The error of the impulse response.", ("K", *errors), error_rows),
        ),
        verdict(appendix_f_checks(list(steps.values()), errors)),
    )


def appendix_f_checks(steps: Sequence[Sequence[float]], errors: Mapping[str, Sequence[float]]) -> list[Check]:
    """That it settles as AggMo does, within a factor of two, and that sampling errors fall as 1/sqrt(K).

    >>> errors = {"sampled": [1.0, 0.5], "expected of samples": [1.0, 0.5], "quadrature": [0.1, 0.0]}
    >>> [check.holds for check in appendix_f_checks([[100.0], [100.0], [150.0]], errors)]
    [True, True, True]
    """
    full, own = np.array(steps[0]), np.array(steps[2])
    ratios = np.where(np.isinf(full) & np.isinf(own), 1.0, full / own)
    numbers = " / ".join(f"{ratio:.2f}" for ratio in ratios)
    close = None if np.isnan(ratios).any() else bool(((ratios >= 0.5) & (ratios <= 2.0)).all())
    found, expected = np.array(errors["sampled"]), np.array(errors["expected of samples"])
    quadrature = np.array(errors["quadrature"])
    unknown = bool(np.isnan(found).any() or np.isnan(quadrature).any())
    within = bool((np.abs(np.log(found / expected)) < math.log(3.0)).all()) if not unknown else None
    return [
        Check("it settles as AggMo (K = 4) does at every curvature, within a factor of 2", close, f"ratios {numbers}"),
        Check("the error of sampling is the standard error, ∝ 1/√K, within a factor of 3", within),
        Check(
            "quadrature is closer than sampling at every K",
            None if unknown else bool((quadrature <= found).all()),
            f"at the largest K {quadrature[-1]:.1e} and {found[-1]:.1e}",
        ),
    ]


def _errors() -> dict[str, list[float]]:
    """The errors of the impulse response by number of velocities."""
    draws = {
        k: [response_error(impulse_response(sampled(ALPHA, BETA, k, s), LAGS), ALPHA, BETA, LAGS) for s in range(SEEDS)]
        for k in STORED
    }
    return {
        "sampled": [float(np.sqrt(np.mean(np.square(draws[k])))) for k in STORED],
        "expected of samples": [float(sampling_error(ALPHA, BETA, k, LAGS).max()) for k in STORED],
        "quadrature": [
            response_error(impulse_response(Damping.beta_distributed(ALPHA, BETA, k), LAGS), ALPHA, BETA, LAGS)
            for k in STORED
        ],
        "last gradients kept": [response_error(moments(ALPHA, BETA, k), ALPHA, BETA, LAGS) for k in STORED],
    }


def _draw_run(figure: Figure, iterates: Floats) -> None:
    """The distance from the minimum by step."""
    figure.set_size_inches(style.HALF)
    axis = figure.subplots()
    t = np.arange(1, len(iterates))
    for j, colour in enumerate(style.ordered(len(CURVATURES))):
        axis.plot(t, np.abs(iterates[1:, j]), color=colour, lw=1.0, label=f"λ = {CURVATURES[j]:g}")
    axis.set(xscale="log", yscale="log", ylim=(1e-5, 3), xlim=(1, STEPS), xlabel="step", ylabel="distance |x|")
    style.label_lines(axis)


def _draw_errors(figure: Figure, errors: Mapping[str, Sequence[float]]) -> None:
    """The errors by number of velocities."""
    figure.set_size_inches(style.HALF)
    axis = figure.subplots()
    dashes = {"expected of samples": ":"}
    for (name, values), colour in zip(errors.items(), style.ordered(len(errors)), strict=True):
        axis.plot(STORED, np.maximum(values, 1e-16), color=colour, ls=dashes.get(name, "solid"), label=name)
    axis.set(xscale="log", yscale="log", xlim=(1, STORED[-1]), ylim=(1e-16, 3), xlabel="K", ylabel="largest error")
    axis.legend(loc="lower left")
