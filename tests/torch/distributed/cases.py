"""The cases: training and checkpoints over two processes, each run by both of them."""

from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from runs import (
    FOREACH,
    FSDP1,
    FUSED,
    LOOP,
    Run,
    Setup,
    Wrap,
    assert_close,
    assert_equal,
    assert_same,
    ddp,
    fsdp2,
    plain,
)
from torch import Tensor
from torch.distributed.checkpoint.state_dict import (
    StateDictOptions,
    get_state_dict,
    set_model_state_dict,
    set_optimizer_state_dict,
)
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import (
    FullOptimStateDictConfig,
    FullStateDictConfig,
    FullyShardedDataParallel,
    ShardedOptimStateDictConfig,
    ShardedStateDictConfig,
    StateDictType,
)
from torch.distributed.tensor import DTensor, Partial, Replicate, Shard, distribute_tensor

from aggmo.torch import AggMo

SAVED, END = 3, 6  # steps before the checkpoint, and in all
TRAINING = {
    "loop": Setup(torch.float64, LOOP),
    "foreach": Setup(torch.float64, FOREACH),
    "fused": Setup(torch.float64, FUSED),
}
CHECKPOINTS = {
    "float64": Setup(torch.float64, LOOP),
    "fused": Setup(torch.float64, FUSED),
    "bfloat16": Setup(torch.bfloat16, FOREACH),
    "wide": Setup(torch.bfloat16, FOREACH, velocity_dtype=torch.float32, tensor_lr=True),
}
CASES: dict[str, Callable[[Path], None]] = {}


def case(setups: Mapping[str, Setup]) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Enter a function into CASES, once for each set-up; it is called with the set-up and a directory."""

    def enter(function: Callable[..., None]) -> Callable[..., None]:
        CASES.update({f"{function.__name__}-{name}": partial(function, setup) for name, setup in setups.items()})
        return function

    return enter


# Training: equal to one process on the whole batch, to the rounding of the sum over the batch.


@case(TRAINING)
def ddp_training(setup: Setup, _: Path) -> None:
    """Oracle: one process on both halves of the batch."""
    assert_close(
        Run(setup, ddp).train(0, END, split=True).tensors(),
        Run(setup, plain).train(0, END).tensors(),
    )


@case(TRAINING)
def fsdp2_training(setup: Setup, _: Path) -> None:
    """Oracle: one process on both halves of the batch."""
    assert_close(
        Run(setup, fsdp2).train(0, END, split=True).tensors(),
        Run(setup, plain).train(0, END).tensors(),
    )


@case(TRAINING)
def fsdp1_training(setup: Setup, _: Path) -> None:
    """Oracle: one process on both halves of the batch."""
    expected = {key: t for key, t in Run(setup, plain).train(0, END).tensors().items() if "velocity" not in key}
    for wrap in FSDP1:
        run = Run(setup, wrap).train(0, END, split=True)
        with FullyShardedDataParallel.summon_full_params(run.model):
            names = (name.replace("_fsdp_wrapped_module.", "") for name, _ in run.model.named_parameters())
            assert_close(dict(zip(names, run.model.parameters(), strict=True)), expected)


# Checkpoints.

Transfer = Callable[[Run, Run], None]


def round_trip(setup: Setup, wrap: Wrap, transfer: Transfer) -> None:
    """Oracles: the run that goes on, and one that was neither saved nor (FSDP1 aside) distributed."""
    run = Run(setup, wrap).train(0, SAVED)
    loaded = Run(setup, wrap, fresh=True)
    transfer(run, loaded)
    assert_same(loaded, run)
    run.train(SAVED, END)
    loaded.train(SAVED, END)
    assert_same(loaded, run)
    if wrap in (ddp, fsdp2):
        assert_same(run, Run(setup, plain).train(0, END))


def put_state_dict(run: Run, model: Any, optimizer: Any, options: StateDictOptions | None) -> None:
    """What set_state_dict does, which takes a rank's empty state dicts for a wish to load nothing there."""
    set_model_state_dict(run.model, model, options=options)
    set_optimizer_state_dict(run.model, run.optimizer, optimizer, options=options)


def in_memory(saving: StateDictOptions, loading: StateDictOptions | None = None) -> Transfer:
    """get_state_dict and its counterparts."""

    def transfer(source: Run, target: Run) -> None:
        model, optimizer = get_state_dict(source.model, source.optimizer, options=saving)
        put_state_dict(target, model, optimizer, loading or saving)

    return transfer


