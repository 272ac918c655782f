"""The second view: the rate at the best learning rate against the condition number, and the rate against the step."""

from functools import lru_cache

import numpy as np

from aggmo.damping import Damping
from aggmo.explore.chart import Axis, Chart, Floats, key
from aggmo.explore.view import Number, View
from aggmo.theory.quadratic import rate
from aggmo.theory.stability import best_lr, classical_optimum, limit

KAPPAS = np.geomspace(10.0, 1e7, 25)


@lru_cache(maxsize=64)
def best(damping: Damping, kappa: float) -> tuple[Floats, Floats, float, float]:
    """Best learning rates and rates at all condition numbers of the picture, and those at the chosen one.

    >>> round(best(Damping((0.25,)), 9.0)[3], 6)
    0.5
    """
    lrs, rates = best_lr(damping, np.append(KAPPAS, kappa))
    return lrs[:-1], rates[:-1], float(lrs[-1]), float(rates[-1])


@lru_cache(maxsize=64)
def rates(damping: Damping, rival: Damping, name: str, lr: float, kappa: float) -> View:
    """The view.

    >>> view = rates(Damping((0.0, 0.9)), Damping((0.9,)), "CM", 0.33, 100.0)
    >>> round(view.numbers["limit rival"].value, 12)
    3.8
    """
    _, our_rates, our_lr, our_rate = best(damping, kappa)
    _, their_rates, their_lr, their_rate = best(rival, kappa)
    optimum = classical_optimum(kappa).rate
    against = Chart("Rate 1 − ρ at the best lr, against κ", Axis("κ", 10, 1e7, log=True), Axis("", 1e-7, 1, log=True))
    against.line(KAPPAS, [classical_optimum(one).rate for one in KAPPAS.tolist()], "optimum")
    against.line(KAPPAS, our_rates, "aggmo")
    against.line(KAPPAS, their_rates, "rival")
    against.mark(kappa, f"κ = {kappa:g}", "plain")
    against.dots([kappa], [their_rate], "rival")
    against.dots([kappa], [our_rate], "aggmo")
    numbers = {
        "limit": Number("stability limit of lr·λ", limit(damping)),
        "best lr": Number(f"best lr at κ = {kappa:g}", our_lr),
        "rate": Number("rate at the best lr", our_rate),
        "behind": Number("optimal CM is faster by", optimum / our_rate),
        "limit rival": Number(f"limit, {name}", limit(rival)),
        "best lr rival": Number(f"best lr, {name}", their_lr),
        "rate rival": Number(f"rate, {name}", their_rate),
        "steep": Number("AggMo's rate at the chosen lr, λ = 1", float(rate(damping, lr))),
        "flat": Number("AggMo's rate at the chosen lr, λ = 1/κ", float(rate(damping, lr / kappa))),
    }
    text = (
        "Curvatures from 1/κ to 1. The dotted line is classical momentum with β and lr chosen for each κ. The other "
        "picture has the rate at one curvature: the shaded steps lr·λ are those at the best lr, and the worst of them "
        "counts."
    )
    names = [("aggmo", "AggMo"), ("rival", name), ("optimum", "best CM for each κ")]
    charts = (against.svg(), _profile(damping, rival, lr, kappa, our_lr))
    return View("rates", "2. Rate against condition number", text, key(names), charts, numbers)


def _profile(damping: Damping, rival: Damping, lr: float, kappa: float, best: float) -> str:
    """The rate against the step, with the limit, the best lr and the chosen one."""
    low = min(best / kappa, lr / kappa) / 3.0
    steps = np.geomspace(low, 6.0, 400)
    ours, theirs = rate(damping, steps), rate(rival, steps)
    bottom = max(1e-9, 10.0 ** np.floor(np.log10(max(ours[0] / 3.0, 1e-9))))
    chart = Chart("Rate 1 − ρ against the step lr·λ", Axis("lr·λ", low, 6, log=True), Axis("", bottom, 1, log=True))
    chart.span(best / kappa, best, "shade")
    chart.line(steps, ours, "aggmo")
    chart.line(steps, theirs, "rival")
    chart.mark(limit(damping), "limit", "bound")
    chart.mark(best, "best lr", "aggmo", row=1)
    chart.mark(lr, "lr", "plain", row=2)
    return chart.svg()
