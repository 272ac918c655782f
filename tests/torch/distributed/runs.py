"""What the cases train and compare.

Both ranks see the same batch unless a case says otherwise. Their gradients' mean, (g + g) / 2, is then exact, and the
network calculates each element alone or along a tensor of its own, so a distributed run has to equal one that is not
distributed bit for bit, however its tensors are split.
"""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, NamedTuple, Self

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FullyShardedDataParallel, fully_shard
from torch.distributed.tensor import DTensor
from torch.nn.parallel import DistributedDataParallel

from aggmo.torch import AggMo, kernel_available

LOOP = {"foreach": False, "fused": False}
FOREACH = {"foreach": True}
FUSED = {"fused": kernel_available()}
Wrap = Callable[[nn.Module], nn.Module]


class Setup(NamedTuple):
    """The dtypes of a run and how its steps are calculated."""

    dtype: torch.dtype
    backend: Mapping[str, bool]
    velocity_dtype: torch.dtype | None = None
    tensor_lr: bool = False


class Layer(nn.Module):
    """tanh(W x + b) without a matrix product, whose rounding may depend on where its arguments are in memory."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(outputs, inputs))
        self.bias = nn.Parameter(torch.randn(outputs))

    def forward(self, x: Tensor) -> Tensor:
        return ((x.unsqueeze(-2) * self.weight).sum(-1) + self.bias).tanh()


class Network(nn.Module):
    """Shapes that two processes cannot share evenly: 5 x 3, 5, 1 x 5 and 1; and a layer that is not trained."""

    def __init__(self) -> None:
        super().__init__()
        self.frozen = Layer(3, 3).requires_grad_(False)
        self.first = Layer(3, 5)
        self.second = Layer(5, 1)

    def forward(self, x: Tensor) -> Tensor:
        return self.second(self.first(self.frozen(x)))


class Run:
    """A model in training. A fresh one has other parameters and other options, so that a load has all to change."""

    def __init__(self, setup: Setup, wrap: Wrap, *, fresh: bool = False, make: Callable[..., Any] = AggMo) -> None:
        torch.manual_seed(1 if fresh else 0)
        self.setup = setup
        self.model = wrap(Network().to(setup.dtype))
        self.optimizer = make(groups(self.model, setup, fresh), velocity_dtype=setup.velocity_dtype, **setup.backend)

    def train(self, start: int, end: int, *, split: bool = False) -> Self:
        """Take the steps from start to end; split gives each rank a half of every batch."""
        for step in range(start, end):
            generator = torch.Generator().manual_seed(step)
            x = torch.randn(4, 3, generator=generator).to(self.setup.dtype)
            if split:
                x = x.chunk(2)[dist.get_rank()]
            (self.model(x) - x.mean(1, keepdim=True)).square().mean().backward()
            self.optimizer.step()
            self.optimizer.zero_grad()
        return self

    def tensors(self) -> dict[str, Tensor]:
        """Copies of parameters and velocities by name: whole ones, but of FSDP1 this rank's."""
        found = {}
        state = getattr(self.optimizer, "optim", self.optimizer).state  # of ZeroRedundancyOptimizer this rank's
        for name, parameter in self.model.named_parameters():
            name = name.replace("_fsdp_wrapped_module.", "").removeprefix("module.")
            found[name] = parameter
            found.update((f"{name}.{key}", velocity) for key, velocity in state.get(parameter, {}).items())
        return {
            key: t.full_tensor().detach() if isinstance(t, DTensor) else t.detach().clone() for key, t in found.items()
        }

    def options(self) -> list[dict[str, Any]]:
        """The options of the groups; a checkpoint may have made lists of tuples."""
        return [
            {key: tuple(value) if isinstance(value, list) else value for key, value in group.items() if key != "params"}
            for group in self.optimizer.param_groups
        ]


def groups(model: nn.Module, setup: Setup, fresh: bool) -> list[dict[str, Any]]:
    """Two groups with different options: duplicates, a beta of 0 and unequal weights in the first one."""
    named = list(model.named_parameters())
    first: dict[str, Any] = {"params": [p for name, p in named if "first" in name]}
    rest: dict[str, Any] = {"params": [p for name, p in named if "first" not in name]}
    if fresh:
        first |= {"lr": 1.0, "betas": (0, 0.5, 0.5, 0.5), "maximize": True}
        rest |= {"lr": 1.0, "betas": (0.1, 0.2), "weights": (3.0, 4.0)}
    else:
        first |= {"lr": 0.25, "betas": (0, 0.9, 0.9, 0.99), "weights": (0.1, 0.2, 0.3, 0.4), "weight_decay": 0.01}
        rest |= {"lr": 0.1, "betas": (0.5, 0.95), "weight_decay": 0.1, "decoupled_weight_decay": True}
    if setup.tensor_lr:
        first["lr"] = torch.tensor(first["lr"])
    return [first, rest]


def plain(model: nn.Module) -> nn.Module:
    return model


def ddp(model: nn.Module) -> nn.Module:
    return DistributedDataParallel(model)


def fsdp2(model: nn.Module) -> nn.Module:
    mesh = init_device_mesh("cpu", (2,))
    for layer in model.children():
        fully_shard(layer, mesh=mesh)
    return fully_shard(model, mesh=mesh)


def fsdp1(model: nn.Module, **options: Any) -> nn.Module:
    wrap = partial(FullyShardedDataParallel, device_id=torch.device("cpu"), **options)
    for name, layer in list(model.named_children()):
        setattr(model, name, wrap(layer))  # each with one group's parameters, as FSDP1 needs without use_orig_params
    return wrap(model)


FSDP1 = (partial(fsdp1, use_orig_params=True), partial(fsdp1, use_orig_params=False))


def assert_same(actual: Run, expected: Run) -> None:
    """Equality bit for bit of parameters, velocities and options; velocities have the dtype that was asked for."""
    assert actual.options() == expected.options(), f"{actual.options()} are not {expected.options()}"
    assert_equal(actual.tensors(), expected.tensors(), actual.setup)


def assert_equal(actual: dict[str, Tensor], expected: dict[str, Tensor], setup: Setup) -> None:
    assert actual.keys() == expected.keys()
    velocities = [t for key, t in actual.items() if "velocity" in key]
    assert velocities
    assert {t.dtype for t in velocities} == {setup.velocity_dtype or setup.dtype}
    for key, tensor in actual.items():
        assert tensor.dtype == expected[key].dtype, key
        assert torch.equal(tensor, expected[key]), f"{key}: {tensor} is not {expected[key]}"


def assert_close(actual: dict[str, Tensor], expected: dict[str, Tensor]) -> None:
    torch.testing.assert_close(actual, expected, rtol=1e-12, atol=1e-12)
