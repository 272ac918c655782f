"""The fifth view: the impulse response, how much of an old gradient is still in the step."""

from functools import lru_cache

import numpy as np

from aggmo.damping import Damping
from aggmo.explore.chart import Axis, Chart, key
from aggmo.explore.view import Number, View
from aggmo.theory.averaging import impulse_response, moments, response_error

LAGS = 1001
SHOWN = (1, 10, 100, 1000)


@lru_cache(maxsize=64)
def responses(damping: Damping, rival: Damping, name: str, alpha: float, spread: float) -> View:
    """The view.

    >>> view = responses(Damping((0.0, 0.5)), Damping((0.9,)), "CM", 100.0, 1.0)
    >>> view.numbers["lag 1"].value
    0.25
    """
    ours, theirs = impulse_response(damping, LAGS), impulse_response(rival, LAGS)
    continuum = moments(alpha, spread, LAGS)
    lag = np.arange(1, LAGS)
    numbers = {f"lag {at}": Number(f"AggMo, h({at})", float(ours[at])) for at in SHOWN}
    numbers |= {f"continuum {at}": Number(f"Beta average, h({at})", float(continuum[at])) for at in SHOWN}
    numbers["error"] = Number("largest difference from the Beta average", response_error(ours, alpha, spread, LAGS))
    numbers["terminal"] = Number("sum of all, the terminal velocity", damping.terminal_velocity)
    charts = []
    for title, y in (
        ("What a gradient counts, l steps later", Axis("", 0, max(1.0, float(ours[0]), float(theirs[0])) * 1.02)),
        ("The same, logarithmic", Axis("", 1e-5, 2, log=True)),
    ):
        chart = Chart(title, Axis("l, steps", 1, LAGS - 1, log=True), y)
        thin = np.unique(np.geomspace(1, LAGS - 1, 250).astype(int))
        for values, style in ((continuum, "optimum"), (ours, "aggmo"), (theirs, "rival")):
            chart.line(lag[thin - 1], values[thin], style)
        charts.append(chart.svg())
    text = (
        "θ moves by −lr · Σ h(l) · (the gradient l steps ago): h(l) = Σ wᵢ βᵢˡ. The dotted line is the average over "
        f"infinitely many velocities, β ~ Beta({alpha:g}, {spread:g}), the paper's appendix F."
    )
    names = [("aggmo", "AggMo"), ("rival", name), ("optimum", f"Beta({alpha:g}, {spread:g}) average")]
    return View("responses", "5. Impulse response", text, key(names), charts, numbers)
