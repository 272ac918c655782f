"""One training as a trial of a study: a task of the paper or of your own, under a setting.

The settings of a trial have everything on which its outcome depends:

    task        one of the paper's, or module:function
    scale       "paper", "small" or "quick"; None for a task of your own
    content     a hash of the task's own numbers and of its data, so that neither changes unnoticed
    optimizer, lr, betas, weights           of `aggmo.lab.setting.Setting`; the last two may be left out
    seed        of parameters, data order and dropout
    epochs, batch_size, schedule, clip, weight_decay, patience      where they differ from the task's own

Where the data lie is not among them, as it changes nothing: it is in a file of the study. Nor is the device, which the
engine gives in the environment variable AGGMO_DEVICE, as torch calls it: the CPU where there is none.
"""

import hashlib
import json
import math
import operator
import os
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, fields, replace
from functools import lru_cache
from itertools import islice
from pathlib import Path
from typing import Any

import torch
from torch import Generator, nn

from aggmo.lab.data.store import Store
from aggmo.lab.engine import DEVICE
from aggmo.lab.schedule import Constant, Milestones, Plateau, as_plain, from_plain
from aggmo.lab.setting import Setting
from aggmo.lab.task import Batch, Metric, Split, Task, Tensors, find
from aggmo.lab.train import Outcome, evaluate, train

TRIAL = "aggmo.lab.trial:trial"
TIMER = "aggmo.lab.trial:seconds"

STORE = "data.json"  # beside the database of a study: where its data are
OPTIONS = ("epochs", "batch_size", "schedule", "clip", "weight_decay", "patience")
GRID = ("optimizers", "lr", "adam_lr", "seeds")  # of a paper's task: what does not enter into a single trial
STEPS = 5  # timed for an estimate, after a first one

Report = Callable[[dict[str, float]], None]


def trial(settings: dict[str, Any], directory: Path, report: Report) -> dict[str, Any]:
    """Train as the settings say, from the checkpoint in the directory if there is one.

    Args:
        settings: as above.
        directory: of the trial, two levels below that of the study.
        report: is given the record of each epoch.

    Returns:
        What `outcome` makes of the training.

    Raises:
        ValueError: settings out of range, or data or numbers of the task are not those of `content`.
        DataError: the data cannot be had.

    >>> settings = {"task": "aggmo.lab.trial:_example", "optimizer": "sgd", "lr": 0.25, "seed": 0}
    >>> settings["content"] = content(settings["task"], None, _example())
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as study:
    ...     found = trial(settings, Path(study, "trials", "1"), lambda row: print(row["epoch"], row["test_distance"]))
    1 0.5
    2 0.25
    >>> found["status"], found["best_epoch"], found["test_distance"]
    ('finished', 2, 0.25)
    """
    return outcome(train(_task(settings, directory), setting(settings), settings["seed"], directory, report))


def seconds(settings: dict[str, Any], directory: Path, _: Report) -> dict[str, Any]:
    """The timer that belongs to `trial`.

    Returns:
        `seconds`, which the whole trial will take on one thread.

    Raises:
        ValueError, DataError: as `trial`.

    >>> TIMER
    'aggmo.lab.trial:seconds'
    """
    return {"seconds": estimate(_task(settings, directory), setting(settings))}


def setting(settings: Mapping[str, Any]) -> Setting:
    """The optimizer of a trial with its numbers and overrides.

    Raises:
        ValueError: as `Setting`.

    >>> setting({"task": "lstm", "optimizer": "cm", "lr": 1.0, "seed": 0, "clip": 0.25}).overrides
    (('clip', 0.25),)
    """
    overrides = {name: settings[name] for name in OPTIONS if name in settings}
    if "schedule" in overrides:
        overrides["schedule"] = from_plain(overrides["schedule"])
    return Setting(settings["optimizer"], settings["lr"], settings.get("betas"), settings.get("weights"), **overrides)


def outcome(found: Outcome) -> dict[str, Any]:
    """What a study keeps of a training beside its curves.

    Returns:
        `diverged` and `status`; `epochs`; of the last epoch `train_` + loss and each metric; of the epoch with the best
        validation score `best_epoch`, `validation_` and `test_` likewise, None if no epoch has one.

    >>> records = ({"train_loss": 2.0, "test_loss": 3.0}, {"train_loss": 1.0, "test_loss": 4.0})
    >>> outcome(Outcome("finished", records, best={"epoch": 1, **records[0]}))
    {'diverged': False, 'status': 'finished', 'epochs': 2, 'best_epoch': 1, 'train_loss': 1.0, 'test_loss': 3.0}
    """
    last, best = found.records[-1], found.best or {}
    plain: dict[str, Any] = {
        "diverged": found.status == "diverged",
        "status": found.status,
        "epochs": len(found.records),
        "best_epoch": best.get("epoch"),
    }
    for name, value in last.items():
        if name.startswith("train_"):
            plain[name] = _finite(value)
        elif name.startswith(("validation_", "test_")):
            plain[name] = _finite(best.get(name, math.nan))
    return plain


