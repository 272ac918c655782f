"""Where classical momentum oscillates and aggregated momentum does not: the paper's figure 1, with PyTorch optimizers.

Each optimizer minimizes lambda x^2 / 2 from x = 1 at learning rate 0.33, along directions of four curvatures lambda at
once. A small beta is slow where the curvature is low, a large one oscillates; several together do neither.
"""

import argparse
from collections.abc import Callable
from pathlib import Path

import matplotlib

matplotlib.use("agg")

import matplotlib.pyplot as plt
import torch
from matplotlib.axes import Axes
from torch.optim import SGD, Optimizer

from aggmo import AggMo

CURVATURES = (1.0, 0.1, 0.01, 0.001)
LR = 0.33
STEPS = 3000
NEAR = 1e-2
COLOURS = ("#0072B2", "#E69F00", "#009E73", "#CC79A7")  # Okabe and Ito: told apart with any colour vision

OPTIMIZERS: dict[str, Callable[[list[torch.Tensor]], Optimizer]] = {
    "classical momentum, β = 0.9": lambda params: SGD(params, LR, momentum=0.9),
    "classical momentum, β = 0.999": lambda params: SGD(params, LR, momentum=0.999),
    "Nesterov momentum, β = 0.999": lambda params: SGD(params, LR, momentum=0.999, nesterov=True),
    "AggMo, β = 0, 0.9, 0.99, 0.999": lambda params: AggMo(params, LR, betas=(0, 0.9, 0.99, 0.999)),
}


def trajectory(make: Callable[[list[torch.Tensor]], Optimizer]) -> torch.Tensor:
    """The iterates, one row a step and one column a curvature, from x = 1."""
    curvatures = torch.tensor(CURVATURES, dtype=torch.float64)
    x = torch.ones(len(CURVATURES), dtype=torch.float64, requires_grad=True)
    optimizer = make([x])
    iterates = [x.detach().clone()]
    for _ in range(STEPS):
        optimizer.zero_grad()
        torch.autograd.backward((curvatures * x.square() / 2).sum())
        optimizer.step()
        iterates.append(x.detach().clone())
    return torch.stack(iterates)


def settled(iterates: torch.Tensor) -> list[int | None]:
    """For each curvature the last step at which x is not near the minimum, or None if that is the last of all."""
    last = [int(torch.nonzero(column.abs() >= NEAR).max()) for column in iterates.T]
    return [None if step == STEPS else step for step in last]


def table(trajectories: dict[str, torch.Tensor]) -> str:
    """The settling steps as text."""
    header = f"{'last step at which |x| >= ' + str(NEAR):34}" + "".join(
        f"{'λ = ' + format(c, 'g'):>11}" for c in CURVATURES
    )
    rows = [
        f"{name:34}" + "".join(f"{'-' if step is None else step:>11}" for step in settled(iterates))
        for name, iterates in trajectories.items()
    ]
    return "\n".join([header, "-" * len(header), *rows, f"- : not within {STEPS} steps"])


def draw(trajectories: dict[str, torch.Tensor], path: Path) -> None:
    """One panel an optimizer, on a common scale."""
    figure, axes = plt.subplots(2, 2, figsize=(9, 5.6), sharex=True, sharey=True, layout="constrained")
    for axis, (name, iterates) in zip(axes.flat, trajectories.items(), strict=True):
        panel(axis, name, iterates)
    for axis in axes[-1]:
        axis.set_xlabel("step")
    for axis in axes[:, 0]:
        axis.set_ylabel("x")
    handles, labels = axes[0, 0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=len(CURVATURES), frameon=False)
    figure.suptitle(f"Minimizing λx²/2 at learning rate {LR}", fontsize=12)
    figure.savefig(path, dpi=150)
    plt.close(figure)


def panel(axis: Axes, name: str, iterates: torch.Tensor) -> None:
    """The trajectories of one optimizer."""
    axis.axhline(0, color="0.8", linewidth=0.8)
    for curvature, column, colour in zip(CURVATURES, iterates.T, COLOURS, strict=True):
        axis.plot(column.numpy(), color=colour, linewidth=1.1, label=f"λ = {curvature:g}")
    axis.set_title(name, loc="left", fontsize=10)
    axis.set(xlim=(0, 1500), ylim=(-1.05, 1.05))
    axis.spines[["top", "right"]].set_visible(False)


def main() -> None:
    """Run, print the table, write the picture."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("build/demo"), help="directory of the picture (%(default)s)")
    out: Path = parser.parse_args().out
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        parser.error(f"--out {out}: not a directory that can be written: {error.strerror}")
    trajectories = {name: trajectory(make) for name, make in OPTIMIZERS.items()}
    print(table(trajectories))
    for suffix in ("svg", "png"):
        draw(trajectories, out / f"oscillation.{suffix}")
        print(f"wrote {out / f'oscillation.{suffix}'}")


if __name__ == "__main__":
    main()