def save(run: Run, directory: Path, options: StateDictOptions | None = None, *, alone: bool = False) -> None:
    model, optimizer = get_state_dict(run.model, run.optimizer, options=options)
    dcp.save({"model": model, "optimizer": optimizer}, checkpoint_id=directory / "checkpoint", no_dist=alone)


def load(run: Run, directory: Path, options: StateDictOptions | None = None, *, alone: bool = False) -> None:
    model, optimizer = get_state_dict(run.model, run.optimizer, options=options)
    state = {"model": model, "optimizer": optimizer}
    dcp.load(state, checkpoint_id=directory / "checkpoint", no_dist=alone)
    put_state_dict(run, state["model"], state["optimizer"], options)


def on_disk(directory: Path, options: StateDictOptions | None = None) -> Transfer:
    """get_state_dict, DCP to a file and back."""

    def transfer(source: Run, target: Run) -> None:
        save(source, directory, options)
        load(target, directory, options)

    return transfer


SHARDED = StateDictOptions()
FULL = StateDictOptions(full_state_dict=True)
OFFLOADED = StateDictOptions(cpu_offload=True)
FULL_ON_RANK_0 = StateDictOptions(full_state_dict=True, cpu_offload=True)
BROADCAST = StateDictOptions(full_state_dict=True, broadcast_from_rank0=True)
FLAT = StateDictOptions(flatten_optimizer_state_dict=True)


@case(CHECKPOINTS)
def dcp_stateful(setup: Setup, directory: Path) -> None:
    """Model and optimizer handed to DCP as they are, under DDP."""

    def transfer(source: Run, target: Run) -> None:
        target.train(0, 1)  # DCP loads into tensors that are there
        dcp.save({"model": source.model, "optimizer": source.optimizer}, checkpoint_id=directory / "checkpoint")
        dcp.load({"model": target.model, "optimizer": target.optimizer}, checkpoint_id=directory / "checkpoint")

    round_trip(setup, ddp, transfer)


@case(CHECKPOINTS)
def ddp_on_disk(setup: Setup, directory: Path) -> None:
    """DCP's own state dicts, keyed by name, under DDP."""
    round_trip(setup, ddp, on_disk(directory))


@case(CHECKPOINTS)
def fsdp2_own_state_dict(setup: Setup, _: Path) -> None:
    """The optimizer's own state dict, of distributed tensors."""

    def transfer(source: Run, target: Run) -> None:
        target.model.load_state_dict(source.model.state_dict())
        target.optimizer.load_state_dict(source.optimizer.state_dict())

    round_trip(setup, fsdp2, transfer)


@case(CHECKPOINTS)
def fsdp2_sharded(setup: Setup, _: Path) -> None:
    round_trip(setup, fsdp2, in_memory(SHARDED))


@case(CHECKPOINTS)
def fsdp2_sharded_on_disk(setup: Setup, directory: Path) -> None:
    round_trip(setup, fsdp2, on_disk(directory))


@case(CHECKPOINTS)
def fsdp2_cpu_offload(setup: Setup, _: Path) -> None:
    round_trip(setup, fsdp2, in_memory(OFFLOADED))


@case(CHECKPOINTS)
def fsdp2_full(setup: Setup, _: Path) -> None:
    round_trip(setup, fsdp2, in_memory(FULL))


@case(CHECKPOINTS)
def fsdp2_broadcast_from_rank0(setup: Setup, _: Path) -> None:
    """Offloaded, a full state dict is on rank 0 alone."""
    round_trip(setup, fsdp2, in_memory(FULL_ON_RANK_0, BROADCAST))


@case(CHECKPOINTS)
def fsdp2_flattened(setup: Setup, _: Path) -> None:
    round_trip(setup, fsdp2, in_memory(FLAT))


@case(CHECKPOINTS)
def fsdp2_flattened_on_disk(setup: Setup, directory: Path) -> None:
    round_trip(setup, fsdp2, on_disk(directory, FLAT))


# With its default, offload_to_cpu=True, FSDP1 on a CPU writes all states of a parameter into one buffer (torch 2.13).
CONFIGS = {
    StateDictType.FULL_STATE_DICT: (FullStateDictConfig(), FullOptimStateDictConfig(offload_to_cpu=False)),
    StateDictType.SHARDED_STATE_DICT: (ShardedStateDictConfig(), ShardedOptimStateDictConfig(offload_to_cpu=False)),
}


