"""Pictures as SVG, written directly: a slider has to be answered in milliseconds, which a plotting library is not.

A chart has two axes and draws what lies inside them. Colours are CSS classes, so that a page has one light and one dark
set of them: see page.css.
"""

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from html import escape

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]

SUPERSCRIPTS = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")
COLUMNS = 160  # a curve has no more points than twice this; it is not drawn much wider


@dataclass(frozen=True)
class Axis:
    """An axis from low to high, logarithmic if wanted.

    >>> Axis("κ", 1, 100, log=True).at(np.array([1.0, 10.0, 100.0]))
    array([0. , 0.5, 1. ])
    """

    label: str
    low: float
    high: float
    log: bool = False

    def at(self, values: npt.ArrayLike) -> Floats:
        """Where values lie, 0 at the low end and 1 at the high one; what is far outside is brought nearer.

        >>> Axis("x", 0, 10).at(np.array([5.0, 1e300]))
        array([0.5, 4. ])
        """
        v, low, high = np.asarray(values, dtype=np.float64), self.low, self.high
        if self.log:
            v, low, high = np.log(np.maximum(v, 1e-300)), math.log(low), math.log(high)
        return np.clip((v - low) / (high - low), -3.0, 4.0)

    def ticks(self) -> list[tuple[float, str]]:
        """Round values on the axis, with their names.

        >>> Axis("x", 0, 1).ticks()
        [(0.0, '0'), (0.25, '0.25'), (0.5, '0.5'), (0.75, '0.75'), (1.0, '1')]
        >>> Axis("x", 0.001, 10, log=True).ticks()
        [(0.001, '10⁻³'), (0.01, '10⁻²'), (0.1, '10⁻¹'), (1.0, '1'), (10.0, '10')]
        """
        if self.log:
            first, last = math.ceil(math.log10(self.low) - 1e-9), math.floor(math.log10(self.high) + 1e-9)
            every = 1 + (last - first) // 7
            return [(10.0**n, _power(n)) for n in range(first, last + 1) if n % every == 0]
        rough = (self.high - self.low) / 4.0
        unit = 10.0 ** math.floor(math.log10(rough))
        step = min((m * unit for m in (1.0, 2.0, 2.5, 5.0, 10.0)), key=lambda s: abs(s - rough))
        marks = np.arange(math.ceil(self.low / step - 1e-9), math.floor(self.high / step + 1e-9) + 1) * step
        return [(float(mark), f"{mark:.6g}".replace("-", "−")) for mark in marks + 0.0]


