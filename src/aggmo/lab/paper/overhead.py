"""Section 3: what AggMo's step costs beside a whole step of training."""

import math

from aggmo.lab.paper import style
from aggmo.lab.paper.empirical import of
from aggmo.lab.paper.experiment import Evidence
from aggmo.lab.paper.plan import TIMED
from aggmo.lab.paper.result import Cell, Result, Table
from aggmo.lab.paper.rules import Check, verdict
from aggmo.lab.paper.settings import SETTINGS

MOST = 0.05  # of a training step, that AggMo's step may take more than SGD's with momentum


def overhead(evidence: Evidence) -> Result:
    """Section 3: the optimizers' shares of a training step, for each task."""
    rows: list[tuple[Cell, ...]] = []
    for task in SETTINGS:
        times = _times(evidence, task)
        for name, (whole, own) in times.items():
            numbers = (float(f"{value:.3g}") for value in (1e3 * whole, 1e3 * own, 100 * own / whole))
            rows.append((task, style.NAMES[name], *numbers))
    heads = ("task", "optimizer", "training step, ms", "optimizer's part, ms", "%")
    trials = [trial for task in SETTINGS for trial in evidence.group(task, "overhead")]
    return Result(
        "section-3",
        "Section 3: the cost of AggMo",
        "AggMo adds almost no computational overhead.",
        (),
        (Table("section-3-overhead", "Medians of steps on one thread.", heads, tuple(rows)),),
        verdict(overhead_checks(evidence)),
        None,
        (
            "The tasks have the sizes of this scale; the smaller the model's work for each parameter, the larger the"
            " optimizer's share. Times differ from run to run.",
            "The optimizers are as they come: on a CPU AggMo takes its kernel where there is one, and those of PyTorch"
            " are not fused. `make bench` has them beside each other, fused and not.",
        ),
        math.fsum(evidence.seconds.get(trial.trial, 0.0) for trial in trials),
    )


def overhead_checks(evidence: Evidence) -> list[Check]:
    """AggMo's part of a training step against that of SGD with momentum.

    At a smaller scale than the paper's, where the model's part is smaller, a larger difference tells nothing.
    """
    checks = []
    for task in SETTINGS:
        times = _times(evidence, task)
        claim = f"{task}: AggMo's step takes at most {100 * MOST:g} % of a training step more than CM's"
        if not {"cm", "aggmo"} <= times.keys():
            checks.append(Check(claim, None, "no such trials"))
            continue
        whole, own = times["aggmo"]
        difference = (own - times["cm"][1]) / whole
        holds = True if difference <= MOST else False if evidence.scale == "paper" else None
        checks.append(Check(claim, holds, f"{100 * difference:.1f} %"))
    return checks


def _times(evidence: Evidence, task: str) -> dict[str, tuple[float, float]]:
    """Seconds of a whole step and of the optimizer's part, by optimizer."""
    trials = evidence.group(task, "overhead")
    outcomes = {name: own[0].outcome or {} for name in TIMED if (own := of(trials, name))}
    return {name: (float(each["step"]), float(each["optimizer"])) for name, each in outcomes.items()}
