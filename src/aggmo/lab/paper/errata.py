"""Errors in the paper, each with the numbers that show it."""

import math

import numpy as np

from aggmo.damping import Damping
from aggmo.lab.paper.result import Erratum, Table
from aggmo.theory.landscapes import Rosenbrock
from aggmo.theory.quadratic import difference_equation, rate, spectral_radius, trajectory, transition_matrix
from aggmo.theory.regret import Run, printed_bound, proved_bound
from aggmo.theory.stability import best_lr, critical_beta, limit


def errata() -> list[Erratum]:
    """All of them, checked now.

    >>> [erratum.name for erratum in errata() if not erratum.holds]
    []
    """
    return [_equation(), _radius(), _underdamped(), _rosenbrock(), _accuracy(), _bound(), _ten_times()]


def equation_errors() -> tuple[float, float]:
    """How far the difference equation is off a trajectory in its first 20 steps, as printed and corrected.

    >>> printed, corrected = equation_errors()
    >>> printed > 1.0, corrected < 1e-14
    (True, True)
    """
    first, second, lr, curvature = 0.5, 0.9, 0.1, 1.0
    damping = Damping((first, second))
    x = trajectory(damping, lr, curvature, 20).iterates
    right = difference_equation(damping)
    wrong = np.array([1 + first + second, first + second + first * second, -first * second])
    found = [0.0, 0.0]
    for t in range(2, 20):
        past = x[[t, t - 1, t - 2]]
        slope = lr / 2 * curvature * (2 * x[t] - (first + second) * x[t - 1])
        step = right.iterates @ past - lr * right.gradients @ (curvature * past[:2])
        found[0] = max(found[0], abs(wrong @ past + slope - x[t + 1]))
        found[1] = max(found[1], abs(step - x[t + 1]))
    return float(found[0]), float(found[1])


def norms() -> tuple[float, float]:
    """Spectral norm and spectral radius of B for the default damping at lr = 0.33, λ = 1, where AggMo converges.

    >>> norm, radius = norms()
    >>> norm > 1.0 > radius
    True
    """
    matrix = transition_matrix(Damping.exponential(), 0.33, 1.0)
    return float(np.linalg.norm(matrix, 2)), float(spectral_radius(Damping.exponential(), 0.33))


def classical_rates() -> dict[str, float]:
    """Rates of CM: under-damped at β = 0.9, and with the critical damping for κ = 100 at two learning rates.

    >>> {name: round(value, 4) for name, value in classical_rates().items()}["under-damped, found"]
    0.0513
    """
    best = critical_beta(100.0)
    damping = Damping.classical(best)
    worst = [float(min(rate(damping, np.linspace(0.01, 1.0, 1000) * lr))) for lr in (4 / 1.1**2, 1.0)]
    return {
        "under-damped, found": float(rate(Damping.classical(0.9), 0.1)),
        "1 − √β": 1 - math.sqrt(0.9),
        "1 − |β|": 1 - 0.9,
        "β* at lr = 4/(√L + √μ)², κ = 100": worst[0],
        "β* at lr = 1/L": worst[1],
        "the best β = 0.9 reaches at its best lr": best_lr(Damping.classical(0.9), 100.0)[1],
    }


def rosenbrock_values() -> dict[str, float]:
    """Values of Rosenbrock's function, printed and standard, at the origin and the minimum, and how flat the valley is.

    >>> rosenbrock_values()["standard, at (1, 1)"]
    0.0
    """
    printed, standard = Rosenbrock.printed(), Rosenbrock()
    return {
        "standard, at (1, 1)": float(standard((1.0, 1.0))),
        "standard, at the origin": float(standard((0.0, 0.0))),
        "printed, at (1, 1)": float(printed((1.0, 1.0))),
        "printed, at the origin": float(printed((0.0, 0.0))),
        "standard, on the parabola at x = 0.5": float(standard((0.5, 0.25))),
        "printed, on the parabola at x = 0.5": float(printed((0.5, 0.25))),
    }


def bounds() -> dict[str, float]:
    """|x| + |y| + |z| at (1, 1, 1), one round: the regret is 3.

    >>> bounds()["as printed, distances of the iterates only"]
    1.5
    """
    one, damping = Run(np.ones((1, 3)), np.ones((1, 3))), Damping((0,))
    best = np.zeros(3)
    return {
        "regret": 3.0,
        "as printed, distances of the iterates only": float(printed_bound(one, damping, 1.0, 0.5).total[0]),
        "as printed, distances to θ* too": float(printed_bound(one, damping, 1.0, 0.5, best=best).total[0]),
        "as proved": float(proved_bound(one, best, damping, 1.0, 0.5).total[0]),
    }


