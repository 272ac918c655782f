"""The experiments behind the items: one study for a scale, run in two rounds, and what it found as evidence."""

import math
import sqlite3
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from rich.console import Console

from aggmo.lab.data.store import Store
from aggmo.lab.driver import Summary
from aggmo.lab.engine import End, Engine, Report
from aggmo.lab.engine import Task as Work
from aggmo.lab.paper.plan import FUNCTION, INDEPENDENT, USUAL, Groups, chosen, first, members
from aggmo.lab.paper.settings import SCALES, SETTINGS
from aggmo.lab.paper.tasks import paper_task
from aggmo.lab.progress import duration
from aggmo.lab.records import Trial
from aggmo.lab.setting import Setting
from aggmo.lab.study import DATABASE, Study
from aggmo.lab.task import Task
from aggmo.lab.trial import content, estimate, save_store, setting

Curve = dict[str, NDArray[np.float64]]


@dataclass(frozen=True)
class Evidence:
    """What the trials found, for the items to judge.

    Attributes:
        scale: "paper", "small" or "quick".
        groups: the trials by task and group, as `aggmo.lab.paper.plan` has them; those without an outcome are left out.
        curves: by the number of the trial.
        seconds: of computing, by the number of the trial.
        data: what is known of each task's data.

    >>> Evidence("quick").group("cnn5", "tuning")
    []
    """

    scale: str
    groups: Mapping[str, Mapping[str, Sequence[Trial]]] = field(default_factory=dict)
    curves: Mapping[int, Curve] = field(default_factory=dict)
    seconds: Mapping[int, float] = field(default_factory=dict)
    data: Mapping[str, str] = field(default_factory=dict)

    @property
    def conclusive(self) -> bool:
        """Whether a claim that does not hold here is a finding; on the stand-ins of scale quick it is not.

        >>> Evidence("quick").conclusive, Evidence("small").conclusive
        (False, True)
        """
        return self.scale != "quick"

    def group(self, task: str, name: str) -> list[Trial]:
        """The trials of a group that have an outcome.

        >>> Evidence("quick").group("lstm", "clipping")
        []
        """
        return list(self.groups.get(task, {}).get(name, ()))

    def cost(self, *tasks: str) -> float:
        """The seconds of computing behind some tasks.

        >>> Evidence("quick").cost("lstm")
        0.0
        """
        numbers = {each.trial for task in tasks for group in self.groups.get(task, {}).values() for each in group}
        return math.fsum(self.seconds.get(number, 0.0) for number in numbers)


class Kept:
    """An engine that outlives the studies for which it works: its workers are started once.

    Args:
        engine: which does the work.
    """

    def __init__(self, engine: Engine) -> None:
        self.engine, self.name, self.workers, self.started = engine, engine.name, engine.workers, False

    def start(self) -> None:
        """Start the engine, once."""
        if not self.started:
            self.engine.start()
            self.started = True

    def idle(self) -> int:
        """As the engine's."""
        return self.engine.idle()

    def submit(self, task: Work) -> None:
        """As the engine's."""
        self.engine.submit(task)

    def wait(self, timeout: float) -> list[Report | End]:
        """As the engine's."""
        return self.engine.wait(timeout)

    def acknowledge(self) -> None:
        """As the engine's."""
        self.engine.acknowledge()

    def stop(self) -> None:
        """Leave the engine as it is; `close` stops it."""

    def close(self) -> None:
        """Stop the engine."""
        if self.started:
            self.engine.stop()
            self.started = False


