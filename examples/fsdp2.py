"""FSDP2, parameters and velocities in shards: torchrun --nproc-per-node 2 examples/fsdp2.py

Each process holds a part of every parameter and of its velocities, and steps that part. A checkpoint is made of whole
tensors, which fit a run without FSDP as well.
"""

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.checkpoint.state_dict import StateDictOptions, get_state_dict
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.nn.functional import cross_entropy

from aggmo import AggMo

STEPS = 50


def batch(step: int) -> tuple[Tensor, Tensor]:
    """Ten classes, each a cloud around a point, and new ones of them at each step."""
    points = torch.randn(10, 20, generator=torch.Generator().manual_seed(0))
    generator = torch.Generator().manual_seed(step)
    labels = torch.randint(10, (64,), generator=generator)
    return points[labels] + torch.randn(64, 20, generator=generator), labels


def make_model() -> nn.Sequential:
    """The same at every call."""
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(20, 32), nn.Tanh(), nn.Linear(32, 10))


def train(model: nn.Module, rank: int = 0, processes: int = 1) -> AggMo:
    """Take the steps, with one process's share of each batch, and give the optimizer."""
    optimizer = AggMo(model.parameters(), lr=0.05, weight_decay=1e-4)
    for step in range(STEPS):
        x, labels = (whole.chunk(processes)[rank] for whole in batch(step))
        optimizer.zero_grad()
        torch.autograd.backward(cross_entropy(model(x), labels))
        optimizer.step()
    return optimizer


if __name__ == "__main__":
    dist.init_process_group("gloo")
    rank, processes = dist.get_rank(), dist.get_world_size()
    mesh = init_device_mesh("cpu", (processes,))
    model = make_model()
    for layer in model:
        fully_shard(layer, mesh=mesh)
    fully_shard(model, mesh=mesh)
    optimizer = train(model, rank, processes)
    held = sum(velocity.to_local().numel() for state in optimizer.state.values() for velocity in state.values())
    weights, state = get_state_dict(model, optimizer, options=StateDictOptions(full_state_dict=True, cpu_offload=True))
    print(f"process {rank} of {processes}: {held} numbers in velocities")
    dist.destroy_process_group()
