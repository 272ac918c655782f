"""Workers on a Ray cluster. The driver stays where it is started; the cluster sees tasks, one for each trial.

A trial reports through one mailbox, an actor, and waits there until the driver has written its row. A trial whose
worker or node dies goes on from its checkpoint elsewhere, if the directory of the study is on a file system that all
nodes share; if not, it begins anew there, with the same records in the end.
"""

import asyncio
import os
import socket
import sys
from collections.abc import Sequence
from typing import Any

from aggmo.lab.engine import DEVICE, End, Report, Task
from aggmo.lab.engine.perform import Row, perform
from aggmo.lab.records import StudyError
from aggmo.theory.arguments import number, whole


class Ray:
    """Runs trials as tasks of a Ray cluster.

    Args:
        address: of the cluster, as `ray.init` takes it; None starts one on this machine, for as long as the study runs.
        cpus: the share of processors that a trial asks for, > 0.
        gpus: the share of GPUs that a trial asks for, >= 0; 0.25 puts four trials on one. With any, it computes there.
        workers: how many trials at a time; None is as many as the cluster has room for when the study starts.
        threads: of each trial.

    Raises:
        ValueError: a number out of range.
        StudyError: Ray is not installed, cannot be reached, or has no room for a single trial.

    >>> Ray(gpus=0.25).gpus
    0.25
    """

    name = "ray"

    def __init__(
        self,
        address: str | None = None,
        cpus: float = 1.0,
        gpus: float = 0.0,
        workers: int | None = None,
        threads: int = 1,
    ) -> None:
        self.address = address
        self.cpus = number("cpus", cpus, "> 0", lambda x: 0.0 < x < float("inf"))
        self.gpus = number("gpus", gpus, ">= 0", lambda x: 0.0 <= x < float("inf"))
        self.threads = whole("threads", threads, least=1)
        self.workers = 0 if workers is None else whole("workers", workers, least=1)
        self._tasks: dict[Any, int] = {}  # reference -> trial
        self._letters: list[int] = []
        self._own = False
        self._ray: Any = None  # the module

    def start(self) -> None:
        """Connect to the cluster, or start one, and set up the mailbox."""
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
        os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")  # its default is about to change
        try:
            import ray
        except ModuleNotFoundError as error:
            raise StudyError("the Ray engine needs Ray: pip install 'aggmo[cluster]'") from error
        self._ray = ray
        if not ray.is_initialized():
            self._connect()
        room = self._room()
        if not room:
            raise StudyError(f"the Ray cluster has no room for a trial of {self.cpus} CPUs and {self.gpus} GPUs")
        self.workers = self.workers or room
        remote = self._ray.remote
        self._mailbox = remote(num_cpus=0, max_concurrency=10_000)(_Mailbox).remote()
        self._perform = remote(num_cpus=self.cpus, num_gpus=self.gpus, max_retries=0)(_perform)
        self._mail = self._mailbox.take.remote()

    def idle(self) -> int:
        """How many more tasks may be submitted now."""
        return self.workers - len(self._tasks)

    def submit(self, task: Task) -> None:
        """Hand a task to the cluster."""
        path = [os.path.abspath(entry) for entry in sys.path]
        device = "cuda" if self.gpus else "cpu"
        self._tasks[self._perform.remote(task, self._mailbox, path, self.threads, device)] = task.trial

    def wait(self, timeout: float) -> list[Report | End]:
        """What happened since the last call, after at most that many seconds if nothing did."""
        references = [self._mail, *self._tasks]
        self._ray.wait(references, num_returns=1, timeout=timeout)
        ready, _ = self._ray.wait(references, num_returns=len(references), timeout=0)
        found: list[Report | End] = []
        for reference in ready:
            if reference == self._mail:
                found += self._reports()
            else:
                found.append(self._end(reference))
        return found

    def acknowledge(self) -> None:
        """Let the trials go on whose reports the last `wait` gave."""
        if self._letters:
            self._mailbox.acknowledge.remote(self._letters)
            self._letters = []

    def stop(self) -> None:
        """End all tasks at once, whatever they do."""
        for reference in self._tasks:
            self._ray.cancel(reference, force=True)
        self._tasks.clear()
        if hasattr(self, "_mailbox"):
            self._ray.kill(self._mailbox)
            del self._mailbox
        if self._own:
            self._ray.shutdown()
            self._own = False

    def _connect(self) -> None:
        """Connect to the cluster at the address, or start one."""
        local = {} if self.address else {"include_dashboard": False}
        try:
            _knock(self.address or "")
            self._ray.init(self.address, log_to_driver=False, logging_level="error", **local)
        except (OSError, RuntimeError, ValueError) as error:
            raise StudyError(f"no Ray cluster at {self.address}: {str(error).partition(chr(10))[0]}") from error
        self._own = True

    def _room(self) -> int:
        """How many trials the cluster has room for."""
        resources = self._ray.cluster_resources()
        room = resources.get("CPU", 0.0) / self.cpus
        if self.gpus:
            room = min(room, resources.get("GPU", 0.0) / self.gpus)
        return int(room)

    def _reports(self) -> list[Report]:
        """The letters in the mailbox."""
        try:
            letters = self._ray.get(self._mail)
        except self._ray.exceptions.RayError as error:
            raise StudyError(
                "the connection to the Ray cluster is lost; nothing else is: run the study again"
            ) from error
        self._mail = self._mailbox.take.remote()
        self._letters += [letter for letter, _, _ in letters]
        return [Report(trial, row) for _, trial, row in letters]

    def _end(self, reference: Any) -> End:
        """What became of a task."""
        trial = self._tasks.pop(reference)
        try:
            end: End = self._ray.get(reference)
        except self._ray.exceptions.RayError as error:
            lines = str(error).strip().splitlines() or [""]
            return End(trial, "died", reason=f"the worker died ({type(error).__name__}: {lines[0]})")
        return end


class _Mailbox:
    """Where trials leave their rows, and wait until the driver has them in the database."""

    def __init__(self) -> None:
        self.letters: list[tuple[int, int, Row]] = []
        self.read: dict[int, asyncio.Event] = {}
        self.arrived = asyncio.Event()
        self.number = 0

    async def put(self, trial: int, row: Row) -> None:
        """Leave a row; returns when it is acknowledged."""
        self.number += 1
        number = self.number
        self.letters.append((number, trial, row))
        self.read[number] = asyncio.Event()
        self.arrived.set()
        await self.read[number].wait()
        del self.read[number]

    async def take(self) -> list[tuple[int, int, Row]]:
        """All letters, as soon as there is one."""
        await self.arrived.wait()
        self.arrived.clear()
        letters, self.letters = self.letters, []
        return letters

    async def acknowledge(self, numbers: Sequence[int]) -> None:
        """Let those go on who wait for these letters to be read."""
        for letter in numbers:
            self.read[letter].set()


def _knock(address: str) -> None:
    """Raise an OSError where nobody answers; `ray.init` would try for more than ten minutes."""
    host, _, port = address.removeprefix("ray://").rpartition(":")
    if host and port.isdecimal():
        socket.create_connection((host.strip("[]"), int(port)), timeout=5.0).close()


def _perform(task: Task, mailbox: Any, path: Sequence[str], threads: int, device: str) -> End:
    """A task on the cluster, where modules are found as in the driver."""
    import ray

    sys.path += [entry for entry in path if entry not in sys.path]
    os.environ[DEVICE] = device  # Ray does not hide the GPUs from a trial that asked for none
    return perform(task, lambda row: ray.get(mailbox.put.remote(task.trial, row)), threads)