class Experiment:
    """The study of a scale in a directory, for some of the groups of trials of the paper's tasks.

    Args:
        directory: where the study is, or will be.
        scale: "paper", "small" or "quick".
        wanted: the groups of trials that are wanted, by task, as `aggmo.lab.paper.items.wanted` gives them.
        data_dir: the directory of the data sets; None downloads them, but at scale quick takes those that come with the
            dependencies.

    Raises:
        ValueError: no such task or scale.
        DataError: the data of a task cannot be had or used.
    """

    def __init__(
        self, directory: Path, scale: str, wanted: Mapping[str, Set[str]], data_dir: Path | None = None
    ) -> None:
        self.directory, self.scale, self.wanted = directory, scale, wanted
        if scale not in SCALES:
            raise ValueError(f"scale={scale!r}: must be one of {', '.join(SCALES)}")
        embedded = data_dir is None and scale == "quick"
        store = save_store(directory, data_dir, embedded=embedded) if wanted else Store(embedded=True)
        self.tasks = {name: paper_task(name, scale, store) for name in wanted}
        self.groups: dict[str, Groups] = {
            name: self._kept(name, first(name, scale, content(name, scale, task))) for name, task in self.tasks.items()
        }

    def run(self, engine: Engine, console: Console, resume: str) -> Summary | None:
        """Run all trials that have no outcome yet: first the grids, then what was chosen from them.

        Args:
            engine: where.
            console: where the estimate and the progress are shown.
            resume: what to tell someone who ended it early.

        Returns:
            How the study stands; None if no task is wanted.
        """
        if not self.tasks:
            return None
        kept = Kept(engine)
        try:
            study = self._declare()
            self._estimate(study, kept, console)
            summary = study.run(kept, console=console, resume=resume)
            if summary.waiting or summary.interrupted:
                return summary
            self._choose(study)
            return self._declare().run(kept, console=console, resume=resume)
        finally:
            kept.close()

    def evidence(self) -> Evidence:
        """What the trials found so far."""
        if not (self.directory / DATABASE).exists() or not self.tasks:
            return Evidence(self.scale)
        study = Study(self.directory)
        self._choose(study)
        with study.records() as records:
            trials = [each for each in records.trials() if each.outcome is not None]
            groups = {
                name: {group: members(trials, settings) for group, settings in own.items()}
                for name, own in self.groups.items()
            }
            wanted = {each.trial for own in groups.values() for group in own.values() for each in group}
            curves = {number: records.curve(number) for number in wanted}
        data = {name: task.description for name, task in self.tasks.items()}
        return Evidence(self.scale, groups, curves, _seconds(study.directory / DATABASE), data)

    def _declare(self) -> Study:
        """The study with all trials that are known by now."""
        trials = [settings for own in self.groups.values() for group in own.values() for settings in group]
        return Study.declare(self.directory, FUNCTION, trials)

    def _choose(self, study: Study) -> None:
        """Add the groups that depend on outcomes, for the tasks whose grid is done."""
        with study.records() as records:
            trials = records.trials()
        for name, groups in self.groups.items():
            tuning = members(trials, groups.get("tuning", ()))
            if tuning and all(each.status in ("finished", "failed") for each in tuning):
                groups |= self._kept(name, chosen(name, self.scale, tuning))

    def _kept(self, task: str, groups: Groups) -> Groups:
        """The groups that are wanted; the grid is if any is that is chosen from it."""
        kept = {name: group for name, group in groups.items() if name in self.wanted[task]}
        if "tuning" in groups and self.wanted[task] - INDEPENDENT:
            kept = {"tuning": groups["tuning"], **kept}
        return kept

    def _more(self, task: str) -> int:
        """The most trials that will be chosen from a task's grid."""
        settings = SETTINGS[task][self.scale]
        usual = sum(optimizer in USUAL for optimizer in settings.optimizers)
        special = {"clipping": 4, "decay": 1}
        each = {name: usual if name.startswith("usual") else len(settings.optimizers) for name in self.wanted[task]}
        return settings.seeds * sum((each | special)[name] for name in self.wanted[task] - INDEPENDENT)

    def _estimate(self, study: Study, engine: Engine, console: Console) -> None:
        """Say how many trials wait for each task, and how long they will take."""
        with study.records() as records:
            waiting = records.trials("waiting")
        total = 0.0
        for name, task in self.tasks.items():
            own = [each for each in waiting if each.settings["task"] == name]
            if not own:
                continue
            one = _on_one_thread(task, setting(own[0].settings)) / task.epochs
            epochs = sum(each.settings.get("epochs", task.epochs) for each in own if "timed" not in each.settings)
            more = self._more(name)
            seconds = one * (epochs + more * task.epochs)
            total += seconds
            repeated = f", and up to {more} of what is chosen from them" if more else ""
            text = f"{name}: {len(own)} trials{repeated}, about {duration(seconds)} on one thread"
            console.print(text, soft_wrap=True, highlight=False)
        if total:
            console.print(
                f"together about {duration(total / engine.workers)} on {engine.workers} workers",
                soft_wrap=True,
                highlight=False,
            )


def _on_one_thread(task: Task, setting: Setting) -> float:
    """The seconds that a training will take in a worker."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        return estimate(task, setting)
    finally:
        torch.set_num_threads(threads)


def _seconds(database: Path) -> dict[int, float]:
    """The seconds that each trial took, all attempts together."""
    with sqlite3.connect(f"{database.absolute().as_uri()}?mode=ro", uri=True) as connection:
        return dict(connection.execute("SELECT trial, sum(seconds) FROM attempts GROUP BY trial").fetchall())
