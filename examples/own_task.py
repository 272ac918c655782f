"""A task of your own: handwritten digits. Compare optimizers on it with `aggmo compare own_task:digits`."""

import torch
from sklearn.datasets import load_digits
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from aggmo.lab.task import Metric, Task, Tensors


def error(output: Tensor, batch: tuple[Tensor, ...]) -> Tensor:
    _, labels = batch
    return 100 * (output.argmax(1) != labels).float().mean()


def digits() -> Task:
    images, labels = map(torch.tensor, load_digits(return_X_y=True))
    images = images.float() / 16
    order = torch.randperm(len(images), generator=torch.Generator().manual_seed(0))
    train, validation, test = ((images[rows], labels[rows]) for rows in torch.split(order, [1200, 300, 297]))
    return Task(
        name="digits",
        data=Tensors(train, validation, test),
        model=lambda: nn.Sequential(nn.Linear(64, 100), nn.ReLU(), nn.Linear(100, 10)),
        loss=lambda output, batch: cross_entropy(output, batch[1]),
        metrics=(Metric("error", error, "min"),),
        epochs=5,
        batch_size=50,
    )
