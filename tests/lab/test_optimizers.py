"""The named optimizers against their printed equations, and against the paper's reference."""

import numpy as np
import pytest
import torch

from aggmo import Damping, reference
from aggmo.lab.optimizers import build

LR, STEPS, DECAY = 0.05, 20, 0.1
CASES = {
    "sgd": (("sgd", ()), Damping.classical(0)),
    "nt-asgd": (("nt-asgd", ()), Damping.classical(0)),
    "cm": (("cm", (0.9,)), Damping.classical(0.9)),
    "cm 0": (("cm", (0.0,)), Damping.classical(0)),
    "nesterov": (("nesterov", (0.9,)), Damping.nesterov(0.9)),
    "nesterov 0": (("nesterov", (0.0,)), Damping.nesterov(0)),
    "aggmo": (("aggmo", (0.0, 0.9, 0.99)), Damping((0, 0.9, 0.99))),
    "weights": (("aggmo", (0.0, 0.9), (0.5, 0.25)), Damping((0, 0.9), (0.5, 0.25))),
}


def gradient(theta):
    return theta**3 + 2 * theta


def run(name, betas, weights=None):
    theta = torch.nn.Parameter(torch.tensor([1.5, -0.5], dtype=torch.float64))
    optimizer = build(name, [theta], LR, betas, weights, weight_decay=DECAY)
    for _ in range(STEPS):
        theta.grad = gradient(theta.detach())
        optimizer.step()
    return theta.detach().numpy()


@pytest.mark.parametrize("case", CASES)
def test_the_momentum_methods(case):
    """Oracle: `aggmo.reference`, weight decay in the gradient."""
    arguments, damping = CASES[case]
    theta, velocities = np.array([1.5, -0.5]), [np.zeros(2) for _ in damping]
    for _ in range(STEPS):
        theta, velocities = reference.step(theta, velocities, gradient(theta), damping, LR, weight_decay=DECAY)
    np.testing.assert_allclose(run(*arguments), theta, rtol=1e-12)


def test_adam():
    """Oracle: Kingma and Ba's algorithm 1, with decay in the gradient as the paper has it, not AdamW's."""
    theta, m, v = np.array([1.5, -0.5]), np.zeros(2), np.zeros(2)
    for t in range(1, STEPS + 1):
        g = gradient(theta) + DECAY * theta
        m, v = 0.8 * m + 0.2 * g, 0.99 * v + 0.01 * g**2
        theta = theta - LR * (m / (1 - 0.8**t)) / (np.sqrt(v / (1 - 0.99**t)) + 1e-8)
    np.testing.assert_allclose(run("adam", (0.8, 0.99)), theta, rtol=1e-9)
