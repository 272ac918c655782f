"""The time of a training step in the lab's loop, on the paper's autoencoder, beside other loops, as a Markdown table.

    bare loop           forward, backward and step over the lab's data, and nothing else: no metric, no record
    lab                 the lab's loop
    lab, held batch     the lab's loop over one batch that stays in memory
    lab, DataLoader     the lab's loop over a DataLoader that makes each image a PIL image, and a tensor of that

Every contender trains a model of its own. A round times all of them, one after the other, and the next round starts
with the next one, so that a slow spell of the machine meets all alike; ratios are taken within a round.
"""

import argparse
import math
import os
import platform
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import NoReturn

import numpy as np
import torch
from PIL import Image
from torch import Generator, Tensor
from torch.utils.data import DataLoader, Dataset

from aggmo.lab.data.images import ImageBatches, Part
from aggmo.lab.data.store import Store
from aggmo.lab.models.autoencoder import Autoencoder
from aggmo.lab.optimizers import build
from aggmo.lab.setting import Setting
from aggmo.lab.task import Task, find
from aggmo.lab.train import train

BATCH = 200
SETTING = Setting("aggmo", lr=1e-6)  # a rate so small that nothing gets far; the time does not depend on it
BASELINE = "bare loop"


class Held(ImageBatches):
    """One batch, as often as there would be others."""

    def training(self, batch_size: int, generator: Generator) -> Iterator[Part]:
        """That batch."""
        batch = next(super().training(batch_size, generator))
        return (batch for _ in range(math.ceil(len(self.train[0]) / batch_size)))


class Loaded(ImageBatches):
    """The same batches from a DataLoader."""

    def training(self, batch_size: int, generator: Generator) -> Iterator[Part]:
        """Those batches."""
        return iter(DataLoader(Pictures(*self.train), batch_size, shuffle=True, generator=generator))


class Pictures(Dataset[tuple[Tensor, int]]):
    """Images with a transform for each sample: from bytes to a PIL image, and from there to floats in [0, 1]."""

    def __init__(self, images: Tensor, labels: Tensor) -> None:
        self.images, self.labels = images[:, 0].numpy(), labels.tolist()

    def __len__(self) -> int:
        return len(self.images)

    def __getitem__(self, i: int) -> tuple[Tensor, int]:
        picture = Image.fromarray(self.images[i])
        pixels = torch.from_numpy(np.array(picture))[:, :, None].permute(2, 0, 1).contiguous()
        return pixels.float().div(255), self.labels[i]


def autoencoder(steps: int, width: float, batches: type[ImageBatches]) -> Task:
    """The paper's task with so many steps an epoch, its hidden layers that much narrower, on random images."""
    generator = Generator().manual_seed(0)
    images = torch.randint(256, (steps * BATCH, 1, 28, 28), generator=generator, dtype=torch.uint8)
    part = images, torch.zeros(len(images), dtype=torch.long)
    one = images[:1], part[1][:1]
    sizes = [784, *(max(1, round(size * width)) for size in (1000, 500, 250)), 30]
    return replace(
        find("autoencoder", "quick", Store(embedded=True)),
        data=batches(part, one, one),
        model=partial(Autoencoder, sizes),
        batch_size=BATCH,
        epochs=1,
    )


def lab(task: Task) -> float:
    """Seconds of an epoch's training steps in the lab's loop, by its own record."""
    return train(task, SETTING, seed=0).records[0]["seconds"]


def bare(task: Task) -> float:
    """Seconds of the same steps without the lab."""
    torch.manual_seed(0)
    model, generator = task.model(), Generator().manual_seed(0)
    optimizer = build("aggmo", model.parameters(), SETTING.lr, SETTING.betas)
    start = time.perf_counter()
    for batch in task.data.training(BATCH, generator):
        optimizer.zero_grad()
        task.loss(model(batch[0]), batch).backward()  # type: ignore[no-untyped-call]
        optimizer.step()
    return time.perf_counter() - start


def contest(rounds: int, steps: int, width: float) -> dict[str, list[float]]:
    """Seconds a step of each contender in each round."""
    make = partial(autoencoder, steps, width)
    contenders: dict[str, Callable[[], float]] = {
        BASELINE: partial(bare, make(ImageBatches)),
        "lab": partial(lab, make(ImageBatches)),
        "lab, held batch": partial(lab, make(Held)),
        "lab, DataLoader": partial(lab, make(Loaded)),
    }
    names = list(contenders)
    seconds: dict[str, list[float]] = {name: [] for name in names}
    for turn in range(-1, rounds):  # the first one warms up
        first = turn % len(names)
        for name in names[first:] + names[:first]:
            found = contenders[name]() / steps
            if turn >= 0:
                seconds[name].append(found)
    return seconds


def table(seconds: Mapping[str, Sequence[float]]) -> str:
    """One row a contender: minimum, median, images a second, and the median ratios to the bare loop and to the lab."""
    rows = [
        "| contender | minimum, ms | median, ms | images a second | ratio to bare loop | ratio to lab |",
        "| --- | ---: | ---: | ---: | ---: | ---: |",
    ]
    for name, own in seconds.items():
        ratios = [
            statistics.median(a / b for a, b in zip(own, seconds[other], strict=True)) for other in (BASELINE, "lab")
        ]
        median = statistics.median(own)
        times = f"{1e3 * min(own):.3f} | {1e3 * median:.3f} | {BATCH / median:,.0f}"
        rows.append(f"| {name} | {times} | {ratios[0]:.3f} | {ratios[1]:.3f} |")
    return "\n".join(rows)


class Parser(argparse.ArgumentParser):
    """A parser that answers a bad argument with one line."""

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"{self.prog}: {message}\n")


def positive(text: str) -> int:
    """A whole number >= 1."""
    number = int(text) if text.isdecimal() else 0
    if number < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number >= 1")
    return number


def share(text: str) -> float:
    """A number in (0, 1]."""
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if not 0.0 < number <= 1.0:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number in (0, 1]")
    return number


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the contest at each width and print the tables."""
    parser = Parser(description="Time one training step in the lab's loop, beside other loops.")
    parser.add_argument("--rounds", type=positive, default=15, help="rounds to time (15)")
    parser.add_argument("--steps", type=positive, default=20, help="steps of each contender in a round (20)")
    parser.add_argument("--threads", type=positive, default=os.cpu_count(), help="threads of torch (all)")
    parser.add_argument("--widths", type=share, nargs="+", default=[1.0, 0.25], help="shares of the widths (1 0.25)")
    options = parser.parse_args(arguments)
    torch.set_num_threads(options.threads)
    print(f"torch {torch.__version__}, Python {platform.python_version()}, {platform.machine()} {sys.platform},")
    print(f"{options.threads} threads, {options.rounds} rounds of {options.steps} steps")
    for width in options.widths:
        count = sum(p.numel() for p in autoencoder(1, width, ImageBatches).model().parameters())
        print(f"\n**autoencoder, width {width:g}**: {count:,} parameters, batches of {BATCH}\n")
        print(table(contest(options.rounds, options.steps, width)), flush=True)


if __name__ == "__main__":
    main()
