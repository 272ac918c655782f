"""Classification: table 2, figure 6, ResNet-32 without batch norm, and convergence at default damping."""

from collections.abc import Mapping
from functools import partial

from matplotlib.figure import Figure

from aggmo.lab.paper import style
from aggmo.lab.paper.empirical import chosen_name, drawn, notes, of, score, settings_table, speed
from aggmo.lab.paper.experiment import Evidence
from aggmo.lab.paper.plan import USUAL
from aggmo.lab.paper.result import Cell, Picture, Result, Table
from aggmo.lab.paper.rules import Check, less, more, shown, verdict

NAMES = style.NAMES
OPTIMIZERS = ("cm", "nesterov", "adam", "aggmo")
TASKS = {
    "cnn5": "CNN-5, CIFAR-10",
    "resnet32-c10": "ResNet-32, CIFAR-10",
    "resnet32-c100": "ResNet-32, CIFAR-100",
}

# Validation and test accuracy in the paper, by task: tuned, and with default damping.
TUNED: dict[str, Mapping[str, tuple[float, float]]] = {
    "cnn5": {"cm": (64.1, 63.43), "nesterov": (65.14, 64.32), "adam": (63.67, 62.86), "aggmo": (65.98, 65.09)},
    "resnet32-c10": {"cm": (94.20, 93.16), "nesterov": (94.16, 93.18), "adam": (92.36, 90.94), "aggmo": (93.87, 93.16)},
    "resnet32-c100": {
        "cm": (70.38, 70.21),
        "nesterov": (70.34, 70.08),
        "adam": (67.20, 68.08),
        "aggmo": (70.28, 70.11),
    },
}
DEFAULT: dict[str, Mapping[str, tuple[float, float]]] = {
    "cnn5": {"cm": (64.1, 63.43), "nesterov": (64.13, 63.04), "aggmo": (65.98, 65.09)},
    "resnet32-c10": {"cm": (94.10, 93.36), "nesterov": (94.16, 93.18), "aggmo": (93.87, 93.16)},
    "resnet32-c100": {"cm": (70.38, 70.21), "nesterov": (70.34, 70.08), "aggmo": (70.28, 70.11)},
}
WITHIN = 1.0  # percentage points that count as the same accuracy, beside two standard errors


def table_2(evidence: Evidence) -> Result:
    """Table 2: accuracies, tuned and with default damping."""
    tables = tuple(
        Table(
            f"table-2-{task}",
            f"{title}: accuracy in percent.",
            ("optimizer", "validation, paper", "validation, ours", "test, paper", "test, ours", "setting"),
            tuple(
                [_row(evidence, task, "validation", name, paper, "") for name, paper in TUNED[task].items()]
                + [
                    _row(evidence, task, "usual-validation", name, paper, " (default damping)")
                    for name, paper in DEFAULT[task].items()
                ]
            ),
        )
        for task, title in TASKS.items()
    )
    return Result(
        "table-2",
        "Table 2: classification accuracy",
        "On CNN-5 AggMo is the most accurate, tuned or with default damping; on the ResNets CM, Nesterov and AggMo are"
        " within half a point of each other, and Adam is behind.",
        (),
        tables,
        verdict(table_2_checks(evidence), evidence.conclusive),
        settings_table(evidence, *TASKS),
        notes(evidence, *TASKS),
        evidence.cost(*TASKS),
    )