def limits() -> dict[str, float]:
    """The largest lr·λ at which each is stable on a quadratic.

    >>> {name: round(value, 2) for name, value in limits().items()}["Nesterov, β = 0.999"]
    1.33
    """
    return {
        "CM, β = 0.99": limit(Damping.classical(0.99)),
        "CM, β = 0.999": limit(Damping.classical(0.999)),
        "Nesterov, β = 0.999": limit(Damping.nesterov(0.999)),
        **{f"AggMo, K = {k}": limit(Damping.exponential(k=k)) for k in (3, 4, 5)},
    }


def _equation() -> Erratum:
    printed, corrected = equation_errors()
    return Erratum(
        "erratum-1",
        "Appendix C, the finite difference equation",
        "δ(t+1) = (1+β₁+β₂)δ(t) + (β₁+β₂+β₁β₂)δ(t−1) − β₁β₂δ(t−2) + γ/2 (2∇f(θ(t)) − (β₁+β₂)∇f(θ(t−1)))",
        "δ(t+1) = (1+β₁+β₂)δ(t) − (β₁+β₂+β₁β₂)δ(t−1) + β₁β₂δ(t−2) − γ/2 (2∇f(θ(t)) − (β₁+β₂)∇f(θ(t−1)))",
        _table("erratum-1", "The largest error over 20 steps.", {"as printed": printed, "corrected": corrected}),
        printed > 1e-3 and corrected < 1e-12,
    )


def _radius() -> Erratum:
    norm, radius = norms()
    return Erratum(
        "erratum-2",
        "Appendix B, what determines the rate",
        "the spectral norm of B",
        "the spectral radius of B: the norm is above 1 even where the iteration converges",
        _table("erratum-2", "AggMo at lr·λ = 0.33.", {"spectral norm": norm, "spectral radius": radius}),
        norm > 1.0 > radius,
    )


def _underdamped() -> Erratum:
    found = classical_rates()
    exact = abs(found["under-damped, found"] - found["1 − √β"]) < 1e-9
    return Erratum(
        "erratum-3",
        "Appendix B, the rate of under-damped CM and the optimality of β*",
        "convergence rate 1 − |β|; β* is optimal",
        "the rate is 1 − √β; β* is optimal at lr = 4/(√L + √μ)² only",
        _table("erratum-3", "Rates of CM.", found),
        exact and found["β* at lr = 1/L"] < 0.9 * found["β* at lr = 4/(√L + √μ)², κ = 100"],
    )


def _rosenbrock() -> Erratum:
    found = rosenbrock_values()
    return Erratum(
        "erratum-4",
        "Appendix A, Rosenbrock's function",
        "f(x, y) = (y − x²)² + 100 (x − 1)², and the optimizers approach the origin",
        "f(x, y) = 100 (y − x²)² + (1 − x)², and they approach (1, 1)",
        _table("erratum-4", "Values.", found),
        found["standard, at (1, 1)"] == 0.0
        and found["printed, at the origin"] > 0.0
        and found["standard, on the parabola at x = 0.5"] < found["printed, on the parabola at x = 0.5"],
    )


def _accuracy() -> Erratum:
    numbers = {"AggMo without batch norm": 69.32, "CM without batch norm": 67.26, "AggMo with it, table 2": 70.11}
    return Erratum(
        "erratum-5",
        "Section 5.2, ResNet-32 without batch norm",
        "69.32 % test error compared to a best value of 67.26 % using CM",
        "these are accuracies: as errors AggMo's would be the worse one, and its accuracy 30.68 %, not near 70.11 %",
        _table("erratum-5", "The paper's own numbers, in percent.", numbers),
        numbers["AggMo without batch norm"] > numbers["CM without batch norm"],
    )


def _bound() -> Erratum:
    found = bounds()
    return Erratum(
        "erratum-6",
        "Appendix C, theorem 1",
        "first term D∞²√T/γ, with D and D∞ the largest distances between iterates; rate O(√T)",
        "first term D²√T/(2γ), or d·D∞²√T/(2γ), with distances to θ* among them; rate O(√(T log T)); a bounded domain,"
        " as in Adam's counterexample, needs a projection, which the theorem does not have",
        _table("erratum-6", "|x| + |y| + |z| at (1, 1, 1), one round.", found),
        found["as printed, distances to θ* too"] < found["regret"] <= found["as proved"],
    )


def _ten_times() -> Erratum:
    found = limits()
    return Erratum(
        "erratum-7",
        "Section 5.1, stable at learning rates ten times those of CM and Nesterov",
        "stated as a property of AggMo",
        "no fact about quadratics, where AggMo's limit is below CM's; it shows on stochastic tasks",
        _table("erratum-7", "The largest stable lr·λ on a quadratic.", found),
        found["AggMo, K = 4"] < found["CM, β = 0.999"] and found["AggMo, K = 4"] < 10 * found["Nesterov, β = 0.999"],
    )


def _table(name: str, caption: str, numbers: dict[str, float]) -> Table:
    """The numbers of a check."""
    return Table(name, caption, ("what", "value"), tuple((what, f"{value:.4g}") for what, value in numbers.items()))
