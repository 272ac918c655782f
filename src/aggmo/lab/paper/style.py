"""How the pictures look: one colour for each optimizer, for light pages and dark ones, and names at the curves.

A picture is drawn in the light tones. The report exchanges them for the dark ones where a page is dark, and ink for the
page's own; so a picture takes its colours from here and nowhere else, colour maps apart.
"""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import LogFormatterSciNotation
from numpy.typing import ArrayLike

# Of what a page is made: (light, dark).
PAPER = ("#fffffe", "#15171a")  # not quite white: what a picture has in pure white or black stays so
INK = ("#1e2126", "#e6e8eb")  # axes, text
MUTED = ("#5d636e", "#a2a8b3")  # what is said in passing: reference lines and their names
FAINT = ("#dcdfe4", "#343941")  # grids

# By the names of `aggmo.lab.optimizers`. As text each has a contrast of 4.5 or more; any two differ for every kind of
# colour vision (the tests compute both), and where curves cross, `DASHES` tells them apart without any colour.
OPTIMIZERS = {
    "cm": ("#c2500f", "#f57a1f"),
    "nesterov": ("#0a8265", "#1bd3b0"),
    "adam": ("#7d1668", "#bb78b0"),
    "aggmo": ("#1450b4", "#4488fb"),
    "sgd": ("#1b1d21", "#f2f3f5"),
    "nt-asgd": ("#6a512b", "#d9cd29"),
}
NAMES = {"cm": "CM", "nesterov": "Nesterov", "adam": "Adam", "aggmo": "AggMo", "sgd": "SGD", "nt-asgd": "NT-ASGD"}
DASHES: dict[str, Any] = {
    "cm": (0, (6, 1.5)),
    "nesterov": (0, (4, 1.2, 1, 1.2)),
    "adam": (0, (1.2, 1.2)),
    "aggmo": "solid",
    "sgd": (0, (8, 2.5)),
    "nt-asgd": (0, (8, 1.5, 1, 1.5, 1, 1.5)),
}

# For the values of one quantity in their order: curvatures, velocities, K; `ordered` chooses among them.
ORDERED = (
    ("#2f1a63", "#7f8cff"),
    ("#8531cf", "#c07ad0"),
    ("#b81f66", "#f46a5a"),
    ("#8f3505", "#f8a53a"),
    ("#86720c", "#f6ecaa"),
)

HALF = (3.5, 2.7)  # inches, for one panel: two beside each other on a page, one as wide as a phone
WIDE = (7.2, 3.8)  # for what needs the whole page; a phone shows it in a box that can be moved sideways

_SUPERSCRIPTS = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")
_EARLY = 0.94  # of the width: a curve that ends before has its name there; Matplotlib's own margin is behind it

_RC: dict[Any, Any] = {
    "figure.figsize": WIDE,
    "figure.facecolor": PAPER[0],
    "figure.constrained_layout.use": True,
    "font.size": 9,
    "axes.titlesize": 9.5,
    "axes.titlelocation": "left",
    "axes.labelsize": 9,
    "axes.facecolor": "none",
    "axes.edgecolor": INK[0],
    "axes.labelcolor": INK[0],
    "axes.linewidth": 0.8,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.xmargin": 0,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": FAINT[0],
    "grid.linewidth": 0.6,
    "text.color": INK[0],
    "xtick.color": INK[0],
    "ytick.color": INK[0],
    "xtick.labelsize": 8.5,
    "ytick.labelsize": 8.5,
    "xtick.minor.visible": False,
    "lines.linewidth": 1.6,
    "lines.solid_capstyle": "round",
    "legend.frameon": False,
    "legend.fontsize": 8.5,
    "image.cmap": "viridis",  # read with any colour vision
    "svg.fonttype": "path",  # the same on every machine, and the page says in words what a picture shows
    "svg.hashsalt": "aggmo",
    "pdf.fonttype": 42,  # which publishers take
    "savefig.dpi": 200,
}


@contextmanager
def style() -> Iterator[None]:
    """Draw and save under these settings of Matplotlib, whatever the user's own are.

    >>> with style():
    ...     mpl.rcParams["svg.hashsalt"]
    'aggmo'
    """
    with mpl.rc_context():
        mpl.rcdefaults()
        mpl.rcParams.update(_RC)
        yield


def colour(optimizer: str) -> str:
    """The colour of an optimizer.

    >>> colour("aggmo")
    '#1450b4'
    """
    return OPTIMIZERS[optimizer][0]


def ordered(count: int) -> list[str]:
    """Colours for the values of one quantity in their order.

    Args:
        count: the number of values, from 1 to 5.

    Raises:
        ValueError: another count.

    >>> ordered(2)
    ['#2f1a63', '#86720c']
    """
    if not 1 <= count <= len(ORDERED):
        raise ValueError(f"count={count}: must be from 1 to {len(ORDERED)}")
    return [ORDERED[round(i)][0] for i in np.linspace(0, len(ORDERED) - 1, count)]


def curve(axis: Axes, x: ArrayLike, seeds: ArrayLike, optimizer: str, label: str | None = None, **line: Any) -> Line2D:
    """The mean over seeds as a line in the optimizer's colour, and ± 1 standard deviation as a band.

    The curve ends where a seed diverges. The band does not go below the least of the seeds, so that a logarithmic axis
    can hold it.

    Args:
        axis: to draw on.
        x: the places of the values.
        seeds: a row of values for each seed, or one row.
        optimizer: a name in `OPTIMIZERS`.
        label: its name if None.
        line: what else `Axes.plot` takes, as another colour for one of several settings.

    >>> from matplotlib.figure import Figure
    >>> curve(Figure().subplots(), [1, 2], [[1.0, 2.0], [3.0, 4.0]], "cm").get_ydata()
    array([2., 3.])
    """
    values = np.atleast_2d(np.asarray(seeds, dtype=float))
    values = np.where(np.isfinite(values).all(axis=0), values, np.nan)
    given = {"color": colour(optimizer), "linestyle": DASHES[optimizer], "label": label or NAMES[optimizer]} | line
    mean = values.mean(axis=0)
    [drawn] = axis.plot(x, mean, **given)
    if len(values) > 1:
        sd = values.std(axis=0, ddof=1)
        lower = np.maximum(mean - sd, values.min(axis=0))
        axis.fill_between(np.asarray(x), lower, mean + sd, color=given["color"], alpha=0.18, linewidth=0)
    return drawn


