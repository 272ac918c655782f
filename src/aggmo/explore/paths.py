"""The fourth view: paths on two-dimensional landscapes, AggMo's beside those of CM and Nesterov."""

from functools import lru_cache
from typing import NamedTuple

import numpy as np
from contourpy import contour_generator

from aggmo import reference
from aggmo.damping import Damping
from aggmo.explore.chart import Axis, Chart, Floats, key
from aggmo.explore.view import Number, View
from aggmo.theory.landscapes import Funnel, Quadratic, Rosenbrock

FAR = 100.0  # a path that gets there has left for good


class Landscape(NamedTuple):
    """A function, its name, the piece of the plane that is shown, and where and how fast to begin.

    >>> LANDSCAPES["rosenbrock"].start
    (-1.2, 1.0)
    """

    name: str
    function: Quadratic | Rosenbrock | Funnel
    x: tuple[float, float]
    y: tuple[float, float]
    start: tuple[float, float]
    lr: float


LANDSCAPES = {
    "quadratic": Landscape("quadratic, x² + 0.001y²", Quadratic(), (-1.5, 1.5), (-1.5, 1.5), (-1.0, 1.0), 0.33),
    "rosenbrock": Landscape("Rosenbrock", Rosenbrock(), (-2, 2), (-1, 3), (-1.2, 1.0), 0.0005),
    "printed": Landscape("Rosenbrock as printed", Rosenbrock.printed(), (-2, 3), (-1.5, 3), (-1.0, 1.5), 0.001),
    "funnel": Landscape("funnels of appendix E", Funnel(), (-2.5, 1.0), (-1.75, 1.75), (-2.0, 0.0), 0.001),
}


@lru_cache(maxsize=64)
def path(damping: Damping, landscape: str, x: float, y: float, lr: float, steps: int) -> Floats:
    """The points of a run from rest, the start first; it ends where it has left for good.

    >>> path(Damping((0.0,)), "quadratic", -1.0, 1.0, lr=0.25, steps=1)  # -1 + 0.25 * 2; 1 - 0.25 * 0.002
    array([[-1.    ,  1.    ],
           [-0.5   ,  0.9995]])
    """
    function = LANDSCAPES[landscape].function
    points, velocities = [np.array([x, y])], [np.zeros(2)] * len(damping)
    for _ in range(steps):
        point, velocities = reference.step(points[-1], velocities, function.gradient(points[-1]), damping, lr)
        points.append(point)
        if not np.abs(point).max() < FAR:
            break
    return np.array(points)


@lru_cache(maxsize=64)
def paths(damping: Damping, beta: float, landscape: str, x: float, y: float, lr: float, steps: int) -> View:
    """The view.

    >>> view = paths(Damping((0.0, 0.9)), 0.9, "quadratic", -1.0, 1.0, lr=0.1, steps=20)
    >>> view.numbers["gap aggmo"].label
    'f − least, AggMo'
    """
    shown = LANDSCAPES[landscape]
    runs = [
        (name, style, path(one, landscape, x, y, lr, steps))
        for name, style, one in (
            ("AggMo", "aggmo", damping),
            (f"CM, β = {beta:g}", "classical", Damping.classical(beta)),
            (f"Nesterov, β = {beta:g}", "nesterov", Damping.nesterov(beta)),
        )
    ]
    plane = _plane(landscape)
    for _, style, points in runs:
        plane.line(points[:, 0], points[:, 1], style)
        plane.dots(points[-1:, 0], points[-1:, 1], style)
    plane.dots([x], [y], "start", 6.0)
    gaps = {style: shown.function(points) - shown.function.least for _, style, points in runs}
    numbers: dict[str, Number] = {}
    for name, style, points in runs:
        gone = len(points) <= steps or not np.abs(points[-1]).max() < FAR
        words = f"left at step {len(points) - 1}" if gone else ""
        numbers[f"gap {style}"] = Number(f"f − least, {name}", float(gaps[style][-1]), words)
    text = (
        f"Here: {shown.name}. From a start that you drag in the picture or type, {steps} steps at the chosen lr. "
        "A path that leaves for good has too large an lr for the steepest curvature it met."
    )
    names = [(style, name) for name, style, _ in runs]
    charts = (plane.svg(), _fall(gaps, steps))
    return View("paths", "4. Paths on a landscape", text, key(names), charts, numbers)


@lru_cache(maxsize=8)
def contours(landscape: str) -> tuple[Floats, ...]:
    """Lines of equal height, equidistant in the logarithm of the height above the minimum.

    >>> len(contours("quadratic")) > 5
    True
    """
    shown = LANDSCAPES[landscape]
    x, y = np.linspace(*shown.x, 120), np.linspace(*shown.y, 120)
    heights = np.log10(shown.function(np.stack(np.meshgrid(x, y), axis=-1)) - shown.function.least + 1e-3)
    generator = contour_generator(x, y, heights)
    levels = np.linspace(heights.min(), heights.max(), 14)[1:-1]
    return tuple(np.asarray(line) for level in levels for line in generator.lines(level))


def _plane(landscape: str) -> Chart:
    """The landscape from above; what the page needs for dragging the start is in its attributes."""
    shown = LANDSCAPES[landscape]
    data = f' data-drag="{shown.x[0]} {shown.x[1]} {shown.y[0]} {shown.y[1]}"'
    name = f"From above: {shown.name}"
    chart = Chart(name, Axis("x", *shown.x), Axis("y", *shown.y), 420, 400, data)
    for line in contours(landscape):
        chart.line(line[:, 0], line[:, 1], "contour")
    least_x, least_y = shown.function.minimum
    chart.dots([least_x], [least_y], "least", 3.0)
    return chart


def _fall(gaps: dict[str, Floats], steps: int) -> str:
    """How far the function falls."""
    top = max(float(gap[0]) for gap in gaps.values())
    high = 10.0 ** (np.ceil(np.log10(max(top, 1e-6))) + 1)
    chart = Chart("f − least", Axis("step", 0, steps), Axis("", high * 1e-8, high, log=True), 420, 400)
    for style, gap in gaps.items():
        chart.curve(np.maximum(gap, high * 1e-10), style)
    return chart.svg()
