"""Who takes part in the benchmark of one step, and over which parameters."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import pairwise
from typing import Any

import heavyball
import pytorch_optimizer
import schedulefree
import torch
import torch_optimizer
from torch import Tensor
from torch.optim import SGD, Adam, Optimizer

from aggmo import AggMo, Damping
from aggmo.torch import kernel_available

Shapes = list[tuple[int, ...]]

BASELINE = "Adam, fused"
PUBLISHED = ("pytorch_optimizer AggMo", "torch_optimizer AggMo")
LOOP, FOREACH, FUSED = {"foreach": False, "fused": False}, {"foreach": True, "fused": False}, {"fused": True}

# A rate so small that no parameter gets far in any number of steps.
LR = 1e-6


@dataclass(frozen=True)
class Contender:
    """An optimizer, the options of its groups that choose how it calculates, and the dtype of its parameters.

    Contenders that have the same `make` share one optimizer and its state.
    """

    name: str
    make: Callable[[list[Tensor]], Optimizer]
    options: Mapping[str, Any] = field(default_factory=dict)
    dtype: torch.dtype = torch.float32
    sets: tuple[str, ...] = ()  # of parameters; all if empty


def _schedule_free(params: list[Tensor]) -> Optimizer:
    """In its training mode, without which it refuses to step."""
    optimizer = schedulefree.SGDScheduleFree(params, lr=LR)
    optimizer.train()
    return optimizer  # type: ignore[no-any-return]


_AGGMO, _SGD, _ADAM = partial(AggMo, lr=LR), partial(SGD, lr=LR, momentum=0.9), partial(Adam, lr=LR)
_K2, _K5 = (partial(AggMo, lr=LR, betas=Damping.exponential(k=k)) for k in (2, 5))
_AT_RANDOM = partial(AggMo, lr=LR, stochastic_rounding=True)
_NARROW = partial(AggMo, lr=LR, velocity_dtype=torch.bfloat16, stochastic_rounding=True)

_KERNEL = [
    Contender("AggMo, fused", _AGGMO, {"foreach": None, "fused": True}),
    Contender("AggMo K=2, fused", _K2, FUSED, sets=("vector",)),
    Contender("AggMo K=5, fused", _K5, FUSED, sets=("vector",)),
    Contender("AggMo, fused, bf16 velocities", _NARROW, FUSED),
    Contender("AggMo, fused, all bf16", _AT_RANDOM, FUSED, torch.bfloat16),
]
CONTENDERS = [
    *(_KERNEL if kernel_available() else []),
    Contender("AggMo, loop in blocks", _AGGMO, LOOP),
    Contender("AggMo, foreach", _AGGMO, FOREACH),
    Contender(PUBLISHED[0], partial(pytorch_optimizer.AggMo, lr=LR)),
    Contender(PUBLISHED[1], partial(torch_optimizer.AggMo, lr=LR)),
    Contender("HeavyBall SGD", partial(heavyball.SGD, lr=LR)),
    Contender("schedule-free SGD", _schedule_free),
    Contender("SGD, loop", _SGD, LOOP),
    Contender("SGD, foreach", _SGD, FOREACH),
    Contender("SGD, fused", _SGD, {"foreach": False, "fused": True}),
    Contender("Adam, loop", _ADAM, LOOP),
    Contender("Adam, foreach", _ADAM, FOREACH),
    Contender(BASELINE, _ADAM, {"foreach": False, "fused": True}),
]


def _layers(widths: Sequence[int]) -> Shapes:
    """Weights and biases of a chain of linear layers."""
    return [shape for n, m in pairwise(widths) for shape in ((m, n), (m,))]


def _resnet(blocks: int) -> Shapes:
    """The residual network for CIFAR-10 with 6 blocks + 2 layers and shortcuts without parameters."""
    shapes: Shapes = []
    channels = [3, 16] + [16] * 2 * blocks + [32] * 2 * blocks + [64] * 2 * blocks
    for n, m in pairwise(channels):
        shapes += [(m, n, 3, 3), (m,), (m,)]
    return [*shapes, (10, 64), (10,)]


def _gpt2(depth: int = 12, width: int = 768, vocabulary: int = 50257, context: int = 1024) -> Shapes:
    """GPT-2 in its small size, the decoder tied to the embedding."""
    norm: Shapes = [(width,), (width,)]
    block = [*norm, (width, 3 * width), (3 * width,), (width, width), (width,)]
    block += [*norm, (width, 4 * width), (4 * width,), (4 * width, width), (width,)]
    return [(vocabulary, width), (context, width), *(block * depth), *norm]


PARAMETERS: dict[str, Shapes] = {
    "vector": [(2**26,)],
    "resnet32": _resnet(5),
    "gpt2": _gpt2(),
    "autoencoder": _layers([784, 1000, 500, 250, 30, 250, 500, 1000, 784]),
}
TITLES = {
    "vector": "one tensor of 64 Mi elements",
    "resnet32": "ResNet-32 for CIFAR-10",
    "gpt2": "GPT-2 small",
    "autoencoder": "the paper's autoencoder",
}
