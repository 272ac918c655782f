"""The step as one operator in the graphs of torch.compile, which so needs to compile nothing of it.

Eager steps do not come by here: for hundreds of tensors, calling an operator costs more than calling the kernel.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from aggmo.torch import fused, update


def step(params: list[Tensor], grads: list[Tensor], velocities: list[Tensor], options: update.Options) -> None:
    """`update.step` with the kernel, while compiling; parameters and velocities change in place."""
    rows = update.rows(params, grads, velocities, len(options.stored))
    lr = options.lr
    _step(
        [theta for theta, *_ in rows],
        [g for _, g, *_ in rows],
        [velocity for _, _, row, _ in rows for velocity in row],
        options.betas,
        options.weights,
        options.stored,
        # Only as a factor of a tensor is a number not compiled anew at each change (torch 2.13).
        lr if isinstance(lr, Tensor) else torch.ones(1, dtype=torch.float64) * lr,
        options.weight_decay,
        options.decoupled_weight_decay,
        options.maximize,
    )


@torch.library.custom_op("aggmo::step", mutates_args=("thetas", "velocities"))
def _step(
    thetas: Sequence[Tensor],
    grads: Sequence[Tensor],
    velocities: Sequence[Tensor],
    betas: Sequence[float],
    weights: Sequence[float],
    stored: Sequence[int],
    lr: Tensor,
    weight_decay: float,
    decoupled_weight_decay: bool,
    maximize: bool,
) -> None:
    """The eager step; what the compiler hands over may lie in memory as it likes."""
    options = update.Options(
        betas,
        weights,
        stored,
        lr.item(),
        weight_decay,
        decoupled_weight_decay,
        maximize,
        differentiable=False,
    )
    with torch.no_grad():
        update.step(list(thetas), list(grads), list(velocities), options, foreach=False, plan=fused.Plan())


@_step.register_fake
def _(*_arguments: object) -> None:
    """Nothing is returned."""
