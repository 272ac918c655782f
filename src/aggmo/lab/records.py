"""What the trials of a study leave behind: one SQLite database, in the format of `aggmo.lab.schema`.

Only the driver of a study writes. Anyone may read at the same time, with this module, pandas or the sqlite3 program.
"""

import json
import math
import os
import sqlite3
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from aggmo.lab import schema

_TRIALS = "SELECT trial, identity, settings, status, outcome, error FROM trials"


class StudyError(ValueError):
    """A study that cannot be opened or run as asked; the message is one line for the user.

    >>> Records("no/such/study.sqlite")
    Traceback (most recent call last):
        ...
    aggmo.lab.records.StudyError: no/such/study.sqlite: there is no study
    """


@dataclass(frozen=True, slots=True)
class Trial:
    """One row of the table of trials, its JSON read.

    >>> Trial(1, "9f86d081884c7d65", {"lr": 0.1}, "finished", {"val_loss": 0.25}).outcome
    {'val_loss': 0.25}
    """

    trial: int
    identity: str
    settings: dict[str, Any]
    status: str
    outcome: dict[str, Any] | None = None
    error: str | None = None


class Records:
    """The database of one study, open for reading, or for its driver to write.

    Args:
        path: the database file.
        writable: open it for writing, and make it if it does not exist.

    Raises:
        StudyError: there is none, it is no study, its format is newer than this one, or it cannot be read or written.
            So do all methods, when the disk is full, for instance; what was written before stays.

    >>> records = Records(":memory:", writable=True)
    >>> records.declare({"function": "module:name"}, [("9f86d081", {"lr": 0.1}), ("84c7d659", {"lr": 0.5})])
    >>> with records.transaction():
    ...     records.add_row(1, {"epoch": 1, "loss": 2.0})
    ...     records.finish(1, {"loss": 2.0})
    >>> records.count()
    {'finished': 1, 'waiting': 1}
    """

    def __init__(self, path: str | Path, *, writable: bool = False) -> None:
        self.path = Path(path)
        with self._errors():
            self._connection = _connection(self.path, writable)
        self._shown: set[str] = set()  # the entries of outcomes that the view of the results has a column for
        try:
            with self._errors():
                self._check_format(writable)
                if writable:
                    self._connection.execute("PRAGMA journal_mode = WAL")
        except BaseException:
            self._connection.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the database; the last one to close it leaves no file beside it.

        >>> _example().close()
        """
        with self._errors():
            self._connection.close()

    # Reading

    def trials(self, status: str | None = None) -> list[Trial]:
        """All trials in the order of declaration, or those of one status.

        >>> [trial.settings for trial in _example().trials()]
        [{'lr': 0.1}, {'lr': 0.5}]
        """
        where = "" if status is None else "WHERE status = :status"
        return [_trial(row) for row in self._rows(f"{_TRIALS} {where} ORDER BY trial", {"status": status})]

    def trial(self, trial: int) -> Trial:
        """The trial of that number.

        Raises:
            ValueError: there is none.

        >>> _example().trial(1).outcome
        {'loss': 0.5}
        """
        rows = self._rows(f"{_TRIALS} WHERE trial = ?", (trial,))
        if not rows:
            raise ValueError(f"trial={trial!r}: {self.path} has none of that number")
        return _trial(rows[0])

    def waiting(self) -> list[int]:
        """The numbers of the trials that are to be run, in the order of declaration.

        >>> _example().waiting()
        [2]
        """
        return [trial for (trial,) in self._rows("SELECT trial FROM trials WHERE status = 'waiting' ORDER BY trial")]

    def count(self) -> dict[str, int]:
        """How many trials there are of each status.

        >>> _example().count()
        {'finished': 1, 'waiting': 1}
        """
        return dict(self._rows("SELECT status, count(*) FROM trials GROUP BY status ORDER BY status"))

    def curve(self, trial: int) -> dict[str, NDArray[np.float64]]:
        """What a trial reported, by name, beside its epochs; nan where an epoch has no number of that name.

        >>> _example().curve(1)
        {'epoch': array([1., 2.]), 'loss': array([2. , 0.5])}
        """
        rows = self._rows("SELECT epoch, name, value FROM curves WHERE trial = ?", (trial,))
        epochs, places = np.unique([epoch for epoch, _, _ in rows], return_inverse=True)
        curve = {"epoch": epochs.astype(np.float64)}
        for place, (_, name, value) in zip(places, rows, strict=True):
            column = curve.setdefault(name, np.full(len(epochs), np.nan))
            column[place] = np.nan if value is None else value
        return curve

    def options(self) -> dict[str, str]:
        """What the study declared beside its trials.

        >>> _example().options()
        {'function': 'module:name'}
        """
        return dict(self._rows("SELECT name, value FROM study"))

    # Writing, which is for the driver alone; `add_row`, `finish`, `fail` and `add_attempt` inside a `transaction`

    @contextmanager
    def transaction(self, durable: bool = True) -> Iterator[None]:
        """All that is written in the block, or nothing of it.

        Args:
            durable: wait until it is on the disk. Without, a power failure may take the last transactions back, whole
                ones and never one in the middle; nothing else can, the end of this process by any signal included.

        >>> records = _example()
        >>> with records.transaction():
        ...     records.fail(2, "the worker died")
        >>> records.count()
        {'failed': 1, 'finished': 1}
        """
        with self._errors():
            self._connection.execute(f"PRAGMA synchronous = {'FULL' if durable else 'NORMAL'}")
            self._connection.execute("BEGIN IMMEDIATE")
            try:
                yield
                self._connection.execute("COMMIT")
            except BaseException:
                if self._connection.in_transaction:
                    self._connection.execute("ROLLBACK")
                raise

    def declare(self, options: Mapping[str, str], trials: Iterable[tuple[str, Mapping[str, Any]]]) -> None:
        """Enter a study's options, and its trials as pairs of identity and settings.

        Trials that are there already stay as they are. Those that are not declared any more and have no outcome are
        withdrawn: neither run nor forgotten, until they are declared again.

        >>> records = _example()
        >>> records.declare({}, [("0a3b1f5c", {"lr": 2.5})])
        >>> records.count()
        {'finished': 1, 'waiting': 1, 'withdrawn': 1}
        """
        rows = [(identity, json.dumps(settings)) for identity, settings in trials]
        declared = {identity for identity, _ in rows}
        with self.transaction():
            self._write("INSERT OR REPLACE INTO study VALUES (?, ?)", list(options.items()))
            self._write(
                "INSERT INTO trials (identity, settings, status) VALUES (?, ?, 'waiting')"
                " ON CONFLICT DO UPDATE SET status = 'waiting' WHERE status = 'withdrawn'",
                rows,
            )
            left = self._rows("SELECT identity FROM trials WHERE status IN ('waiting', 'failed')")
            gone = [row for row in left if row[0] not in declared]
            self._write("UPDATE trials SET status = 'withdrawn', error = NULL WHERE identity = ?", gone)
            self._show_results()

    def retry(self) -> None:
        """Let the failed trials wait again.

        >>> records = _example()
        >>> with records.transaction():
        ...     records.fail(2, "the worker died")
        >>> records.retry()
        >>> records.waiting()
        [2]
        """
        with self.transaction():
            self._write("UPDATE trials SET status = 'waiting', error = NULL WHERE status = 'failed'")

    def add_row(self, trial: int, row: Mapping[str, float]) -> None:
        """Enter what a trial reports of an epoch, in place of all that it had reported of this one and later ones.

        So a trial that goes on from a checkpoint leaves the same rows as one that ran through. What it calls `seconds`
        goes to the timings.

        >>> records = _example()
        >>> with records.transaction():
        ...     records.add_row(1, {"epoch": 1, "loss": 4.0, "seconds": 0.25})
        >>> records.curve(1)
        {'epoch': array([1.]), 'loss': array([4.])}
        """
        epoch = row["epoch"]
        values = [(trial, epoch, name, value) for name, value in row.items() if name not in ("epoch", "seconds")]
        self._write("DELETE FROM curves WHERE trial = ? AND epoch >= ?", [(trial, epoch)])
        self._write("DELETE FROM timings WHERE trial = ? AND epoch >= ?", [(trial, epoch)])
        self._write("INSERT INTO curves VALUES (?, ?, ?, ?)", values)
        if "seconds" in row:
            self._write("INSERT INTO timings VALUES (?, ?, ?)", [(trial, epoch, row["seconds"])])

    def finish(self, trial: int, outcome: Mapping[str, Any]) -> None:
        """Enter a trial's outcome; a number in it that is not finite becomes None.

        >>> records = _example()
        >>> with records.transaction():
        ...     records.finish(2, {"loss": float("nan"), "diverged": True})
        >>> records.trial(2).outcome
        {'loss': None, 'diverged': True}
        """
        text = json.dumps(_finite(outcome), allow_nan=False)
        self._write("UPDATE trials SET status = 'finished', outcome = ?, error = NULL WHERE trial = ?", [(text, trial)])
        if not outcome.keys() <= self._shown:
            self._show_results()

    def fail(self, trial: int, error: str) -> None:
        """Enter why a trial failed.

        >>> records = _example()
        >>> with records.transaction():
        ...     records.fail(2, "the worker died")
        >>> records.trial(2).error
        'the worker died'
        """
        self._write("UPDATE trials SET status = 'failed', error = ? WHERE trial = ?", [(error, trial)])

    def add_attempt(self, trial: int, ended: str, **columns: Any) -> None:
        """Enter that a trial was tried and how it ended, with other columns of that table.

        >>> records = _example()
        >>> with records.transaction():
        ...     records.add_attempt(2, "died", started_at="2026-01-01T00:00:00+00:00", seconds=0.5, engine="local")
        """
        row = {"trial": trial, "ended": ended, **columns}
        if "versions" in row:
            row["versions"] = json.dumps(row["versions"])
        places = ", ".join(f":{name}" for name in row)
        with self._errors():
            self._connection.execute(f"INSERT INTO attempts ({', '.join(row)}) VALUES ({places})", row)

    # Private

    @contextmanager
    def _errors(self) -> Iterator[None]:
        """What SQLite raises, as one line for the user."""
        try:
            yield
        except sqlite3.Error as error:
            raise StudyError(f"{self.path}: {error}") from error

    def _rows(self, query: str, values: Sequence[Any] | Mapping[str, Any] = ()) -> list[Any]:
        """The rows that a query finds."""
        with self._errors():
            return self._connection.execute(query, values).fetchall()

    def _write(self, statement: str, rows: Sequence[Sequence[Any]] = ((),)) -> None:
        """A statement carried out once for each row."""
        with self._errors():
            self._connection.executemany(statement, rows)

    def _check_format(self, writable: bool) -> None:
        """Refuse what is not a study of this format; a new database gets its tables."""
        (version,) = self._connection.execute("PRAGMA user_version").fetchone()
        if version > schema.VERSION:
            raise StudyError(
                f"{self.path}: a newer version of AggMo wrote this study (format {version}, this one knows"
                f" {schema.VERSION}): update AggMo; the study is untouched"
            )
        if version == 0:
            tables = self._connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]
            if tables or not writable:
                raise StudyError(f"{self.path}: this is no study")
            script = f"BEGIN IMMEDIATE; {schema.TABLES} PRAGMA user_version = {schema.VERSION}; COMMIT;"
            self._connection.executescript(script)

    def _show_results(self) -> None:
        """Make the view of the results anew, with the names that there are by now."""
        names = {}
        for column in ("settings", "outcome"):
            query = (
                f"SELECT each.key FROM trials, json_each(trials.{column}) AS each WHERE {column} IS NOT NULL"
                " GROUP BY each.key ORDER BY min(trial), min(each.id)"
            )
            names[column] = [name for (name,) in self._rows(query)]
        for statement in schema.results(names["settings"], names["outcome"]):
            self._rows(statement)
        self._shown = set(names["outcome"])


def _connection(path: Path, writable: bool) -> sqlite3.Connection:
    """A connection that begins no transaction by itself."""
    if str(path) == ":memory:":
        return sqlite3.connect(path, isolation_level=None)
    if not writable and not path.is_file():
        raise StudyError(f"{path}: there is no study")
    uri = path.absolute().as_uri()
    if writable:
        return sqlite3.connect(f"{uri}?mode=rwc", isolation_level=None, uri=True)
    if os.access(path, os.W_OK) and os.access(path.parent, os.W_OK):
        # Not mode=ro, which cannot tidy up the two files that reading a WAL database makes.
        connection = sqlite3.connect(f"{uri}?mode=rw", isolation_level=None, uri=True)
        connection.execute("PRAGMA query_only = ON")
        return connection
    still = "" if Path(f"{path}-wal").exists() else "&immutable=1"  # without it, SQLite wants to make these files
    return sqlite3.connect(f"{uri}?mode=ro{still}", isolation_level=None, uri=True)


def _trial(row: tuple[int, str, str, str, str | None, str | None]) -> Trial:
    """A row of the table with its JSON read."""
    trial, identity, settings, status, outcome, error = row
    return Trial(trial, identity, json.loads(settings), status, json.loads(outcome) if outcome else None, error)


def _finite(value: Any) -> Any:
    """The value with None for every number in it that is not finite, which JSON does not have."""
    match value:
        case float():
            return value if math.isfinite(value) else None
        case Mapping():
            return {name: _finite(part) for name, part in value.items()}
        case list():
            return [_finite(part) for part in value]
        case _:
            return value


def _example() -> Records:
    """A study in memory, for the examples above: one of two trials has finished."""
    records = Records(":memory:", writable=True)
    records.declare({"function": "module:name"}, [("9f86d081", {"lr": 0.1}), ("84c7d659", {"lr": 0.5})])
    with records.transaction():
        records.add_row(1, {"epoch": 1, "loss": 2.0})
        records.add_row(1, {"epoch": 2, "loss": 0.5})
        records.finish(1, {"loss": 0.5})
    return records