def fsdp1_transfer(kind: StateDictType) -> Transfer:
    """FSDP1's own functions, optim_state_dict and optim_state_dict_to_load."""

    def transfer(source: Run, target: Run) -> None:
        for run in (source, target):
            FullyShardedDataParallel.set_state_dict_type(run.model, kind, *CONFIGS[kind])
        target.model.load_state_dict(source.model.state_dict())
        saved = FullyShardedDataParallel.optim_state_dict(source.model, source.optimizer)
        target.optimizer.load_state_dict(
            FullyShardedDataParallel.optim_state_dict_to_load(target.model, target.optimizer, saved)
        )

    return transfer


@case(CHECKPOINTS)
def fsdp1_full(setup: Setup, _: Path) -> None:
    for wrap in FSDP1:
        round_trip(setup, wrap, fsdp1_transfer(StateDictType.FULL_STATE_DICT))


@case(CHECKPOINTS)
def fsdp1_sharded(setup: Setup, _: Path) -> None:
    for wrap in FSDP1:
        round_trip(setup, wrap, fsdp1_transfer(StateDictType.SHARDED_STATE_DICT))


@case(CHECKPOINTS)
def fsdp1_get_state_dict(setup: Setup, _: Path) -> None:
    for wrap in FSDP1:
        round_trip(setup, wrap, in_memory(SHARDED))
        round_trip(setup, wrap, in_memory(FULL))


@case(CHECKPOINTS)
def fsdp1_on_disk(setup: Setup, directory: Path) -> None:
    """State dicts of DTensors: a ShardedTensor without a shard on this rank asks for CUDA (torch 2.13)."""
    for wrap in FSDP1:
        with_mesh = partial(wrap, device_mesh=init_device_mesh("cpu", (2,)))
        round_trip(setup, with_mesh, on_disk(directory / str(wrap.keywords["use_orig_params"])))


@case(CHECKPOINTS)
def saved_on_two_loaded_on_one(setup: Setup, directory: Path) -> None:
    """Oracle: the run on two that goes on. Each rank loads as a process that knows of no other."""
    run = Run(setup, fsdp2).train(0, SAVED)
    save(run, directory)
    expected = run.train(SAVED, END).tensors()
    dist.destroy_process_group()
    loaded = Run(setup, plain, fresh=True)
    load(loaded, directory, alone=True)
    assert_equal(loaded.train(SAVED, END).tensors(), expected, setup)


@case(CHECKPOINTS)
def saved_on_one_loaded_on_two(setup: Setup, directory: Path) -> None:
    """Oracle: the run on one that goes on."""
    run = Run(setup, plain).train(0, SAVED)
    if dist.get_rank() == 0:
        save(run, directory, alone=True)
    dist.barrier()
    loaded = Run(setup, fsdp2, fresh=True)
    load(loaded, directory)
    assert_same(loaded.train(SAVED, END), run.train(SAVED, END))


@case(CHECKPOINTS)
def full_state_dict_of_another_wrapping(setup: Setup, _: Path) -> None:
    """Oracle: the run that goes on. A full state dict fits a model that is wrapped in another way, or not at all."""
    wraps = [plain, ddp, fsdp2]
    for wrap, other in zip(wraps, [*wraps[1:], wraps[0]], strict=True):
        run = Run(setup, wrap).train(0, SAVED)
        loaded = Run(setup, other, fresh=True)
        in_memory(FULL)(run, loaded)
        assert_same(loaded.train(SAVED, END), run.train(SAVED, END))


@case(CHECKPOINTS)
def group_without_velocities(setup: Setup, _: Path) -> None:
    """Oracle: the run that goes on. A full state dict must not lose that nothing is stored."""

    # Without strict=False torch demands a state for every parameter, of SGD without momentum too.
    for options in (StateDictOptions(strict=False), StateDictOptions(strict=False, full_state_dict=True)):
        run = Run(setup, fsdp2, make=memoryless).train(0, SAVED)
        loaded = Run(setup, fsdp2, make=memoryless, fresh=True)
        in_memory(options)(run, loaded)
        assert_same(loaded.train(SAVED, END), run.train(SAVED, END))


def memoryless(groups: list[dict[str, Any]], **options: Any) -> AggMo:
    """AggMo whose first group stores no velocity."""
    groups[0] |= {"betas": (0,), "weights": (groups[0]["lr"],)}
    return AggMo(groups, **options)


# ZeroRedundancyOptimizer.


def zero(*arguments: Any, **options: Any) -> Any:
    """AggMo with its state shared out."""
    from torch.distributed.optim import ZeroRedundancyOptimizer  # warns when imported, and pytest imports this file

    return ZeroRedundancyOptimizer(*arguments, optimizer_class=AggMo, **options)


def gathered(run: Run) -> dict[str, Tensor]:
    """The tensors of all ranks."""
    parts: list[dict[str, Tensor]] = [{}, {}]
    dist.all_gather_object(parts, run.tensors())
    return parts[0] | parts[1]