def table_2_checks(evidence: Evidence) -> list[Check]:
    """AggMo against the others on CNN-5; on the ResNets AggMo beside CM, and Adam below CM."""
    tuned = {
        (task, name): score(evidence, task, "validation", name, "test_accuracy")
        for task in TASKS
        for name in OPTIMIZERS
    }
    usual = {name: score(evidence, "cnn5", "usual-validation", name, "test_accuracy") for name in USUAL}
    checks = [
        more(f"CNN-5: AggMo is more accurate than {NAMES[other]}", tuned["cnn5", "aggmo"], tuned["cnn5", other])
        for other in OPTIMIZERS[:3]
    ]
    checks += [
        more(f"CNN-5, default damping: AggMo is more accurate than {NAMES[other]}", usual["aggmo"], usual[other])
        for other in ("cm", "nesterov")
    ]
    for task in ("resnet32-c10", "resnet32-c100"):
        one, other = tuned[task, "aggmo"], tuned[task, "cm"]
        claim = f"{TASKS[task]}: AggMo's accuracy is CM's, to {WITHIN:g} point"
        if one is None or other is None or not (one.values and other.values):
            checks.append(Check(claim, None, "no such trials"))
        else:
            check = less(claim, one, other)
            same = abs(one.mean - other.mean) <= WITHIN
            # Farther apart than a point, but not out of the noise: it cannot be told.
            holds = True if same else None if check.holds is None else False
            checks.append(Check(claim, holds, f"{shown(one)} and {shown(other)}"))
        checks.append(more(f"{TASKS[task]}: CM is more accurate than Adam", tuned[task, "cm"], tuned[task, "adam"]))
    return checks


def figure_6(evidence: Evidence) -> Result:
    """Figure 6: ResNet-32 on CIFAR-100."""
    return Result(
        "figure-6",
        "Figure 6: ResNet-32 trained on CIFAR-100",
        "AggMo converges most quickly on the training loss, without sacrificing final validation accuracy.",
        (
            Picture(
                "figure-6-loss",
                "Training loss by epoch of the settings with the best validation accuracy: mean and deviation.",
                "Four falling curves with bands.",
                lambda figure: _draw(figure, evidence, "train_loss", "training loss"),
            ),
            Picture(
                "figure-6-accuracy",
                "Validation accuracy by epoch of the same runs.",
                "Four rising curves with bands.",
                lambda figure: _draw(figure, evidence, "validation_accuracy", "validation accuracy, %"),
            ),
        ),
        (),
        verdict(figure_6_checks(evidence), evidence.conclusive),
        settings_table(evidence, "resnet32-c100"),
        ("The speed of a run is the mean over its epochs of the logarithm of its training loss.",),
        evidence.cost("resnet32-c100"),
    )


def figure_6_checks(evidence: Evidence) -> list[Check]:
    """AggMo's speed against each other optimizer's."""
    own = evidence.group("resnet32-c100", "validation")
    speeds = {name: speed(evidence, of(own, name), "train_loss") for name in OPTIMIZERS}
    return [
        less(f"AggMo's training loss falls faster than {NAMES[other]}'s", speeds["aggmo"], speeds[other])
        for other in OPTIMIZERS[:3]
    ]


def no_batch_norm(evidence: Evidence) -> Result:
    """Section 5.2: ResNet-32 on CIFAR-100 without batch norm."""
    task = "resnet32-c100-nobn"
    paper = {"aggmo": 69.32, "cm": 67.26}
    rows: list[tuple[Cell, ...]] = [
        (
            NAMES[name],
            accuracy,
            score(evidence, task, "validation", name, "test_accuracy"),
            chosen_name(evidence, task, "validation", name),
            _largest(evidence, name),
        )
        for name, accuracy in paper.items()
    ]
    heads = ("optimizer", "test, paper", "test, ours", "setting", "largest stable lr at default damping")
    return Result(
        "section-5.2-no-batch-norm",
        "Section 5.2: ResNet-32 on CIFAR-100 without batch norm",
        "AggMo reaches 69.32 % and CM 67.26 % (accuracy; the text says error), and AggMo is stable at larger learning"
        " rates than CM.",
        (),
        (Table("section-5.2-no-batch-norm", "Test accuracy in percent.", heads, tuple(rows)),),
        verdict(no_batch_norm_checks(evidence), evidence.conclusive),
        settings_table(evidence, task),
        notes(evidence, task),
        evidence.cost(task),
    )


