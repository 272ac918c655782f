"""Every item of the paper: its name, the tasks whose trials it needs, and the function that makes it."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from aggmo.lab.paper import (
    autoencoder,
    averaging,
    classification,
    identities,
    landscapes,
    language,
    online,
    overhead,
    quadratics,
    velocities,
)
from aggmo.lab.paper.experiment import Evidence
from aggmo.lab.paper.result import Result
from aggmo.lab.paper.settings import SETTINGS


@dataclass(frozen=True, slots=True)
class Item:
    """A figure, a table or a claim of the paper.

    Attributes:
        name: as "figure-1".
        shows: in a few words, for the list.
        make: from the evidence to the result.
        tasks: whose trials it needs; none for theory.
        groups: of these trials, as `aggmo.lab.paper.plan` has them, beside the grids from which they are chosen.
    """

    name: str
    shows: str
    make: Callable[[Evidence], Result]
    tasks: tuple[str, ...] = ()
    groups: tuple[str, ...] = ()


AUTOENCODER = ("autoencoder",)
CLASSIFICATION = ("cnn5", "resnet32-c10", "resnet32-c100")

ITEMS = (
    Item("figure-1", "CM, Nesterov and AggMo on quadratics", quadratics.figure_1),
    Item("figure-2", "velocities along a trajectory", velocities.figure_2),
    Item("figure-3", "rates by condition number", quadratics.figure_3),
    Item("section-2", "Nesterov's damping on a quadratic, best learning rates", identities.theorem),
    Item("section-3", "the cost of AggMo's step", overhead.overhead, tuple(SETTINGS), ("overhead",)),
    Item("table-1", "autoencoder errors", autoencoder.table_1, AUTOENCODER, ("train", "validation")),
    Item("figure-4", "autoencoder convergence", autoencoder.figure_4, AUTOENCODER, ("train",)),
    Item("figure-5", "autoencoder by damping", autoencoder.figure_5, AUTOENCODER, ("figure-5",)),
    Item("section-5.1-stability", "largest stable learning rates", autoencoder.limits, AUTOENCODER, ("limits",)),
    Item(
        "table-2",
        "classification accuracy",
        classification.table_2,
        CLASSIFICATION,
        ("validation", "usual-validation"),
    ),
    Item("figure-6", "ResNet-32 on CIFAR-100", classification.figure_6, ("resnet32-c100",), ("validation",)),
    Item(
        "section-5.2-no-batch-norm",
        "no batch norm",
        classification.no_batch_norm,
        ("resnet32-c100-nobn",),
        ("validation",),
    ),
    Item(
        "section-5.2-default",
        "default damping",
        classification.default_convergence,
        ("cnn5", "resnet32-c10"),
        ("usual-train",),
    ),
    Item("table-3", "Penn Treebank perplexity", language.table_3, ("lstm",), ("validation", "usual-validation")),
    Item("figure-7", "language model convergence", language.figure_7, ("lstm",), ("validation",)),
    Item(
        "section-5.3",
        "clipping, decay, range of learning rates",
        language.section_5_3,
        ("lstm",),
        ("validation", "clipping", "decay"),
    ),
    Item("appendix-a", "Nesterov momentum as AggMo", landscapes.appendix_a),
    Item("appendix-b", "velocities in one dimension", velocities.appendix_b),
    Item("appendix-c-identities", "difference equation and B", identities.appendix_c),
    Item("appendix-c-regret", "regret and its bound", online.appendix_c_regret),
    Item("appendix-c-lemma", "Lemma 1", online.appendix_c_lemma),
    Item("appendix-e-toy", "winding funnels", landscapes.appendix_e_toy),
    Item(
        "appendix-e-default",
        "autoencoder at default damping",
        autoencoder.appendix_e_default,
        AUTOENCODER,
        ("usual-train", "usual-validation"),
    ),
    Item("appendix-f", "Beta-averaged momentum", averaging.appendix_f),
)


def choose(names: Sequence[str]) -> list[Item]:
    """The items of these names in the paper's order, all if there are none.

    Raises:
        ValueError: no item has such a name.

    >>> [item.name for item in choose(["table-1", "figure-1"])]
    ['figure-1', 'table-1']
    >>> choose(["figure-8"])
    Traceback (most recent call last):
        ...
    ValueError: item 'figure-8': must be one of those that `aggmo reproduce --list` shows
    """
    known = {item.name for item in ITEMS}
    for name in names:
        if name not in known:
            raise ValueError(f"item {name!r}: must be one of those that `aggmo reproduce --list` shows")
    return [item for item in ITEMS if not names or item.name in names]


def wanted(items: Iterable[Item]) -> dict[str, set[str]]:
    """The groups of trials that some items need, by task in the order of the settings.

    >>> {task: sorted(groups) for task, groups in wanted(choose(["figure-7", "table-1"])).items()}
    {'autoencoder': ['train', 'validation'], 'lstm': ['validation']}
    """
    found: dict[str, set[str]] = {}
    for item in items:
        for task in item.tasks:
            found.setdefault(task, set()).update(item.groups)
    return {task: found[task] for task in SETTINGS if task in found}
