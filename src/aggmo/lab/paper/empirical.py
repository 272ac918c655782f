"""What the items with trials behind them have in common: scores, curves, tables of settings, notes."""

import math
from collections.abc import Sequence
from dataclasses import fields
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator
from numpy.typing import NDArray

from aggmo.damping import Damping
from aggmo.lab.paper import style
from aggmo.lab.paper.experiment import Curve, Evidence
from aggmo.lab.paper.plan import METRICS
from aggmo.lab.paper.result import Cell, Table
from aggmo.lab.paper.settings import DAMPING, SETTINGS, shown_value
from aggmo.lab.records import Trial
from aggmo.lab.selection import Score, select, summarize

BIAS = (
    "Learning rate and damping were chosen on one seed, and the numbers come from other seeds, so that a setting's luck"
    " in the selection does not count; that the choice itself rests on one seed remains."
)


def of(trials: Sequence[Trial], optimizer: str) -> list[Trial]:
    """The trials of an optimizer.

    >>> of([Trial(1, "", {"optimizer": "cm"}, "finished", {})], "adam")
    []
    """
    return [trial for trial in trials if trial.settings["optimizer"] == optimizer]


def score(evidence: Evidence, task: str, group: str, optimizer: str, metric: str) -> Score | None:
    """The values of an optimizer's chosen setting over its seeds; None if there are no trials.

    >>> score(Evidence("quick"), "cnn5", "validation", "cm", "test_accuracy") is None
    True
    """
    own = of(evidence.group(task, group), optimizer)
    return summarize(own, metric) if own else None


def curves(evidence: Evidence, trials: Sequence[Trial], name: str) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """The epochs, and a row of values for each trial; shorter ones end with nan.

    >>> trial = Trial(7, "", {}, "finished", {})
    >>> curve = {"epoch": np.array([1.0, 2.0]), "loss": np.array([0.5, 0.25])}
    >>> curves(Evidence("quick", curves={7: curve}), [trial], "loss")[1]
    array([[0.5 , 0.25]])
    """
    own: list[Curve] = [evidence.curves[trial.trial] for trial in trials]
    longest = max((len(curve["epoch"]) for curve in own), default=0)
    rows = np.full((len(own), longest), np.nan)
    for row, curve in zip(rows, own, strict=True):
        row[: len(curve["epoch"])] = curve.get(name, np.nan)
    return np.arange(1.0, longest + 1.0), rows


def speed(evidence: Evidence, trials: Sequence[Trial], name: str) -> Score | None:
    """The mean over the epochs of the logarithm of a curve, for each trial: the less, the faster it falls.

    A trial that diverged counts as such; None without trials.

    >>> curve = {"epoch": np.array([1.0, 2.0]), "loss": np.array([1.0, math.e**2])}
    >>> trials = [Trial(7, "", {"lr": 0.5, "seed": 1}, "finished", {"diverged": False})]
    >>> speed(Evidence("quick", curves={7: curve}), trials, "loss").mean
    1.0
    """
    if not trials:
        return None
    _, rows = curves(evidence, trials, name)
    values = [
        float(np.nanmean(np.log(row)))
        for trial, row in zip(trials, rows, strict=True)
        if not (trial.outcome or {}).get("diverged")
    ]
    return Score(trials[0].settings, tuple(values), len(trials) - len(values))


def drawn(evidence: Evidence, axis: Axes, task: str, group: str, name: str, **axes: Any) -> None:
    """A curve with its band for each optimizer of a task, labelled at its end: of what did not diverge, if any."""
    for optimizer in SETTINGS[task][evidence.scale].optimizers:
        own = of(evidence.group(task, group), optimizer)
        if own:
            left = [trial for trial in own if not (trial.outcome or {}).get("diverged")]
            epochs, rows = curves(evidence, left or own, name)
            lost = f" ({len(own) - len(left)} of {len(own)} diverged)" if len(left) < len(own) else ""
            style.curve(axis, epochs, rows, optimizer, style.NAMES[optimizer] + lost)
    axis.set(xlabel="epoch", **axes)
    axis.xaxis.set_major_locator(MaxNLocator(nbins=6, integer=True))
    style.label_lines(axis)


