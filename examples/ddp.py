"""Plain DistributedDataParallel: torchrun --nproc-per-node 2 examples/ddp.py

Each process has a share of every batch; DDP averages the gradients, and every process takes the same step.
"""

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from torch.nn.parallel import DistributedDataParallel

from aggmo import AggMo

STEPS = 50


def batch(step: int) -> tuple[Tensor, Tensor]:
    """Ten classes, each a cloud around a point, and new ones of them at each step."""
    points = torch.randn(10, 20, generator=torch.Generator().manual_seed(0))
    generator = torch.Generator().manual_seed(step)
    labels = torch.randint(10, (64,), generator=generator)
    return points[labels] + torch.randn(64, 20, generator=generator), labels


def make_model() -> nn.Module:
    """The same at every call."""
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(20, 32), nn.Tanh(), nn.Linear(32, 10))


def train(model: nn.Module, rank: int = 0, processes: int = 1) -> float:
    """Take the steps, with one process's share of each batch, and give its last loss."""
    optimizer = AggMo(model.parameters(), lr=0.05, weight_decay=1e-4)
    for step in range(STEPS):
        x, labels = (whole.chunk(processes)[rank] for whole in batch(step))
        loss = cross_entropy(model(x), labels)
        optimizer.zero_grad()
        torch.autograd.backward(loss)
        optimizer.step()
    return loss.item()


if __name__ == "__main__":
    dist.init_process_group("gloo")
    rank, processes = dist.get_rank(), dist.get_world_size()
    model = make_model()
    loss = train(DistributedDataParallel(model), rank, processes)
    print(f"process {rank} of {processes}: loss of its share of the last batch {loss:.4f}")
    dist.destroy_process_group()
