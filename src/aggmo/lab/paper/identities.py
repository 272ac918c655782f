"""What section 2 and appendices B and C say of quadratics in formulas, both sides computed."""

from collections.abc import Mapping

import numpy as np

from aggmo.damping import Damping
from aggmo.lab.paper.experiment import Evidence
from aggmo.lab.paper.result import Result, Table
from aggmo.lab.paper.rules import Check, below, verdict
from aggmo.theory.quadratic import (
    characteristic_polynomial,
    difference_equation,
    nesterov_trajectory,
    trajectory,
    transition_matrix,
)
from aggmo.theory.stability import best_lr, classical_optimum, nesterov_optimum


def theorem(_: Evidence) -> Result:
    """Sutskever's theorem and the closed forms of the best learning rate (section 2, appendix B)."""
    found = theorem_errors()
    rows = tuple((what, float(f"{error:.1e}")) for what, error in found.items())
    return Result(
        "section-2",
        "Section 2 and appendix B: Nesterov's damping on a quadratic, and the best learning rates",
        "On a quadratic, Nesterov momentum at curvature λ acts as CM with damping β(1 − lr·λ) (Sutskever et al.,"
        " theorem 2); the best learning rates of CM and of Nesterov are known in closed form.",
        (),
        (Table("section-2-errors", "The largest relative difference.", ("identity", "difference"), rows),),
        verdict([below(what, error, 1e-6) for what, error in found.items()]),
    )


def theorem_errors() -> dict[str, float]:
    """The largest relative differences between both sides of the identities."""
    steps, beta, lr = 200, 0.9, 0.5
    theorem = 0.0
    for curvature in (1.0, 0.3, 0.01):
        theta = nesterov_trajectory(beta, lr, curvature, steps).theta
        # Theorem 2: theta moves as under CM whose damping is beta (1 - lr lambda).
        x, previous = 1.0, 1.0
        for t in range(1, steps + 1):
            x, previous = x - lr * curvature * x + beta * (1 - lr * curvature) * (x - previous), x
            theorem = max(theorem, abs(x - theta[t]))
    kappas = np.logspace(1, 6, 26)
    errors = {"Nesterov acts as CM with β(1 − lr·λ)": float(theorem)}
    for name, optimum, make in (
        ("CM", classical_optimum, Damping.classical),
        ("Nesterov", nesterov_optimum, Damping.nesterov),
    ):
        lrs, rates = [], []
        for kappa in kappas:
            known = optimum(kappa)
            lr_found, rate = best_lr(make(known.beta), kappa)
            lrs.append(abs(lr_found / known.lr - 1.0))
            rates.append(abs(rate / known.rate - 1.0))
        errors[f"best learning rate of {name}"] = float(max(lrs))
        errors[f"best rate of {name}"] = float(max(rates))
    return errors


def appendix_c(_: Evidence) -> Result:
    """The difference equation and the block-diagonal form of B."""
    found = identity_errors()
    rows = tuple((what, float(f"{error:.1e}")) for what, error in found.items())
    return Result(
        "appendix-c-identities",
        "Appendix C: difference equation and block-diagonal form",
        "AggMo's iterates follow a difference equation of order K + 1, and the matrix B of its step on a quadratic is"
        " similar to a block-diagonal one, with one block for each curvature.",
        (),
        (Table("appendix-c-errors", "The largest difference of both sides.", ("identity", "difference"), rows),),
        verdict(appendix_c_checks(found)),
        notes=("The equation as printed has three wrong signs (see the errata); this is the right one.",),
    )


def appendix_c_checks(found: Mapping[str, float]) -> list[Check]:
    """That both identities hold to rounding.

    >>> appendix_c_checks({"difference equation": 1e-14})[0].holds
    True
    """
    return [below(what, error, 1e-9) for what, error in found.items()]


def identity_errors() -> dict[str, float]:
    """The differences of both sides of the two identities, for random problems."""
    rng = np.random.default_rng(0)
    equation = block = 0.0
    for k in (1, 2, 3, 4):
        damping = Damping(rng.uniform(0, 0.99, k), rng.uniform(0.1, 1, k))
        x = trajectory(damping, 0.2, 0.7, 60).iterates
        order = difference_equation(damping)
        padded = np.concatenate([np.ones(k + 1), x])
        slopes = np.concatenate([np.zeros(k + 1), 0.7 * x])
        for t in range(60):
            past, gradients = (a[t + k + 1 - np.arange(k + 1)] for a in (padded, slopes))
            step = order.iterates @ past - 0.2 * order.gradients @ gradients[: len(order.gradients)]
            equation = max(equation, abs(step - x[t + 1]))
        q, _ = np.linalg.qr(rng.normal(size=(3, 3)))
        values = np.array([1.0, 0.3, 0.02])
        whole = np.poly(transition_matrix(damping, 0.5, q @ np.diag(values) @ q.T))
        blocks = np.array([1.0])
        for value in values:
            blocks = np.convolve(blocks, characteristic_polynomial(damping, 0.5 * value))
        block = max(block, float(np.abs(whole - blocks).max()))
    return {"difference equation": equation, "characteristic polynomial of B and of its blocks": block}
