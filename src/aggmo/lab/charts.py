"""The pictures of a comparison: curves by epoch, the best score at each learning rate, maps of lr and damping."""

import math
from collections.abc import Mapping
from functools import partial

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import Normalize
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator
from numpy.typing import NDArray

from aggmo.lab.comparison import Comparison
from aggmo.lab.paper.result import Picture
from aggmo.lab.paper.style import INK, NAMES, colour, curve, label_lines
from aggmo.lab.progress import Direction
from aggmo.lab.selection import Choice, heat_map


def pictures(comparison: Comparison) -> list[Picture]:
    """The four pictures of a comparison; nothing is drawn yet.

    >>> [picture.name for picture in pictures(Comparison("mine", "error", "min", [], {}))]
    ['training', 'validation', 'sensitivity', 'maps']
    """
    score = f"validation {comparison.metric}"
    names = ", ".join(NAMES[name] for name in comparison.best)
    return [
        Picture(
            "training",
            "Training loss by epoch, at the setting of each optimizer with the least at the end.",
            f"Curves of the training loss of {names}.",
            partial(_curves, comparison, comparison.fastest, "train_loss", "training loss"),
        ),
        Picture(
            "validation",
            f"The {score} by epoch, at the setting of each optimizer with the best.",
            f"Curves of the {score} of {names}.",
            partial(_curves, comparison, comparison.best, f"validation_{comparison.metric}", score),
        ),
        Picture(
            "sensitivity",
            f"The best {score} at each learning rate, over the dampings.",
            f"Curves of the best {score} over the learning rate of {names}.",
            partial(_sensitivity, comparison),
        ),
        Picture(
            "maps",
            f"The {score} for each learning rate and damping; a cross where all trials diverged.",
            f"A table of colours for each of {names}.",
            partial(_maps, comparison),
        ),
    ]


def _curves(comparison: Comparison, choices: Mapping[str, Choice], name: str, label: str, figure: Figure) -> None:
    """The mean over seeds, and a band of one standard deviation."""
    axis = figure.subplots()
    low, high = math.inf, 0.0
    for optimizer, choice in choices.items():
        curves = [comparison.curves[trial.trial] for trial in choice.trials]
        epochs = max(len(each["epoch"]) for each in curves)
        values = np.full((len(curves), epochs), np.nan)
        for row, each in zip(values, curves, strict=True):
            found = np.asarray(each.get(name, np.full(len(each["epoch"]), np.nan)), float)
            row[: len(found)] = found
        curve(axis, np.arange(1, epochs + 1), values, optimizer)
        finite = values[np.isfinite(values)]
        low, high = min([low, *finite]), max([high, *finite])
    if 0.0 < 10.0 * low < high:
        axis.set_yscale("log")
    axis.xaxis.set_major_locator(MaxNLocator(integer=True))
    axis.set(xlabel="epoch", ylabel=label)
    label_lines(axis)


def _sensitivity(comparison: Comparison, figure: Figure) -> None:
    """The best score over the learning rate; learning rates at which all diverged are left out."""
    axis = figure.subplots()
    for optimizer, found in comparison.sensitivity.items():
        curve(axis, found.lrs, [score.mean for score in found.scores], optimizer, marker="o", markersize=3.5)
        best = comparison.best[optimizer].score
        axis.plot(best.settings["lr"], best.mean, "o", color=colour(optimizer), markersize=7)
    axis.set_xscale("log")
    rates = sorted({lr for found in comparison.sensitivity.values() for lr in found.lrs})
    if rates:
        axis.set_xlim(rates[0] / 1.2, rates[-1] * 1.2)
        axis.set_xticks(rates, [f"{lr:g}" for lr in rates])
        axis.set_xticks([], minor=True)
    axis.set(xlabel="learning rate", ylabel=f"best validation {comparison.metric}")
    label_lines(axis)


def _maps(comparison: Comparison, figure: Figure) -> None:
    """One table of colours for each optimizer, all with one scale."""
    score = f"validation_{comparison.metric}"
    maps = {name: heat_map(comparison.of(name), score, direction=comparison.direction) for name in comparison.best}
    values = np.concatenate([np.zeros(0), *(each.means[np.isfinite(each.means)] for each in maps.values())])
    rows = max(1, math.ceil(len(maps) / 2))
    figure.set_size_inches(7.2, rows * (1.0 + 0.36 * max((len(each.ys) for each in maps.values()), default=1)))
    axes = figure.subplots(rows, min(max(1, len(maps)), 2), squeeze=False).ravel()
    for axis in axes[len(maps) :]:
        axis.set_visible(False)
    for axis, (name, found) in zip(axes, maps.items(), strict=False):
        _map(axis, found.means, _scale(values, comparison.direction), comparison.direction)
        axis.set_title(NAMES[name])
        axis.set_xticks(range(len(found.xs)), [f"{x:g}" for x in found.xs])
        axis.set_yticks(range(len(found.ys)), [", ".join(f"{beta:g}" for beta in y) or "none" for y in found.ys])
        axis.set(xlabel="learning rate", ylabel="betas")


def _scale(values: NDArray[np.float64], direction: Direction) -> Normalize:
    """From the best value to one that four of five do not fall behind: a few bad ones must not take all the colours."""
    if not values.size:
        return Normalize(0.0, 1.0)
    if direction == "min":
        return Normalize(float(values.min()), float(np.quantile(values, 0.8)), clip=True)
    return Normalize(float(np.quantile(values, 0.2)), float(values.max()), clip=True)


def _map(axis: Axes, means: NDArray[np.float64], scale: Normalize, direction: Direction) -> None:
    """One table of colours, good values light, each with its number; a cross where all trials diverged."""
    cmap = matplotlib.colormaps["viridis_r" if direction == "min" else "viridis"]
    axis.imshow(np.where(np.isfinite(means), means, np.nan), norm=scale, cmap=cmap, aspect="auto")
    axis.grid(visible=False)
    for (row, column), mean in np.ndenumerate(means):
        text, ink = ("×", INK[0]) if np.isinf(mean) else (f"{mean:.3g}", "#000000")
        if np.isfinite(mean) and np.dot(cmap(scale(mean))[:3], (0.299, 0.587, 0.114)) < 0.5:  # brightness
            ink = "#ffffff"
        if not np.isnan(mean):
            axis.text(column, row, text, ha="center", va="center", size=7.5, color=ink)
