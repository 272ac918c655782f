"""What the benchmark of one step found, as tables, as a page of the documentation and as its plot."""

import math
import platform
import statistics
from collections.abc import Mapping, Sequence
from importlib import metadata
from pathlib import Path
from typing import NamedTuple

import matplotlib.pyplot as plt
from contenders import BASELINE, PARAMETERS, PUBLISHED, TITLES
from contest import CEILING, Timing
from overhead import TASKS, Share

Timings = Mapping[int, Mapping[str, Timing]]  # by number of threads and by contender

OWN, LOOP = "AggMo, fused", "AggMo, loop in blocks"

HEAD = """# Performance

This page is written by `make bench`; every number on it comes from one run on the machine named here.

{machine}

One step of AggMo with K = 3 (the default betas, one of which is 0) has to read the parameter, its gradient and two
velocities, and to write the parameter and the velocities: 7 floats a parameter, as many as Adam. The contenders step on
the same parameters and gradients in turn, round after round, beside a plain C loop that reads four arrays and writes
three of them, a measure of what the memory allows one thread. Times are the minimum and the median over the rounds. One
thread is timed by its own CPU time, {threads} by the clock.

## In short

{claims}

![Time of a step, by contender and set of parameters](performance.svg)

The time of one step with one thread in units of the C loop's, the minimum over rounds.

"""

SET_HEAD = """## {title}

{count}, {elements:,} elements.

{table}

"""

TAIL = """## The optimizer's share of a training step

The paper says that AggMo's overhead is small beside the calculation of gradients. Here are forward and backward pass of
its networks at its batch sizes, on one thread, and the part of the whole training step that each optimizer takes:

{shares}

## Notes

- "AggMo, fused" is what a CPU gets by default; "loop in blocks" is what it gets where the package was installed without
  a C compiler, and "foreach" what a GPU gets by default. No claim is made for GPUs, where nothing was measured.
- State is what an optimizer keeps from step to step, in bytes a parameter; extra is the peak of what it allocates
  within a step, in MiB.
- "bf16 velocities" are those of float32 parameters (`velocity_dtype=torch.bfloat16`), "all bf16" are parameters and
  velocities, both with `stochastic_rounding=True`: K = 3 then takes the 4 bytes of state a parameter of plain momentum.
- Below about a million elements AggMo uses one thread, whatever the number of threads.
- The ResNet-32 among the sets of parameters has identity shortcuts, the one of the training step projections.
- HeavyBall compiles its step; the compilation, before the first round, is not counted.

`make bench BENCH_ARGS="--parameters vector --seconds 10"` measures a part and prints it, without writing this page.
"""


CLAIMS = ["what", "goal", "measured", "reached"]


class Claim(NamedTuple):
    """A sentence, what it promises, and what was measured."""

    sentence: str
    goal: str
    measured: str

    @property
    def reached(self) -> str:
        """Whether the goal is, by the numbers as they are shown."""
        if self.goal[0] not in "≤≥":
            return "yes" if self.measured == self.goal else "no"
        sign, bound = (-1 if self.goal[0] == "≥" else 1), float(self.goal[1:])
        answers = {sign * float(number) <= sign * bound for number in self.measured.split(", ")}
        return "in part" if len(answers) == 2 else "yes" if answers == {True} else "no"


def machine(threads: Sequence[int]) -> str:
    """What a time depends on, in three lines."""
    cpu, info = platform.processor() or platform.machine(), Path("/proc/cpuinfo")
    if info.exists():
        models = [line.split(":")[1].strip() for line in info.read_text().splitlines() if line.startswith("model name")]
        cpu = models[0] if models else cpu
    packages = ("torch", "pytorch_optimizer", "torch_optimizer", "heavyball", "schedulefree")
    versions = ", ".join(f"{package} {metadata.version(package)}" for package in packages)
    return (
        f"{cpu}, {max(threads)} core{'s' * (max(threads) > 1)}, {platform.system()} {platform.machine()}.\n"
        f"Python {platform.python_version()}, AggMo {metadata.version('aggmo')},\n{versions}."
    )


def table(timings: Timings) -> str:
    """One row a contender: for each number of threads its times and their ratio to the baseline's; its memory."""
    counts = list(timings)
    head = ["contender"]
    for threads in counts:
        head += [f"{threads} thread{'s' * (threads > 1)}: min, ms", "median, ms", f"min / {BASELINE}"]
    rows = [[*head, "state", "extra"]]
    for name in timings[counts[0]]:
        row = [name]
        for threads in counts:
            timing = timings[threads][name]
            ratio = timing.least / timings[threads][BASELINE].least
            row += [_milliseconds(timing.least), _milliseconds(statistics.median(timing.seconds)), f"{ratio:.2f}"]
        timing = timings[counts[0]][name]
        row += ["", ""] if name == CEILING else [f"{timing.state:.2f}", f"{timing.extra / 2**20:,.1f}"]
        rows.append(row)
    return _markdown(rows)


def shares(found: Mapping[str, Share]) -> str:
    """One row a network."""
    names = list(next(iter(found.values())).steps)
    rows = [["network", "elements", "passes, ms", *names]]
    for task, share in found.items():
        percent = [f"{100 * share.of(name):.2f} %" for name in names]
        rows.append([TASKS[task], f"{share.parameters:,}", _milliseconds(share.passes), *percent])
    return _markdown(rows)


