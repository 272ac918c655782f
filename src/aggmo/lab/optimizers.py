"""The optimizers that the lab compares, by name. The baselines are those of `torch.optim`."""

from collections.abc import Iterable

from torch.nn import Parameter
from torch.optim import SGD, Adam, Optimizer

from aggmo.torch import AggMo

# Every name, and the betas that it takes by default.
BETAS: dict[str, tuple[float, ...]] = {
    "sgd": (),
    "nt-asgd": (),  # SGD, and its iterates are averaged once the validation score stalls: aggmo.lab.averaging
    "cm": (0.9,),
    "nesterov": (0.9,),
    "adam": (0.9, 0.999),
    "aggmo": (0.0, 0.9, 0.99),
}


def build(
    name: str,
    params: Iterable[Parameter],
    lr: float,
    betas: tuple[float, ...],
    weights: tuple[float, ...] | None = None,
    weight_decay: float = 0.0,
) -> Optimizer:
    """The optimizer of that name, its arguments as `aggmo.lab.setting.Setting` has checked them.

    Weight decay is L2 in the gradient for every one of them, Adam too.

    >>> import torch
    >>> theta = torch.nn.Parameter(torch.zeros(1))
    >>> [group] = build("cm", [theta], lr=0.5, betas=(0.75,)).param_groups
    >>> group["lr"], group["momentum"], group["nesterov"]
    (0.5, 0.75, False)
    """
    if name == "aggmo":
        return AggMo(params, lr, betas, weights, weight_decay=weight_decay)
    if name == "adam":
        first, second = betas
        return Adam(params, lr, (first, second), weight_decay=weight_decay)
    beta = betas[0] if betas else 0.0
    nesterov = name == "nesterov" and beta > 0.0  # torch refuses it at 0, where it would change nothing
    return SGD(params, lr, momentum=beta, nesterov=nesterov, weight_decay=weight_decay)
