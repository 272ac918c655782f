"""Which trials the items of the paper need: grids to choose from, then the settings that were chosen on more seeds.

All trials of a scale are one study, in groups that several items share. Settings are chosen on one seed, and what is
reported comes from other seeds: a setting gains nothing from its luck in the selection.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from aggmo.damping import Damping
from aggmo.lab.paper.settings import FIGURE_5, LIMITS, PROBE_EPOCHS, PROBE_SEEDS, SETTINGS, TextSettings, betas
from aggmo.lab.progress import Direction
from aggmo.lab.records import Trial
from aggmo.lab.schedule import Constant, Plateau, as_plain
from aggmo.lab.selection import select
from aggmo.lab.study import Settings, grid, identity

FUNCTION = "aggmo.lab.paper.trial:trial"

CHOICE_SEED = 0

# By what each task's settings are chosen, and what its tables show.
METRICS: dict[str, tuple[str, Direction]] = {
    **dict.fromkeys(SETTINGS, ("accuracy", "max")),
    "autoencoder": ("mse", "min"),
    "lstm": ("perplexity", "min"),
}

# The dampings that the paper calls usual, whose learning rates are chosen on their own too.
USUAL: dict[str, tuple[float, ...]] = {
    "cm": (0.9,),
    "nesterov": (0.9,),
    "aggmo": Damping.exponential(k=3).betas,
}

# What is timed for section 3, and in how many steps.
TIMED: dict[str, list[float]] = {"sgd": [], "cm": [0.9], "adam": [0.9, 0.999], "aggmo": [0.0, 0.9, 0.99]}
TIMED_STEPS = 20

# The groups that are not chosen from the grid.
INDEPENDENT = frozenset({"overhead", "figure-5", "limits"})

Groups = dict[str, list[Settings]]


def first(task: str, scale: str, content: str) -> Groups:
    """The trials that depend on no other's outcome.

    Args:
        task: one of the paper's.
        scale: "paper", "small" or "quick".
        content: the hash of the task's settings and data, as `aggmo.lab.trial.content` gives it.

    Returns:
        The settings by group: `tuning`, `overhead` (section 3), and for the autoencoder `figure-5` and `limits`
        (section 5.1).

    >>> groups = first("resnet32-c10", "quick", "0123456789ab")
    >>> len(groups["tuning"]), groups["tuning"][0]["optimizer"], groups["tuning"][0]["lr"]
    (14, 'cm', 0.1)
    """
    settings = SETTINGS[task][scale]
    common: dict[str, list[Any]] = {"task": [task], "scale": [scale], "content": [content]}
    parts: list[dict[str, list[Any]]] = [
        {
            "optimizer": [optimizer],
            "betas": [list(own) for own in betas(optimizer, scale)],
            "lr": list(settings.adam_lr if optimizer == "adam" else settings.lr),
        }
        for optimizer in settings.optimizers
    ]
    groups = {"tuning": grid(*parts, **common, seed=[CHOICE_SEED])}
    groups["overhead"] = [
        {"optimizer": optimizer, "betas": own, "lr": 1e-4, "task": task, "scale": scale, "content": content}
        | {"seed": 0, "timed": TIMED_STEPS}
        for optimizer, own in TIMED.items()
    ]
    if task == "autoencoder":
        for name, probes in (("figure-5", FIGURE_5), ("limits", LIMITS)):
            own: list[dict[str, list[Any]]] = [
                {"optimizer": [each.optimizer], "betas": list(map(list, each.betas)), "lr": list(each.lr)}
                for each in probes
            ]
            seeds = list(range(1, 1 + PROBE_SEEDS[name][scale]))
            constant: dict[str, list[Any]] = {"epochs": [PROBE_EPOCHS[name][scale]], "schedule": [as_plain(Constant())]}
            groups[name] = grid(*own, **common, **constant, seed=seeds)
    return groups


def chosen(task: str, scale: str, tuning: Sequence[Trial]) -> Groups:
    """The trials that depend on what was chosen.

    Args:
        task, scale: as in `first`.
        tuning: the trials of the group `tuning`, all with an outcome.

    Returns:
        The settings by group: `train` and `validation`, the best of each optimizer by its final training score and by
        its best validation score; `usual`, the same two with the usual damping; and for the language model `clipping`
        and `decay`, the momentum methods' best with clipping and SGD's with a decaying learning rate (section 5.3).

    >>> settings = first("cnn5", "quick", "0123456789ab")["tuning"]
    >>> outcome = {"diverged": False, "train_accuracy": 90.0, "validation_accuracy": 80.0}
    >>> trials = [Trial(i, "", settings[i], "finished", outcome) for i in range(len(settings))]
    >>> [each["seed"] for each in chosen("cnn5", "quick", trials)["validation"]][:3]
    [1, 2, 1]
    """
    metric, direction = METRICS[task]
    settings = SETTINGS[task][scale]
    seeds = range(1, 1 + settings.seeds)

    def best(trials: Iterable[Trial], split: str, **changed: Any) -> list[Settings]:
        found = select(trials, f"{split}_{metric}", direction).values()
        return [{**choice.score.settings, **changed, "seed": seed} for choice in found for seed in seeds]

    usual = [trial for trial in tuning if tuple(trial.settings["betas"]) == USUAL.get(trial.settings["optimizer"])]
    groups = {
        "train": best(tuning, "train"),
        "validation": best(tuning, "validation"),
        "usual-train": best(usual, "train"),
        "usual-validation": best(usual, "validation"),
    }
    if isinstance(settings, TextSettings):
        with_momentum = [trial for trial in tuning if trial.settings["betas"]]
        sgd = [trial for trial in tuning if trial.settings["optimizer"] == "sgd"]
        groups["clipping"] = best(with_momentum, "validation", clip=settings.clip["sgd"])
        groups["decay"] = best(sgd, "validation", schedule=as_plain(Plateau(settings.plateau, settings.decay)))
    return groups


def members(trials: Iterable[Trial], group: Iterable[Mapping[str, Any]]) -> list[Trial]:
    """The trials of a group among all trials of the study, in the order of the group and without repetitions.

    >>> one, two = {"optimizer": "cm", "lr": 0.1, "seed": 0}, {"optimizer": "cm", "lr": 0.5, "seed": 0}
    >>> trials = [Trial(i, identity(FUNCTION, each), each, "waiting") for i, each in enumerate((one, two))]
    >>> [trial.trial for trial in members(trials, [two, two])]
    [1]
    """
    found = {trial.identity: trial for trial in trials}
    wanted = dict.fromkeys(identity(FUNCTION, settings) for settings in group)
    return [found[name] for name in wanted if name in found]
