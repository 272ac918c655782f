"""The third view: the eigenvalues in the complex plane, and the steps at which AggMo is stable."""

import itertools
from functools import lru_cache

import numpy as np

from aggmo.damping import Damping
from aggmo.explore.chart import Axis, Chart, key
from aggmo.explore.view import Number, View, digits
from aggmo.theory.quadratic import eigenvalues, spectral_radius
from aggmo.theory.stability import limit, real_windows, underdamped


@lru_cache(maxsize=64)
def poles(damping: Damping, rival: Damping, name: str, step: float) -> View:
    """The view; step is lr * lambda.

    >>> view = poles(Damping((0.25,)), Damping((0.0,)), "CM", 1.0)
    >>> view.numbers["radius"].value, view.numbers["limit"].value
    (0.5, 2.5)
    """
    end = limit(damping)
    complex_steps = underdamped(damping)
    low, high = complex_steps or (np.nan, np.nan)
    up_to = digits(high) + "".join(f", not {digits(a)} … {digits(b)}" for a, b in real_windows(damping))
    found = eigenvalues(damping, step)
    radius = float(spectral_radius(damping, step))
    oscillates = bool(np.abs(found.imag).max() > 0.0)
    numbers = {
        "step": Number("lr·λ", step),
        "radius": Number("ρ, largest modulus", radius),
        "stable": Number("AggMo is here", float(step < end), "stable" if step < end else "unstable"),
        "complex": Number("its eigenvalues", float(oscillates), "a complex pair" if oscillates else "all real"),
        "limit": Number("stable for lr·λ below", end),
        "low": Number("under-damped from", float(low), digits(low) if complex_steps else "never"),
        "high": Number("under-damped up to", float(high), up_to if complex_steps else "never"),
        "radius rival": Number(f"ρ, {name}", float(spectral_radius(rival, step))),
    }
    text = (
        "The error shrinks by ρ a step, the largest modulus of the eigenvalues. A complex pair oscillates. The thin "
        "line shows how they wander as lr·λ grows from 0; they leave the unit circle at −1 only."
    )
    names = [("aggmo", "AggMo"), ("rival", name), ("swatch stable", "stable"), ("swatch under", "under-damped")]
    charts = (_plane(damping, rival, step), _radii(damping, rival, step))
    return View("poles", "3. Poles and stability", text, key(names), charts, numbers)


def _plane(damping: Damping, rival: Damping, step: float) -> str:
    """The complex plane, to scale."""
    chart = Chart("Eigenvalues in the complex plane", Axis("Re z", -1.47, 1.47), Axis("Im z", -1.4, 1.4), 420, 400)
    angle = np.linspace(0.0, 2.0 * np.pi, 121)
    chart.line(np.cos(angle), np.sin(angle), "circle")
    near = np.geomspace(1e-7, 1.0, 60)  # where two meet they move fast
    meetings = [end * (1.0 + side * near) for end in _meetings(damping) for side in (-1, 1)]
    steps = np.sort(np.concatenate([np.geomspace(1e-5, 1.0, 150), np.linspace(0.0, 5.0, 200), *meetings]))
    steps = steps[(steps > 0.0) & (steps < 1.3 * limit(damping))]
    locus = eigenvalues(damping, steps)
    for column in locus.T:
        chart.line(column.real, column.imag, "locus")
    for vector, style, radius in ((rival, "rival hollow", 6.0), (damping, "aggmo", 4.5)):
        found = eigenvalues(vector, step)
        chart.dots(found.real, found.imag, style, radius)
    return chart.svg()


def _radii(damping: Damping, rival: Damping, step: float) -> str:
    """The spectral radius against the step, with the region of stability."""
    end = limit(damping)
    far = max(end, limit(rival), step, 1.0) * 1.15
    steps = np.linspace(0.0, far, 400)
    chart = Chart("ρ against lr·λ", Axis("lr·λ", 0, far), Axis("", 0, 1.4), 420, 400)
    chart.span(0.0, end, "stable")
    meetings = _meetings(damping)
    for low, high in zip(meetings[::2], meetings[1::2], strict=True):
        chart.span(low, high, "under", height=10)
    chart.level(1.0, "zero")
    chart.line(steps, spectral_radius(damping, steps), "aggmo")
    chart.line(steps, spectral_radius(rival, steps), "rival")
    chart.mark(end, "limit", "bound")
    chart.mark(step, "lr·λ", "plain", row=1)
    return chart.svg()


def _meetings(damping: Damping) -> list[float]:
    """The steps at which a pair of eigenvalues becomes complex and real again, by turns."""
    return sorted(itertools.chain(underdamped(damping) or (), *real_windows(damping)))
