"""Selection: which setting of an optimizer is best, and how much it matters, from the trials of a study.

Trials that differ in nothing but the seed belong to one setting. A setting is judged by the mean over its seeds of an
entry of the outcomes. A trial whose outcome says `diverged`, or has no finite number under that name, counts as
diverged: a setting with a larger share of diverged trials ranks behind all with a smaller one, and the mean is that of
the rest.

All functions take trials as `Records.trials` gives them and leave out those that have no outcome.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from aggmo.lab.progress import Direction
from aggmo.lab.records import Trial
from aggmo.lab.study import identity
from aggmo.theory.arguments import number

SEED = "seed"


@dataclass(frozen=True, slots=True)
class Score:
    """What the seeds of one setting gave.

    Attributes:
        settings: those of its trials, without the seed.
        values: one for each trial that did not diverge, in the order of the trials.
        diverged: the number of trials that did.

    >>> score = Score({"lr": 0.1}, values=(1.0, 3.0), diverged=1)
    >>> score.mean, score.sd, score.n
    (2.0, 1.4142135623730951, 3)
    """

    settings: dict[str, Any]
    values: tuple[float, ...]
    diverged: int

    @property
    def n(self) -> int:
        """The number of trials, diverged ones included.

        >>> Score({}, (1.0,), 1).n
        2
        """
        return len(self.values) + self.diverged

    @property
    def mean(self) -> float:
        """The mean of the values; nan if there is none.

        >>> Score({}, (), 1).mean
        nan
        """
        return math.fsum(self.values) / len(self.values) if self.values else math.nan

    @property
    def sd(self) -> float:
        """The standard deviation, with n - 1; nan for fewer than two values.

        >>> Score({}, (1.0,), 0).sd
        nan
        """
        if len(self.values) < 2:
            return math.nan
        return math.sqrt(math.fsum((x - self.mean) ** 2 for x in self.values) / (len(self.values) - 1))


@dataclass(frozen=True, slots=True)
class Choice:
    """The best setting of an optimizer, and what to know about it.

    Attributes:
        ranking: the scores of all its settings, the best first.
        trials: those of the best setting, for other entries of their outcomes: `summarize(choice.trials, "test_loss")`.
        warnings: a line for each reason to doubt the choice: an optimum on the edge of the grid, trials that diverged
            or are missing.

    >>> trials = [Trial(i, "", {"optimizer": "cm", "lr": i / 4}, "finished", {"loss": 1.0 / i}) for i in (1, 2, 3)]
    >>> select(trials, "loss")["cm"].warnings
    ('lr=0.75 is the largest of its grid, the optimum may lie beyond',)
    """

    ranking: tuple[Score, ...]
    trials: tuple[Trial, ...]
    warnings: tuple[str, ...]

    @property
    def score(self) -> Score:
        """That of the best setting.

        >>> Choice((Score({"lr": 0.1}, (1.0,), 0),), (), ()).score.settings
        {'lr': 0.1}
        """
        return self.ranking[0]


def summarize(trials: Sequence[Trial], metric: str) -> Score:
    """The values of an entry of the outcomes over trials of one setting.

    Raises:
        ValueError: no trials, or trials of several settings; or a trial that did not diverge has no such entry.

    >>> losses = [1.0, None]
    >>> trials = [Trial(i, "", {"lr": 0.1, "seed": i}, "finished", {"loss": losses[i]}) for i in range(2)]
    >>> summarize(trials, "loss")
    Score(settings={'lr': 0.1}, values=(1.0,), diverged=1)
    """
    scores = rank(trials, metric)
    if len(scores) != 1:
        raise ValueError(f"{len(trials)} trials of {len(scores)} settings: must be of one, and finished")
    return scores[0]


def rank(trials: Iterable[Trial], metric: str, direction: Direction = "min") -> list[Score]:
    """The settings from the best to the worst.

    Args:
        trials: of any settings.
        metric: the entry of the outcomes.
        direction: "min" or "max", whichever is best.

    Raises:
        ValueError: another direction, or a trial that did not diverge has no such entry.

    >>> trials = [Trial(i, "", {"lr": 0.1 * i}, "finished", {"loss": loss}) for i, loss in enumerate((2.0, None, 1.0))]
    >>> [score.values for score in rank(trials, "loss")]
    [(1.0,), (2.0,), ()]
    """
    return [score for score, _ in _ranked(trials, metric, direction)]


def select(
    trials: Iterable[Trial], metric: str, direction: Direction = "min", by: str = "optimizer"
) -> dict[str, Choice]:
    """The best setting for each value of one setting, which is the optimizer unless said otherwise.

    Raises:
        ValueError: as `rank`, or a trial has no setting of that name.

    >>> trials = [Trial(i, "", {"optimizer": "cm", "lr": 0.1}, "finished", {"loss": 1.0}) for i in range(2)]
    >>> select(trials, "loss")["cm"].warnings
    ()
    """
    groups: dict[str, list[Trial]] = {}
    for trial in trials:
        if trial.status != "withdrawn":
            groups.setdefault(_setting(trial, by), []).append(trial)
    choices = {}
    for name, own in groups.items():
        if ranked := _ranked(own, metric, direction):
            best, trials_of_it = ranked[0]
            scores = tuple(score for score, _ in ranked)
            choices[name] = Choice(scores, tuple(trials_of_it), tuple(_warnings(own, best)))
    return choices


def train_optimal(trials: Iterable[Trial], metric: str = "train_loss") -> dict[str, Choice]:
    """The paper's first selection: for each optimizer the setting with the least final training loss.

    >>> trials = [Trial(1, "", {"optimizer": "cm", "lr": 0.1}, "finished", {"train_loss": 0.5})]
    >>> train_optimal(trials)["cm"].score.mean
    0.5
    """
    return select(trials, metric)


def validation_optimal(
    trials: Iterable[Trial], metric: str = "validation_loss", direction: Direction = "min"
) -> dict[str, Choice]:
    """The paper's second selection: for each optimizer the setting with the best validation score.

    Test figures come from its trials.

    >>> trials = [Trial(1, "", {"optimizer": "cm", "lr": 0.1}, "finished", {"accuracy": 0.5, "test": 0.25})]
    >>> summarize(validation_optimal(trials, "accuracy", "max")["cm"].trials, "test").mean
    0.25
    """
    return select(trials, metric, direction)


def steps_to_target(
    curve: Mapping[str, ArrayLike], metric: str, target: float, direction: Direction = "min", axis: str = "epoch"
) -> float:
    """The first epoch at which a curve reaches a target; infinity if none does.

    Args:
        curve: as `Records.curve` gives it.
        metric: its column.
        target: the value to reach or to pass.
        direction: "min" or "max", whichever is better.
        axis: the column to answer in, such as "steps".

    Raises:
        ValueError: there is no such column.

    >>> curve = {"epoch": [1, 2, 3], "loss": [3.0, 0.5, 0.75], "steps": [10, 20, 30]}
    >>> steps_to_target(curve, "loss", 1.0), steps_to_target(curve, "loss", 0.5, axis="steps")
    (2.0, 20.0)
    >>> steps_to_target(curve, "loss", 0.25)
    inf
    """
    for name in (metric, axis):
        if name not in curve:
            raise ValueError(f"{name!r}: the curve has {', '.join(curve)}")
    values = np.asarray(curve[metric], np.float64)
    reached = values <= target if direction == "min" else values >= target
    return float(np.asarray(curve[axis], np.float64)[reached.argmax()]) if reached.any() else math.inf


@dataclass(frozen=True, slots=True)
class Sensitivity:
    """How the best score depends on the learning rate.

    Attributes:
        lrs: the learning rates, ascending.
        scores: the best one at each, over all other settings.
        low, high: the range of learning rates around the best with scores near the best; nan if all diverged.

    >>> Sensitivity((0.1, 1.0), (), low=0.01, high=1.0).decades
    2.0
    """

    lrs: tuple[float, ...]
    scores: tuple[Score, ...]
    low: float
    high: float

    @property
    def decades(self) -> float:
        """The width of that range, in powers of ten.

        >>> Sensitivity((), (), low=0.5, high=0.5).decades
        0.0
        """
        return math.log10(self.high / self.low)


def lr_sensitivity(
    trials: Iterable[Trial], metric: str, direction: Direction = "min", tolerance: float = 0.1
) -> Sensitivity:
    """How much the learning rate matters, for trials of one optimizer as a rule.

    Args:
        trials: with a setting `lr`.
        metric: the entry of the outcomes.
        direction: "min" or "max", whichever is best.
        tolerance: a score is near the best if it differs by no more than this part of it, and if no larger a share of
            its trials diverged; the range ends at the first that is not.

    Raises:
        ValueError: as `rank`; no trial has an outcome, or has no learning rate; or tolerance < 0.

    >>> losses = {0.001: 9.0, 0.01: 1.0, 0.1: 1.05, 1.0: None}
    >>> trials = [Trial(1, "", {"lr": lr}, "finished", {"loss": loss}) for lr, loss in losses.items()]
    >>> sensitivity = lr_sensitivity(trials, "loss")
    >>> sensitivity.low, sensitivity.high
    (0.01, 0.1)
    """
    number("tolerance", tolerance, ">= 0", lambda x: x >= 0.0)
    groups: dict[float, list[Trial]] = {}
    for trial in trials:
        if trial.outcome is not None:
            groups.setdefault(_setting(trial, "lr"), []).append(trial)
    if not groups:
        raise ValueError("no trial has an outcome")
    lrs = sorted(groups)
    scores = [rank(groups[lr], metric, direction)[0] for lr in lrs]
    top = min(range(len(lrs)), key=lambda i: _key(scores[i], direction))
    best = scores[top]

    def near(score: Score) -> bool:
        same = score.diverged * best.n <= best.diverged * score.n
        return same and abs(score.mean - best.mean) <= tolerance * abs(best.mean)

    if not best.values:
        return Sensitivity(tuple(lrs), tuple(scores), math.nan, math.nan)
    low = high = top
    while low > 0 and near(scores[low - 1]):
        low -= 1
    while high < len(lrs) - 1 and near(scores[high + 1]):
        high += 1
    return Sensitivity(tuple(lrs), tuple(scores), lrs[low], lrs[high])


@dataclass(frozen=True, slots=True)
class HeatMap:
    """The best score for each pair of values of two settings.

    Attributes:
        xs, ys: the values of the two settings, ascending.
        means: by y and x; nan where there is no trial, and infinity (or its negative, if larger is better) where all
            diverged.
        diverged: the share of diverged trials, by y and x; nan where there is no trial.

    >>> HeatMap(xs=(0.1,), ys=(0.9,), means=np.ones((1, 1)), diverged=np.zeros((1, 1))).means.shape
    (1, 1)
    """

    xs: tuple[Any, ...]
    ys: tuple[Any, ...]
    means: NDArray[np.float64]
    diverged: NDArray[np.float64]


def heat_map(
    trials: Iterable[Trial], metric: str, x: str = "lr", y: str = "betas", direction: Direction = "min"
) -> HeatMap:
    """A map over two settings, learning rate and damping unless said otherwise, the best over all the others.

    Args:
        trials: of one optimizer as a rule.
        metric: the entry of the outcomes.
        x, y: the names of the settings; values that are lists are ordered by their first, second, ... numbers.
        direction: "min" or "max", whichever is best.

    Raises:
        ValueError: as `rank`, or a trial lacks one of the settings.

    >>> trials = [Trial(1, "", {"lr": lr, "beta": 0.9}, "finished", {"loss": lr * 4}) for lr in (0.5, 0.25)]
    >>> heat_map(trials, "loss", y="beta").means
    array([[1., 2.]])
    """
    groups: dict[tuple[Any, Any], list[Trial]] = {}
    for trial in trials:
        if trial.outcome is not None:
            groups.setdefault((_setting(trial, x), _setting(trial, y)), []).append(trial)
    xs, ys = (sorted({pair[i] for pair in groups}, key=_order) for i in (0, 1))
    means = np.full((len(ys), len(xs)), np.nan)
    shares = means.copy()
    for (own_x, own_y), own in groups.items():
        place = ys.index(own_y), xs.index(own_x)
        best = rank(own, metric, direction)[0]
        worst = math.inf if direction == "min" else -math.inf
        means[place] = best.mean if best.values else worst
        shares[place] = best.diverged / best.n
    return HeatMap(tuple(xs), tuple(ys), means, shares)


def _ranked(trials: Iterable[Trial], metric: str, direction: Direction) -> list[tuple[Score, list[Trial]]]:
    """The settings from the best to the worst, each with its trials."""
    if direction not in ("min", "max"):
        raise ValueError(f"direction={direction!r}: must be 'min' or 'max'")
    groups: dict[str, list[Trial]] = {}
    for trial in trials:
        if trial.outcome is not None:
            groups.setdefault(identity("", _without_seed(trial)), []).append(trial)
    ranked = []
    for own in groups.values():
        values = [_value(trial, metric) for trial in own]
        finite = tuple(value for value in values if value is not None)
        ranked.append((Score(_without_seed(own[0]), finite, len(own) - len(finite)), own))
    return sorted(ranked, key=lambda pair: _key(pair[0], direction))


def _without_seed(trial: Trial) -> dict[str, Any]:
    """The settings of a trial that make it one of a setting."""
    return {name: value for name, value in trial.settings.items() if name != SEED}


def _value(trial: Trial, metric: str) -> float | None:
    """The trial's value, or None if it diverged."""
    outcome = trial.outcome or {}
    if outcome.get("diverged"):
        return None
    if metric not in outcome:
        raise ValueError(f"{metric!r}: the outcome of trial {trial.trial} has {', '.join(outcome) or 'nothing'}")
    value = outcome[metric]
    return float(value) if value is not None and math.isfinite(value) else None


