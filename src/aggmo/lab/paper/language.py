"""The language model: table 3, figure 7, and what section 5.3 says of clipping, decay, SGD and AggMo's range."""

import math
from collections.abc import Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.image import AxesImage

from aggmo.lab.paper import style
from aggmo.lab.paper.empirical import chosen_name, damping_name, drawn, notes, of, score, settings_table, speed
from aggmo.lab.paper.experiment import Evidence
from aggmo.lab.paper.result import Cell, Picture, Result, Table
from aggmo.lab.paper.rules import Check, less, verdict
from aggmo.lab.selection import HeatMap, Score, heat_map, lr_sensitivity

TASK = "lstm"
NAMES = style.NAMES
MOMENTUM = ("cm", "nesterov", "adam", "aggmo")
SPLITS = ("train", "validation", "test")

# Train, validation and test perplexity in the paper.
TABLE_3 = {
    "nt-asgd": (35.68, 61.17, 59.26),
    "sgd": (35.34, 63.39, 62.41),
    "cm": (50.34, 70.37, 68.21),
    "nesterov": (34.91, 60.84, 58.44),
    "adam": (32.88, 60.25, 57.83),
    "aggmo": (33.22, 60.36, 57.79),
}
NESTEROV_DEFAULT = (63.67, 61.45)  # validation and test with β = 0.9, appendix E


def table_3(evidence: Evidence) -> Result:
    """Table 3: perplexities of the settings that are best in validation."""
    rows: list[tuple[Cell, ...]] = [
        _row(evidence, "validation", optimizer, NAMES[optimizer], [f"{number:.2f}" for number in paper])
        for optimizer, paper in TABLE_3.items()
    ]
    default = [None, *(f"{number:.2f}" for number in NESTEROV_DEFAULT)]
    rows.append(_row(evidence, "usual-validation", "nesterov", "Nesterov (default damping)", default))
    heads = [head for split in SPLITS for head in (f"{split}, paper", f"{split}, ours")]
    return Result(
        "table-3",
        "Table 3: Penn Treebank perplexity",
        "Adam and AggMo are best and close to each other, Nesterov follows; all of them beat SGD, and CM does not.",
        (),
        (
            Table(
                "table-3",
                "Perplexity of the settings with the best validation perplexity.",
                ("optimizer", *heads, "setting"),
                tuple(rows),
            ),
        ),
        verdict(table_3_checks(evidence), evidence.conclusive),
        settings_table(evidence, TASK),
        notes(evidence, TASK),
        evidence.cost(TASK),
    )


def table_3_checks(evidence: Evidence) -> list[Check]:
    """All but CM against SGD, SGD against CM, Nesterov against AggMo, and AggMo beside Adam."""
    test = {name: score(evidence, TASK, "validation", name, "test_perplexity") for name in TABLE_3}
    checks = [
        less(f"{NAMES[name]}'s test perplexity is less than SGD's", test[name], test["sgd"])
        for name in ("nesterov", "adam", "aggmo")
    ]
    checks.append(less("SGD's test perplexity is less than CM's", test["sgd"], test["cm"]))
    checks.append(less("AggMo's test perplexity is less than Nesterov's", test["aggmo"], test["nesterov"]))
    one, other = test["aggmo"], test["adam"]
    claim = "AggMo's test perplexity is Adam's, to 2 %"
    if one is None or other is None or not (one.values and other.values):
        return [*checks, Check(claim, None, "no such trials")]
    close = abs(one.mean / other.mean - 1.0) <= 0.02
    return [*checks, Check(claim, close, f"{one.mean:.4g} and {other.mean:.4g}")]


def figure_7(evidence: Evidence) -> Result:
    """Figure 7: perplexity by epoch."""
    return Result(
        "figure-7",
        "Figure 7: convergence of the language model",
        "The momentum methods converge within 300 epochs, those without momentum much more slowly; Adam is fastest.",
        tuple(
            Picture(
                f"figure-7-{split}",
                f"{split.capitalize()} perplexity by epoch of the settings with the best validation perplexity.",
                "Six falling curves with bands.",
                draw,
            )
            for split, draw in (
                ("train", lambda figure: _draw(figure, evidence, "train")),
                ("validation", lambda figure: _draw(figure, evidence, "validation")),
            )
        ),
        (),
        verdict(figure_7_checks(evidence), evidence.conclusive),
        settings_table(evidence, TASK),
        ("The speed of a run is the mean over its epochs of the logarithm of its validation perplexity.",),
        evidence.cost(TASK),
    )


def figure_7_checks(evidence: Evidence) -> list[Check]:
    """The momentum methods' speed against SGD's, and Adam's against the others'."""
    own = evidence.group(TASK, "validation")
    speeds = {name: speed(evidence, of(own, name), "validation_perplexity") for name in TABLE_3}
    return [
        *(less(f"{NAMES[name]} is faster than SGD", speeds[name], speeds["sgd"]) for name in MOMENTUM),
        *(
            less(f"Adam is faster than {NAMES[name]}", speeds["adam"], speeds[name])
            for name in ("cm", "nesterov", "aggmo")
        ),
    ]


