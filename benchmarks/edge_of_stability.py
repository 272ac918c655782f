"""Does the sharpness of a network settle at the stability limit over the learning rate? Measured, as a Markdown table.

Gradient descent on a whole data set raises the sharpness of a network until it stands at 2 / lr, the edge of stability
(Cohen et al., ICLR 2021). Here every method is given the learning rate whose edge, its own stability limit over lr, is
the same; the sharpness is measured in the course of training. A task that cannot be learned but by heart, random labels
for random points, makes the sharpness rise far enough.
"""

import argparse
import statistics
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NoReturn

import torch
from torch import Tensor, nn

from aggmo import AggMo, Damping
from aggmo.torch.sharpness import largest_lr, sharpness

POINTS, INPUTS, WIDTH, CLASSES = 300, 10, 32, 10

DAMPINGS = {
    "gradient descent": Damping.classical(0.0),
    "momentum 0.9": Damping.classical(0.9),
    "Nesterov 0.9": Damping.nesterov(0.9),
    "AggMo (0, 0.9)": Damping((0.0, 0.9)),
    "AggMo (0, 0.9, 0.99)": Damping((0.0, 0.9, 0.99)),
}


@dataclass
class Run:
    """What was measured: at which steps, the sharpness there, and the loss; short if training diverged."""

    edge: float
    steps: list[int] = field(default_factory=list)
    sharpness: list[float] = field(default_factory=list)
    loss: list[float] = field(default_factory=list)
    diverged: bool = False

    def settled(self) -> float:
        """The median of the sharpness over the last quarter of training, in units of the edge."""
        return statistics.median(self.sharpness[-max(1, len(self.sharpness) // 4) :]) / self.edge


def train(damping: Damping, edge: float, steps: int, seed: int, measurements: int = 40) -> Run:
    """Train the network on all data at once, at the learning rate whose edge of stability is the given one."""
    generator = torch.Generator().manual_seed(seed)
    inputs = torch.randn(POINTS, INPUTS, generator=generator)
    labels = torch.randint(CLASSES, (POINTS,), generator=generator)
    targets = nn.functional.one_hot(labels, CLASSES).float()
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        model = nn.Sequential(
            *(nn.Linear(INPUTS, WIDTH), nn.Tanh()), *(nn.Linear(WIDTH, WIDTH), nn.Tanh()), nn.Linear(WIDTH, CLASSES)
        )

    def loss(batch: tuple[Tensor, Tensor]) -> Tensor:
        return nn.functional.mse_loss(model(batch[0]), batch[1]) * CLASSES / 2

    data = [(inputs, targets)]
    optimizer = AggMo(model.parameters(), lr=largest_lr(damping, edge), betas=damping)
    run, every = Run(edge), max(1, steps // measurements)
    for step in range(steps + 1):
        optimizer.zero_grad()
        value = loss(data[0])
        if not value.item() < 1e3:
            run.diverged = True
            break
        if step % every == 0:
            run.steps.append(step)
            run.loss.append(value.item())
            run.sharpness.append(sharpness(loss, model.parameters(), data))
        torch.autograd.backward(value)
        optimizer.step()
    return run


def table(edges: Sequence[float], steps: int, seeds: int) -> str:
    """One row for each damping and edge."""
    rows = [
        "| method | stability limit | lr | edge | settled sharpness / edge, by seed | largest / edge | final loss |",
        "| --- | ---: | ---: | ---: | ---: | ---: | ---: |",
    ]
    for name, damping in DAMPINGS.items():
        for edge in edges:
            runs = [train(damping, edge, steps, seed) for seed in range(seeds)]
            settled = ", ".join("diverged" if run.diverged else f"{run.settled():.2f}" for run in runs)
            kept = [run for run in runs if not run.diverged]
            peak = f"{max(max(run.sharpness) for run in kept) / edge:.2f}" if kept else ""
            losses = f"{statistics.median(run.loss[-1] for run in kept):.1e}" if kept else ""
            numbers = f"{largest_lr(damping, 1.0):.3f} | {largest_lr(damping, edge):.3f} | {edge:g}"
            rows.append(f"| {name} | {numbers} | {settled} | {peak} | {losses} |")
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
    """Train with every method and print the table."""
    parser = Parser(prog=Path(__file__).name, description="The sharpness at which training settles.")
    parser.add_argument("--steps", type=positive, default=4000, help="steps of training (4000)")
    parser.add_argument("--seeds", type=positive, default=3, help="networks and data sets (3)")
    parser.add_argument("--edges", type=positive, nargs="+", default=[8, 12, 16], help="stability limit / lr (8 12 16)")
    options = parser.parse_args(arguments)
    torch.set_num_threads(1)
    print(table(options.edges, options.steps, options.seeds))


if __name__ == "__main__":
    main()
