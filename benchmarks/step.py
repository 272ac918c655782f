"""The time and memory of one optimizer step, AggMo beside its peers and beside the memory's own speed.

Run whole, it prints its tables and writes docs/performance.md with a plot beside it: `make bench`.
"""

import argparse
import os
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

os.environ.setdefault("KINETO_LOG_LEVEL", "99")  # the profiler that counts memory says when it starts and stops

import page
from contenders import PARAMETERS, TITLES
from contest import contest
from overhead import TASKS, overhead

from aggmo.torch import kernel_available

PAGE = Path(__file__).parents[1] / "docs" / "performance.md"


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
    parser.add_argument(
        "--parameters", nargs="+", choices=PARAMETERS, help="these sets alone, and neither training steps nor page"
    )
    parser.add_argument("--seconds", type=positive, default=35, help="for each set and number of threads (35)")
    parser.add_argument("--rounds", type=positive, default=4, help="training steps of each of the paper's networks (4)")
    parser.add_argument(
        "--threads", nargs="+", type=positive, default=sorted({1, os.cpu_count() or 1}), help="(1 and one a core)"
    )
    parser.add_argument("--scale", choices=("paper", "small", "quick"), default="paper", help="of the networks (paper)")
    parser.add_argument("--page", type=Path, default=PAGE, help="what to write (docs/performance.md)")
    options = parser.parse_args(arguments)
    print(page.machine(options.threads), flush=True)
    found = {}
    for name in options.parameters or PARAMETERS:
        found[name] = contest(name, options.seconds, options.threads)
        tensors, elements = page.size(name)
        print(f"\n**{name}** ({TITLES[name]}): tensors: {tensors}, elements: {elements:,}\n")
        print(page.table(found[name]), flush=True)
    if options.parameters:
        return
    share = {task: overhead(task, options.scale, options.rounds) for task in TASKS}
    print(f"\n**share of a training step**\n\n{page.shares(share)}", flush=True)
    if kernel_available() and 1 in options.threads:
        page.write(options.page, found, share)
        print(f"\n{options.page}")


if __name__ == "__main__":
    main()