def section_5_3(evidence: Evidence) -> Result:
    """Section 5.3: clipping, decay, and how wide a range of learning rates does well."""
    rows: list[tuple[Cell, ...]] = [
        (
            NAMES[name],
            score(evidence, TASK, "validation", name, "validation_perplexity"),
            score(evidence, TASK, "clipping", name, "validation_perplexity"),
        )
        for name in MOMENTUM
    ]
    decades = _decades(evidence)
    wide: list[tuple[Cell, ...]] = [(NAMES[name], f"{width:.2g}") for name, width in decades.items()]
    decay: list[tuple[Cell, ...]] = [
        ("constant", score(evidence, TASK, "validation", "sgd", "validation_perplexity")),
        ("halved on a plateau", score(evidence, TASK, "decay", "sgd", "validation_perplexity")),
    ]
    return Result(
        "section-5.3",
        "Section 5.3: clipping, decay, and the range of learning rates",
        "Clipping the gradient hurts the momentum methods; SGD does best without decay of the learning rate; AggMo does"
        " well over a large range of learning rates and dampings.",
        (
            Picture(
                "section-5.3-map",
                "Validation perplexity by learning rate and damping; an empty field has no trial, a cross diverged.",
                "Maps for CM, Nesterov and AggMo.",
                lambda figure: _draw_maps(figure, evidence),
            ),
        ),
        (
            Table(
                "section-5.3-clipping",
                "Validation perplexity of the chosen settings, without and with clipping.",
                ("optimizer", "without clipping", "with clipping"),
                tuple(rows),
            ),
            Table("section-5.3-decay", "Validation perplexity of SGD.", ("learning rate", "perplexity"), tuple(decay)),
            Table(
                "section-5.3-range",
                "The range of learning rates within 10 % of the best validation perplexity, in powers of ten.",
                ("optimizer", "decades"),
                tuple(wide),
            ),
        ),
        verdict(section_5_3_checks(evidence), evidence.conclusive),
        settings_table(evidence, TASK),
        notes(evidence, TASK)[:1],
        evidence.cost(TASK),
    )


def section_5_3_checks(evidence: Evidence) -> list[Check]:
    """Without clipping against with, a constant learning rate against decay, and AggMo's range against two others."""
    metric = "validation_perplexity"

    def found(group: str, name: str) -> Score | None:
        return score(evidence, TASK, group, name, metric)

    checks = [
        less(f"{NAMES[name]} is better without clipping", found("validation", name), found("clipping", name))
        for name in MOMENTUM
    ]
    checks.append(less("SGD is better at a constant learning rate", found("validation", "sgd"), found("decay", "sgd")))
    decades = _decades(evidence)
    for other in ("cm", "nesterov"):
        known = {"aggmo", other} <= decades.keys()
        holds = decades["aggmo"] >= decades[other] if known else None
        numbers = f"{decades['aggmo']:.2g} and {decades[other]:.2g} decades" if known else ""
        checks.append(Check(f"AggMo's range of learning rates is at least as wide as {NAMES[other]}'s", holds, numbers))
    return checks


def _decades(evidence: Evidence) -> dict[str, float]:
    """The width of the range of good learning rates, by optimizer; those without a finite result are left out."""
    tuning = evidence.group(TASK, "tuning")
    found = {}
    for name in MOMENTUM:
        if own := of(tuning, name):
            width = lr_sensitivity(own, "validation_perplexity").decades
            if not math.isnan(width):
                found[name] = width
    return found


def _row(evidence: Evidence, group: str, optimizer: str, name: str, paper: Sequence[str | None]) -> tuple[Cell, ...]:
    """A row of table 3."""
    cells: list[Cell] = [name]
    for split, number in zip(SPLITS, paper, strict=True):
        cells += [number, score(evidence, TASK, group, optimizer, f"{split}_perplexity")]
    return (*cells, chosen_name(evidence, TASK, group, optimizer))


def _draw(figure: Figure, evidence: Evidence, split: str) -> None:
    """A split's perplexity by epoch."""
    figure.set_size_inches(style.HALF)
    axis = figure.subplots()
    drawn(evidence, axis, TASK, "validation", f"{split}_perplexity", ylabel=f"{split} perplexity", yscale="log")


def _draw_maps(figure: Figure, evidence: Evidence) -> None:
    """Validation perplexity by learning rate and damping of three optimizers."""
    figure.set_size_inches(style.WIDE)
    tuning = evidence.group(TASK, "tuning")
    names = [name for name in ("cm", "nesterov", "aggmo") if of(tuning, name)]
    if not names:
        return
    maps = {name: heat_map(of(tuning, name), "validation_perplexity") for name in names}
    values = [x for each in maps.values() for x in each.means.flatten() if math.isfinite(x)]
    if not values:
        return
    axes = figure.subplots(1, len(names), squeeze=False)[0]
    for axis, name in zip(axes, names, strict=True):
        image = _draw_map(axis, name, maps[name], min(values), min(max(values), 3 * min(values)))
    figure.colorbar(image, ax=axes, label="validation perplexity", shrink=0.8)


def _draw_map(axis: Axes, name: str, found: HeatMap, low: float, high: float) -> AxesImage:
    """One optimizer's map."""
    axis.grid(visible=False)
    image = axis.imshow(found.means, vmin=low, vmax=high, origin="lower", aspect="auto", cmap="viridis_r")
    for y, x in zip(*(found.diverged == 1.0).nonzero(), strict=True):
        axis.text(x, y, "×", ha="center", va="center", color=style.INK[0])
    axis.set(
        title=NAMES[name],
        xlabel="learning rate",
        xticks=range(len(found.xs)),
        xticklabels=[f"{x:g}" for x in found.xs],
        yticks=range(len(found.ys)),
        yticklabels=[damping_name(name, betas) for betas in found.ys],
    )
    return image
