"""One training of the paper's experiments, as a trial of a study.

The settings of a trial have everything on which its outcome depends, so that it is never run twice and never taken for
another: the task and the scale, `content`, a hash of the task's settings and of its data, the optimizer with `lr` and
`betas`, the seed, and where it departs from the task `epochs`, `clip` and `schedule`. Where the data lie is not among
them: it is in a file of the study.
"""

import hashlib
import json
import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, replace
from functools import cache
from itertools import islice
from pathlib import Path
from typing import Any

from torch import Generator

from aggmo.lab.data.store import Store
from aggmo.lab.paper.settings import SETTINGS
from aggmo.lab.paper.tasks import paper_task
from aggmo.lab.schedule import from_plain
from aggmo.lab.setting import Setting
from aggmo.lab.task import Batch, Split, Task
from aggmo.lab.train import Outcome, train

STORE = "data.json"  # beside the database of a study: where its data are
STEPS = 5  # timed for an estimate, after a first one

GRID = ("optimizers", "lr", "adam_lr", "seeds")  # of the settings of a task: what does not enter into a single trial


def trial(settings: dict[str, Any], directory: Path, report: Callable[[dict[str, float]], None]) -> dict[str, Any]:
    """Train as the settings say, from the checkpoint in the directory if there is one.

    Args:
        settings: see above.
        directory: of the trial, in that of the study.
        report: is given the record of each epoch.

    Returns:
        The outcome: `diverged` and `status`; `epochs`; of the last epoch `train_` + loss and each metric; of the one
        with the best validation score, `best_epoch`, `validation_` and `test_` likewise, None if no epoch has one.

    Raises:
        ValueError: data or settings of the task are not those for which the trial was declared.
    """
    task = _task(settings, directory)
    outcome = train(task, setting(settings), settings["seed"], directory, report)
    return _outcome(outcome)


def estimate(task: Task, setting: Setting) -> float:
    """The seconds that the steps of a training will take, from a few of them."""
    steps = sum(1 for _ in task.data.training(task.batch_size, Generator().manual_seed(0)))
    one = Setting(setting.optimizer, setting.lr, setting.betas, epochs=1)
    train(replace(task, data=_Few(task, 1)), one, 0)  # the first step is slower than others
    [record] = train(replace(task, data=_Few(task, STEPS)), one, 0).records
    return record["seconds"] / record["steps"] * steps * int(dict(setting.overrides).get("epochs", task.epochs))


def setting(settings: Mapping[str, Any]) -> Setting:
    """The optimizer of a trial with its numbers and overrides.

    >>> setting({"task": "lstm", "optimizer": "cm", "lr": 1.0, "betas": [0.9], "seed": 0, "clip": 0.25}).overrides
    (('clip', 0.25),)
    """
    overrides = {name: settings[name] for name in ("epochs", "clip", "schedule") if name in settings}
    if "schedule" in overrides:
        overrides["schedule"] = from_plain(overrides["schedule"])
    return Setting(settings["optimizer"], settings["lr"], settings["betas"], **overrides)


def content(task: str, scale: str, description: str) -> str:
    """A hash of the numbers that the settings of a task have, but for the grid, and of its data.

    Args:
        task, scale: as in `aggmo.lab.paper.settings.SETTINGS`.
        description: of the data, which ends with their digest.

    >>> content("cnn5", "quick", "some data, sha256 00") == content("cnn5", "quick", "the same data, sha256 00")
    True
    """
    numbers = {key: value for key, value in asdict(SETTINGS[task][scale]).items() if key not in GRID}
    text = json.dumps([numbers, description.rpartition(" ")[2]], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def save_store(directory: Path, data_dir: Path | None, embedded: bool) -> Store:
    """Tell the trials of the study in a directory where their data are.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as directory:
    ...     save_store(Path(directory), None, embedded=True).source
    'embedded'
    """
    directory.mkdir(parents=True, exist_ok=True)
    where = {"data_dir": data_dir and str(data_dir.absolute()), "embedded": embedded}
    (directory / STORE).write_text(json.dumps(where))
    return Store(data_dir, embedded=embedded)


class _Few:
    """The first few batches of a task's training data, and one for each evaluation."""

    def __init__(self, task: Task, batches: int) -> None:
        self.data, self.batches = task.data, batches

    def training(self, batch_size: int, generator: Generator) -> Iterable[Batch]:
        return islice(self.data.training(batch_size, generator), self.batches)

    def evaluation(self, split: Split) -> Iterable[Batch]:
        return islice(self.data.evaluation(split), 1)


def _task(settings: Mapping[str, Any], directory: Path) -> Task:
    """The task of a trial in the study's directory, two levels up."""
    task = _loaded(settings["task"], settings["scale"], (directory.parents[1] / STORE).read_text())
    found = content(settings["task"], settings["scale"], task.description)
    if found != settings["content"]:
        raise ValueError(f"content={settings['content']!r}: data or settings of {task.name} are now {found!r}")
    return task


@cache
def _loaded(name: str, scale: str, where: str) -> Task:
    """A task, for all trials of a worker."""
    return paper_task(name, scale, Store(**json.loads(where)))


def _outcome(outcome: Outcome) -> dict[str, Any]:
    """The outcome as a study keeps it."""
    last, best = outcome.records[-1], outcome.best or {}
    plain: dict[str, Any] = {
        "diverged": outcome.status == "diverged",
        "status": outcome.status,
        "epochs": len(outcome.records),
        "best_epoch": best.get("epoch"),
    }
    for name, value in last.items():
        split, _, metric = name.partition("_")
        if split == "train":
            plain[name] = _finite(value)
        elif metric and split in ("validation", "test"):
            plain[name] = _finite(best.get(name, math.nan))
    return plain


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None
