"""The time of one compiled Optax step, AggMo beside Adam, on the parameters of GPT-2 small, as a Markdown table.

A round times every contender, one after the other, and the next round starts with the next one, so that a slow spell of
the machine meets all alike. Parameters and state are donated, gradients are shared. Two clocks: the wall's, and the CPU
time of all of the process's threads, which other programs on the machine disturb less.
"""

import argparse
import math
import os
import platform
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NoReturn

import jax
import numpy as np
import optax

from aggmo.optax import aggmo

BASELINE = "optax.adam"
LR = 1e-6  # nobody gets far in any number of steps

CONTENDERS: dict[str, Callable[[], optax.GradientTransformation]] = {
    "AggMo (0, 0.9, 0.99)": lambda: aggmo(LR),
    "AggMo (0, 0.9)": lambda: aggmo(LR, (0.0, 0.9)),
    BASELINE: lambda: optax.adam(LR),
    "optax.sgd, momentum": lambda: optax.sgd(LR, momentum=0.9),
}


def gpt2(depth: int = 12, width: int = 768, vocabulary: int = 50257, context: int = 1024) -> list[tuple[int, ...]]:
    """The shapes of GPT-2, by default in its small size, the decoder tied to the embedding."""
    norm: list[tuple[int, ...]] = [(width,), (width,)]
    block = [*norm, (width, 3 * width), (3 * width,), (width, width), (width,)]
    block += [*norm, (width, 4 * width), (4 * width,), (4 * width, width), (width,)]
    return [(vocabulary, width), (context, width), *(block * depth), *norm]


@dataclass
class Racer:
    """A compiled step with its parameters and state, and the seconds that it took."""

    step: Callable[..., Any]
    params: Any
    state: Any
    wall: list[float] = field(default_factory=list)
    cpu: list[float] = field(default_factory=list)
    passes: float = 0.0  # arrays of the parameters' size that a step reads or writes, as XLA counts them
    stored: float = 0.0  # such arrays in the state

    def run(self, grads: Any, steps: int) -> None:
        """Time some steps after one that warms up."""
        self._step(grads)
        wall, cpu = time.perf_counter(), time.process_time()
        for _ in range(steps):
            self._step(grads)
        self.wall.append((time.perf_counter() - wall) / steps)
        self.cpu.append((time.process_time() - cpu) / steps)

    def _step(self, grads: Any) -> None:
        self.params, self.state = self.step(self.params, self.state, grads)
        for leaf in jax.tree.leaves((self.params, self.state)):
            leaf.block_until_ready()


def racer(optimizer: optax.GradientTransformation, shapes: Sequence[tuple[int, ...]], grads: Any) -> Racer:
    """A contender on parameters of its own."""
    params = random(shapes, seed=0)
    state = optimizer.init(params)

    def step(params: Any, state: Any, grads: Any) -> tuple[Any, Any]:
        updates, state = optimizer.update(grads, state, params)
        return optax.apply_updates(params, updates), state

    compiled = jax.jit(step, donate_argnums=(0, 1)).lower(params, state, grads).compile()
    size = sum(leaf.nbytes for leaf in params)
    made = Racer(compiled, params, state)
    made.passes = (compiled.cost_analysis() or {})["bytes accessed"] / size
    made.stored = sum(leaf.nbytes for leaf in jax.tree.leaves(state)) / size
    return made


def random(shapes: Sequence[tuple[int, ...]], seed: int) -> list[jax.Array]:
    """Normal numbers; NumPy's, for those of JAX are compiled shape by shape."""
    generator = np.random.default_rng(seed)
    return [jax.device_put(generator.standard_normal(shape, np.float32)) for shape in shapes]


def contest(shapes: Sequence[tuple[int, ...]], rounds: int, steps: int) -> dict[str, Racer]:
    """Time every contender in every round."""
    grads = random(shapes, seed=1)
    racers = {name: racer(make(), shapes, grads) for name, make in CONTENDERS.items()}
    names = list(racers)
    for turn in range(rounds):
        first = turn % len(names)
        for name in names[first:] + names[:first]:
            racers[name].run(grads, steps)
    return racers


def table(racers: dict[str, Racer]) -> str:
    """One row a contender; the last of each pair of columns is the ratio to the baseline."""
    rows = [
        f"| contender | minimum, ms | / {BASELINE} | median, ms | median ratio | CPU minimum, ms | / {BASELINE} | "
        "arrays moved | arrays stored |",
        "| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |",
    ]
    base = racers[BASELINE]
    for name, own in racers.items():
        ratio = statistics.median(a / b for a, b in zip(own.wall, base.wall, strict=True))
        numbers = [
            f"{1e3 * min(own.wall):.1f}",
            f"{min(own.wall) / min(base.wall):.2f}",
            f"{1e3 * statistics.median(own.wall):.1f}",
            f"{ratio:.2f}",
            f"{1e3 * min(own.cpu):.1f}",
            f"{min(own.cpu) / min(base.cpu):.2f}",
            f"{own.passes:.1f}",
            f"{own.stored:.1f}",
        ]
        rows.append(f"| {name} | {' | '.join(numbers)} |")
    return "\n".join(rows)


def machine() -> str:
    """What a time depends on."""
    cpu = platform.processor() or platform.machine()
    info = Path("/proc/cpuinfo")
    if info.exists():
        models = [line.split(":")[1].strip() for line in info.read_text().splitlines() if line.startswith("model name")]
        cpu = models[0] if models else cpu
    devices = f"{len(jax.devices())} {jax.default_backend()} device"
    return f"{cpu}, {os.cpu_count()} cores, {devices}; jax {jax.__version__}, optax {optax.__version__}"


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
    """Run the contest and print the table."""
    parser = Parser(prog=Path(__file__).name, description="Time one compiled Optax step, AggMo beside Adam.")
    parser.add_argument("--rounds", type=positive, default=12, help="rounds to time (12)")
    parser.add_argument("--steps", type=positive, default=2, help="steps of each contender in a round (2)")
    parser.add_argument("--width", type=positive, default=768, help="of GPT-2, 768 in its small size (768)")
    options = parser.parse_args(arguments)
    shapes = gpt2() if options.width == 768 else gpt2(width=options.width, vocabulary=1000, context=64)
    print(machine())
    elements = sum(map(math.prod, shapes))
    print(f"\n**GPT-2**: {len(shapes)} tensors, {elements:,} elements\n")
    print(table(contest(shapes, options.rounds, options.steps)))


if __name__ == "__main__":
    main()
