"""The driver of a study: it hands trials to an engine and writes down what becomes of them. Nobody else writes."""

import importlib.util
import math
import shutil
import signal
import subprocess
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import FrameType
from typing import Protocol

from rich.console import Console

from aggmo.lab.engine import End, Engine, Report, Task
from aggmo.lab.progress import Progress
from aggmo.lab.records import Records, StudyError, Trial

TICK = 0.2  # seconds for which the driver waits for news at most
SAMPLES = 3  # trials that are timed for the estimate


@dataclass(frozen=True, slots=True)
class Summary:
    """How a study stands after a run.

    >>> Summary(finished=2, diverged=1, failed=0, waiting=3, interrupted=True).done
    False
    """

    finished: int
    diverged: int
    failed: int
    waiting: int
    interrupted: bool = False

    @property
    def done(self) -> bool:
        """Whether every trial has an outcome.

        >>> Summary(finished=2, diverged=1, failed=0, waiting=0).done
        True
        """
        return not self.failed and not self.waiting


class Observer(Protocol):
    """Is told what trials report, after that is in the database. It must not raise."""

    def row(self, trial: Trial, row: Mapping[str, float]) -> None:
        """A trial reported a row: its next one, or one that it had reported before its worker or driver died."""

    def end(self, trial: Trial) -> None:
        """An attempt at a trial is over, well or not."""


def drive(
    directory: Path,
    records: Records,
    trials: Callable[[], list[Trial]],
    engine: Engine,
    attempts: int,
    console: Console,
    resume: str,
    observer: Observer | None,
) -> Summary:
    """Run the trials that wait; `trials` gives those of the grid, the rest is as in `aggmo.lab.study.Study.run`."""
    options = records.options()
    progress = Progress(
        console,
        directory.name,
        trials(),
        options["metric"] or None,
        "max" if options["direction"] == "max" else "min",
    )
    _sweep(directory, records.trials(), bool(options["keep"]))
    stopped = False
    if records.waiting():
        with _signals() as stop:
            driver = _Driver(directory, records, engine, attempts, progress, observer, stop)
            try:
                engine.start()
                progress.workers = engine.workers
                driver.estimate()
                with progress:
                    driver.run()
            finally:
                engine.stop()
            stopped = stop.is_set()
    _sweep(directory, records.trials(), bool(options["keep"]))
    return _closing(trials(), progress, stopped, resume)


