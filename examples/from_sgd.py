"""From SGD to AggMo in the middle of training: `AggMo.from_sgd` takes learning rate and momentum along."""

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from torch.optim import SGD, Optimizer
from torch.optim.lr_scheduler import CosineAnnealingLR, LRScheduler

from aggmo import AggMo

STEPS = 200
SWITCH = 100


def data() -> tuple[Tensor, Tensor]:
    """Ten classes, each a cloud around a point."""
    generator = torch.Generator().manual_seed(0)
    labels = torch.randint(10, (512,), generator=generator)
    points = torch.randn(10, 20, generator=generator)
    return points[labels] + torch.randn(512, 20, generator=generator), labels


def train(model: nn.Module, optimizer: Optimizer, scheduler: LRScheduler, steps: int) -> None:
    """Take the steps, and print the loss before every twentieth."""
    x, labels = data()
    for _ in range(steps):
        loss = cross_entropy(model(x), labels)
        if scheduler.last_epoch % 20 == 0:
            lr = optimizer.param_groups[0]["lr"]
            print(f"step {scheduler.last_epoch:3}  {type(optimizer).__name__:5}  lr {lr:.6f}  loss {loss.item():.6f}")
        optimizer.zero_grad()
        torch.autograd.backward(loss)
        optimizer.step()
        scheduler.step()


def take_over(sgd: SGD, scheduler: LRScheduler) -> AggMo:
    """AggMo in the place of SGD, and the scheduler, with its learning rates, moved to it."""
    optimizer = AggMo.from_sgd(sgd)
    scheduler.optimizer = optimizer
    scheduler.base_lrs = [group["initial_lr"] for group in optimizer.param_groups]
    return optimizer


if __name__ == "__main__":
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(20, 32), nn.Tanh(), nn.Linear(32, 10))
    sgd = SGD(model.parameters(), lr=0.05, momentum=0.9)
    scheduler = CosineAnnealingLR(sgd, STEPS)
    train(model, sgd, scheduler, SWITCH)
    optimizer = take_over(sgd, scheduler)
    train(model, optimizer, scheduler, STEPS - SWITCH)
    x, labels = data()
    print(f"final loss {cross_entropy(model(x), labels).item():.6f}")
