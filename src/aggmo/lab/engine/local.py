"""Workers on this machine: processes that are started once and take one trial after the other.

A worker is a new interpreter, with a pipe to its driver as its only tie. When the driver is gone, by whatever signal,
the pipe ends and so does the worker; when a worker is gone, the driver sees the same. Workers are in sessions of their
own: Ctrl-C reaches the driver alone, which ends them, with all that they started.
"""

import faulthandler
import os
import signal
import subprocess
import sys
import threading
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection, Pipe, wait
from pathlib import Path
from queue import SimpleQueue

from aggmo.lab.engine import End, Report, Task
from aggmo.lab.engine.perform import Row, perform
from aggmo.theory.arguments import whole

OUTPUT = "output.txt"  # in a trial's directory: what it printed
_LIBRARIES = ("OMP", "MKL", "OPENBLAS", "NUMEXPR", "VECLIB_MAXIMUM")  # that start threads, by their variables


class Local:
    """Runs trials in processes on this machine.

    Args:
        workers: how many trials at a time; None is one for each processor, of those that this process may use.
        threads: of each worker, set before anything is imported.

    Raises:
        ValueError: a number below 1.

    >>> Local(workers=2).idle()
    2
    """

    name = "local"

    def __init__(self, workers: int | None = None, threads: int = 1) -> None:
        self.threads = whole("threads", threads, least=1)
        processors = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
        self.workers = max(1, processors // threads) if workers is None else whole("workers", workers, least=1)
        self._workers: list[_Worker] = []

    def start(self) -> None:
        """Get ready; workers are started as they are needed."""

    def idle(self) -> int:
        """How many more tasks may be submitted now."""
        return self.workers - sum(worker.trial is not None for worker in self._workers)

    def submit(self, task: Task) -> None:
        """Hand a task to an idle worker, a new one if there is none."""
        idle = (worker for worker in self._workers if worker.trial is None and worker.process.poll() is None)
        worker = next(idle, None)
        if worker is None:
            worker = _started(self.threads)
            self._workers.append(worker)
        worker.hand(task)

    def wait(self, timeout: float) -> list[Report | End]:
        """What happened since the last call, after at most that many seconds if nothing did."""
        ready = wait([worker.connection for worker in self._workers], timeout)
        found: list[Report | End] = []
        for worker in list(self._workers):
            message = worker.message(worker.connection in ready)
            if worker.gone:
                self._workers.remove(worker)
            if message is not None:
                found.append(message)
        return found

    def acknowledge(self) -> None:
        """Let the trials go on whose reports the last `wait` gave."""
        for worker in self._workers:
            if worker.waits:
                worker.waits = False
                worker.send(None)

    def stop(self) -> None:
        """End all workers at once, whatever they do."""
        for worker in self._workers:
            worker.end()
        self._workers.clear()


@dataclass
class _Worker:
    """A process, the pipe to it, and the trial that it has."""

    process: subprocess.Popen[bytes]
    connection: Connection
    trial: int | None = None
    output: Path | None = None
    waits: bool = False  # until its report is acknowledged
    gone: bool = False

    def hand(self, task: Task) -> None:
        self.trial, self.output = task.trial, Path(task.directory, OUTPUT)
        self.send(task)

    def send(self, message: Task | None) -> None:
        """Send, or leave it if the worker is gone, which the next message tells."""
        with suppress(OSError):
            self.connection.send(message)

    def message(self, ready: bool) -> Report | End | None:
        """The next message, if there is one; the end of the worker is one, if it has a trial."""
        message: Report | End
        try:
            if ready or self.connection.poll():
                message = self.connection.recv()
            elif self.process.poll() is None:
                return None
            else:  # gone, while something that it started keeps the pipe open
                raise EOFError
        except (EOFError, OSError):
            self.end()
            if self.trial is None:
                return None
            return End(self.trial, "died", reason=f"the worker died ({self._cause()}); see {self.output}")
        if isinstance(message, End):
            self.trial = None
        else:
            self.waits = True
        return message

    def end(self) -> None:
        """Kill it and all that it started."""
        self.gone = True
        with suppress(OSError):  # there may be none left
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        self.connection.close()

    def _cause(self) -> str:
        code = self.process.returncode
        return f"killed by signal {-code}" if code < 0 else f"exit code {code}"


def _started(threads: int) -> _Worker:
    """A new worker."""
    ours, theirs = Pipe()
    environment = {
        **os.environ,
        **{f"{library}_NUM_THREADS": str(threads) for library in _LIBRARIES},
        "PYTHONPATH": os.pathsep.join(os.path.abspath(entry) for entry in sys.path),
    }
    code = f"from aggmo.lab.engine.local import _work; _work({theirs.fileno()}, {threads})"
    process = subprocess.Popen(
        [sys.executable, "-P", "-c", code],
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        pass_fds=[theirs.fileno()],
        start_new_session=True,
    )
    theirs.close()
    return _Worker(process, ours)


def _work(descriptor: int, threads: int) -> None:
    """The life of a worker: one task after the other, until the pipe ends."""
    faulthandler.enable()
    os.set_inheritable(descriptor, False)
    connection = Connection(descriptor)
    inbox: SimpleQueue[Task | None] = SimpleQueue()

    def read() -> None:
        """Not in the main thread: the end of the driver has to be noticed in the middle of a trial."""
        try:
            while True:
                inbox.put(connection.recv())
        except (EOFError, OSError):
            os._exit(0)

    threading.Thread(target=read, daemon=True).start()
    while task := inbox.get():

        def report(row: Row, trial: int = task.trial) -> None:
            connection.send(Report(trial, row))
            inbox.get()

        _redirect(Path(task.directory))
        end = perform(task, report, threads)
        sys.stdout.flush()
        connection.send(end)


def _redirect(directory: Path) -> None:
    """Let this process print into a file of the trial's directory, not into the driver's display."""
    directory.mkdir(parents=True, exist_ok=True)
    file = os.open(directory / OUTPUT, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o666)
    os.dup2(file, 1)
    os.dup2(file, 2)
    os.close(file)
