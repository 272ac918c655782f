"""A comparison of optimizers on one task: the grid that is run, and what came of it, as tables.

Every optimizer has the same budget: the same epochs for each trial, and the same seeds. How many settings it was given
to choose from is shown, and said where it is not the same for all.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from aggmo.damping import Damping
from aggmo.lab.optimizers import BETAS
from aggmo.lab.paper import settings as paper
from aggmo.lab.paper.result import Cell, Table
from aggmo.lab.progress import Direction
from aggmo.lab.records import Trial
from aggmo.lab.selection import (
    Choice,
    Score,
    Sensitivity,
    lr_sensitivity,
    steps_to_target,
    summarize,
    train_optimal,
    validation_optimal,
)
from aggmo.lab.setting import Setting
from aggmo.lab.study import Settings, grid
from aggmo.theory.arguments import whole

# The grid of a task of your own, unless it is told: fifteen settings for each optimizer that has a damping.
OPTIMIZERS = ("cm", "nesterov", "adam", "aggmo")
LR = (0.01, 0.03, 0.1, 0.3, 1.0)
ADAM_LR = (0.0003, 0.001, 0.003, 0.01, 0.03)
DAMPINGS: dict[str, tuple[tuple[float, ...], ...]] = {
    "cm": ((0.0,), (0.9,), (0.99,)),
    "nesterov": ((0.0,), (0.9,), (0.99,)),
    "adam": ((0.0, 0.999), (0.9, 0.999), (0.99, 0.999)),
    "aggmo": tuple(Damping.exponential(k).betas for k in (2, 3, 4)),
}
SEEDS = 3

Curve = Mapping[str, Any]


def trials(
    task: str,
    scale: str | None,
    content: str,
    *,
    optimizers: Sequence[str] | None = None,
    lr: Mapping[str, Sequence[float]] | None = None,
    betas: Mapping[str, Sequence[Sequence[float]]] | None = None,
    seeds: int | None = None,
    epochs: int | None = None,
) -> list[Settings]:
    """The settings of all trials, for `aggmo.lab.trial`.

    Args:
        task, scale, content: as `aggmo.lab.trial` has them.
        optimizers: their names; those of the task if None.
        lr: learning rates by optimizer; under "" those of all others. The task's own where there are none.
        betas: the dampings to choose from, likewise, but there are none for all.
        seeds: their number, >= 1.
        epochs: in place of the task's.

    Raises:
        ValueError: an argument out of range, or an optimizer that is not compared.

    >>> found = trials("cnn5", "quick", "", optimizers=["cm"], lr={"": [0.1, 0.2]}, betas={"cm": [[0.9]]}, seeds=2)
    >>> [(each["lr"], each["betas"], each["seed"]) for each in found]
    [(0.1, [0.9], 0), (0.2, [0.9], 0), (0.1, [0.9], 1), (0.2, [0.9], 1)]
    """
    usual = paper.SETTINGS[task][scale] if scale is not None else None
    names = list(optimizers if optimizers is not None else usual.optimizers if usual else OPTIMIZERS)
    lr, betas = dict(lr or {}), dict(betas or {})
    for given in (*names, *(lr.keys() - {""}), *betas):
        if given not in BETAS:
            raise ValueError(f"optimizer {given!r}: must be one of {', '.join(BETAS)}")
        if given not in names:
            raise ValueError(f"optimizer {given!r}: is given settings, but is not among {', '.join(names)}")
    if len(set(names)) < len(names):
        raise ValueError(f"optimizers {', '.join(names)}: one of them twice")
    if not names:
        raise ValueError("the grid is empty: there must be at least one optimizer")
    parts: list[Mapping[str, Sequence[Any]]] = []
    for name in names:
        rates = lr.get(name, lr.get("", _rates(name, task, scale)))
        dampings = betas.get(name) or _dampings(name, scale)
        own = [Setting(name, rate, damping) for rate in rates for damping in dampings]
        parts.append(
            {
                "optimizer": [name],
                "lr": list(dict.fromkeys(setting.lr for setting in own)),
                "betas": [list(each) for each in dict.fromkeys(setting.betas for setting in own)],
            }
        )
    shared: dict[str, Sequence[Any]] = {"task": [task], "content": [content]}
    if scale is not None:
        shared["scale"] = [scale]
    if epochs is not None:
        shared["epochs"] = [whole("epochs", epochs, least=1)]
    n = whole("seeds", (usual.seeds if usual else SEEDS) if seeds is None else seeds, least=1)
    return grid(*parts, **shared, seed=range(n))


def _rates(optimizer: str, task: str, scale: str | None) -> Sequence[float]:
    """The usual learning rates of an optimizer."""
    if scale is None:
        return ADAM_LR if optimizer == "adam" else LR
    settings = paper.SETTINGS[task][scale]
    return settings.adam_lr if optimizer == "adam" else settings.lr


def _dampings(optimizer: str, scale: str | None) -> Sequence[Sequence[float]]:
    """The usual dampings of an optimizer; one empty one if it has none."""
    return DAMPINGS.get(optimizer, ((),)) if scale is None else paper.betas(optimizer, scale)


@dataclass(frozen=True)
class Comparison:
    """What the trials of a comparison gave.

    Attributes:
        task: its name.
        metric: by whose validation value settings are selected, one of the task's.
        direction: "min" or "max", whichever is better.
        trials: all of the grid.
        curves: by the number of the trial, for those that have finished.
        wanted: the validation value whose first epoch is looked for; None takes one that all selected trials reach.

    >>> settings = [{"optimizer": "sgd", "lr": lr, "betas": [], "seed": 0} for lr in (0.5, 1.0)]
    >>> outcome = {"diverged": False, "train_loss": 0.5, "validation_error": 2.0, "test_error": 3.0}
    >>> trials = [Trial(i, "", settings[i], "finished", outcome | {"validation_error": i}) for i in (0, 1)]
    >>> curve = {"epoch": [1], "steps": [10], "validation_error": [0.0]}
    >>> comparison = Comparison("mine", "error", "min", trials, {0: curve, 1: curve})
    >>> comparison.best["sgd"].score.settings["lr"], comparison.target
    (0.5, 0.0)
    """

    task: str
    metric: str
    direction: Direction
    trials: Sequence[Trial]
    curves: Mapping[int, Curve]
    wanted: float | None = None

    @cached_property
    def optimizers(self) -> list[str]:
        """The names of those that were compared."""
        return list(dict.fromkeys(trial.settings["optimizer"] for trial in self.trials))

    @cached_property
    def best(self) -> dict[str, Choice]:
        """The validation-optimal setting of each optimizer that has an outcome."""
        return validation_optimal(self.trials, f"validation_{self.metric}", self.direction)

    @cached_property
    def fastest(self) -> dict[str, Choice]:
        """The train-optimal setting of each optimizer that has an outcome."""
        return train_optimal(self.trials)

    @cached_property
    def sensitivity(self) -> dict[str, Sensitivity]:
        """How much the learning rate matters to each optimizer."""
        return {name: lr_sensitivity(self.of(name), f"validation_{self.metric}", self.direction) for name in self.best}

    @cached_property
    def target(self) -> float:
        """The validation value whose first epoch is looked for; nan if all have diverged."""
        values = [value for choice in self.best.values() for value in choice.score.values]
        if self.wanted is not None or not values:
            return math.nan if self.wanted is None else self.wanted
        return max(values) if self.direction == "min" else min(values)

    def of(self, optimizer: str) -> list[Trial]:
        """The trials of an optimizer."""
        return [trial for trial in self.trials if trial.settings["optimizer"] == optimizer]

    def reached(self, optimizer: str, axis: str = "epoch") -> list[float]:
        """Where each trial of the validation-optimal setting first reaches the target; infinity if it does not."""
        name = f"validation_{self.metric}"
        curves = [self.curves[trial.trial] for trial in self.best[optimizer].trials]
        return [
            steps_to_target(curve, name, self.target, self.direction, axis) if name in curve else math.inf
            for curve in curves
        ]

    def warnings(self) -> list[str]:
        """What to know before believing the tables."""
        lines = [f"{name}: no trial has an outcome" for name in self.optimizers if name not in self.best]
        for name, choice in self.best.items():
            by_training = self.fastest[name].warnings
            for text in dict.fromkeys((*choice.warnings, *by_training)):
                how = "validation" if text in choice.warnings else "training"
                how = "both" if text in choice.warnings and text in by_training else how
                lines.append(f"{name}, by {how}: {text}")
        tried = {name: len(choice.ranking) for name, choice in self.best.items()}
        if len(set(tried.values())) > 1:
            numbers = ", ".join(f"{name} {n}" for name, n in tried.items())
            lines.append(f"the optimizers had different numbers of settings to choose from: {numbers}")
        return lines

    def tables(self) -> tuple[Table, Table, Table]:
        """Best by validation, best by training, and how much the settings matter."""
        goal = f"epochs to {self.target:.4g}"
        score = f"validation {self.metric}"
        return (
            Table(
                "validation",
                f"{self.task}: the setting of each optimizer with the best validation {self.metric}",
                ("optimizer", "lr", "betas", score, f"test {self.metric}", goal),
                tuple(
                    (*_setting(name, choice), choice.score, self._test(choice), _when(self.reached(name)))
                    for name, choice in self.best.items()
                ),
            ),
            Table(
                "training",
                f"{self.task}: the setting of each optimizer with the least final training loss",
                ("optimizer", "lr", "betas", "training loss"),
                tuple((*_setting(name, choice), choice.score) for name, choice in self.fastest.items()),
            ),
            Table(
                "sensitivity",
                f"{self.task}: how much the settings matter; a learning rate is near the best if the {score} is within"
                " 10%",
                ("optimizer", "settings", "trials", "diverged", "lr near the best", "decades"),
                tuple(self._sensitivity(name) for name in self.best),
            ),
        )

    def wide(self) -> Table:
        """All of `tables` as one with a row for each optimizer, and steps to the target."""
        first, second, third = self.tables()
        columns = (*first.columns, "steps to target", *(f"train-optimal {name}" for name in second.columns[1:]))
        rows = [
            (*one, _when(self.reached(str(one[0]), "steps")), *two[1:], *three[1:])
            for one, two, three in zip(first.rows, second.rows, third.rows, strict=True)
        ]
        return Table("comparison", first.caption, (*columns, *third.columns[1:]), tuple(rows))

    def plain(self) -> dict[str, Any]:
        """All of it as JSON has it, with the whole ranking of each optimizer; null for what is not finite."""
        return {
            "task": self.task,
            "metric": self.metric,
            "direction": self.direction,
            "target": _finite(self.target),
            "warnings": self.warnings(),
            "optimizers": {
                name: {
                    "validation": _plain(choice.score),
                    "test": _plain(self._test(choice)),
                    "training": _plain(self.fastest[name].score),
                    "epochs_to_target": list(map(_finite, self.reached(name))),
                    "steps_to_target": list(map(_finite, self.reached(name, "steps"))),
                    "lr_near_best": [_finite(self.sensitivity[name].low), _finite(self.sensitivity[name].high)],
                    "ranking": list(map(_plain, choice.ranking)),
                }
                for name, choice in self.best.items()
            },
        }

    def _test(self, choice: Choice) -> Score:
        return summarize(choice.trials, f"test_{self.metric}")

    def _sensitivity(self, name: str) -> tuple[Cell, ...]:
        """A row of the third table."""
        own = self.sensitivity[name]
        ranking = self.best[name].ranking
        near = f"{own.low:g}" if own.low == own.high else f"{own.low:g} to {own.high:g}"
        known = not math.isnan(own.low)
        decades = round(own.decades, 2) if known else None
        trials, diverged = sum(score.n for score in ranking), sum(score.diverged for score in ranking)
        return name, len(ranking), trials, diverged, near if known else None, decades


def _setting(name: str, choice: Choice) -> tuple[Cell, ...]:
    """The first cells of a row."""
    settings = choice.score.settings
    return name, f"{settings['lr']:g}", ", ".join(f"{beta:g}" for beta in settings["betas"]) or None


def _when(reached: Sequence[float]) -> Cell:
    """A cell for when trials reached the target: the mean, and how many did if not all."""
    finite = [value for value in reached if math.isfinite(value)]
    if not finite:
        return "never"
    mean = math.fsum(finite) / len(finite)
    return mean if len(finite) == len(reached) else f"{mean:.4g} ({len(finite)} of {len(reached)})"


def _plain(score: Score) -> dict[str, Any]:
    """A score as JSON has it."""
    numbers = {"mean": _finite(score.mean), "sd": _finite(score.sd), "n": score.n, "diverged": score.diverged}
    return {"settings": score.settings, **numbers, "values": list(score.values)}


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None
