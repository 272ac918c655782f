"""Small problems for optimizers, and runs of them."""

import numpy as np
import torch

from aggmo import reference


def parameters(dtype=torch.float64):
    """Three parameters of different shapes, one of them a scalar, the same at every call."""
    generator = torch.Generator().manual_seed(0)
    shapes = [(4, 3), (5,), ()]
    return [torch.randn(shape, generator=generator, dtype=torch.float64).to(dtype).requires_grad_() for shape in shapes]


def loss(params):
    """Not quadratic, not convex, and different at each parameter."""
    return sum(((k + 1) * p.square() / 2 + torch.cos(3 * p)).sum() for k, p in enumerate(params))


def train(optimizer, params, steps, schedule=None):
    """Minimize the loss; `schedule(t)` is called before each step and may change the groups."""
    for t in range(steps):
        if schedule:
            schedule(t)
        optimizer.zero_grad()
        loss(params).backward()
        optimizer.step()


def values(params):
    """Copies, to be compared later."""
    return [p.detach().clone() for p in params]


def assert_close(params, others, rtol=1e-12, atol=1e-12):
    for p, other in zip(params, others, strict=True):
        torch.testing.assert_close(p.detach(), other.detach(), rtol=rtol, atol=atol)


def assert_equal(params, others):
    """Bit for bit."""
    for p, other in zip(params, others, strict=True):
        assert p.dtype == other.dtype
        assert torch.equal(p.detach(), other.detach())


def reference_run(theta, gradients, damping, lrs, **options):
    """The iterates of `aggmo.reference.step` under given gradients and learning rates."""
    velocities = [np.zeros_like(theta) for _ in damping]
    iterates = []
    for gradient, lr in zip(gradients, lrs, strict=True):
        theta, velocities = reference.step(theta, velocities, gradient, damping, lr, **options)
        iterates.append(theta)
    return iterates, velocities
