"""The format of a study's database: its tables, its view, its version.

    study     name, value: what was declared (function, metric, ...)
    trials    trial, identity, settings, status, outcome, error
    curves    trial, epoch, name, value
    attempts  trial, ended, started_at, seconds, engine, host, pid, threads, git, versions
    timings   trial, epoch, seconds
    results   a view: one row a trial, with a column for each setting and each entry of an outcome

`study`, `trials` and `curves` are the result, and the same however often the study was interrupted. `attempts` and
`timings` say where and how fast it was computed, and differ from run to run.
"""

from collections.abc import Iterable

VERSION = 1  # SQLite's user_version; raise it with every change of the tables

TABLES = """
CREATE TABLE study (name TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE trials (
    trial INTEGER PRIMARY KEY,      -- 1, 2, ... in the order of declaration
    identity TEXT NOT NULL UNIQUE,  -- hash of the function and the settings
    settings TEXT NOT NULL,         -- JSON
    status TEXT NOT NULL CHECK (status IN ('waiting', 'finished', 'failed', 'withdrawn')),
    outcome TEXT,                   -- JSON: what the function returned; null for a number that is not finite
    error TEXT                      -- why the trial failed
);
CREATE INDEX trials_by_status ON trials (status);
CREATE TABLE curves (
    trial INTEGER NOT NULL REFERENCES trials,
    epoch INTEGER NOT NULL,
    name TEXT NOT NULL,
    value REAL,                     -- NULL is not a number
    PRIMARY KEY (trial, epoch, name)
) WITHOUT ROWID;
CREATE TABLE attempts (
    attempt INTEGER PRIMARY KEY,
    trial INTEGER NOT NULL REFERENCES trials,
    ended TEXT NOT NULL CHECK (ended IN ('finished', 'failed', 'died')),
    started_at TEXT NOT NULL,       -- UTC
    seconds REAL NOT NULL,
    engine TEXT NOT NULL,
    host TEXT,                      -- NULL, as what follows, if the worker died
    pid INTEGER,
    threads INTEGER,
    git TEXT,                       -- the revision of the function's code, '-dirty' if it was changed
    versions TEXT                   -- JSON
);
CREATE TABLE timings (
    trial INTEGER NOT NULL REFERENCES trials,
    epoch INTEGER NOT NULL,
    seconds REAL,
    PRIMARY KEY (trial, epoch)
) WITHOUT ROWID;
"""


def results(settings: Iterable[str], outcomes: Iterable[str]) -> tuple[str, str]:
    """The two statements that make the view `results` anew, for these names of settings and entries of outcomes.

    A name that another column has already is given as `setting_name` or `outcome_name`.

    >>> print(results(["lr"], ["loss", "lr"])[1])
    CREATE VIEW results AS SELECT trial, status,
        json_extract(settings, '$.lr') AS "lr",
        json_extract(outcome, '$.loss') AS "loss",
        json_extract(outcome, '$.lr') AS "outcome_lr"
    FROM trials
    """
    taken = {"trial", "status"}
    columns = []
    for kind, source, names in (("setting", "settings", settings), ("outcome", "outcome", outcomes)):
        for name in names:
            column = f"{kind}_{name}" if name.lower() in taken else name
            taken.add(column.lower())
            columns.append(f",\n    json_extract({source}, '$.{name}') AS \"{column}\"")
    return "DROP VIEW IF EXISTS results", f"CREATE VIEW results AS SELECT trial, status{''.join(columns)}\nFROM trials"
