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
    lr, one = options.lr, torch.ones(1, dtype=torch.float64)
    # Only as a factor of a tensor is a number not compiled anew at each change (torch 2.13).
    numbers = torch.cat([one * number for number in (options.weight_decay, *options.betas, *options.weights)])
    _step(
        [theta for theta, *_ in rows],
        [g for _, g, *_ in rows],
        [velocity for _, _, row, _ in rows for velocity in row],
        options.stored,
        lr if isinstance(lr, Tensor) else one * lr,
        numbers,
        options.decoupled_weight_decay,
        options.maximize,
    )


@torch.library.custom_op("aggmo::step", mutates_args=("thetas", "velocities"))
def _step(
    thetas: Sequence[Tensor],
    grads: Sequence[Tensor],
    velocities: Sequence[Tensor],
    stored: Sequence[int],
    lr: Tensor,
    numbers: Tensor,
    decoupled_weight_decay: bool,
    maximize: bool,
) -> None:
    """The eager step; what the compiler hands over may lie in memory as it likes."""
    weight_decay, *damping = numbers.tolist()
    betas, weights = damping[: len(damping) // 2], damping[len(damping) // 2 :]
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
