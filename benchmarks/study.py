"""What a study costs beside its trials: the driver's time, its memory, a resume, and what a second worker brings.

nothing     trials that do nothing; `driver` is the processor time of the driver's own process for each of them,
            `memory` what its peak grew by from the first tenth of the trials to the last, `resume` the time in
            which a new driver finds out that all of them have finished
equal       trials of equal work, run by one worker and by two: how many times as fast two are
"""

import argparse
import io
import os
import platform
import resource
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn

from rich.console import Console

from aggmo.lab.engine.local import Local
from aggmo.lab.records import Trial
from aggmo.lab.study import Study, grid

MODULE = Path(__file__).stem


def nothing(settings: dict[str, Any], directory: Path, report: Any) -> dict[str, Any]:  # noqa: ARG001
    """A trial that does nothing."""
    return {}


def equal(settings: dict[str, Any], directory: Path, report: Any) -> dict[str, Any]:  # noqa: ARG001
    """A trial of so many steps of a small network, on one thread."""
    import torch

    torch.manual_seed(settings["seed"])
    model = torch.nn.Sequential(torch.nn.Linear(256, 256), torch.nn.ReLU(), torch.nn.Linear(256, 256))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    batch = torch.randn(128, 256)
    for _ in range(settings["steps"]):
        optimizer.zero_grad()
        (model(batch) - batch).square().mean().backward()
        optimizer.step()
    return {}


class Memory:
    """Observes the peak memory of this process in bytes, when the first tenth of the trials has ended."""

    def __init__(self, trials: int) -> None:
        self.left, self.early = trials // 10, 0

    def row(self, trial: Trial, row: Mapping[str, float]) -> None:
        """Of no interest."""

    def end(self, trial: Trial) -> None:  # noqa: ARG002
        """Count a trial."""
        self.left -= 1
        if self.left == 0:
            self.early = peak()


def peak() -> int:
    """The peak memory of this process in bytes."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def run(directory: str, function: str, trials: list[dict[str, Any]], workers: int, observer: Any = None) -> float:
    """Declare and run a study; the seconds that it took."""
    start = time.perf_counter()
    study = Study.declare(directory, f"{MODULE}:{function}", trials)
    study.run(Local(workers), console=Console(file=io.StringIO()), observer=observer)
    return time.perf_counter() - start


def overhead(trials: int, workers: int) -> str:
    """A row on trials that do nothing."""
    settings = grid(seed=range(trials))
    with tempfile.TemporaryDirectory() as directory:
        memory = Memory(trials)
        before = time.process_time()
        seconds = run(directory, "nothing", settings, workers, memory)
        driver = time.process_time() - before
        grown = peak() - memory.early
        size = Path(directory, "study.sqlite").stat().st_size
        before = time.process_time()
        resume = run(directory, "nothing", settings, workers)
        resuming = time.process_time() - before
    return (
        f"| {trials:,} | {1e3 * driver / trials:.2f} ms | {1e3 * seconds / trials:.2f} ms |"
        f" {resume:.2f} s ({resuming:.2f} s) |"
        f" {memory.early / 2**20:.0f} MB + {grown / 2**20:.1f} MB | {size / 2**20:.1f} MB |"
    )


def scaling(trials: int, steps: int, rounds: int) -> str:
    """A row for each number of workers, the best of some rounds."""
    best = {}
    for workers in (1, 2):
        found = []
        for _ in range(rounds):
            with tempfile.TemporaryDirectory() as directory:
                found.append(run(directory, "equal", grid(seed=range(trials), steps=[steps]), workers))
        best[workers] = min(found)
    rows = [f"| {workers} | {seconds:.2f} s | {best[1] / seconds:.2f} |" for workers, seconds in best.items()]
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
    """Run the studies and print the tables."""
    parser = Parser(description="What a study costs beside its trials.")
    parser.add_argument("--trials", type=positive, default=10_000, help="trials that do nothing (10000)")
    parser.add_argument("--workers", type=positive, default=2, help="workers that do them (2)")
    parser.add_argument("--equal", type=positive, default=16, help="trials of equal work (16)")
    parser.add_argument("--steps", type=positive, default=3000, help="steps of each of them (3000)")
    parser.add_argument("--rounds", type=positive, default=2, help="rounds of those, the best of which counts (2)")
    options = parser.parse_args(arguments)
    if MODULE not in sys.modules:  # workers import this file by its name
        sys.path.insert(0, str(Path(__file__).parent))
    print(f"Python {platform.python_version()}, {platform.machine()} {sys.platform}, {os.cpu_count()} processors\n")
    print("| trials of nothing | driver, each | wall, each | resume, wall (processor) | memory | database |")
    print("| ---: | ---: | ---: | ---: | ---: | ---: |")
    print(overhead(options.trials, options.workers), flush=True)
    print(f"\n{options.equal} trials of equal work:\n")
    print("| workers | wall | times as fast |")
    print("| ---: | ---: | ---: |")
    print(scaling(options.equal, options.steps, options.rounds))


if __name__ == "__main__":
    main()
