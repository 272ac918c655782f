"""What a worker does with a task, whatever engine it belongs to."""

import importlib
import json
import os
import platform
import socket
import sys
import time
import traceback
from collections.abc import Callable, Mapping
from functools import cache
from importlib import metadata
from numbers import Real
from pathlib import Path
from typing import Any

from aggmo.lab import lock
from aggmo.lab.engine import End, Task

Row = dict[str, float]


def perform(task: Task, report: Callable[[Row], None], threads: int = 1) -> End:
    """Run a task's function to its end, in this process.

    Args:
        task: the task.
        report: takes a row of the curves and returns when it is safe.
        threads: what torch may use, if the function uses torch.

    >>> end = perform(Task(1, "no_such_module:trial", {}, "."), print)
    >>> end.how, end.reason
    ('missing', "ModuleNotFoundError: No module named 'no_such_module'")
    """
    start = time.perf_counter()
    outcome, reason = None, None
    try:
        function = _function(task.function)
    except (Exception, SystemExit) as error:  # whatever a module does while it is imported
        return End(task.trial, "missing", reason=traceback.format_exception_only(error)[-1].strip())
    try:
        if "torch" in sys.modules:
            sys.modules["torch"].set_num_threads(threads)
        with lock.held(Path(task.directory, "lock"), patience=60.0):
            outcome = _plain(function(dict(task.settings), Path(task.directory), _checked(report)))
    except (Exception, SystemExit):
        reason = traceback.format_exc()
    place = {
        "seconds": time.perf_counter() - start,
        "host": socket.gethostname(),
        "pid": os.getpid(),
        "threads": sys.modules["torch"].get_num_threads() if "torch" in sys.modules else threads,
        "versions": _versions(),
    }
    return End(task.trial, "finished" if reason is None else "failed", outcome, reason, place)


def _function(name: str) -> Callable[..., Any]:
    """The function called 'module:name'."""
    module, _, attribute = name.partition(":")
    function: Callable[..., Any] = getattr(importlib.import_module(module), attribute)
    return function


def _checked(report: Callable[[Row], None]) -> Callable[[Mapping[str, float]], None]:
    """The report that a trial is given: it takes a dict of numbers, and epochs that ascend."""
    last = -1

    def checked(row: Mapping[str, float]) -> None:
        nonlocal last
        epoch = row.get("epoch")
        if not isinstance(epoch, int) or isinstance(epoch, bool) or epoch <= last:
            raise ValueError(f"epoch={epoch!r} of a report: must be a whole number > {last}")
        for name, value in row.items():
            if not name.isidentifier() or not isinstance(value, Real) or isinstance(value, bool):
                raise ValueError(f"{name}={value!r} of a report: must be a name and a number")
        last = epoch
        report({name: value if name == "epoch" else float(value) for name, value in row.items()})

    return checked


def _plain(outcome: Any) -> dict[str, Any]:
    """The outcome as JSON has it."""
    if not isinstance(outcome, Mapping) or not all(isinstance(name, str) and name.isidentifier() for name in outcome):
        raise ValueError(f"a trial returned {outcome!r}: must be a dict whose keys are names")
    plain: dict[str, Any] = json.loads(json.dumps(dict(outcome)))
    return plain


@cache
def _versions() -> dict[str, str]:
    """The versions of what computes."""
    found = {"python": platform.python_version()}
    for name in ("aggmo", "numpy", "torch", "ray"):
        if name == "aggmo" or name in sys.modules:
            found[name] = metadata.version(name)
    return found