def estimate(task: Task, setting: Setting) -> float:
    """The seconds that a training will take, from a few of its steps and a look at the validation data.

    >>> 0.0 < estimate(_example(), Setting("sgd", lr=0.25)) < 60.0
    True
    """
    options = {**task.by_optimizer.get(setting.optimizer, {}), **dict(setting.overrides)}
    task = replace(task, **options)
    few = replace(task, data=_Few(task, STEPS), epochs=1, by_optimizer={})
    plain = Setting(setting.optimizer, setting.lr, setting.betas, setting.weights)
    train(replace(few, data=_Few(task, 1)), plain, seed=0)  # the first step is slower than others
    [record] = train(few, plain, seed=0).records
    steps = _count(task.data.training(task.batch_size, Generator().manual_seed(0)))
    with torch.random.fork_rng(devices=[]):
        model = task.model()
    start = time.perf_counter()
    evaluate(replace(few, data=_Few(task, 1)), model, "validation")
    look = time.perf_counter() - start
    looks = _count(task.data.evaluation("validation")) + _count(task.data.evaluation("test"))
    return task.epochs * (steps * record["seconds"] / record["steps"] + looks * look)


def content(name: str, scale: str | None, task: Task) -> str:
    """A hash of all the numbers of a task, of the description of its data, and so of the data if that has their digest.

    Args:
        name, scale, task: as they were given to `find` and what it gave. Functions of a task of your own are not among
            the numbers.

    >>> content("module:example", None, _example()) == content("module:example", None, replace(_example(), epochs=3))
    False
    """
    from aggmo.lab.paper.settings import SETTINGS

    numbers: dict[str, Any]
    if scale is None:
        own = {each.name: getattr(task, each.name) for each in fields(task) if each.name in ("name", *OPTIONS)}
        numbers = {**own, "by_optimizer": {key: dict(value) for key, value in task.by_optimizer.items()}}
        data = task.description
    else:
        numbers = {key: value for key, value in asdict(SETTINGS[name][scale]).items() if key not in GRID}
        data = task.description.rpartition(" ")[2]  # the digest; how the data were packed is of no matter
    text = json.dumps([numbers, data], sort_keys=True, default=_described)
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def save_store(directory: Path, data_dir: Path | str | None = None, *, embedded: bool = False) -> Store:
    """Tell the trials of the study in a directory where the data of the paper's tasks are.

    Raises:
        DataError: data_dir is no directory.
        OSError: the file cannot be written.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as directory:
    ...     save_store(Path(directory), embedded=True).source
    'embedded'
    """
    where: dict[str, Any] = {"data_dir": data_dir and str(Path(data_dir).expanduser().absolute()), "embedded": embedded}
    store = Store(**where)
    directory.mkdir(parents=True, exist_ok=True)
    file = directory / STORE
    unfinished = file.with_suffix(".unfinished")  # a worker may be reading the file
    unfinished.write_text(json.dumps(where))
    unfinished.replace(file)
    return store


class _Few:
    """The first few batches of a task's training data, and one for each evaluation."""

    def __init__(self, task: Task, batches: int) -> None:
        self.data, self.batches = task.data, batches

    def training(self, batch_size: int, generator: Generator) -> Iterable[Batch]:
        return islice(self.data.training(batch_size, generator), self.batches)

    def evaluation(self, split: Split) -> Iterable[Batch]:
        return islice(self.data.evaluation(split), 1)


def _count(batches: Iterable[Batch]) -> int:
    """How many there are; those of a DataLoader, which says it, are not made for that."""
    return operator.length_hint(batches) or sum(1 for _ in batches)


def _task(settings: Mapping[str, Any], directory: Path) -> Task:
    """The task of a trial, if it is still the one for which the trial was declared."""
    file = directory.parents[1] / STORE
    scale = settings.get("scale")
    where = file.read_text() if scale is not None and file.exists() else "{}"
    task = _loaded(settings["task"], scale, where, os.environ.get(DEVICE, "cpu"))
    if (found := content(settings["task"], scale, task)) != settings["content"]:
        raise ValueError(f"content={settings['content']!r}: data or numbers of {task.name} have changed, to {found!r}")
    return task


@lru_cache(maxsize=1)
def _loaded(name: str, scale: str | None, where: str, device: str) -> Task:
    """A task, for all the trials of a worker that have it."""
    task = find(name, scale, None if scale is None else Store(**json.loads(where)))
    if device == "cpu":
        return task
    torch.backends.cudnn.deterministic = True  # a trial is to give the same records again
    return task.to(device)


def _described(value: object) -> Any:
    """What stands for a value that JSON does not have."""
    return as_plain(value) if isinstance(value, Constant | Milestones | Plateau) else "a function"


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None


def _example() -> Task:
    """A task for the examples above: one weight, which starts at 0 and should become 1."""

    def model() -> nn.Module:
        layer = nn.Linear(1, 1, bias=False)
        nn.init.zeros_(layer.weight)
        return layer

    one = (torch.ones(1, 1),)
    return Task(
        name="one weight",
        data=Tensors(one, one, one),
        model=model,
        loss=lambda output, _: (output - 1.0).square().mean(),
        metrics=(Metric("distance", lambda output, _: (output - 1.0).abs().mean()),),
        epochs=2,
        batch_size=1,
    )
