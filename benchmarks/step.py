"""The time of one optimizer step, AggMo beside its peers, as a Markdown table.

Every contender has parameters of its own. A round times all of them, one after the other, and the next round starts
with the next one, so that a slow spell of the machine meets all alike; ratios are taken within a round.
"""

import argparse
import math
import os
import platform
import statistics
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import pairwise
from typing import NoReturn

import pytorch_optimizer
import torch
from torch import Tensor
from torch.optim import SGD, Adam, Optimizer

from aggmo import AggMo

Shapes = list[tuple[int, ...]]

BASELINE = "Adam, fused"

# A rate so small that no parameter gets far in any number of steps; the time does not depend on it.
CONTENDERS: dict[str, Callable[[list[Tensor]], Optimizer]] = {
    "AggMo, loop": partial(AggMo, lr=1e-6, foreach=False),
    "AggMo, foreach": partial(AggMo, lr=1e-6, foreach=True),
    "pytorch_optimizer AggMo": partial(pytorch_optimizer.AggMo, lr=1e-6),
    "SGD, loop": partial(SGD, lr=1e-6, momentum=0.9, foreach=False),
    "SGD, foreach": partial(SGD, lr=1e-6, momentum=0.9, foreach=True),
    "SGD, fused": partial(SGD, lr=1e-6, momentum=0.9, fused=True),
    "Adam, loop": partial(Adam, lr=1e-6, foreach=False),
    "Adam, foreach": partial(Adam, lr=1e-6, foreach=True),
    BASELINE: partial(Adam, lr=1e-6, fused=True),
}


def layers(widths: Sequence[int]) -> Shapes:
    """Weights and biases of a chain of linear layers."""
    return [shape for n, m in pairwise(widths) for shape in ((m, n), (m,))]


def resnet(blocks: int) -> Shapes:
    """The residual network for CIFAR-10 with 6 blocks + 2 layers and shortcuts without parameters."""
    shapes: Shapes = []
    channels = [3, 16] + [16] * 2 * blocks + [32] * 2 * blocks + [64] * 2 * blocks
    for n, m in pairwise(channels):
        shapes += [(m, n, 3, 3), (m,), (m,)]
    return [*shapes, (10, 64), (10,)]


PARAMETERS: dict[str, Shapes] = {
    "vector": [(2**24,)],
    "resnet32": resnet(5),
    "autoencoder": layers([784, 1000, 500, 250, 30, 250, 500, 1000, 784]),
}


def contest(shapes: Shapes, rounds: int, steps: int) -> dict[str, list[float]]:
    """Seconds a step of each contender in each round, on random gradients that stay the same."""
    generator = torch.Generator().manual_seed(0)
    optimizers = {}
    for name, make in CONTENDERS.items():
        params = [torch.randn(shape, generator=generator).requires_grad_() for shape in shapes]
        for p in params:
            p.grad = torch.randn(p.shape, generator=generator)
        optimizers[name] = make(params)
        optimizers[name].step()  # makes the state
    names = list(optimizers)
    seconds: dict[str, list[float]] = {name: [] for name in names}
    for turn in range(rounds):
        first = turn % len(names)
        for name in names[first:] + names[:first]:
            step = optimizers[name].step
            start = time.perf_counter()
            for _ in range(steps):
                step()
            seconds[name].append((time.perf_counter() - start) / steps)
    return seconds


def table(seconds: Mapping[str, Sequence[float]]) -> str:
    """One row a contender: minimum and median in milliseconds, and the median ratio to the baseline."""
    rows = [f"| contender | minimum, ms | median, ms | ratio to {BASELINE} |", "| --- | ---: | ---: | ---: |"]
    for name, own in seconds.items():
        ratio = statistics.median(a / b for a, b in zip(own, seconds[BASELINE], strict=True))
        rows.append(f"| {name} | {1e3 * min(own):.3f} | {1e3 * statistics.median(own):.3f} | {ratio:.2f} |")
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


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the contest over the chosen parameters and print the tables."""
    parser = Parser(description="Time one optimizer step, AggMo beside its peers.")
    parser.add_argument("--rounds", type=positive, default=30, help="rounds to time (30)")
    parser.add_argument("--steps", type=positive, default=5, help="steps of each contender in a round (5)")
    parser.add_argument("--threads", type=positive, default=os.cpu_count(), help="threads of torch (all)")
    parser.add_argument("--parameters", nargs="+", choices=PARAMETERS, default=list(PARAMETERS), help="the tensors")
    options = parser.parse_args(arguments)
    torch.set_num_threads(options.threads)
    print(f"torch {torch.__version__}, Python {platform.python_version()}, {platform.machine()} {sys.platform},")
    print(f"{options.threads} threads, {options.rounds} rounds of {options.steps} steps")
    for name in options.parameters:
        shapes = PARAMETERS[name]
        count = sum(math.prod(shape) for shape in shapes)
        print(f"\n**{name}**: tensors: {len(shapes)}, elements: {count:,}\n")
        print(table(contest(shapes, options.rounds, options.steps)), flush=True)


if __name__ == "__main__":
    main()
