"""Studies: a declared grid of trials, run to its end however often it is interrupted.

A study does not know what its trials are about. A trial is a dict of settings, and a function does the work:

    def trial(settings, directory, report):
        ...                                   # begin, or go on from the checkpoint in the directory
        report({"epoch": 1, "loss": 0.5})     # returns when the row is safe; write the checkpoint after it
        return {"loss": 0.5}                  # the outcome, what JSON can hold

It is given as 'module:name', for workers import it by themselves. With `"diverged": True` in its outcome a trial counts
as diverged, which is a result; an exception is a failure.
"""

import hashlib
import importlib.util
import itertools
import json
import math
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from rich.console import Console

from aggmo.damping import Damping
from aggmo.lab import lock
from aggmo.lab.driver import Observer, Summary, drive
from aggmo.lab.engine import Engine
from aggmo.lab.engine.local import Local
from aggmo.lab.progress import Direction
from aggmo.lab.records import Records, StudyError, Trial
from aggmo.theory.arguments import number, whole

DATABASE = "study.sqlite"

Settings = dict[str, Any]


def grid(*parts: Mapping[str, Sequence[Any]], **shared: Sequence[Any]) -> list[Settings]:
    """All combinations of the values listed for each name, for each part on its own.

    Args:
        parts: lists of values by name, such as an optimizer with its learning rates and dampings.
        shared: lists of values that are combined with those of every part; the last of them changes fastest but for
            the parts, so with `seed` here all settings get their first seed before any gets its second.

    Raises:
        ValueError: nothing is listed, a list is empty or none, or a value is out of range, as in `Study.declare`.

    >>> trials = grid({"optimizer": ["cm"], "lr": [0.1, 0.01]}, {"optimizer": ["aggmo"], "lr": [0.1]}, seed=range(2))
    >>> [(trial["seed"], trial["optimizer"], trial["lr"]) for trial in trials]
    [(0, 'cm', 0.1), (0, 'cm', 0.01), (0, 'aggmo', 0.1), (1, 'cm', 0.1), (1, 'cm', 0.01), (1, 'aggmo', 0.1)]
    """
    for part in (*parts, shared):
        for name, values in part.items():
            if isinstance(values, str | Mapping) or not hasattr(values, "__len__"):
                raise ValueError(f"{name}={values!r}: must be a list of values")
            if not len(values):
                raise ValueError(f"{name}={values!r}: the list is empty")
    if not any((*parts, shared)):
        raise ValueError("the grid is empty: list at least one value of one name")
    found = []
    for common in itertools.product(*shared.values()):
        for part in parts or ({},):
            if both := part.keys() & shared.keys():
                raise ValueError(f"{', '.join(sorted(both))}: listed for a part and for all")
            names = [*part, *shared]
            found += [
                _checked(dict(zip(names, (*own, *common), strict=True))) for own in itertools.product(*part.values())
            ]
    return found


