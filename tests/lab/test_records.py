"""The database of a study: what goes in comes out to the last bit, and nothing that is no study is touched."""

import json
import math
import sqlite3
from contextlib import closing

import numpy as np
import pandas
import pytest
from hypothesis import given
from hypothesis import strategies as st
from trials import without_root

from aggmo.lab import schema
from aggmo.lab.records import Records, StudyError, Trial

TRIALS = [("aa", {"lr": 0.1, "betas": [0, 0.9]}), ("bb", {"lr": 0.5, "betas": [0, 0.9]}), ("cc", {"lr": 0.5, "k": 2})]


@pytest.fixture
def path(tmp_path):
    return tmp_path / "study.sqlite"


@pytest.fixture
def records(path):
    with Records(path, writable=True) as records:
        records.declare({"function": "module:name"}, TRIALS)
        yield records


@pytest.mark.usefixtures("records")
def test_trials_come_back_as_declared(path):
    expected = [Trial(i, identity, settings, "waiting") for i, (identity, settings) in enumerate(TRIALS, start=1)]
    with Records(path) as reader:
        assert reader.trials() == expected
        assert [reader.trial(i) for i in (1, 2, 3)] == expected
        assert reader.options() == {"function": "module:name"}
        with pytest.raises(ValueError, match=r"trial=4: .* has none of that number"):
            reader.trial(4)


@given(st.lists(st.floats(width=64), min_size=1, max_size=8), st.floats())
def test_every_float_survives(values, setting):
    """Oracle: the bits, but for the sign of zero in a curve, which SQLite does not keep.

    SQLite has no NaN either: it stands for itself in a curve, and becomes None in an outcome.
    """
    setting = 0.5 if not math.isfinite(setting) else setting
    with Records(":memory:", writable=True) as records:
        records.declare({}, [("aa", {"x": setting})])
        with records.transaction():
            for epoch, value in enumerate(values, start=1):
                records.add_row(1, {"epoch": epoch, "x": value})
            records.finish(1, {"x": values, "deep": {"y": values[0]}})
        trial = records.trial(1)
        assert trial.settings["x"].hex() == setting.hex()
        assert [value.hex() for value in records.curve(1)["x"].tolist()] == [(value + 0.0).hex() for value in values]
        expected = [value if math.isfinite(value) else None for value in values]
        assert json.dumps(trial.outcome) == json.dumps({"x": expected, "deep": {"y": expected[0]}})


def test_a_row_replaces_its_epoch_and_all_later_ones(records):
    """Oracle: a dict of epochs, from which whatever is not below a new epoch is dropped, looked at after each row."""
    expected = {}
    for epoch, name, value in [
        (1, "a", 1.0),
        (2, "a", 2.0),
        (3, "b", 3.0),
        (2, "b", 4.0),
        (3, "a", 5.0),
        (3, "a", 6.0),
    ]:
        with records.transaction():
            records.add_row(1, {"epoch": epoch, name: value, "seconds": value})
            records.add_row(2, {"epoch": epoch, name: 0.0})
        expected = {old: row for old, row in expected.items() if old < epoch} | {epoch: {name: value}}
        curve = records.curve(1)
        assert curve.pop("epoch").tolist() == sorted(expected)
        found = [{name: curve[name][i] for name in curve if not np.isnan(curve[name][i])} for i in range(len(expected))]
        assert found == [expected[each] for each in sorted(expected)]
        with closing(sqlite3.connect(records.path)) as connection:
            timings = connection.execute("SELECT epoch, seconds FROM timings ORDER BY epoch").fetchall()
        assert timings == [(each, next(iter(expected[each].values()))) for each in sorted(expected)]


def test_a_trial_without_rows_has_an_empty_curve(records):
    assert {name: values.tolist() for name, values in records.curve(1).items()} == {"epoch": []}


def test_a_transaction_is_all_or_nothing(records, path):

    def write():
        with records.transaction():
            records.finish(1, {"loss": 1.0})
            records.add_row(2, {"epoch": 1, "loss": 1 / 0})

    with pytest.raises(ZeroDivisionError):
        write()
    assert records.count() == {"waiting": 3}
    with records.transaction():
        records.finish(1, {"loss": 1.0})
        with Records(path) as reader:
            assert reader.count() == {"waiting": 3}
    assert records.count() == {"finished": 1, "waiting": 2}


@pytest.mark.parametrize(("options", "level"), [({}, 2), ({"durable": True}, 2), ({"durable": False}, 1)])
def test_what_a_transaction_waits_for(options, level, records):
    """By SQLite's own levels: 2 brings every transaction to the disk, 1 only keeps the file whole."""
    with records.transaction(**options):
        records.finish(1, {})
    assert records._connection.execute("PRAGMA synchronous").fetchone() == (level,)


