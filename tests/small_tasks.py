"""Tasks of a few milliseconds an epoch, for the tests of the lab's training; as `small_tasks:function` for `find`."""

import sys
import time
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional

from aggmo.lab.schedule import Plateau
from aggmo.lab.task import Metric, Task, Tensors


def classification(**options):
    """Three noisy classes in the plane: batch normalisation, dropout, and augmentation with noise of its own."""
    generator = torch.Generator().manual_seed(1)
    labels = torch.arange(90) % 3
    corners = torch.tensor([[0.0, 1.0], [1.0, -1.0], [-1.0, -1.0]])
    points = corners[labels] + torch.randn(90, 2, generator=generator)
    rows = torch.randperm(90, generator=generator).split(30)
    return Task(
        **{
            "name": "classification",
            "data": Tensors(*((points[part], labels[part]) for part in rows), augment=jitter),
            "model": lambda: nn.Sequential(
                nn.Linear(2, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Dropout(0.3), nn.Linear(8, 3)
            ),
            "loss": lambda output, batch: functional.cross_entropy(output, batch[1]),
            "metrics": (Metric("accuracy", accuracy, "max"),),
            "epochs": 12,
            "batch_size": 7,
            "schedule": Plateau(2),
            "weight_decay": 1e-3,
            **options,
        }
    )


def jitter(batch, generator):
    points, labels = batch
    return points + 0.1 * torch.randn(points.shape, generator=generator), labels


def accuracy(output, batch):
    return 100 * (output.argmax(1) == batch[1]).float().mean()


class Window(NamedTuple):
    """A window of text, as rows of words and of those that follow."""

    words: Tensor
    following: Tensor
    first: bool


class Text:
    """Windows of random length over two columns of pseudo-random words."""

    def __init__(self):
        generator = torch.Generator().manual_seed(2)
        self.words = torch.randint(5, (121, 2), generator=generator).cumsum(0) % 5

    def training(self, batch_size, generator):
        assert batch_size == 2
        start = 0
        while start < 80:
            length = int(torch.randint(3, 12, (), generator=generator))
            yield self.window(start, min(length, 80 - start))
            start += length

    def evaluation(self, split):
        begin = {"validation": 80, "test": 100}[split]
        for start in range(begin, begin + 20, 10):
            yield self.window(start, 10, begin)

    def window(self, start, length, begin=0):
        end = start + length
        return Window(self.words[start:end], self.words[start + 1 : end + 1], start == begin)


class Recurrent(nn.Module):
    def __init__(self, dropout=0.2):
        super().__init__()
        self.dropout = dropout
        self.embedding = nn.Embedding(5, 4)
        self.layer = nn.GRU(4, 4)
        self.decoder = nn.Linear(4, 5)
        self.decoder.weight = self.embedding.weight

    def forward(self, words, state):
        output, state = self.layer(self.embedding(words), state)
        return self.decoder(functional.dropout(output, self.dropout, self.training)), output, state


class Reader:
    """A forward pass that carries the state from window to window."""

    def __call__(self, model, window):
        state = None if window.first else self.state
        logits, output, state = model(window.words, state)
        self.state = state.detach()
        return functional.cross_entropy(logits.flatten(0, 1), window.following.flatten()), output


def language(**options):
    """A recurrent model with a hidden state over windows, learning rates by their length, and a penalty in the loss."""
    return Task(
        **{
            "name": "language",
            "data": Text(),
            "model": Recurrent,
            "forward": Reader(),
            "loss": lambda output, _: output[0] + 0.1 * output[1].square().mean(),
            "metrics": (Metric("perplexity", lambda output, _: output[0], transform=torch.exp),),
            "size": lambda window: window.words.numel(),
            "lr_factor": lambda window: len(window.words) / 7,
            "epochs": 12,
            "batch_size": 2,
            "clip": 0.25,
            **options,
        }
    )


def slow():
    """A task whose epochs take 50 ms more than they have to."""

    def patiently(_):
        time.sleep(0.05)
        return 1.0

    return classification(name="slow", schedule=patiently)


def failing():
    """A task that does not come through its second epoch."""

    def once(scores):
        if scores:
            raise ArithmeticError("one epoch is enough")
        return 1.0

    return classification(name="failing", schedule=once)


def misfit():
    return classification(name="misfit", model=lambda: nn.Linear(3, 3))


def broken():
    raise KeyError("no such\nthing")


def leaving():
    sys.exit(0)


def rubbish():
    return {"name": "a dict"}
