"""Engines: where the trials of a study are run. `local` has processes on this machine, `ray` a Ray cluster.

An engine runs tasks and tells what becomes of them; it knows neither the study nor its database.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

DEVICE = "AGGMO_DEVICE"  # the environment variable that tells a trial on which of torch's devices it computes


@dataclass(frozen=True, slots=True)
class Task:
    """One trial to be run.

    Args:
        trial: its number.
        function: 'module:name' of what runs it, called as `function(settings, directory, report)`.
        settings: what JSON can hold.
        directory: where the trial keeps its checkpoints.

    >>> Task(1, "module:name", {"lr": 0.1}, "runs/mine/trials/9f86d081").settings
    {'lr': 0.1}
    """

    trial: int
    function: str
    settings: Mapping[str, Any]
    directory: str


@dataclass(frozen=True, slots=True)
class Report:
    """A row of a trial's curves. The trial waits until it is acknowledged.

    >>> Report(1, {"epoch": 1, "loss": 0.5}).row["loss"]
    0.5
    """

    trial: int
    row: dict[str, float]


@dataclass(frozen=True, slots=True)
class End:
    """The end of a task.

    Args:
        trial: the trial's number.
        how: "finished", with the outcome; "failed" with an exception, its traceback in `reason`; "died": the worker is
            gone; "missing": there is no such function to be called.
        outcome: what the function returned.
        reason: why there is no outcome.
        place: seconds, host, pid, threads and versions, as far as known.

    >>> End(1, "died", reason="killed by signal 9").outcome is None
    True
    """

    trial: int
    how: Literal["finished", "failed", "died", "missing"]
    outcome: dict[str, Any] | None = None
    reason: str | None = None
    place: dict[str, Any] = field(default_factory=dict)


class Engine(Protocol):
    """What the driver of a study asks of an engine. It is used by one thread."""

    name: str
    workers: int

    def start(self) -> None:
        """Get ready to work."""

    def idle(self) -> int:
        """How many more tasks may be submitted now."""

    def submit(self, task: Task) -> None:
        """Hand a task to a worker."""

    def wait(self, timeout: float) -> list[Report | End]:
        """What happened since the last call, after at most that many seconds if nothing did."""

    def acknowledge(self) -> None:
        """Let the trials go on whose reports the last `wait` gave."""

    def stop(self) -> None:
        """End all workers at once, whatever they do."""