def claims(found: Mapping[str, Timings]) -> list[Claim]:
    """What the kernel and the loop are meant to reach on all sets of parameters."""
    single = {name: timings[1] for name, timings in found.items()}
    most = max(found["vector"])
    several = found["vector"][most]

    def ratios(own: str, others: Sequence[str], sets: Sequence[str]) -> str:
        each = (single[name][own].least / min(single[name][other].least for other in others) for name in sets)
        return ", ".join(f"{ratio:.2f}" for ratio in each)

    def of_ceiling(own: str, floats: int, sets: Sequence[str]) -> str:
        each = (single[name][CEILING].least * floats / 7 / single[name][own].least for name in sets)
        return ", ".join(f"{share:.2f}" for share in each)

    sets, large = list(PARAMETERS), ["vector", "gpt2"]
    half = single["gpt2"]["AggMo, fused, all bf16"]
    return [
        Claim(f"fused / {BASELINE}: vector, gpt2, autoencoder", "≤ 1.05", ratios(OWN, [BASELINE], [*large, sets[3]])),
        Claim(f"fused / {BASELINE}: resnet32", "≤ 0.5", ratios(OWN, [BASELINE], ["resnet32"])),
        Claim(f"fused / the faster published AggMo: {', '.join(sets)}", "≤ 0.33", ratios(OWN, PUBLISHED, sets)),
        Claim("share of the C loop's speed: vector, gpt2", "≥ 0.90", of_ceiling(OWN, 7, large)),
        Claim("the same by bytes, K = 2 (5 floats): vector", "≥ 0.85", of_ceiling("AggMo K=2, fused", 5, ["vector"])),
        Claim("the same by bytes, K = 5 (11 floats): vector", "≥ 0.85", of_ceiling("AggMo K=5, fused", 11, ["vector"])),
        Claim(f"all bf16 / {BASELINE}: gpt2", "≤ 0.75", ratios("AggMo, fused, all bf16", [BASELINE], ["gpt2"])),
        Claim(
            f"loop in blocks / the faster published AggMo: {', '.join(sets)}", "≤ 0.8", ratios(LOOP, PUBLISHED, sets)
        ),
        Claim(f"{most} threads / 1 thread: vector", "≤ 1", f"{several[OWN].least / single['vector'][OWN].least:.2f}"),
        Claim(
            f"{most} threads, fused / {BASELINE}: vector",
            "≤ 1",
            f"{several[OWN].least / several[BASELINE].least:.2f}",
        ),
        Claim(
            "bytes of state a parameter: float32, all bf16",
            "8, 4",
            f"{single['gpt2'][OWN].state:.0f}, {half.state:.0f}",
        ),
    ]


def write(page: Path, found: Mapping[str, Timings], share: Mapping[str, Share]) -> None:
    """The page, and its plot beside it."""
    threads = list(next(iter(found.values())))
    text = HEAD.format(
        machine=machine(threads),
        threads=f"{max(threads)} threads",
        claims=_markdown([CLAIMS, *([*claim, claim.reached] for claim in claims(found))]),
    )
    for name, timings in found.items():
        tensors, elements = size(name)
        count = f"{tensors} tensors" if tensors > 1 else "1 tensor"
        title = f"{name}: {TITLES[name]}"
        text += SET_HEAD.format(title=title, count=count, elements=elements, table=table(timings))
    page.write_text(text + TAIL.format(shares=shares(share)))
    _plot(page.with_suffix(".svg"), {name: timings[1] for name, timings in found.items()})


def size(name: str) -> tuple[int, int]:
    """Tensors and elements of a set of parameters."""
    return len(PARAMETERS[name]), sum(map(math.prod, PARAMETERS[name]))


def _plot(path: Path, single: Mapping[str, Mapping[str, Timing]]) -> None:
    """A point for each contender and set of parameters."""
    names = [name for name in single["vector"] if name != CEILING]
    with plt.rc_context({"svg.hashsalt": "aggmo", "font.size": 9}):
        figure, axes = plt.subplots(figsize=(8, 5.5), layout="constrained")
        for row, name in enumerate(names):
            color = "0.93" if name.startswith("AggMo") else "white"
            axes.axhspan(row - 0.5, row + 0.5, color=color, zorder=0)
        for (name, timings), marker in zip(single.items(), "osD^", strict=True):
            points = [(timings[n].least / timings[CEILING].least, row) for row, n in enumerate(names) if n in timings]
            axes.plot(*zip(*points, strict=True), marker, label=TITLES[name], markersize=6, alpha=0.85)
        axes.axvline(1.0, color="black", linewidth=1)
        axes.set_xscale("log")
        axes.set_xticks(ticks := [0.5, 1, 2, 5, 10, 20], map(str, ticks))
        axes.minorticks_off()
        axes.grid(axis="x", alpha=0.3)
        axes.set_yticks(range(len(names)), names)
        axes.set_ylim(len(names) - 0.5, -0.5)
        axes.set_xlabel("time of a step / time of a plain C loop over 4 reads and 3 writes; 1 thread")
        figure.legend(loc="outside upper center", ncols=4, frameon=False)
        figure.savefig(path, metadata={"Date": None})
        plt.close(figure)


def _milliseconds(seconds: float) -> str:
    return f"{1e3 * seconds:.3f}" if seconds < 0.1 else f"{1e3 * seconds:.1f}"


def _markdown(rows: Sequence[Sequence[str]]) -> str:
    """A table whose first column is text and whose others are numbers."""
    head, *body = rows
    ruler = ["---"] + ["---:"] * (len(head) - 1)
    return "\n".join("| " + " | ".join(row) + " |" for row in (head, ruler, *body))