def no_batch_norm_checks(evidence: Evidence) -> list[Check]:
    """AggMo's accuracy against CM's, and their largest stable learning rates at default damping.

    Where the grid ends before either is unstable, the latter cannot be told.
    """
    task = "resnet32-c100-nobn"
    one, other = (score(evidence, task, "validation", name, "test_accuracy") for name in ("aggmo", "cm"))
    lrs = [_largest(evidence, name) for name in ("aggmo", "cm")]
    end = max((trial.settings["lr"] for trial in evidence.group(task, "tuning")), default=None)
    holds = None if lrs[0] is None or lrs[1] is None or lrs[0] == lrs[1] == end else lrs[0] > lrs[1]
    return [
        more("AggMo is more accurate than CM", one, other),
        Check("AggMo's largest stable learning rate is larger than CM's", holds, f"{lrs[0]} and {lrs[1]}"),
    ]


def default_convergence(evidence: Evidence) -> Result:
    """Section 5.2: convergence at default damping."""
    tasks = ("cnn5", "resnet32-c10")
    return Result(
        "section-5.2-default",
        "Section 5.2: convergence at default damping",
        "With default damping AggMo converges much faster than CM and Nesterov with β = 0.9.",
        tuple(
            Picture(
                f"section-5.2-default-{task}",
                f"{TASKS[task]}: training loss by epoch at default damping, each at its best learning rate.",
                "Three falling curves with bands.",
                partial(
                    _draw, evidence=evidence, name="train_loss", label="training loss", task=task, group="usual-train"
                ),
            )
            for task in tasks
        ),
        (),
        verdict(default_checks(evidence), evidence.conclusive),
        settings_table(evidence, *tasks),
        ("The learning rate is the one with the least training loss at the end, as a rule of its own for each.",),
        evidence.cost(*tasks),
    )


def default_checks(evidence: Evidence) -> list[Check]:
    """AggMo's speed against CM's and Nesterov's at default damping, on two tasks."""
    checks = []
    for task in ("cnn5", "resnet32-c10"):
        own = evidence.group(task, "usual-train")
        speeds = {name: speed(evidence, of(own, name), "train_loss") for name in USUAL}
        checks += [
            less(f"{TASKS[task]}: AggMo is faster than {NAMES[other]}", speeds["aggmo"], speeds[other])
            for other in ("cm", "nesterov")
        ]
    return checks


def _row(
    evidence: Evidence, task: str, group: str, optimizer: str, paper: tuple[float, float], more: str
) -> tuple[Cell, ...]:
    """A row of table 2."""
    ours = [score(evidence, task, group, optimizer, f"{split}_accuracy") for split in ("validation", "test")]
    setting = chosen_name(evidence, task, group, optimizer)
    return (NAMES[optimizer] + more, f"{paper[0]:.2f}", ours[0], f"{paper[1]:.2f}", ours[1], setting)


def _largest(evidence: Evidence, optimizer: str) -> float | None:
    """The largest learning rate up to which no run of the grid at default damping diverged or ended worse."""
    own = of(evidence.group("resnet32-c100-nobn", "tuning"), optimizer)
    usual = [trial for trial in own if tuple(trial.settings["betas"]) == USUAL[optimizer]]
    largest = None
    for trial in sorted(usual, key=lambda trial: float(trial.settings["lr"])):
        losses = evidence.curves[trial.trial].get("train_loss")
        if (trial.outcome or {}).get("diverged") or losses is None or not losses[-1] <= losses[0]:
            return largest if largest is not None else 0.0
        largest = float(trial.settings["lr"])
    return largest


def _draw(
    figure: Figure, evidence: Evidence, name: str, label: str, task: str = "resnet32-c100", group: str = "validation"
) -> None:
    """A curve for each optimizer."""
    figure.set_size_inches(style.HALF)
    axis = figure.subplots()
    scale = {"yscale": "log"} if name == "train_loss" else {}
    drawn(evidence, axis, task, group, name, ylabel=label, **scale)
