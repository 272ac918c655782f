"""What a study shows while it runs: one live display on a terminal, plain lines elsewhere."""

import json
import math
import time
from collections.abc import Iterable, Mapping
from types import TracebackType
from typing import Any, Literal, Self

from rich.console import Console, Group
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from aggmo.lab.records import Trial

Direction = Literal["min", "max"]

LINES_EVERY = 10.0  # seconds between lines where there is no terminal
FRAMES_EVERY = 0.2


class Progress:
    """How far a study is.

    Args:
        console: where it is shown.
        name: of the study.
        trials: all of them but the withdrawn, those that finished earlier included.
        metric: the entry of the outcomes in which the best trial is best; None shows no best trial.
        direction: whether the least or the largest is best.

    >>> trials = [Trial(1, "9f86", {"lr": 0.5}, "finished", {"loss": 0.25}), Trial(2, "84c7", {"lr": 1}, "waiting")]
    >>> Progress(Console(), "mine", trials, "loss").line()
    '1 of 2 trials, best loss 0.25 (lr=0.5)'
    """

    def __init__(
        self,
        console: Console,
        name: str,
        trials: Iterable[Trial],
        metric: str | None = None,
        direction: Direction = "min",
    ) -> None:
        trials = list(trials)
        self.console = console
        self.name = name
        self.metric = metric
        self.sign = 1.0 if direction == "min" else -1.0
        self.total = len(trials)
        self.done = self.diverged = self.failed = self.died = 0
        self.best: float | None = None
        self.best_settings = ""
        self.seconds_a_trial: float | None = None
        self.workers = 1
        self.running: Mapping[int, float] = {}  # trial -> when it began, by the monotonic clock
        self._varying = _varying(trials)
        self._timed, self._seconds = 0, 0.0
        self._started = self._shown = time.monotonic()
        self._live: Live | None = None
        for trial in trials:
            if trial.outcome is not None:
                self.finished(trial.settings, trial.outcome)
            elif trial.status == "failed":
                self.failed += 1

    def __enter__(self) -> Self:
        if self.console.is_terminal:
            self._live = Live(console=self.console, auto_refresh=False, get_renderable=self.screen, transient=True)
            self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._live:
            self._live.stop()

    def say(self, text: str) -> None:
        """A line that stays.

        >>> Progress(Console(), "mine", []).say("2 trials")
        2 trials
        """
        self.console.print(text, soft_wrap=True, markup=False, highlight=False)

    def finished(self, settings: Mapping[str, Any], outcome: Mapping[str, Any], seconds: float | None = None) -> None:
        """Count a trial that finished; seconds tell how long those to come will take.

        >>> progress = Progress(Console(), "mine", [Trial(1, "9f86d081", {}, "waiting")])
        >>> progress.finished({}, {"diverged": True}, seconds=3.0)
        >>> progress.line()
        '1 of 1 trials, 1 diverged'
        """
        self.done += 1
        self.diverged += bool(outcome.get("diverged"))
        if seconds is not None:
            self._timed += 1
            self._seconds += seconds
            self.seconds_a_trial = self._seconds / self._timed
        value = outcome.get(self.metric) if self.metric else None
        if not isinstance(value, int | float) or not math.isfinite(value):
            return
        if self.best is None or self.sign * value < self.sign * self.best:
            self.best, self.best_settings = value, self.described(settings)

    def described(self, settings: Mapping[str, Any]) -> str:
        """The settings in which the trials differ."""
        return " ".join(
            f"{name}={value if isinstance(value, str) else json.dumps(value)}"
            for name, value in settings.items()
            if name in self._varying
        )

    def refresh(self, force: bool = False) -> None:
        """Show how far the study is, if the last time is long enough ago."""
        now = time.monotonic()
        if not force and now - self._shown < (FRAMES_EVERY if self._live else LINES_EVERY):
            return
        self._shown = now
        if self._live:
            self._live.refresh()
        else:
            self.say(f"{self.name}: {self.line()}")

    def line(self) -> str:
        """All of it in one line."""
        parts = [f"{self.done} of {self.total} trials", *self._troubles()]
        needed = self.needed()
        return ", ".join(parts) + self.best_so_far() + (f", {needed} left" if needed else "")

    def best_so_far(self) -> str:
        """What follows in a line on the best trial, if there is one."""
        if self.best is None:
            return ""
        return f", best {self.metric} {self.best:.6g}" + (f" ({self.best_settings})" if self.best_settings else "")

    def screen(self) -> Group:
        """All of it as a display of four lines."""
        bar = Table.grid(padding=(0, 2), expand=True)
        bar.add_column(no_wrap=True)
        bar.add_column(ratio=1)
        bar.add_column(no_wrap=True)
        bar.add_row(
            Text(self.name, style="bold"),
            ProgressBar(self.total, self.done, complete_style="cyan", finished_style="green"),
            f"{self.done} of {self.total} trials",
        )
        rows = Table.grid(padding=(0, 2))
        rows.add_column(style="dim")
        rows.add_column()
        if self.metric:
            best = "none yet" if self.best is None else f"{self.metric} {self.best:.6g}   {self.best_settings}"
            rows.add_row("best", Text(best))
        elapsed, needed = duration(time.monotonic() - self._started), self.needed()
        left = f"{needed} left" if needed else ""
        rows.add_row("time", ", ".join(filter(None, [f"{elapsed} so far", left, f"{self.workers} at a time"])))
        if troubles := self._troubles():
            rows.add_row("note", Text(", ".join(troubles), style="yellow"))
        return Group(bar, rows)

    def _troubles(self) -> list[str]:
        counts = {"diverged": self.diverged, "failed": self.failed, "put back after a worker died": self.died}
        return [f"{count} {what}" for what, count in counts.items() if count]

    def needed(self) -> str:
        """The time that the trials to come will take, if there is a measure of it."""
        waiting = self.total - self.done - self.failed - len(self.running)
        if self.seconds_a_trial is None or waiting + len(self.running) <= 0:
            return ""
        now = time.monotonic()
        parts = [max(self.seconds_a_trial - (now - began), 0.0) for began in self.running.values()]
        work = waiting * self.seconds_a_trial + sum(parts)
        return f"about {duration(max([work / self.workers, *parts]))}"


def duration(seconds: float) -> str:
    """Seconds as people say it, with two figures or so.

    >>> [duration(seconds) for seconds in (0.4, 59.4, 200.0, 9000.0, 400_000.0)]
    ['0.4 s', '59 s', '3 min 20 s', '2 h 30 min', '4 d 15 h']
    """
    if seconds < 10:
        return f"{round(seconds, 1):g} s"
    whole = round(seconds)
    for large, small, size, part in (("d", "h", 86400, 3600), ("h", "min", 3600, 60), ("min", "s", 60, 1)):
        if whole >= size:
            rest = whole % size // part
            return f"{whole // size} {large} {rest} {small}" if rest else f"{whole // size} {large}"
    return f"{whole} s"


def _varying(trials: Iterable[Trial]) -> set[str]:
    """The names of the settings that are not the same in all trials."""
    first: dict[str, Any] = {}
    varying: set[str] = set()
    for i, trial in enumerate(trials):
        if i == 0:
            first = trial.settings
        names = first.keys() | trial.settings.keys()
        varying |= {name for name in names - varying if trial.settings.get(name, ...) != first.get(name, ...)}
    return varying