def label_lines(axis: Axes, size: float = 8.5, apart: float = 1.25) -> None:
    """The names of curves at their right ends instead of a legend, moved apart where they would overlap.

    A curve that ends within the axis, as one that diverges, has its name there. Called last, when the axis has its
    limits. Curves without a label are left alone.

    Args:
        axis: whose curves.
        size: of the letters in points.
        apart: the least distance of two names, in heights of a letter.

    >>> from matplotlib.figure import Figure
    >>> axis = Figure().subplots()
    >>> _ = axis.plot([0, 1], [0, 1], label="upper"), axis.plot([0, 1], [0, 0.99], label="lower")
    >>> label_lines(axis)
    >>> [text.get_text() for text in axis.texts]
    ['lower', 'upper']
    """
    axis.set(xlim=axis.get_xlim(), ylim=axis.get_ylim())
    height = axis.get_window_extent().height * 72.0 / axis.figure.dpi  # in points; less than after the layout
    named = [line for line in axis.get_lines() if not str(line.get_label()).startswith("_")]
    ends = sorted(((*_end(axis, line), i) for i, line in enumerate(named)), key=lambda end: (end[1], end[2]))
    margin = [(y, named[i]) for x, y, i in ends if x > _EARLY]
    places = _spread([y for y, _ in margin], [apart * size / height * _rows(line) for _, line in margin])
    spots = [(1.0, place, line) for place, (_, line) in zip(places, margin, strict=True)]
    spots += [(x, y, named[i]) for x, y, i in ends if x <= _EARLY]
    for x, y, line in spots:
        axis.annotate(
            str(line.get_label()),
            (x, y),
            (5, 0),
            xycoords="axes fraction",
            textcoords="offset points",
            color=line.get_color(),
            va="center",
            size=size,
            annotation_clip=False,
        )


def write_powers(figure: Figure) -> None:
    """Label logarithmic axes in plain text: Matplotlib's formulas take most of the time of drawing.

    An axis of less than two decades near 1 has numbers, any other one powers of ten.

    >>> figure = Figure()
    >>> axis = figure.subplots()
    >>> axis.set(yscale="log", ylim=(1e-4, 1)) and write_powers(figure)
    >>> axis.yaxis.get_major_formatter()(1e-3)
    '10⁻³'
    """
    for axes in figure.axes:
        for axis in (axes.xaxis, axes.yaxis):
            if type(axis.get_major_formatter()) is LogFormatterSciNotation:
                low, high = sorted(axis.get_view_interval())
                plain = low > 1e-3 and high < 1e4 and high / low < 100.0
                axis.set_major_formatter(_Powers(plain))
                if type(axis.get_minor_formatter()) is LogFormatterSciNotation:
                    axis.set_minor_formatter(_Powers(plain, labelOnlyBase=False))


class _Powers(LogFormatterSciNotation):
    """Matplotlib's choice of labels, as text."""

    def __init__(self, plain: bool, labelOnlyBase: bool = True) -> None:  # noqa: N803 (Matplotlib's name)
        super().__init__(labelOnlyBase=labelOnlyBase)
        self.plain = plain

    def __call__(self, x: float, pos: int | None = None) -> str:
        label = super().__call__(x, pos)
        if self.plain and label:
            return f"{x:.4g}"
        label = label.removeprefix(r"$\mathdefault{").removesuffix("}$").replace(r"\times", "×")
        return re.sub(r"\^\{(-?\d+)\}", lambda power: power[1].translate(_SUPERSCRIPTS), label)


def _rows(line: Line2D) -> int:
    """How many rows its name has."""
    return str(line.get_label()).count("\n") + 1


def _end(axis: Axes, line: Line2D) -> tuple[float, float]:
    """Where a curve ends, each from 0 to 1."""
    points = axis.transAxes.inverted().transform(axis.transData.transform(np.column_stack(line.get_data())))
    inside = points[np.isfinite(points).all(axis=1) & (points[:, 0] <= 1.0 + 1e-9)]
    x, y = np.clip(inside[-1], 0.0, 1.0) if len(inside) else (1.0, 0.0)
    return float(x), float(y)


def _spread(places: list[float], sizes: list[float]) -> list[float]:
    """Places in ascending order moved as little as need be, so that things of these sizes do not overlap."""
    blocks: list[tuple[float, float, list[float]]] = []  # centre, size, the sizes in it
    for place, size in zip(places, sizes, strict=True):
        blocks.append((place, size, [size]))
        while len(blocks) > 1 and blocks[-2][0] + blocks[-2][1] / 2 > blocks[-1][0] - blocks[-1][1] / 2:
            upper, lower = blocks.pop(), blocks.pop()
            n, m = len(lower[2]), len(upper[2])
            centre = (lower[0] * n + upper[0] * m) / (n + m)
            blocks.append((centre, lower[1] + upper[1], lower[2] + upper[2]))
    moved = []
    for centre, total, parts in blocks:
        at = centre - total / 2
        for part in parts:
            moved.append(at + part / 2)
            at += part
    return moved
