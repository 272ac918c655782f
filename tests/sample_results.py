"""Results made by hand: every outcome, every kind of cell, and text that has to be escaped."""

import numpy as np

from aggmo.lab.paper import style
from aggmo.lab.paper.result import Check, Erratum, Picture, Result, Table, Verdict
from aggmo.lab.report.about import About
from aggmo.lab.selection import Score

WILD = 'a < b & "c" | d_e 100% {x} \\n ~ ^ # $ *f* [g](h) <script>alert(1)</script>'


def training(figure):
    """Four optimizers, five seeds each, one of which diverges."""
    rng, epochs = np.random.default_rng(0), np.arange(1, 101)
    figure.set_size_inches(style.WIDE)
    axis = figure.subplots()
    axis.set(xlabel="epoch", ylabel="training loss", yscale="log", xlim=(1, 100))
    for speed, name in zip((0.5, 0.8, 0.85, 1.1), ("cm", "nesterov", "adam", "aggmo"), strict=True):
        seeds = 20 * epochs**-speed * np.exp(rng.normal(0, 0.12, (5, 1)) + rng.normal(0, 0.02, (5, 100)))
        style.curve(axis, epochs, seeds, name)
    diverging = np.where(epochs < 20, 15 * 1.1 ** (epochs / 5), np.nan)
    style.curve(axis, epochs, diverging, "sgd", label="SGD, diverged")
    style.label_lines(axis)


def oscillation(figure):
    """Four curvatures in one panel."""
    figure.set_size_inches(style.HALF)
    axis = figure.subplots()
    axis.set(xlabel="step", ylabel="x", xlim=(0, 200))
    for curvature, colour in zip((1, 0.1, 0.01, 0.001), style.ordered(4), strict=True):
        t = np.arange(201)
        axis.plot(np.cos(0.3 * np.sqrt(curvature) * t) * 0.99**t, color=colour, label=f"λ = {curvature:g}")
    style.label_lines(axis)


def heat_map(figure):
    """A raster, its values, and text in pure white."""
    figure.set_size_inches(style.HALF)
    axis = figure.subplots()
    axis.grid(visible=False)
    image = axis.imshow(np.arange(12.0).reshape(3, 4))
    axis.text(0, 0, "0.0", color="#ffffff", ha="center", va="center")
    axis.set(xticks=range(4), xticklabels=["0.01", "0.1", "1", "10"], xlabel="lr", yticks=range(3), ylabel="damping")
    figure.colorbar(image, label="loss")


def result(name, outcome, **more):
    """A result with little in it."""
    checks = (Check("K = 4 is stable", True, "loss 0.12"), Check(f"it is {WILD}", False, WILD), Check("so", None))
    verdict = Verdict(outcome, "Reproduced if at least 3 of 4 numbers lie within 2 sd.", f"{name}: 2 of 4 do.", checks)
    given = {"title": f"The {name}", "claim": "AggMo is the fastest.", "pictures": (), "tables": (), "verdict": verdict}
    return Result(name, **(given | more))


def scores():
    """The paper's numbers and ours."""
    rows = (
        ("CM", 2.51, Score({}, (2.61, 2.66, 2.55), 0), 1, None),
        ("Nesterov", 1.52, Score({}, (1.5,), 0), 1234567, 1e-12),
        ("Adam", 1.44, Score({}, (1.44, 1.52), 1), -3, float("inf")),
        ("AggMo", 1.39, Score({}, (), 3), 0, -0.25),
    )
    return Table("table-1", "Autoencoder: the paper's loss and ours", ("optimizer", "paper", "ours", "n", "gap"), rows)


def results():
    """Four items, one of each outcome."""
    pictures = (
        Picture("figure-1a", "CM with β = 0.9", "Four curves that oscillate.", oscillation),
        Picture("figure-1b", f"A map, and {WILD}", f"A map. {WILD}", heat_map),
    )
    loss = Picture("figure-4", "Training loss, mean ± 1 sd of 5 seeds", "AggMo's curve is the lowest.", training)
    settings = Table("settings", "Settings", ("setting", "value"), (("lr", "0.1, 0.3, 1"), ("epochs", 350)))
    wild = Table("wild", WILD, ("what", "a|b"), ((WILD, 1), ("β ≤ 0.9 · λ²", 2)))
    wide = Table("wide", "A wide one", tuple(f"column {i}" for i in range(14)), (tuple(range(14)),))
    return [
        result("figure-1", "reproduced", pictures=pictures, title="Figure 1: quadratics"),
        result("table-1", "partly", tables=(scores(), wide), settings=settings, seconds=4321.5, notes=("A note.",)),
        result("figure-4", "not at this scale", pictures=(loss,), title="Figure 4: training loss", seconds=5.0),
        result("wild", "not reproduced", title=WILD, claim=WILD, tables=(wild,), notes=(WILD, "Use `--lr 0.1`.")),
    ]


def errata():
    """One that is borne out and one that is not."""
    check = Table("check", "Largest difference", ("form", "difference"), (("printed", 0.5), ("right", 1e-16)))
    return [
        Erratum("erratum-1", "Appendix C", "δ = a + b", "δ = a − b", check, holds=True),
        Erratum("erratum-2", f"Section 3 {WILD}", WILD, "ρ", check, holds=False),
    ]


def about():
    """A run that took an hour."""
    data = Table(
        "data", "Data", ("data set", "from", "items"), (("MNIST", "the originals", 70000), (WILD, "nowhere", 0))
    )
    return About("quick", "--scale quick", data, {"python": "3.11"}, "Linux, 2 cores", 3661.0, "2026-01-01 00:00 UTC")