@dataclass
class Chart:
    """A picture with two axes; what is added later lies above.

    >>> chart = Chart("A line", Axis("x", 0, 1), Axis("y", 0, 1))
    >>> chart.line([0, 1], [0, 1], "aggmo")
    >>> '<path class="line aggmo"' in chart.svg()
    True
    """

    title: str
    x: Axis
    y: Axis
    width: int = 420
    height: int = 260
    data: str = ""  # further attributes of the whole
    parts: list[str] = field(default_factory=list)

    @property
    def plot(self) -> tuple[int, int, int, int]:
        """Left, top, width and height of what is inside the axes.

        >>> Chart("", Axis("x", 0, 1), Axis("y", 0, 1)).plot
        (46, 26, 350, 194)
        """
        return 46, 26, self.width - 70, self.height - 66

    def points(self, x: npt.ArrayLike, y: npt.ArrayLike) -> Floats:
        """Where they lie in the plot, in its units.

        >>> Chart("", Axis("x", 0, 1), Axis("y", 0, 1)).points([0.0], [1.0])
        array([[0., 0.]])
        """
        return np.stack([self.x.at(x) * self.plot[2], (1.0 - self.y.at(y)) * self.plot[3]], axis=-1)

    def line(self, x: npt.ArrayLike, y: npt.ArrayLike, style: str) -> None:
        """A line through the points; one that is not finite breaks it."""
        x, y = np.asarray(x, dtype=np.float64), np.asarray(y, dtype=np.float64)
        pieces = np.split(np.arange(len(y)), np.flatnonzero(~np.isfinite(y)))
        pieces = [piece[np.isfinite(y[piece])] for piece in pieces]
        drawn = "".join(_path(self.points(x[piece], y[piece])) for piece in pieces if len(piece) > 1)
        self.parts.append(f'<path class="line {style}" d="{drawn}"/>')

    def curve(self, y: Floats, style: str) -> None:
        """A line over 0, 1, 2, ..., of which a long one is thinned to the highest and lowest of each column."""
        kept = _extremes(y)
        self.line(kept, y[kept], style)

    def band(self, low: Floats, high: Floats, style: str) -> None:
        """The region between two lines over 0, 1, 2, ..., of which `low` need not be the lower."""
        kept = np.union1d(_extremes(low), _extremes(high))
        outline = np.concatenate([self.points(kept, low[kept]), self.points(kept, high[kept])[::-1]])
        self.parts.append(f'<path class="band {style}" d="{_path(outline)}Z"/>')

    def dots(self, x: npt.ArrayLike, y: npt.ArrayLike, style: str, radius: float = 4.0) -> None:
        """A dot at each point."""
        for at_x, at_y in self.points(x, y):
            self.parts.append(f'<circle class="dot {style}" cx="{at_x:.1f}" cy="{at_y:.1f}" r="{radius}"/>')

    def span(self, low: float, high: float, style: str, height: int | None = None) -> None:
        """The region between two values of x, or a strip at its foot."""
        height = self.plot[3] if height is None else height
        left, right = np.clip(self.x.at([low, high]), 0.0, 1.0) * self.plot[2]
        self.parts.append(
            f'<rect class="span {style}" x="{left:.1f}" y="{self.plot[3] - height}" width="{right - left:.1f}" '
            f'height="{height}"/>'
        )

    def mark(self, x: float, text: str, style: str, row: int = 0) -> None:
        """A vertical line at x with its name at the top, in one of several rows."""
        at, width = float(self.x.at(x)) * self.plot[2], self.plot[2]
        if not 0.0 <= at <= width:
            return
        side, anchor = (-4, "end") if at > width / 2 else (4, "start")
        self.parts.append(
            f'<line class="mark {style}" x1="{at:.1f}" x2="{at:.1f}" y1="0" y2="{self.plot[3]}"/>'
            f'<text class="note {style}" x="{at + side:.1f}" y="{12 + 14 * row}" text-anchor="{anchor}">'
            f"{escape(text)}</text>"
        )

    def level(self, y: float, style: str) -> None:
        """A horizontal line."""
        at = (1.0 - float(self.y.at(y))) * self.plot[3]
        self.parts.append(f'<line class="mark {style}" x1="0" x2="{self.plot[2]}" y1="{at:.1f}" y2="{at:.1f}"/>')

    def svg(self) -> str:
        """The picture."""
        left, top, width, height = self.plot
        ticks = []
        for value, name in self.x.ticks():
            at = left + float(self.x.at(value)) * width
            ticks.append(
                f'<line class="tick" x1="{at:.1f}" x2="{at:.1f}" y1="{top + height}" y2="{top + height + 4}"/>'
            )
            ticks.append(f'<text x="{at:.1f}" y="{top + height + 17}" text-anchor="middle">{name}</text>')
        for value, name in self.y.ticks():
            at = top + (1.0 - float(self.y.at(value))) * height
            ticks.append(f'<line class="grid" x1="{left}" x2="{left + width}" y1="{at:.1f}" y2="{at:.1f}"/>')
            ticks.append(f'<text x="{left - 5}" y="{at + 4:.1f}" text-anchor="end">{name}</text>')
        ticks.append(f'<text class="name" x="{left - 14}" y="15" text-anchor="end">{escape(self.y.label)}</text>')
        return (
            f'<svg class="chart" viewBox="0 0 {self.width} {self.height}" role="img" aria-label="{escape(self.title)}"'
            f'{self.data}><g class="axes">{"".join(ticks)}'
            f'<text class="name" x="{left + width}" y="{self.height - 6}" text-anchor="end">'
            f"{escape(self.x.label)}</text>"
            f'<text class="title" x="{left}" y="15">{escape(self.title)}</text></g>'
            f'<svg class="plot" aria-hidden="true" x="{left}" y="{top}" width="{width}" height="{height}">'
            f"{''.join(self.parts)}</svg></svg>"
        )


def key(names: Sequence[tuple[str, str]]) -> str:
    """The names of the lines by their styles, for all charts of a view.

    >>> key([("aggmo", "AggMo")])
    '<p class="key"><span class="aggmo">AggMo</span></p>'
    """
    return '<p class="key">' + "".join(f'<span class="{style}">{escape(name)}</span>' for style, name in names) + "</p>"


def _path(points: Floats) -> str:
    """The data of a path through the points, without those too near to the one before to be seen."""
    first, *rest = points.tolist()
    kept = [first]
    for point in rest:
        if abs(point[0] - kept[-1][0]) + abs(point[1] - kept[-1][1]) >= 0.7:
            kept.append(point)
    if len(kept) == 1:
        kept.append(first)
    return "M" + "L".join(f"{x:.1f} {y:.1f}" for x, y in kept)


def _extremes(y: Floats) -> npt.NDArray[np.intp]:
    """Indices of the ends and of the least and greatest of each of the columns, all if there are few."""
    if len(y) <= 2 * COLUMNS:
        return np.arange(len(y))
    edges = np.linspace(0, len(y), COLUMNS + 1).astype(int)
    pairs = [(a + y[a:b].argmin(), a + y[a:b].argmax()) for a, b in itertools.pairwise(edges)]
    return np.unique([0, *np.ravel(pairs), len(y) - 1])


def _power(n: int) -> str:
    """10^n as it is written."""
    return {0: "1", 1: "10"}.get(n) or "10" + str(n).translate(SUPERSCRIPTS)