class Study:
    """A declared grid of trials in a directory of its own, with the database, and the checkpoints of unfinished trials.

    Args:
        directory: where it was declared.

    Raises:
        StudyError: there is no study, or it cannot be read.

    >>> import tempfile
    >>> directory = tempfile.mkdtemp()
    >>> study = Study.declare(directory, "aggmo.lab.study:identity", grid(lr=[0.1, 0.01], seed=range(3)))
    >>> with Study(directory).records() as records:
    ...     records.count()
    {'waiting': 6}
    >>> import shutil
    >>> shutil.rmtree(directory)
    """

    def __init__(self, directory: str | Path) -> None:
        self.directory = Path(directory)
        self._declared: frozenset[str] | None = None
        with self.records() as records:
            self.options = records.options()

    @classmethod
    def declare(
        cls,
        directory: str | Path,
        function: str,
        trials: Iterable[Mapping[str, Any]],
        *,
        timer: str | None = None,
        metric: str | None = None,
        direction: Direction = "min",
        keep: bool = False,
        code: str | None = None,
    ) -> "Study":
        """Declare a study, or change the grid of one that is there already.

        Trials that have finished stay, new ones are added, and those that are not in the grid any more are withdrawn if
        they have no outcome. Two trials are the same if the function and the values of all settings are.

        Args:
            directory: of the study; made if need be.
            function: 'module:name' of what runs a trial.
            trials: the settings of each, as `grid` gives them: names to what JSON can hold. `lr` has to be a finite
                number > 0, `seed` a whole number >= 0, `beta` and `betas` what `Damping` accepts.
            timer: 'module:name' of a function like that of a trial, which times a few steps and returns `seconds`: how
                long the whole trial will take. With it, `run` says beforehand how long the study will.
            metric: the entry of the outcomes by which the best trial so far is shown.
            direction: "min" or "max", whichever is best.
            keep: keep the directories of trials that have finished.
            code: 'module:name' of what is on trial, whose git revision is recorded, if that is not the function.

        Raises:
            ValueError: no trials, settings out of range, no such module, or a study of another function is there.
            StudyError: the directory cannot be written, or another process is at work there.

        >>> Study.declare("runs/mine", "aggmo.lab.study:identity", [{"lr": 0.0}])
        Traceback (most recent call last):
            ...
        ValueError: lr=0.0: must be a number > 0 and finite
        """
        if direction not in ("min", "max"):
            raise ValueError(f"direction={direction!r}: must be 'min' or 'max'")
        _check_function("function", function)
        for argument, name in (("timer", timer), ("code", code)):
            if name is not None:
                _check_function(argument, name)
        pairs = [(identity(function, settings), settings) for settings in map(_checked, trials)]
        if not pairs:
            raise ValueError("a study without trials: the grid is empty")
        options = {"function": function, "timer": timer, "metric": metric, "direction": direction}
        options |= {"keep": "checkpoints" if keep else None, "code": code}
        directory = Path(directory)
        with _alone(directory), Records(directory / DATABASE, writable=True) as records:
            before = records.options().get("function", function)
            if before != function:
                raise ValueError(f"function={function!r}: the study in {directory} is one of {before!r}")
            records.declare({name: value or "" for name, value in options.items()}, pairs)
        study = cls(directory)
        study._declared = frozenset(identity for identity, _ in pairs)
        return study

    def records(self) -> Records:
        """The database, to be read, while the study runs as well.

        >>> Study.declare("/dev/null/mine", "aggmo.lab.study:identity", [{"lr": 0.1}])
        Traceback (most recent call last):
            ...
        aggmo.lab.records.StudyError: /dev/null/mine: cannot be written (Not a directory)
        """
        return Records(self.directory / DATABASE)

    def trials(self) -> list[Trial]:
        """Those of the grid: of an object that `declare` gave its own, and not what was declared earlier.

        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as directory:
        ...     for lr in (0.5, 0.25):
        ...         study = Study.declare(directory, "aggmo.lab.study:identity", [{"lr": lr}])
        ...     [(trial.settings, trial.status) for trial in study.trials()]
        [({'lr': 0.25}, 'waiting')]
        """
        with self.records() as records:
            return _of_the_grid(records, self._declared)

    def run(
        self,
        engine: Engine | None = None,
        *,
        retry: bool = False,
        attempts: int = 3,
        console: Console | None = None,
        resume: str | None = None,
        observer: Observer | None = None,
    ) -> Summary:
        """Run the trials that wait, until none is left or Ctrl-C (or SIGTERM) ends it; nothing is lost by either.

        Args:
            engine: where; `Local()` if None.
            retry: try those again that have failed.
            attempts: how often a trial is tried whose worker dies, >= 1.
            console: where progress is shown; the standard error if None.
            resume: what to tell someone who wants to go on with a study that was ended early.
            observer: is told what trials report, besides the database.

        Returns:
            The number of trials by status, and whether it was ended early.

        Raises:
            ValueError: attempts out of range.
            StudyError: another process runs the study, its directory cannot be written, or a worker cannot import the
                function.

        >>> Study.run.__name__
        'run'
        """
        whole("attempts", attempts, least=1)
        with _alone(self.directory), Records(self.directory / DATABASE, writable=True) as records:
            if retry:
                records.retry()
            return drive(
                self.directory,
                records,
                lambda: _of_the_grid(records, self._declared),
                engine or Local(),
                attempts,
                console or Console(stderr=True),
                resume or f'aggmo.lab.study.Study("{self.directory}").run()',
                observer,
            )


