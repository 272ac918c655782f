"""What the explorer has to show, from `aggmo.theory` and from closed forms, without the explorer's own views."""

import math

import numpy as np
from scipy.special import betaln

from aggmo import Damping, reference
from aggmo.theory.landscapes import Funnel, Quadratic, Rosenbrock
from aggmo.theory.quadratic import eigenvalues, rate, spectral_radius, trajectory
from aggmo.theory.stability import best_lr, classical_optimum, limit, underdamped

CURVATURES = (1, 0.1, 0.01, 0.001)
FUNCTIONS = {
    "quadratic": Quadratic(),
    "rosenbrock": Rosenbrock(),
    "printed": Rosenbrock.printed(),
    "funnel": Funnel(),
}


def expected(settings):
    """The numbers of all views, by view and name."""
    return {
        "trajectories": along_directions(settings),
        "rates": of_convergence(settings),
        "poles": of_the_plane(settings),
        "paths": on_the_landscape(settings),
        "responses": of_impulses(settings),
    }


def along_directions(settings):
    """When the paths settle, and when the velocities turn."""
    found = {}
    directions = {"chosen": settings.curvature, **{f"{curvature:g}": curvature for curvature in CURVATURES}}
    for who, damping in (("aggmo", settings.damping), ("rival", settings.rival)):
        for name, curvature in directions.items():
            iterates = trajectory(damping, settings.lr, curvature, settings.steps).iterates
            far = [t for t, x in enumerate(iterates) if not abs(x) < 0.01]
            found[f"settled {who} {name}"] = math.inf if far[-1] == settings.steps else far[-1]
            if name == "chosen":
                found[f"end {who}"] = iterates[-1]
    run = trajectory(settings.damping, settings.lr, settings.curvature, settings.steps)
    for i, velocity in enumerate(run.velocities.T, start=1):
        turns = [t for t, v in enumerate(velocity) if v * velocity[1] < 0]
        found[f"turned {i}"] = turns[0] if turns else math.inf
    return found


def of_convergence(settings):
    """Limits, best learning rates and rates."""
    found = {}
    for suffix, damping in (("", settings.damping), (" rival", settings.rival)):
        found[f"limit{suffix}"] = limit(damping)
        found[f"best lr{suffix}"], found[f"rate{suffix}"] = best_lr(damping, settings.kappa)
    found["behind"] = classical_optimum(settings.kappa).rate / found["rate"]
    found["steep"] = rate(settings.damping, settings.lr)
    found["flat"] = rate(settings.damping, settings.lr / settings.kappa)
    return found


def of_the_plane(settings):
    """The eigenvalues at lr * lambda."""
    step = settings.lr * settings.curvature
    low, high = underdamped(settings.damping) or (math.nan, math.nan)
    return {
        "step": step,
        "radius": spectral_radius(settings.damping, step),
        "radius rival": spectral_radius(settings.rival, step),
        "stable": float(step < limit(settings.damping)),
        "complex": float(any(eigenvalues(settings.damping, step).imag)),
        "limit": limit(settings.damping),
        "low": low,
        "high": high,
    }


def on_the_landscape(settings):
    """How far above the minimum the three paths end."""
    f, found = FUNCTIONS[settings.landscape], {}
    for name, damping in (
        ("aggmo", settings.damping),
        ("classical", Damping.classical(settings.beta)),
        ("nesterov", Damping.nesterov(settings.beta)),
    ):
        theta, velocities = np.array([settings.x, settings.y]), [np.zeros(2)] * len(damping)
        for _ in range(settings.steps):
            theta, velocities = reference.step(theta, velocities, f.gradient(theta), damping, settings.lr)
        found[f"gap {name}"] = f(theta) - f.least
    return found


def of_impulses(settings):
    """Sums of powers, and moments of the Beta distribution by its own function."""
    lags = np.arange(1001)
    ours = sum(w * b**lags for b, w in zip(settings.damping.betas, settings.damping.weights, strict=True))
    alpha, beta = settings.alpha, settings.spread
    average = np.exp(betaln(alpha + lags, beta) - betaln(alpha, beta))
    shown = (1, 10, 100, 1000)
    return {
        **{f"lag {lag}": ours[lag] for lag in shown},
        **{f"continuum {lag}": average[lag] for lag in shown},
        "error": abs(ours - average).max(),
        "terminal": settings.damping.terminal_velocity,
    }
