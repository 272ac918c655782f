"""The paper's overhead claim: what share of a whole training step the optimizer takes, on the paper's networks.

Forward and backward pass are those of the paper's settings, batch sizes and losses on random inputs, whose values
change nothing in the time. Weight decay is coupled, as there. Time is one thread's CPU time, the least of some rounds.
"""

import time
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import torch
from contenders import BASELINE, CONTENDERS, PUBLISHED
from torch import Tensor, nn
from torch.nn import functional

from aggmo.lab.data.text import Window
from aggmo.lab.models.awd_lstm import AWDLSTM, Reader
from aggmo.lab.paper.settings import SETTINGS, ImageSettings, TextSettings
from aggmo.lab.paper.tasks import MODELS, cross_entropy, cross_entropy_of_pixels

TASKS = {"autoencoder": "autoencoder", "cnn5": "CNN-5", "resnet32-c10": "ResNet-32", "lstm": "LSTM"}
TIMED = ("AggMo, fused", "AggMo, loop in blocks", *PUBLISHED, "SGD, fused", BASELINE)


class Share(NamedTuple):
    """Of a training step: seconds of forward and backward pass, and seconds of each optimizer's step."""

    parameters: int
    passes: float
    steps: Mapping[str, float]

    def of(self, name: str) -> float:
        """The optimizer's share of its whole step."""
        return self.steps[name] / (self.passes + self.steps[name])


def overhead(task: str, scale: str, rounds: int) -> Share:
    """Measure one of the paper's tasks at a scale of `aggmo.lab.paper.settings`."""
    torch.set_num_threads(1)
    torch.manual_seed(0)
    model, loss = _training(task, scale)
    params: list[Tensor] = list(model.parameters())
    optimizers = {c.name: (c.make(params), c.options) for c in CONTENDERS if c.name in TIMED}
    for optimizer, options in optimizers.values():
        for group in optimizer.param_groups:
            group.update(options, weight_decay=SETTINGS[task][scale].weight_decay)
    names, passes = list(optimizers), []
    steps: dict[str, list[float]] = {name: [] for name in names}
    for turn in range(rounds + 1):
        seconds = _seconds(lambda: torch.autograd.backward(loss()))
        first = turn % len(names)
        for name in names[first:] + names[:first]:
            steps[name].append(_seconds(optimizers[name][0].step))
        passes.append(seconds)
        model.zero_grad()
    # not the first round, in which states are made
    return Share(sum(p.numel() for p in params), min(passes[1:]), {name: min(steps[name][1:]) for name in names})


def _seconds(call: Callable[[], Any]) -> float:
    start = time.thread_time()
    call()
    return time.thread_time() - start


def _training(task: str, scale: str) -> tuple[nn.Module, Callable[[], Tensor]]:
    """The network and its loss on one batch."""
    settings = SETTINGS[task][scale]
    if isinstance(settings, TextSettings):
        return _language(settings)
    assert isinstance(settings, ImageSettings)
    model = MODELS[settings.model](**settings.sizes)
    shape = (1, 28, 28) if settings.data == "mnist" else (3, 32, 32)
    batch = torch.rand(settings.batch_size, *shape), torch.randint(10, (settings.batch_size,))
    criterion = cross_entropy_of_pixels if settings.model == "autoencoder" else cross_entropy
    return model, lambda: criterion(model(batch[0]), batch)


def _language(settings: TextSettings) -> tuple[nn.Module, Callable[[], Tensor]]:
    model, reader = AWDLSTM(vocabulary=settings.vocabulary, **settings.sizes), Reader()
    words = torch.randint(settings.vocabulary, (settings.length + 1, settings.batch_size))
    window = Window(words[:-1], words[1:], first=True, factor=1.0)

    def loss() -> Tensor:
        outputs = reader(model, window)
        return functional.cross_entropy(outputs.logits.flatten(0, 1), window.targets.flatten())

    return model, loss
