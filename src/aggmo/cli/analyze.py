"""`aggmo analyze`: what the theory of quadratics says of a damping vector, beside classical and Nesterov momentum."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from aggmo.damping import Damping


def analyze(
    betas: Annotated[str, typer.Argument(help="The damping vector, with commas between.")] = "0,0.9,0.99",
    weights: Annotated[
        str | None, typer.Option(help="What each velocity counts.", show_default="1/K each, as in the paper")
    ] = None,
    kappas: Annotated[
        str, typer.Option(help="Condition numbers, the largest curvature over the least.")
    ] = "10,1e2,1e3,1e4,1e5,1e6,1e7",
    plot: Annotated[
        Path | None, typer.Option(help="Write a picture, such as rates.svg or rates.png, over these condition numbers.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Show the speed, the stability and the best learning rates of a damping vector on quadratics.

    Learning rates are for curvatures up to 1; divide them by the largest curvature of your own. CM and Nesterov are
    shown with the largest beta of the damping vector, and CM also with the best beta for each condition number.
    """
    from aggmo.damping import Damping

    damping = Damping(_numbers("betas", betas), None if weights is None else _numbers("--weights", weights))
    condition_numbers = _numbers("--kappas", kappas)
    found = _analysis(damping, condition_numbers)
    if plot is not None:
        _plot(damping, condition_numbers, plot)
    if as_json:
        typer.echo(json.dumps(found, indent=2))
    else:
        _print(found)


def _numbers(name: str, text: str) -> list[float]:
    """The numbers between commas."""
    try:
        return [float(part) for part in text.split(",")]
    except ValueError:
        raise ValueError(f"{name} {text!r}: must be numbers with commas between, such as 0,0.9,0.99") from None


def _analysis(damping: "Damping", kappas: list[float]) -> dict[str, Any]:
    """Everything that is printed."""
    from aggmo.theory.stability import best_lr, classical_optimum, limit, nesterov_optimum, real_windows, underdamped

    rivals = {"classical": type(damping).classical(max(damping)), "nesterov": type(damping).nesterov(max(damping))}
    rows = []
    for kappa in kappas:
        row: dict[str, Any] = {"condition_number": kappa} | _pair(best_lr(damping, kappa))
        row |= {name: {"beta": max(damping)} | _pair(best_lr(rival, kappa)) for name, rival in rivals.items()}
        row["classical_optimum"] = classical_optimum(kappa)._asdict()
        row["nesterov_optimum"] = nesterov_optimum(kappa)._asdict()
        rows.append(row | {"slowdown": row["classical_optimum"]["rate"] / row["rate"]})
    return {
        "betas": damping.betas,
        "weights": damping.weights,
        "terminal_velocity": damping.terminal_velocity,
        "stability_limit": limit(damping),
        "rivals": {
            name: {"beta": max(damping), "terminal_velocity": rival.terminal_velocity, "stability_limit": limit(rival)}
            for name, rival in rivals.items()
        },
        "underdamped": underdamped(damping),
        "real_windows": real_windows(damping),
        "condition_numbers": rows,
    }


def _pair(best: tuple[float, float]) -> dict[str, float]:
    return {"lr": best[0], "rate": best[1]}


def _print(found: dict[str, Any]) -> None:
    """The analysis as two tables and what they do not say."""
    from rich import box
    from rich.console import Console
    from rich.table import Table

    form: dict[str, Any] = {"box": box.SIMPLE_HEAD, "pad_edge": False, "padding": (0, 1, 0, 0)}
    beta, rivals = max(found["betas"]), found["rivals"]
    velocities = Table(**form)
    for head in ("velocity", "β", "weight", "terminal velocity", "stability limit of lr·λ"):
        velocities.add_column(head, justify="left" if head == "velocity" else "right")
    for i, (one, weight) in enumerate(zip(found["betas"], found["weights"], strict=True), 1):
        velocities.add_row(str(i), f"{one:.12g}", f"{weight:.4g}", f"{weight / (1.0 - one):.4g}", "")
    velocities.add_section()
    everything = f"{found['terminal_velocity']:.4g}", f"{found['stability_limit']:.4g}"
    velocities.add_row("[bold]together[/]", "", f"{sum(found['weights']):.4g}", *(f"[bold]{x}[/]" for x in everything))
    for name, rival in (("CM", rivals["classical"]), ("Nesterov", rivals["nesterov"])):
        numbers = f"{rival['terminal_velocity']:.4g}", f"{rival['stability_limit']:.4g}"
        velocities.add_row(name, f"{beta:.12g}", "", *numbers)
    rates = Table(**form)
    heads = (
        "κ",
        "best lr",
        "rate",
        f"CM\nβ={beta:.12g}",
        f"Nesterov\nβ={beta:.12g}",
        "CM with\nthe best β",
        "behind\nthat by",
    )
    for head in heads:
        rates.add_column(head, justify="right", vertical="bottom")
    for row in found["condition_numbers"]:
        others = (f"{row[name]['rate']:.2e}" for name in ("classical", "nesterov", "classical_optimum"))
        kappa, lr, rate = f"{row['condition_number']:,.10g}", f"{row['lr']:.4g}", f"[bold]{row['rate']:.2e}[/]"
        rates.add_row(kappa, lr, rate, *others, f"{row['slowdown']:.2f}×")
    console = Console(highlight=False)
    console.print(velocities)
    console.print(_oscillation(found["underdamped"], found["real_windows"]))
    console.print("\nRates: the part of the error that a step removes, at the worst λ in [1/κ, 1].")
    console.print(rates)


