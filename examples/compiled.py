"""The model and the optimizer's step under torch.compile, with a schedule that compiles nothing anew.

The learning rate is a tensor, so that it is data to the compiled step; a number would be compiled into it.
"""

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from torch.optim.lr_scheduler import OneCycleLR

from aggmo import AggMo

STEPS = 100


def batch(step: int) -> tuple[Tensor, Tensor]:
    """Ten classes, each a cloud around a point, and new ones of them at each step."""
    points = torch.randn(10, 20, generator=torch.Generator().manual_seed(0))
    generator = torch.Generator().manual_seed(step)
    labels = torch.randint(10, (64,), generator=generator)
    return points[labels] + torch.randn(64, 20, generator=generator), labels


def train(*, compiled: bool) -> tuple[nn.Module, float]:
    """The model, and the mean loss of its last ten steps."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(20, 64), nn.Tanh(), nn.Linear(64, 10))
    optimizer = AggMo(model.parameters(), lr=torch.tensor(0.01))
    scheduler = OneCycleLR(optimizer, max_lr=0.05, total_steps=STEPS, cycle_momentum=False)
    forward = torch.compile(model) if compiled else model
    step = torch.compile(optimizer.step) if compiled else optimizer.step
    losses = []
    for t in range(STEPS):
        x, labels = batch(t)
        loss = cross_entropy(forward(x), labels)
        torch.autograd.backward(loss)
        step()
        optimizer.zero_grad()
        scheduler.step()
        losses.append(loss.item())
    return model, sum(losses[-10:]) / 10


if __name__ == "__main__":
    model, loss = train(compiled=True)
    graphs = torch._dynamo.utils.counters["stats"]["unique_graphs"]
    print(f"loss of the last steps {loss:.4f}, with {graphs} graphs compiled for {STEPS} learning rates")
