"""The contest: every contender's step timed in turn, and its memory measured.

A round times all contenders, one after the other, and the next round starts with the next one, so that a slow spell of
the machine meets all alike. One thread is timed by its own CPU time, several by the clock. Contenders work on the same
parameters and gradients, for the values change nothing in the time, and each on a state of its own.
"""

import ctypes
import math
import os
import subprocess
import tempfile
import time
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from contenders import CONTENDERS, PARAMETERS, Contender, Shapes
from torch import Tensor
from torch.optim import Optimizer
from torch.profiler import ProfilerActivity, profile

CEILING = "4 reads, 3 writes"
LARGE = 2**24  # elements from which no cache holds a contender's tensors, so that there is nothing to warm up


@dataclass
class Timing:
    """Seconds of a step by round, bytes of state a parameter, and bytes that a step takes beside what it keeps."""

    seconds: list[float] = field(default_factory=list)
    state: float = 0.0
    extra: int = 0

    @property
    def least(self) -> float:
        """Of all rounds: what other work on the machine adds is left out."""
        return min(self.seconds)


class Racer:
    """A contender with its parameters, gradients and state."""

    def __init__(
        self, contender: Contender, params: list[Tensor], grads: list[Tensor], optimizer: Optimizer, steps: int
    ) -> None:
        self.options, self.params, self.grads, self.optimizer = contender.options, params, grads, optimizer
        self.steps = steps

    def prepare(self) -> None:
        """Choose the way of calculating, and put the gradients back that HeavyBall takes away."""
        for group in self.optimizer.param_groups:
            group.update(self.options)
        for p, grad in zip(self.params, self.grads, strict=True):
            p.grad = grad

    def step(self) -> None:
        self.optimizer.step()


class Ceiling:
    """A plain C loop over as much memory, cut into as many ranges as there are threads."""

    def __init__(self, elements: int, steps: int) -> None:
        with tempfile.TemporaryDirectory() as directory:
            library = Path(directory) / "ceiling.so"
            source = Path(__file__).with_name("ceiling.c")
            flags = ["-std=c99", "-O3", "-march=native", "-shared", "-fPIC"]
            subprocess.run(["cc", *flags, source, "-o", library], check=True)
            self._pass = ctypes.CDLL(os.fspath(library)).ceiling
        self._pass.argtypes = [*[ctypes.c_void_p] * 4, ctypes.c_int64]
        self._tensors = [torch.zeros(elements) for _ in range(4)]
        self._elements = elements
        self.steps = steps
        self._pool = ThreadPoolExecutor(os.cpu_count())

    def prepare(self) -> None:
        """Nothing."""

    def step(self) -> None:
        """One pass; a small one is not worth a second thread."""
        threads = torch.get_num_threads() if self._elements >= 2**20 else 1
        share = -(-self._elements // threads)
        ranges = [(start, min(share, self._elements - start)) for start in range(0, self._elements, share)]
        calls = [[t.data_ptr() + 4 * start for t in self._tensors] + [n] for start, n in ranges]
        if threads == 1:
            self._pass(*calls[0])
        else:
            list(self._pool.map(lambda arguments: self._pass(*arguments), calls))


def contest(name: str, seconds: float, threads: Iterable[int]) -> dict[int, dict[str, Timing]]:
    """Time every contender on a set of parameters, so many seconds with each number of threads."""
    shapes = PARAMETERS[name]
    elements = sum(map(math.prod, shapes))
    steps = 1 if elements >= LARGE else 5
    racers: dict[str, Racer | Ceiling] = {}
    measured: dict[str, Timing] = {}
    torch.set_num_threads(1)
    for contender, racer in _made(name, shapes, steps):
        racers[contender.name] = racer
        racer.prepare()
        racer.step()  # makes the state, and compiles what compiles
        state = _bytes_of(racer.optimizer.state.values()) / elements
        measured[contender.name] = Timing(state=state, extra=_extra_bytes(racer))
    racers[CEILING] = Ceiling(elements, steps)
    measured[CEILING] = Timing()
    return {number: _race(racers, measured, seconds, number) for number in threads}


def _race(
    racers: Mapping[str, Racer | Ceiling], measured: Mapping[str, Timing], seconds: float, threads: int
) -> dict[str, Timing]:
    """Rounds until the time is over, the first one to its end."""
    torch.set_num_threads(threads)
    timings = {name: Timing(state=timing.state, extra=timing.extra) for name, timing in measured.items()}
    names = list(racers)
    end = time.perf_counter() + seconds
    turn = 0
    while turn == 0 or time.perf_counter() < end:
        first = turn % len(names)
        for each in names[first:] + names[:first]:
            if turn == 0 or time.perf_counter() < end:
                timings[each].seconds.append(_timed(racers[each], threads))
        turn += 1
    return timings


def _made(name: str, shapes: Shapes, steps: int) -> Iterator[tuple[Contender, Racer]]:
    """The contenders for a set of parameters, whose gradients are random numbers."""
    tensors: dict[torch.dtype, tuple[list[Tensor], list[Tensor]]] = {}
    optimizers: dict[int, Optimizer] = {}
    for contender in CONTENDERS:
        if contender.sets and name not in contender.sets:
            continue
        if contender.dtype not in tensors:
            generator = torch.Generator().manual_seed(0)
            random = [[torch.randn(shape, generator=generator).to(contender.dtype) for shape in shapes] for _ in "pg"]
            tensors[contender.dtype] = [p.requires_grad_() for p in random[0]], random[1]
        params, grads = tensors[contender.dtype]
        if id(contender.make) not in optimizers:
            optimizers[id(contender.make)] = contender.make(params)
        yield contender, Racer(contender, params, grads, optimizers[id(contender.make)], steps)


def _timed(racer: Racer | Ceiling, threads: int) -> float:
    """Seconds of a step, the mean of some after one that warms up; of a large one alone."""
    clock = time.thread_time if threads == 1 else time.perf_counter
    if racer.steps > 1:
        racer.prepare()
        racer.step()
    total = 0.0
    for _ in range(racer.steps):
        racer.prepare()
        start = clock()
        racer.step()
        total += clock() - start
    return total / racer.steps


def _bytes_of(values: Any) -> int:
    """Of all tensors in nested containers."""
    if isinstance(values, Tensor):
        return values.nbytes
    if isinstance(values, Mapping):
        values = values.values()
    return sum(map(_bytes_of, values)) if isinstance(values, Iterable) and not isinstance(values, str) else 0


def _extra_bytes(racer: Racer) -> int:
    """The peak of what torch allocates in a step over what it held before."""
    racer.prepare()
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiled:
        racer.step()
    assert profiled.profiler is not None
    assert profiled.profiler.kineto_results is not None
    events = [event for event in profiled.profiler.kineto_results.events() if event.name() == "[memory]"]
    now = peak = 0
    for event in sorted(events, key=lambda event: event.start_ns()):
        now += event.nbytes()
        peak = max(peak, now)
    return peak