def _oscillation(low_high: tuple[float, float] | None, windows: tuple[tuple[float, float], ...]) -> str:
    """Where eigenvalues are complex, as a sentence."""
    if low_high is None:
        return "Nothing oscillates: without a positive β no eigenvalue is complex."
    text = f"Complex eigenvalues (oscillation): {low_high[0]:.4g} < lr·λ < {low_high[1]:.4g}"
    gaps = ", ".join(f"{low:.4g} … {high:.4g}" for low, high in windows)
    return f"{text},\nbut none in {gaps}." if gaps else f"{text}."


def _plot(damping: "Damping", kappas: list[float], path: Path) -> None:
    """Rates over condition numbers, and over steps lr·λ."""
    from matplotlib.figure import Figure

    from aggmo.lab.paper.style import label_lines, style, write_powers

    with style():
        figure = Figure(figsize=(9.4, 3.6))
        left, right = figure.subplots(1, 2)
        _draw_condition_numbers(left, damping, kappas)
        _draw_steps(right, damping)
        write_powers(figure)
        label_lines(left)
        figure.savefig(path)


def _draw_condition_numbers(axis: Any, damping: "Damping", kappas: list[float]) -> None:
    """As figure 3 of the paper, from the least condition number to the largest, or a decade to each side of one."""
    import numpy as np

    from aggmo.lab.paper.style import MUTED, curve
    from aggmo.theory.stability import best_lr

    low, high, beta = min(kappas), max(kappas), max(damping)
    low, high = (max(low / 10.0, 1.0), high * 10.0) if low == high else (low, high)
    kappa = np.geomspace(low, high, 121)
    axis.set(xscale="log", yscale="log", title="Rate at the best learning rate", xlabel="condition number κ")
    axis.set_ylabel("1 − ρ")
    optimum = 2.0 / (np.sqrt(kappa) + 1.0)
    axis.plot(kappa, optimum, color=MUTED[0], linestyle=":", label="CM, best β")
    for rival, name, label in (
        (type(damping).classical(beta), "cm", f"CM, β = {beta:.12g}"),
        (type(damping).nesterov(beta), "nesterov", f"Nesterov, β = {beta:.12g}"),
        (damping, "aggmo", "this damping"),
    ):
        curve(axis, kappa, best_lr(rival, kappa)[1], name, label)


def _draw_steps(axis: Any, damping: "Damping") -> None:
    """The rate of one curvature, and where it oscillates."""
    import numpy as np

    from aggmo.lab.paper.style import FAINT, MUTED, colour
    from aggmo.theory.quadratic import rate
    from aggmo.theory.stability import limit, real_windows, underdamped

    top, ends = limit(damping), underdamped(damping) or ()
    marks = [*ends, *np.ravel(real_windows(damping))]
    lowest = min([top, *ends]) / 100.0
    steps = np.unique(
        np.concatenate([np.geomspace(lowest, top, 2000), top * (1.0 - np.geomspace(1e-4, 1, 200)), marks])
    )
    steps = steps[(steps >= lowest) & (steps < top)]
    axis.plot(steps, rate(damping, steps), color=colour("aggmo"))
    axis.set(xscale="log", yscale="log", title="Rate of one curvature λ", xlabel="lr·λ", ylabel="1 − ρ")
    bounds = [float(x) for x in sorted(marks)]
    for low, high in zip(bounds[::2], bounds[1::2], strict=True):
        axis.axvspan(low, min(high, top), color=FAINT[0], zorder=0, linewidth=0, alpha=0.6)
    axis.axvline(top, color=MUTED[0], linestyle="--", linewidth=1)
    axis.set_xlim(lowest, top * 1.3)
    place: dict[str, Any] = {"xycoords": ("data", "axes fraction"), "va": "bottom", "color": MUTED[0], "size": 8.5}
    if bounds:
        middle = (bounds[0] * min(bounds[-1], top)) ** 0.5
        axis.annotate("complex eigenvalues", (middle, 0.03), ha="center", **place)
    axis.annotate(f"limit {top:.4g}", (top, 1.01), ha="right", **place)