@case(CHECKPOINTS)
def zero_redundancy_optimizer(setup: Setup, directory: Path) -> None:
    """Oracle: AggMo itself, undistributed. Either's checkpoint can be loaded into the other."""
    run, alone = Run(setup, ddp, make=zero).train(0, SAVED), Run(setup, plain).train(0, SAVED)
    run.optimizer.consolidate_state_dict(to=0)
    if dist.get_rank() == 0:
        torch.save((run.model.module.state_dict(), run.optimizer.state_dict()), directory / "zero")
        torch.save((alone.model.state_dict(), alone.optimizer.state_dict()), directory / "alone")
    dist.barrier()
    alone.train(SAVED, END)
    assert_equal(gathered(run.train(SAVED, END)), alone.tensors(), setup)
    for file in ("zero", "alone"):
        model, optimizer = torch.load(directory / file, weights_only=True)
        loaded = Run(setup, plain, fresh=True)
        loaded.model.load_state_dict(model)
        loaded.optimizer.load_state_dict(optimizer)
        assert_same(loaded.train(SAVED, END), alone)
        loaded = Run(setup, ddp, fresh=True, make=zero)
        loaded.model.module.load_state_dict(model)
        loaded.optimizer.load_state_dict(optimizer)
        assert_equal(gathered(loaded.train(SAVED, END)), alone.tensors(), setup)


# Distributed tensors.


@case(TRAINING)
def gradient_with_other_placements(setup: Setup, _: Path) -> None:
    """Oracle: AggMo on whole tensors. The gradient itself stays as it is."""
    mesh = init_device_mesh("cpu", (2,))
    halves = torch.randn(2, 5, 3, dtype=setup.dtype, generator=torch.Generator().manual_seed(0))
    for placement in (Shard(0), Shard(1), Replicate()):
        for other in (Shard(0), Shard(1), Replicate(), Partial()):
            whole = torch.ones(5, 3, dtype=setup.dtype).requires_grad_()
            whole.grad = halves.sum(0)
            parameter = distribute_tensor(whole.detach().clone(), mesh, [placement]).requires_grad_()
            if other == Partial():
                parameter.grad = DTensor.from_local(halves[dist.get_rank()].clone(), mesh, [other])
            else:
                parameter.grad = distribute_tensor(whole.grad, mesh, [other])
            before = parameter.grad.to_local().clone()
            for p in (whole, parameter):
                optimizer = AggMo([p], weight_decay=0.1, **setup.backend)
                optimizer.step()
                optimizer.step()
            assert parameter.placements == (placement,)
            # to rounding: the kernel takes contiguous shards, and leaves others to the loop
            torch.testing.assert_close(parameter.full_tensor(), whole, rtol=1e-12, atol=1e-12)
            assert parameter.grad.placements == (other,)
            assert torch.equal(parameter.grad.to_local(), before)


@case({name: TRAINING[name] for name in ("loop", "fused")})
def random_bits(setup: Setup, _: Path) -> None:
    """Oracle: a plain parameter of this process's part. Replicas draw the same bits, shards count from 0."""
    mesh = init_device_mesh("cpu", (2,))
    for placement in (Shard(0), Shard(1), Replicate()):
        whole = torch.full((300, 4), 256.0, dtype=torch.bfloat16)
        parameter = distribute_tensor(whole, mesh, [placement]).requires_grad_()
        part = parameter.to_local().detach().clone().requires_grad_()
        for p in (parameter, part):
            p.grad = torch.full_like(p, -0.75)
            AggMo([p], lr=1.0, betas=(0,), stochastic_rounding=True, **setup.backend).step()
        assert set(part.flatten().tolist()) == {256.0, 258.0}
        assert torch.equal(parameter.to_local(), part)


@case(TRAINING)
def autograd_notices_the_step(setup: Setup, _: Path) -> None:
    """Oracle: autograd, which refuses to go back through a value that was changed in place."""
    parameter = distribute_tensor(torch.ones(5, dtype=setup.dtype), init_device_mesh("cpu", (2,)), [Shard(0)])
    parameter.requires_grad_()
    loss = parameter.square().sum()
    parameter.grad = torch.ones_like(parameter)
    optimizer = AggMo([parameter], **setup.backend)
    optimizer.step()
    watched = [parameter, *optimizer.state[parameter].values()]
    versions = [tensor._version for tensor in watched]
    optimizer.step()
    assert all(tensor._version > version for tensor, version in zip(watched, versions, strict=True))
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()
