"""The settings of the paper's tasks at three scales: all numbers of the experiments, and nothing else.

Scale `paper` is what section 5 and appendix D say; where text and published code differ, the text. `small` says
something on two cores, `quick` shows on stand-ins for the data that everything runs. The smaller scales have every
layer and regulariser, and only smaller sizes: what they do not name below is as at the scale above them.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any

from aggmo.damping import Damping

SCALES = ("paper", "small", "quick")

PATIENCE = 250  # epochs without a better validation score after which training stops


@dataclass(frozen=True, slots=True, kw_only=True)
class ImageSettings:
    """Settings of a task on images.

    Attributes:
        data: a module of `aggmo.lab.data`.
        model: a module of `aggmo.lab.models`.
        sizes: arguments of the model.
        examples: training and validation images together; None is all.
        validation: the share of them that is held out, at random.
        tested: test images; None is all.
        padding: of the random crops, which come with random flips; None augments nothing.
        batch_size, epochs: of the training.
        milestones: epochs after which the learning rate is multiplied by 0.1.
        weight_decay: L2 in the gradient, on all parameters and for all optimizers.
        optimizers: those that are compared.
        lr, adam_lr: the learning rates to choose from, for Adam and for the others.
        seeds: runs of a chosen setting, whose mean and standard deviation count.
    """

    data: str
    model: str
    sizes: Mapping[str, Any]
    examples: int | None = None
    validation: float
    tested: int | None = None
    padding: int | None = None
    batch_size: int
    epochs: int
    milestones: tuple[int, ...]
    weight_decay: float = 0.0
    optimizers: tuple[str, ...] = ("cm", "nesterov", "adam", "aggmo")
    lr: tuple[float, ...]
    adam_lr: tuple[float, ...]
    seeds: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class TextSettings:
    """Settings of the language model.

    Attributes:
        data: a module of `aggmo.lab.data`.
        model: a module of `aggmo.lab.models`.
        sizes: arguments of the model, besides its vocabulary; its dropouts have the paper's values at every scale.
        vocabulary: the number of words.
        trained: words of the training part; None is all.
        evaluated: words of the validation and of the test part; None is all.
        columns: batch size of validation and test.
        length: of a window, usually.
        batch_size, epochs: of the training.
        plateau: epochs without a better validation loss after which the learning rate is multiplied by `decay`.
        constant: optimizers that keep their learning rate.
        clip: the gradient's largest norm, for the optimizers whose gradient is clipped.
        activation, temporal: coefficients of the two activation regularisers.
        weight_decay: L2 in the gradient, on all parameters and for all optimizers.
        optimizers: those that are compared.
        lr, adam_lr: the learning rates to choose from, for Adam and for the others.
        seeds: runs of a chosen setting, whose mean and standard deviation count.
    """

    data: str = "ptb"
    model: str = "awd_lstm"
    sizes: Mapping[str, Any]
    vocabulary: int
    trained: int | None = None
    evaluated: int | None = None
    columns: tuple[int, int]
    length: int
    batch_size: int
    epochs: int
    plateau: int
    decay: float = 0.5
    constant: tuple[str, ...] = ("sgd", "nt-asgd")
    clip: Mapping[str, float] = field(default_factory=lambda: {"sgd": 0.25, "nt-asgd": 0.25})
    activation: float = 2.0
    temporal: float = 1.0
    weight_decay: float = 1.2e-6
    optimizers: tuple[str, ...] = ("nt-asgd", "sgd", "cm", "nesterov", "adam", "aggmo")
    lr: tuple[float, ...]
    adam_lr: tuple[float, ...]
    seeds: int = 1


Settings = ImageSettings | TextSettings


# The damping coefficients to choose from: beta, beta_1 of Adam, and K of AggMo with a = 0.1. At scale small all have as
# many, and each the same ones: AggMo's largest beta is 0 for K = 1, 0.9 for K = 2, and so on.
DAMPING: dict[str, dict[str, tuple[float, ...]]] = {
    "paper": {"cm": (0.0, 0.9, 0.99, 0.999), "adam": (0.9, 0.99, 0.999), "aggmo": (2, 3, 4)},
    "small": {"cm": (0.0, 0.9, 0.99, 0.999), "adam": (0.0, 0.9, 0.99, 0.999), "aggmo": (1, 2, 3, 4)},
    "quick": {"cm": (0.9, 0.99), "adam": (0.9,), "aggmo": (3, 4)},
}
for _grid in DAMPING.values():
    _grid["nesterov"] = _grid["cm"]


def betas(optimizer: str, scale: str) -> tuple[tuple[float, ...], ...]:
    """The dampings to choose from, each as the `betas` of a setting; one empty one for an optimizer that has none.

    >>> betas("aggmo", "quick")
    ((0.0, 0.9, 0.99), (0.0, 0.9, 0.99, 0.999))
    >>> betas("adam", "quick"), betas("sgd", "small")
    (((0.9, 0.999),), ((),))
    """
    grid = DAMPING[scale].get(optimizer, ())
    if optimizer == "aggmo":
        return tuple(Damping.exponential(k=int(k)).betas for k in grid)
    if optimizer == "adam":
        return tuple((beta, 0.999) for beta in grid)
    return tuple((beta,) for beta in grid) or ((),)


AUTOENCODER = {
    "paper": ImageSettings(
        data="mnist",
        model="autoencoder",
        sizes={"sizes": (784, 1000, 500, 250, 30)},
        validation=0.1,
        batch_size=200,
        epochs=1000,
        milestones=(200, 400, 800),
        lr=(0.1, 0.05, 0.01, 0.005, 0.001, 5e-4, 1e-4, 5e-5, 1e-5),
        adam_lr=(0.1, 0.05, 0.01, 0.005, 0.001, 5e-4, 1e-4, 5e-5, 1e-5),
        seeds=15,
    )
}
AUTOENCODER["small"] = replace(
    AUTOENCODER["paper"],
    sizes={"sizes": (784, 250, 125, 62, 30)},
    batch_size=100,
    epochs=9,  # 4,860 steps
    milestones=(5, 7, 8),  # late: at the paper's fifth of the run every momentum method is on its first plateau
    lr=(0.3, 1.0, 3.0, 10.0),  # with less, no method leaves the first plateau in so few steps
    adam_lr=(0.0003, 0.001, 0.003, 0.01),
    seeds=5,
)
AUTOENCODER["quick"] = replace(
    AUTOENCODER["small"],
    sizes={"sizes": (784, 100, 50, 25, 12)},
    examples=1000,
    tested=100,
    epochs=15,
    milestones=(8, 12, 14),
    lr=(0.3, 1.0),
    adam_lr=(0.003, 0.01),
    seeds=2,
)

CNN5 = {
    "paper": ImageSettings(
        data="cifar10",
        model="cnn5",
        sizes={"channels": (64, 192, 384, 256, 256), "classes": 10},
        validation=0.2,
        batch_size=128,
        epochs=400,
        milestones=(150, 250),
        lr=(0.1, 0.05, 0.01, 0.005, 0.001, 5e-4, 1e-4),
        adam_lr=(0.1, 0.05, 0.01, 0.005, 0.001, 5e-4, 1e-4),
    )
}
CNN5["small"] = replace(
    CNN5["paper"],
    sizes={"channels": (16, 48, 96, 64, 64), "classes": 10},
    examples=5000,
    tested=1000,
    epochs=15,
    milestones=(6, 9),
    lr=(0.3, 0.1, 0.03, 0.01),
    adam_lr=(0.01, 0.003, 0.001, 0.0003),
    seeds=5,
)
CNN5["quick"] = replace(
    CNN5["small"],
    sizes={"channels": (8, 24, 48, 32, 32), "classes": 10},
    examples=1000,
    tested=100,
    batch_size=32,
    epochs=6,
    milestones=(3, 5),
    lr=(0.1, 0.03),
    adam_lr=(0.01, 0.003),
    seeds=2,
)

RESNET32_C10 = {
    "paper": replace(
        CNN5["paper"],
        model="resnet",
        sizes={"depth": 32, "width": 16, "classes": 10},
        padding=4,
        weight_decay=5e-4,
    )
}
RESNET32_C10["small"] = replace(
    RESNET32_C10["paper"],
    sizes={"depth": 8, "width": 8, "classes": 10},
    examples=2000,
    tested=1000,
    epochs=10,
    milestones=(4, 6),
    lr=(1.0, 0.3, 0.1, 0.03),
    adam_lr=(0.1, 0.03, 0.01, 0.003),
    seeds=5,
)
RESNET32_C10["quick"] = replace(
    RESNET32_C10["small"],
    sizes={"depth": 8, "width": 4, "classes": 10},
    examples=250,
    tested=50,
    batch_size=16,
    epochs=4,
    milestones=(2, 3),
    lr=(0.1, 0.03),
    adam_lr=(0.01, 0.003),
    seeds=2,
)

RESNET32_C100 = {
    "paper": replace(RESNET32_C10["paper"], data="cifar100", sizes={"depth": 32, "width": 16, "classes": 100}),
    "small": replace(
        RESNET32_C10["small"], data="cifar100", sizes={"depth": 8, "width": 8, "classes": 100}, examples=2500
    ),
    "quick": replace(RESNET32_C10["quick"], data="cifar100", sizes={"depth": 8, "width": 4, "classes": 100}),
}

RESNET32_C100_NOBN = {
    scale: replace(
        settings,
        sizes={**settings.sizes, "batch_norm": False},
        optimizers=("cm", "aggmo"),
        lr={"paper": (0.1, 0.05, 0.01, 0.005), "small": (3.0, 1.0, 0.3, 0.1, 0.03), "quick": (0.1, 0.03)}[scale],
    )
    for scale, settings in RESNET32_C100.items()
}

LSTM = {
    "paper": TextSettings(
        sizes={"embedding": 400, "hidden": 1150, "layers": 3},
        vocabulary=10_000,
        columns=(10, 1),
        length=70,
        batch_size=80,
        epochs=750,
        plateau=15,
        lr=(50.0, 30.0, 10.0, 5.0, 2.5, 1.0, 0.1, 0.01),
        adam_lr=(0.1, 0.05, 0.01, 0.005, 0.001, 5e-4, 1e-4),
    )
}
LSTM["small"] = replace(
    LSTM["paper"],
    sizes={"embedding": 100, "hidden": 150, "layers": 3},
    vocabulary=2000,
    trained=60_000,
    evaluated=10_000,
    columns=(10, 10),
    length=35,
    batch_size=20,
    epochs=7,
    plateau=2,
    lr=(30.0, 10.0, 3.0, 1.0, 0.3),
    adam_lr=(0.03, 0.01, 0.003, 0.001, 0.0003),
    seeds=3,
)
LSTM["quick"] = replace(
    LSTM["small"],
    sizes={"embedding": 32, "hidden": 48, "layers": 3},
    vocabulary=500,
    trained=4000,
    evaluated=1000,
    length=20,
    epochs=8,
    lr=(5.0, 1.0),
    adam_lr=(0.01, 0.005),
    seeds=2,
)

SETTINGS: dict[str, Mapping[str, Settings]] = {
    "autoencoder": AUTOENCODER,
    "cnn5": CNN5,
    "resnet32-c10": RESNET32_C10,
    "resnet32-c100": RESNET32_C100,
    "resnet32-c100-nobn": RESNET32_C100_NOBN,
    "lstm": LSTM,
}


def table(task: str) -> str:
    r"""The settings of a task as a Markdown table, a column for each scale.

    >>> [row.split("|")[3].strip() for row in table("resnet32-c10").splitlines()[2:6]]
    ['cifar10', 'resnet', 'depth=8, width=8, classes=10', '2,000']
    """
    scales = SETTINGS[task]
    rows = [["setting", *SCALES], ["", "", "", ""]]
    names = [each.name for each in fields(scales["paper"])]
    rows += [[name, *(shown_value(getattr(scales[scale], name)) for scale in SCALES)] for name in names]
    rows.append(["damping", *(_dampings(task, scale) for scale in SCALES)])
    widths = [max(len(row[column]) for row in rows) for column in range(4)]
    rows[1] = ["-" * width for width in widths]
    return "\n".join(f"| {' | '.join(cell.ljust(w) for cell, w in zip(row, widths, strict=True))} |" for row in rows)


def shown_value(value: Any) -> str:
    """A value in a table.

    >>> shown_value({"cm": (0.9, 0.99)}), shown_value(None), shown_value(5000)
    ('cm=0.9 0.99', 'all', '5,000')
    """
    if isinstance(value, Mapping):
        return ", ".join(f"{name}={shown_value(inner)}" for name, inner in value.items())
    if isinstance(value, tuple):
        return " ".join(map(shown_value, value))
    if isinstance(value, bool) or not isinstance(value, int):
        return "all" if value is None else str(value)
    return f"{value:,}"


def _dampings(task: str, scale: str) -> str:
    """The damping grids of a task."""
    names = [name for name in SETTINGS[task][scale].optimizers if name in DAMPING[scale]]
    return ", ".join(f"{name} {shown_value(DAMPING[scale][name])}" for name in names)


@dataclass(frozen=True, slots=True)
class Probe:
    """Settings of an optimizer that are run without a choice.

    Attributes:
        optimizer: its name.
        betas: its dampings, each with every learning rate.
        lr: the learning rates.
    """

    optimizer: str
    betas: tuple[tuple[float, ...], ...]
    lr: tuple[float, ...]


# The autoencoder at fixed learning rates, by damping, for figure 5.
FIGURE_5 = (
    Probe("aggmo", tuple(Damping.exponential(k=k).betas for k in (2, 3, 4, 5)), (0.1,)),
    Probe("nesterov", ((0.9,), (0.99,), (0.999,), (0.9999,)), (0.05,)),
)

# The autoencoder by learning rate, for the largest at which each is stable (section 5.1).
LIMITS = tuple(
    Probe(optimizer, betas, (0.01, 0.03, 0.1, 0.3, 1.0, 3.0))
    for optimizer, betas in (
        ("aggmo", (Damping.exponential(k=3).betas, Damping.exponential(k=4).betas)),
        ("cm", ((0.99,), (0.999,))),
        ("nesterov", ((0.99,), (0.999,))),
    )
)

# Epochs of the two, at a constant learning rate, and the seeds of the first.
PROBE_EPOCHS = {"figure-5": {"paper": 350, "small": 15, "quick": 6}, "limits": {"paper": 20, "small": 6, "quick": 2}}
PROBE_SEEDS = {"figure-5": {"paper": 3, "small": 1, "quick": 1}, "limits": {"paper": 1, "small": 1, "quick": 1}}