class _Driver:
    """The state of a run: which trials wait, which are with the engine."""

    def __init__(
        self,
        directory: Path,
        records: Records,
        engine: Engine,
        attempts: int,
        progress: Progress,
        observer: Observer | None,
        stop: threading.Event,
    ) -> None:
        self.directory = directory
        self.records = records
        self.engine = engine
        self.attempts = attempts
        self.progress = progress
        self.observer = observer
        self.stop = stop
        self.options = records.options()
        self.waiting = deque(records.waiting())
        self.running: dict[int, float] = {}
        self.deaths: Counter[int] = Counter()
        self.git = _revision(self.options.get("code") or self.options["function"])
        progress.running = self.running

    def estimate(self) -> None:
        """Say how many trials there are and, if they can be timed, how long they will take."""
        n, times = len(self.waiting), []
        samples = deque(self.waiting[i] for i in sorted({0, n // 2, n - 1})) if self.options["timer"] else deque()
        while (samples or self.running) and not self.stop.is_set():
            self._submit(samples, self.options["timer"], "estimate")
            for message in self.engine.wait(TICK):
                if isinstance(message, End):
                    del self.running[message.trial]
                    times.append(self._timed(message))
            self.engine.acknowledge()
        shutil.rmtree(self.directory / "estimate", ignore_errors=True)
        known = [seconds for seconds in times if seconds is not None]
        needed = ""
        if known:
            self.progress.seconds_a_trial = sum(known) / len(known)
            needed = f", {self.progress.needed()}"
        elif times:
            needed = "; the timing of a trial failed, so nobody knows how long"
        workers = f"{self.engine.workers} worker{'s' * (self.engine.workers > 1)}"
        self.progress.say(f"{self.progress.name}: {n} trial{'s' * (n > 1)} to run on {workers}{needed}")

    def run(self) -> None:
        """Run all trials that wait."""
        with ThreadPoolExecutor(1) as sweeper:  # a slow disk must not keep the workers waiting
            self._run(sweeper)

    def _run(self, sweeper: ThreadPoolExecutor) -> None:
        while (self.waiting or self.running) and not self.stop.is_set():
            self._submit(self.waiting, self.options["function"], "trials")
            messages = self.engine.wait(TICK)
            if messages:
                with self.records.transaction(durable=any(map(_precious, messages))):
                    over = [trial for message in messages if (trial := self._enter(message))]
                self.engine.acknowledge()
                self._tell(messages)
                for trial in over:
                    if not self.options["keep"]:
                        place = self.directory / "trials" / trial.identity
                        sweeper.submit(shutil.rmtree, place, ignore_errors=True)
            self.progress.refresh()

    def _submit(self, waiting: deque[int], function: str, place: str) -> None:
        """Hand over as many trials as the engine takes."""
        while waiting and self.engine.idle() > 0:
            trial = self.records.trial(waiting.popleft())
            self.running[trial.trial] = time.monotonic()
            directory = (self.directory / place / trial.identity).absolute()
            self.engine.submit(Task(trial.trial, function, trial.settings, str(directory)))

    def _enter(self, message: Report | End) -> Trial | None:
        """Write down what happened; returns the trial if it has finished."""
        if isinstance(message, Report):
            self.records.add_row(message.trial, message.row)
            return None
        trial = self.records.trial(message.trial)
        waited = time.monotonic() - self.running.pop(message.trial)
        seconds = message.place.pop("seconds", waited)
        reason = message.reason or ""
        match message.how:
            case "missing":
                raise StudyError(f"no worker can import {self.options['function']}: {reason}")
            case "finished":
                outcome = message.outcome or {}
                self.records.finish(message.trial, outcome)
                self.progress.finished(trial.settings, outcome, seconds)
            case "died" if self._again(message.trial):
                pass
            case _:
                self.records.fail(message.trial, reason)
                self.progress.failed += 1
        began = datetime.now(UTC) - timedelta(seconds=seconds)
        self.records.add_attempt(
            message.trial,
            message.how,
            started_at=began.isoformat(timespec="seconds"),
            seconds=seconds,
            engine=self.engine.name,
            git=self.git,
            **message.place,
        )
        return trial if message.how == "finished" else None

    def _tell(self, messages: Iterable[Report | End]) -> None:
        """Tell the observer what happened."""
        if self.observer is None:
            return
        for message in messages:
            trial = self.records.trial(message.trial)
            if isinstance(message, Report):
                self.observer.row(trial, message.row)
            else:
                self.observer.end(trial)

    def _timed(self, end: End) -> float | None:
        """The seconds that a timer found out, if it did."""
        if end.how == "missing":
            raise StudyError(f"no worker can import {self.options['timer']}: {end.reason}")
        seconds = (end.outcome or {}).get("seconds")
        return seconds if isinstance(seconds, int | float) and 0 <= seconds < math.inf else None

    def _again(self, trial: int) -> bool:
        """Whether a trial whose worker died is put back."""
        self.deaths[trial] += 1
        if self.deaths[trial] >= self.attempts:
            return False
        self.waiting.appendleft(trial)
        self.progress.died += 1
        return True


def _precious(message: Report | End) -> bool:
    """Whether it must outlive a power failure: a checkpoint may follow it, or more than a second went into it."""
    return isinstance(message, Report) or message.place.get("seconds", math.inf) > 1.0


def _closing(trials: Sequence[Trial], progress: Progress, interrupted: bool, resume: str) -> Summary:
    """The last words on a run."""
    count = Counter(trial.status for trial in trials)
    summary = Summary(count["finished"], progress.diverged, count["failed"], count["waiting"], interrupted)
    total = summary.finished + summary.failed + summary.waiting
    diverged = f", {summary.diverged} of them diverged" if summary.diverged else ""
    progress.say(
        f"{progress.name}: {summary.finished} of {total} trials have finished{diverged}{progress.best_so_far()}"
    )
    for trial in [trial for trial in trials if trial.status == "failed"][:3]:
        described = progress.described(trial.settings)
        progress.say(f"failed: {described}{': ' * bool(described)}{_last_line(trial.error)}")
    if summary.failed:
        progress.say(f"{summary.failed} failed, and are tried again when asked; the database has the whole errors")
    if interrupted:
        progress.say(f"stopped; nothing is lost. To go on: {resume}")
    return summary


def _last_line(error: str | None) -> str:
    return (error or "").strip().rpartition("\n")[2]


def _sweep(directory: Path, trials: Iterable[Trial], keep: bool) -> None:
    """Remove what an earlier driver had no time to remove."""
    shutil.rmtree(directory / "estimate", ignore_errors=True)
    place = directory / "trials"
    if keep or not place.exists():
        return
    unfinished = {trial.identity for trial in trials if trial.status != "finished"}
    for child in place.iterdir():
        if child.name not in unfinished:
            shutil.rmtree(child, ignore_errors=True)
    if not any(place.iterdir()):
        place.rmdir()


def _revision(function: str) -> str | None:
    """The git revision of the file that a function is in, or None if git does not have it."""
    spec = importlib.util.find_spec(function.partition(":")[0])
    if spec is None or not spec.has_location or spec.origin is None:
        return None
    git = ["git", "-C", str(Path(spec.origin).parent)]
    try:
        subprocess.run([*git, "ls-files", "--error-unmatch", spec.origin], capture_output=True, check=True)
        describe = [*git, "describe", "--always", "--dirty", "--abbrev=40", "--exclude=*"]
        return subprocess.run(describe, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return None


@contextmanager
def _signals() -> Iterator[threading.Event]:
    """An event that is set by Ctrl-C or SIGTERM; a second Ctrl-C interrupts at once."""
    stop = threading.Event()

    def handle(number: int, _: FrameType | None) -> None:
        if stop.is_set() and number == signal.SIGINT:
            raise KeyboardInterrupt
        stop.set()

    if threading.current_thread() is not threading.main_thread():  # which alone may handle signals
        yield stop
        return
    before = {number: signal.signal(number, handle) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