def _key(score: Score, direction: Direction) -> tuple[float, float]:
    """By what settings are sorted, the best first."""
    mean = score.mean if score.values else 0.0
    return score.diverged / score.n, mean if direction == "min" else -mean


def _setting(trial: Trial, name: str) -> Any:
    """A setting of a trial in a form that can be looked up."""
    if name not in trial.settings:
        raise ValueError(f"{name!r}: the settings of trial {trial.trial} are {', '.join(trial.settings)}")
    return _frozen(trial.settings[name])


def _frozen(value: Any) -> Any:
    """The value with tuples for lists."""
    return tuple(map(_frozen, value)) if isinstance(value, list) else value


def _order(value: Any) -> tuple[int, Any]:
    """By what values are sorted: what is no number first, numbers as lists of one, lists by their numbers."""
    if _numeric(value):
        return 1, value if isinstance(value, tuple) else (value,)
    return 0, str(value)


def _numeric(value: Any) -> bool:
    """Whether a value is a number, or a list of numbers."""
    parts = value if isinstance(value, tuple) else (value,)
    return all(isinstance(part, int | float) and not isinstance(part, bool) for part in parts)


def _warnings(trials: Sequence[Trial], best: Score) -> Iterable[str]:
    """What to know about the best setting among these trials, one line each."""
    for name, value in best.settings.items():
        grid = sorted({_setting(trial, name) for trial in trials if name in trial.settings}, key=_order)
        if len(grid) > 1 and all(map(_numeric, grid)):
            own = _frozen(value)
            if own == grid[-1]:
                yield f"{name}={value} is the largest of its grid, the optimum may lie beyond"
            elif own == grid[0] and np.any(own):  # below 0, or a list of it, there is nothing
                yield f"{name}={value} is the least of its grid, the optimum may lie beyond"
    if best.diverged:
        yield f"{best.diverged} of its {best.n} trials diverged"
    if missing := sum(trial.outcome is None for trial in trials):
        yield f"{missing} of {len(trials)} trials have no outcome"