def set_aside(directory: str | Path) -> Path | None:
    """Rename the directory of a study, so that another can begin in its place; nothing is deleted.

    Returns:
        Its new name, `directory` with the first free number after it; None if there is no study.

    Raises:
        StudyError: another process is at work there, or the directory cannot be renamed.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as runs:
    ...     study = Study.declare(f"{runs}/mine", "aggmo.lab.study:identity", [{"lr": 0.5}])
    ...     [set_aside(f"{runs}/mine").name, set_aside(f"{runs}/mine")]
    ['mine.1', None]
    """
    directory = Path(directory)
    if not (directory / DATABASE).exists():
        return None
    with _alone(directory):
        numbers = (directory.with_name(f"{directory.name}.{i}") for i in itertools.count(1))
        free = next(name for name in numbers if not name.exists())
        try:
            return directory.rename(free)
        except OSError as error:
            raise StudyError(f"{directory}: cannot be renamed ({error.strerror})") from error


def identity(function: str, settings: Mapping[str, Any]) -> str:
    """What tells a trial from others: a hash of its function and the values of its settings.

    >>> identity("module:name", {"lr": 1.0, "seed": 0}) == identity("module:name", {"seed": 0, "lr": 1})
    True
    >>> identity("module:name", {"lr": 0.1}) == identity("module:name", {"lr": 0.1 + 2**-56})
    False
    """
    text = json.dumps([function, _by_value(settings)], sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _by_value(value: Any) -> Any:
    """The value with whole floats as ints, so that 1.0 and 1 are one value in JSON, too."""
    match value:
        case float() if value.is_integer():
            return int(value)
        case Mapping():
            return {name: _by_value(part) for name, part in value.items()}
        case list() | tuple():
            return [_by_value(part) for part in value]
        case _:
            return value


def _of_the_grid(records: Records, declared: frozenset[str] | None) -> list[Trial]:
    """The trials that have not been withdrawn, or those that were declared."""
    if declared is None:
        return [trial for trial in records.trials() if trial.status != "withdrawn"]
    return [trial for trial in records.trials() if trial.identity in declared]


# What is known of settings by these names, in any study.
_CHECKS: dict[str, Callable[[Any], object]] = {
    "lr": lambda value: number("lr", value, "> 0 and finite", lambda x: 0.0 < x < math.inf),
    "seed": lambda value: whole("seed", value, least=0),
    "beta": Damping.classical,
    "betas": lambda value: value is None or value == [] or Damping(value),
}


def _checked(settings: Mapping[str, Any]) -> Settings:
    """The settings as JSON has them."""
    if not isinstance(settings, Mapping) or not settings:
        raise ValueError(f"settings={settings!r}: must be a dict with at least one name")
    for name in settings:
        if not isinstance(name, str) or not name.isidentifier():
            raise ValueError(f"{name!r} among the settings: must be a name")
    try:
        plain: Settings = json.loads(json.dumps(dict(settings), allow_nan=False, default=_unwrapped))
    except (AttributeError, TypeError, ValueError):
        raise ValueError(f"settings={dict(settings)!r}: must be finite numbers, strings and lists of them") from None
    for name, check in _CHECKS.items():
        if name in plain:
            check(plain[name])
    return plain


def _unwrapped(value: Any) -> Any:
    """What is in a NumPy array or number."""
    return value.tolist()


def _check_function(argument: str, name: str) -> None:
    """Refuse what no worker could import."""
    module, colon, attribute = name.partition(":") if isinstance(name, str) else ("", "", "")
    if not colon or not attribute.isidentifier() or not all(part.isidentifier() for part in module.split(".")):
        raise ValueError(f"{argument}={name!r}: must be 'module:name'")
    if module == "__main__":
        raise ValueError(f"{argument}={name!r}: workers cannot import the main program; put the function into a module")
    try:
        found = importlib.util.find_spec(module)
    except ModuleNotFoundError:
        found = None
    if found is None:
        raise ValueError(f"{argument}={name!r}: there is no module {module}")


@contextmanager
def _alone(directory: Path) -> Iterator[None]:
    """Be the only process that writes there."""
    with ExitStack() as stack:
        try:
            stack.enter_context(lock.held(directory / "study.lock"))
        except OSError as error:
            raise StudyError(f"{directory}: cannot be written ({os.strerror(error.errno or 0)})") from error
        yield