def test_the_life_of_a_trial(records):
    with records.transaction():
        records.finish(1, {"loss": 1.0})
        records.fail(2, "traceback")
    assert records.waiting() == [3]
    assert [trial.error for trial in records.trials("failed")] == ["traceback"]
    records.retry()
    assert records.waiting() == [2, 3]
    assert records.trial(2).error is None
    records.declare({"function": "module:name"}, [TRIALS[1], ("dd", {"lr": 1})])
    assert [(trial.identity, trial.status) for trial in records.trials()] == [
        ("aa", "finished"),  # not declared any more, but there is an outcome
        ("bb", "waiting"),
        ("cc", "withdrawn"),
        ("dd", "waiting"),
    ]
    records.declare({}, TRIALS)
    assert [trial.status for trial in records.trials()] == ["finished", "waiting", "waiting", "withdrawn"]
    assert records.options() == {"function": "module:name"}


def test_the_view_has_a_column_for_each_name(records, path):
    """Oracle: the settings and outcomes themselves."""
    with records.transaction():
        records.finish(1, {"loss": 0.25, "lr": 7, "status": "good"})
    with records.transaction():
        records.finish(3, {"loss": None, "diverged": True})
    connection = sqlite3.connect(path)
    cursor = connection.execute("SELECT * FROM results ORDER BY trial")
    names = [column[0] for column in cursor.description]
    assert names == ["trial", "status", "lr", "betas", "k", "loss", "outcome_lr", "outcome_status", "diverged"]
    assert cursor.fetchall() == [
        (1, "finished", 0.1, "[0,0.9]", None, 0.25, 7, "good", None),
        (2, "waiting", 0.5, "[0,0.9]", None, None, None, None, None),
        (3, "finished", 0.5, None, 2, None, None, None, 1),
    ]
    connection.close()


def test_pandas_reads_the_results_in_one_line(records, path):
    """Oracle: what was entered."""
    with records.transaction():
        records.finish(2, {"loss": 0.25, "diverged": False})
        records.finish(3, {"loss": math.nan, "diverged": True})
    with closing(sqlite3.connect(path)) as connection:
        frame = pandas.read_sql("SELECT * FROM results", connection)
    assert frame.columns.tolist() == ["trial", "status", "lr", "betas", "k", "loss", "diverged"]
    assert frame["lr"].tolist() == [0.1, 0.5, 0.5]
    assert frame["loss"].isna().tolist() == [True, False, True]
    assert frame.loc[1, "loss"] == 0.25
    assert frame["diverged"].tolist()[1:] == [0, 1]


def test_the_schema_is_as_documented(records):
    documented = {
        line.split()[0]: line.split(maxsplit=1)[1].split(":")[0].split(", ")
        for line in schema.__doc__.splitlines()
        if line.startswith("    ")
    }
    connection = sqlite3.connect(records.path)
    tables = [name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
    assert set(tables) == set(documented) - {"results"}
    for table in tables:
        columns = [row[1] for row in connection.execute(f"PRAGMA table_info({table})")]
        assert [column for column in columns if column != "attempt"] == documented[table]
    connection.close()


def test_nothing_is_left_beside_the_database(path):
    with Records(path, writable=True) as records:
        records.declare({}, TRIALS)
        with Records(path) as reader:
            assert len(list(path.parent.iterdir())) == 3  # -wal and -shm
            assert reader.count() == {"waiting": 3}
    assert list(path.parent.iterdir()) == [path]
    with Records(path) as reader:
        reader.count()
    assert list(path.parent.iterdir()) == [path]


def test_a_reader_cannot_write(records, path):
    with Records(path) as reader, pytest.raises(StudyError, match="readonly"):
        reader.declare({}, [("dd", {})])
    assert records.count() == {"waiting": 3}


@pytest.mark.parametrize("writable", [False, True])
@pytest.mark.parametrize("content", ["newer", "text", "other"])
def test_what_is_no_study_of_this_format_is_left_alone(path, content, writable):
    if content == "text":
        path.write_text("a letter to the editor, longer than the header of a database of SQLite is by itself" * 9)
    else:
        with Records(path, writable=True) as records:
            records.declare({}, TRIALS)
        connection = sqlite3.connect(path)
        connection.execute(f"PRAGMA user_version = {schema.VERSION + 1 if content == 'newer' else 0}")
        connection.close()
    before = path.read_bytes()
    message = {
        "newer": rf"a newer version of AggMo wrote this study \(format {schema.VERSION + 1}, this one knows",
        "text": "file is not a database",
        "other": "this is no study",
    }[content]
    with pytest.raises(StudyError, match=message) as error:
        Records(path, writable=writable)
    assert "\n" not in str(error.value)
    assert path.read_bytes() == before
    assert list(path.parent.iterdir()) == [path]


def test_a_database_that_is_not_there(path):
    with pytest.raises(StudyError, match="there is no study"):
        Records(path)
    assert not path.exists()


def test_a_study_in_a_directory_that_cannot_be_written_can_be_read():
    with without_root() as directory:
        path = directory / "study.sqlite"
        with Records(path, writable=True) as records:
            records.declare({}, TRIALS)
        path.chmod(0o444)
        directory.chmod(0o555)
        with Records(path) as records:
            assert records.count() == {"waiting": 3}
        with pytest.raises(StudyError, match="readonly"):
            Records(path, writable=True)
        assert list(directory.iterdir()) == [path]