def damping_name(optimizer: str, betas: Sequence[float]) -> str:
    """A damping in a table.

    >>> damping_name("aggmo", [0.0, 0.9, 0.99]), damping_name("aggmo", [0.0]), damping_name("aggmo", [0.9])
    ('K = 3', 'K = 1', '0.9')
    >>> damping_name("adam", [0.9, 0.999]), damping_name("sgd", [])
    ('β₁ = 0.9', '')
    """
    if optimizer == "aggmo":
        usual = tuple(betas) == Damping.exponential(k=len(betas)).betas
        return f"K = {len(betas)}" if usual else ", ".join(f"{beta:g}" for beta in betas)
    if optimizer == "adam":
        return f"β₁ = {betas[0]:g}"
    return f"β = {betas[0]:g}" if betas else ""


def setting_name(settings: dict[str, Any]) -> str:
    """A setting in a table.

    >>> setting_name({"optimizer": "cm", "lr": 0.1, "betas": [0.9]})
    'lr 0.1, β = 0.9'
    """
    damping = damping_name(settings["optimizer"], settings["betas"])
    return f"lr {settings['lr']:g}" + (f", {damping}" if damping else "")


def chosen_name(evidence: Evidence, task: str, group: str, optimizer: str) -> Cell:
    """The setting that was chosen, or None without trials.

    >>> chosen_name(Evidence("quick"), "cnn5", "train", "cm")
    """
    own = of(evidence.group(task, group), optimizer)
    return setting_name(own[0].settings) if own else None


def settings_table(evidence: Evidence, *tasks: str) -> Table:
    """The settings of some tasks at the scale of the evidence.

    >>> settings_table(Evidence("quick"), "cnn5").columns
    ('setting', 'cnn5')
    """
    names = [each.name for each in fields(SETTINGS[tasks[0]][evidence.scale])]
    rows: list[tuple[Cell, ...]] = [
        (name, *(shown_value(getattr(SETTINGS[task][evidence.scale], name)) for task in tasks)) for name in names
    ]
    rows.append(("damping", *([shown_value(DAMPING[evidence.scale])] * len(tasks))))
    rows.append(("data used", *(evidence.data.get(task, "") for task in tasks)))
    return Table("settings", "The settings of the runs.", ("setting", *tasks), tuple(rows))


def notes(evidence: Evidence, *tasks: str) -> tuple[str, ...]:
    """On the selection, and what it warns of."""
    found = [BIAS]
    for task in tasks:
        metric, direction = METRICS[task]
        tuning = evidence.group(task, "tuning")
        for split in ("train", "validation"):
            choices = select(tuning, f"{split}_{metric}", direction)
            doubts = [_doubts(name, each.warnings) for name, each in choices.items() if each.warnings]
            if doubts:
                end = "What is best at the edge of its grid may be better beyond."
                found.append(f"{task}, chosen by {split} {metric}: {', '.join(doubts)}. {end}")
        diverged = sum(bool((trial.outcome or {}).get("diverged")) for trial in tuning)
        if tuning:
            found.append(f"{task}: {diverged} of the {len(tuning)} trials of the grid diverged.")
    return tuple(found)


def _doubts(optimizer: str, warnings: Sequence[str]) -> str:
    """The warnings of a choice, most of which are on the edge of the grid, in few words."""
    short = [warning.removesuffix(", the optimum may lie beyond").replace(" is the ", " the ") for warning in warnings]
    return f"{style.NAMES[optimizer]} ({'; '.join(short)})"


def stable(evidence: Evidence, trial: Trial, name: str, factor: float = 1.1) -> bool:
    """Whether a training did not diverge, nor was ever at more than `factor` times the least that it had reached.

    One that has lost for good what it had learned may end below that: what it falls back to is no more than the error
    of the mean image.

    >>> curve = {"epoch": np.array([1.0, 2.0, 3.0, 4.0]), "mse": np.array([72.0, 48.0, 54.0, 52.7])}
    >>> trial = Trial(7, "", {}, "finished", {"diverged": False})
    >>> stable(Evidence("quick", curves={7: curve}), trial, "mse")
    False
    """
    if (trial.outcome or {}).get("diverged"):
        return False
    values = evidence.curves[trial.trial][name]
    return bool(np.isfinite(values).all() and (values <= factor * np.minimum.accumulate(values)).all())


def finite(value: float | None) -> float:
    """The value, nan for None.

    >>> finite(None)
    nan
    """
    return math.nan if value is None else value
