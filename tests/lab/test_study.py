"""Studies: grids, trial by trial in real processes, the driver's own decisions, and what it says."""

import io
import itertools
import json
import re
import signal
import sqlite3
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import trials
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console
from trials import alive, attempts, children, contents, kill, until, without_root

from aggmo.lab.engine.local import Local
from aggmo.lab.records import StudyError
from aggmo.lab.study import Study, grid, identity, set_aside

QUIET = Console(file=io.StringIO())
DRIVER = [sys.executable, trials.__file__]
LEFT = {"study.sqlite", "study.lock"}


def statuses(study):
    with study.records() as records:
        return [trial.status for trial in records.trials()]


def said(study, *args, **options):
    """What a run of a study says where there is no terminal."""
    console = Console(file=io.StringIO(), width=200)
    study.run(*args, console=console, **options)
    return console.file.getvalue().splitlines()


# The grid


def test_a_grid_by_hand():
    assert grid({"a": [1, 2], "b": ["x"]}, {"c": [3]}, seed=[0, 1]) == [
        {"a": 1, "b": "x", "seed": 0},
        {"a": 2, "b": "x", "seed": 0},
        {"c": 3, "seed": 0},
        {"a": 1, "b": "x", "seed": 1},
        {"a": 2, "b": "x", "seed": 1},
        {"c": 3, "seed": 1},
    ]


NAMES = st.sampled_from(["p", "q", "r", "s"])
LISTS = st.dictionaries(NAMES, st.lists(st.integers(0, 9), min_size=1, max_size=3), min_size=1, max_size=3)


@given(st.lists(LISTS, max_size=3), st.dictionaries(st.sampled_from(["t", "u"]), st.just([1, 2]), max_size=2))
def test_a_grid_is_every_combination(parts, shared):
    """Oracle: nested loops, as a product over pairs of name and value."""
    expected = [
        dict(pairs)
        for part in parts or [{}]
        for pairs in itertools.product(*([(n, v) for v in vs] for n, vs in {**part, **shared}.items()))
    ]
    if not (parts or shared):
        return
    found = grid(*parts, **shared)
    assert sorted(map(json.dumps, map(sorted_by_name, found))) == sorted(map(json.dumps, map(sorted_by_name, expected)))


def sorted_by_name(settings):
    return sorted(settings.items())


def test_arrays_are_lists_of_plain_numbers():
    found = grid(lr=np.array([0.1, 0.2]), seed=np.arange(1), betas=[np.array([0, 0.9])])
    assert (
        json.dumps(found)
        == '[{"lr": 0.1, "seed": 0, "betas": [0.0, 0.9]}, {"lr": 0.2, "seed": 0, "betas": [0.0, 0.9]}]'
    )


BAD_GRIDS = {
    "empty": lambda: grid(),
    "empty part": lambda: grid({}),
    "empty list": lambda: grid(lr=[]),
    "no list": lambda: grid(lr=0.1),
    "a string": lambda: grid(optimizer="cm"),
    "twice": lambda: grid({"seed": [1]}, seed=[0]),
    "no trials": lambda: Study.declare("unused", "trials:nothing", []),
    "no settings": lambda: Study.declare("unused", "trials:nothing", [{}]),
    "lr of 0": lambda: grid(lr=[0.1, 0]),
    "lr of -1": lambda: grid(lr=[-1]),
    "lr of abc": lambda: grid(lr=["abc"]),
    "lr of nan": lambda: grid(lr=[float("nan")]),
    "lr of inf": lambda: grid(lr=[float("inf")]),
    "lr of True": lambda: grid(lr=[True]),
    "lr of None": lambda: grid(lr=[None]),
    "lr in a trial": lambda: Study.declare("unused", "trials:nothing", [{"lr": 0.1}, {"lr": "abc"}]),
    "seed": lambda: grid(seed=[-1]),
    "seed of 0.5": lambda: grid(seed=[0.5]),
    "betas": lambda: grid(betas=[[0, 1.0]]),
    "beta": lambda: grid(beta=[1.0]),
    "nan": lambda: grid(x=[float("nan")]),
    "object": lambda: grid(x=[object()]),
    "name": lambda: grid({"learning rate": [1]}),
    "function": lambda: Study.declare("unused", "trials", [{"lr": 1}]),
    "no function": lambda: Study.declare("unused", None, [{"lr": 1}]),
    "no module": lambda: Study.declare("unused", "no_such_module:trial", [{"lr": 1}]),
    "no package": lambda: Study.declare("unused", "no_such.module:trial", [{"lr": 1}]),
    "main": lambda: Study.declare("unused", "__main__:trial", [{"lr": 1}]),
    "code": lambda: Study.declare("unused", "trials:nothing", [{"lr": 1}], code="no_such_module:timer"),
    "timer": lambda: Study.declare("unused", "trials:nothing", [{"lr": 1}], timer="no_such_module:timer"),
    "direction": lambda: Study.declare("unused", "trials:nothing", [{"lr": 1}], direction="up"),
}


@pytest.mark.parametrize("bad", BAD_GRIDS)
def test_bad_input_is_one_line_and_leaves_nothing(bad, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ValueError, match=r".+") as error:
        BAD_GRIDS[bad]()
    assert "\n" not in str(error.value)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("attempts", [0, True, 1.5])
def test_attempts(attempts, tmp_path):
    study = Study.declare(tmp_path / "s", "trials:nothing", grid(seed=[0]))
    with pytest.raises(ValueError, match="attempts="):
        study.run(attempts=attempts)


# Identity


@given(st.floats(allow_nan=False, allow_infinity=False), st.floats(allow_nan=False, allow_infinity=False))
def test_trials_are_the_same_when_their_values_are(a, b):
    """Oracle: equality of floats, and of the ints and the decimals that stand for them."""
    assert (identity("m:f", {"x": a}) == identity("m:f", {"x": b})) == (a == b)
    assert identity("m:f", {"x": a}) == identity("m:f", json.loads(json.dumps({"x": a})))
    assert identity("m:f", {"x": [float(round(a))]}) == identity("m:f", {"x": (round(a),)})


def test_what_else_tells_trials_apart():
    found = [
        identity("m:f", {"x": 1}),
        identity("m:g", {"x": 1}),
        identity("m:f", {"y": 1}),
        identity("m:f", {"x": True}),
        identity("m:f", {"x": "1"}),
        identity("m:f", {"x": None}),
        identity("m:f", {"x": [1]}),
        identity("m:f", {"x": {"x": 1}}),
        identity("m:f", {"x": 1, "y": 1}),
    ]
    assert len(set(found)) == len(found)


# Runs


def test_trials_are_the_functions_own(tmp_path):
    """Oracle: the function called by hand."""
    settings = grid(lr=[0.1, 2.5], beta=[0, 0.9], seed=[3], epochs=[20])
    study = Study.declare(tmp_path / "s", "trials:descend", settings)
    summary = study.run(Local(2), console=QUIET)
    for i, expected in enumerate(settings, start=1):
        rows = []
        (tmp_path / "here" / "trials" / str(i)).mkdir(parents=True)
        outcome = trials.descend(expected, tmp_path / "here" / "trials" / str(i), rows.append)
        with study.records() as records:
            trial, curve = records.trial(i), records.curve(i)
        assert (trial.settings, trial.status, trial.outcome) == (expected, "finished", outcome)
        assert curve["loss"].tolist() == [row["loss"] for row in rows]
        assert curve["epoch"].tolist() == [row["epoch"] for row in rows]
    assert summary.diverged == 1
    assert summary.done
    assert {path.name for path in study.directory.iterdir()} == LEFT


def test_finished_trials_are_never_run_again(tmp_path):
    (tmp_path / "notes").touch()
    study = Study.declare(tmp_path / "s", "trials:descend", grid(lr=[0.1], seed=[0, 1], epochs=[2]))
    study.run(Local(1), console=QUIET)
    before = contents(study.directory)
    study.run(Local(1), retry=True, console=QUIET)
    again = Study.declare(tmp_path / "s", "trials:descend", grid(lr=[0.1], seed=[0, 1, 2], epochs=[2.0]))
    again.run(Local(1), console=QUIET)
    assert len((tmp_path / "notes").read_text().splitlines()) == 3
    assert contents(study.directory)["trials"][:2] == before["trials"]
    assert statuses(again) == ["finished"] * 3


def test_failures_are_kept_and_tried_again_when_asked(tmp_path):
    study = Study.declare(tmp_path / "s", "trials:fussy", grid(seed=range(4)))
    lines = said(study, Local(2))
    assert statuses(study) == ["failed"] * 4
    with study.records() as records:
        error = records.trial(3).error
    assert error.startswith("Traceback (most recent call last):")
    assert error.endswith("ArithmeticError: seed 2 is not to its taste\n")
    assert lines[-4:-1] == [f"failed: seed={i}: ArithmeticError: seed {i} is not to its taste" for i in range(3)]
    assert lines[-1].startswith("4 failed, and are tried again when asked")
    (tmp_path / "calm").touch()
    assert not study.run(Local(2), console=QUIET).done
    assert statuses(study) == ["failed"] * 4
    assert study.run(Local(2), retry=True, console=QUIET).done
    assert statuses(study) == ["finished"] * 4
    assert {path.name for path in study.directory.iterdir()} == LEFT


def test_a_trial_whose_worker_dies_is_put_back(tmp_path):
    study = Study.declare(tmp_path / "s", "trials:stubborn", grid(deaths=[0, 2, 5]))
    summary = study.run(Local(1), attempts=3, console=QUIET)
    assert (summary.finished, summary.failed) == (2, 1)
    assert attempts(study.directory) == [(1, "finished"), (2, "died"), (2, "died"), (2, "finished")] + [(3, "died")] * 3
    with study.records() as records:
        assert records.trial(2).outcome == {"died": 2}
        assert records.curve(2)["loss"].tolist() == [1.0, 1 / 2, 1 / 3]
        assert records.trial(3).error.startswith("the worker died (killed by signal 9); see ")
        assert Path(records.trial(3).error.split("; see ")[1]).exists()
    study.run(Local(1), retry=True, console=QUIET)
    assert statuses(study) == ["finished"] * 3


@pytest.mark.parametrize(
    ("what", "message"),
    [
        ("outcome", "TypeError: Object of type object is not JSON serializable"),
        ("none", "ValueError: a trial returned None: must be a dict"),
        ("exit", "SystemExit: it left"),
        ([{"loss": 1.0}], "epoch=None of a report: must be a whole number"),
        ([{"epoch": 1}, {"epoch": 1}], "epoch=1 of a report: must be a whole number > 1"),
        ([{"epoch": 1.5}], "epoch=1.5 of a report"),
        ([{"epoch": True}], "epoch=True of a report"),
        ([{"epoch": 1, "loss": "low"}], "loss='low' of a report: must be a name and a number"),
        ([{"epoch": 1, "the loss": 1.0}], "the loss=1.0 of a report: must be a name and a number"),
    ],
)
def test_what_a_trial_must_not_do_is_a_failure(what, message, tmp_path):
    study = Study.declare(tmp_path / "s", "trials:wrong", [{"what": what}])
    study.run(Local(1), console=QUIET)
    with study.records() as records:
        assert message in records.trial(1).error
        assert records.count() == {"failed": 1}


@pytest.mark.parametrize("field", ["function", "timer"])
def test_a_function_that_is_not_there_ends_the_study_in_one_line(field, tmp_path):
    names = {"function": "trials:nothing", field: "trials:no_such_function"}
    study = Study.declare(tmp_path / "s", names.pop("function"), grid(seed=range(3)), **names)
    with pytest.raises(StudyError, match="no worker can import trials:no_such_function: AttributeError") as error:
        study.run(Local(1), console=QUIET)
    assert "\n" not in str(error.value)
    assert statuses(study) == ["waiting"] * 3


def test_another_function_needs_another_directory(tmp_path):
    Study.declare(tmp_path, "trials:nothing", grid(seed=[0]))
    with pytest.raises(ValueError, match=r"function='trials:descend': the study in .* is one of 'trials:nothing'"):
        Study.declare(tmp_path, "trials:descend", grid(seed=[0]))


def test_what_is_not_in_the_grid_any_more_is_not_counted(tmp_path):
    first = Study.declare(tmp_path / "s", "trials:descend", grid(lr=[0.1], seed=[0, 1], epochs=[2]), metric="loss")
    first.run(Local(1), console=QUIET)
    second = Study.declare(tmp_path / "s", "trials:descend", grid(lr=[2.5], seed=[0], epochs=[3]), metric="loss")
    assert [trial.status for trial in second.trials()] == ["waiting"]
    assert [trial.status for trial in Study(second.directory).trials()] == ["finished", "finished", "waiting"]
    lines = said(second, Local(1))
    [trial] = second.trials()
    assert lines[-1] == f"s: 1 of 1 trials have finished, best loss {trial.outcome['loss']:.6g}"
    assert [trial.trial for trial in first.trials()] == [1, 2]


def test_an_observer_is_told_what_the_database_gets(tmp_path):
    told = []

    class Observer:
        def row(self, trial, row):
            told.append((trial.trial, row["epoch"], row["loss"]))

        def end(self, trial):
            told.append((trial.trial, "end", trial.status))

    study = Study.declare(tmp_path / "s", "trials:descend", grid(lr=[0.1], seed=[0, 1], epochs=[3]))
    study.run(Local(1), console=QUIET, observer=Observer())
    with study.records() as records:
        expected = [
            entry
            for trial in (1, 2)
            for entry in [
                *((trial, int(epoch), loss) for epoch, loss in zip(*records.curve(trial).values(), strict=True)),
                (trial, "end", "finished"),
            ]
        ]
    assert told == expected


def test_a_study_is_set_aside_with_all_that_it_has(tmp_path):
    study = Study.declare(tmp_path / "s", "trials:descend", grid(lr=[0.1], seed=[0], epochs=[2]))
    study.run(Local(1), console=QUIET)
    before = contents(study.directory)
    (tmp_path / "s.1").mkdir()
    assert set_aside(tmp_path / "s") == tmp_path / "s.2"
    assert contents(tmp_path / "s.2") == before
    assert not (tmp_path / "s").exists()
    assert set_aside(tmp_path / "s") is None


def test_the_revision_is_that_of_the_code_on_trial(tmp_path, monkeypatch):
    """Oracle: git itself, for a module in a repository of its own."""
    code = tmp_path / "code"
    code.mkdir()
    (code / "on_trial.py").write_text("x = 1\n")
    git = ["git", "-C", str(code), "-c", "user.name=a", "-c", "user.email=a@b"]
    for command in (["init", "-q"], ["add", "."], ["commit", "-qm", "Begin"]):
        subprocess.run([*git, *command], check=True)
    revision = subprocess.run([*git, "rev-parse", "HEAD"], capture_output=True, text=True, check=True).stdout.strip()
    monkeypatch.syspath_prepend(code)
    study = Study.declare(tmp_path / "s", "trials:nothing", grid(seed=[0]), code="on_trial:x")
    study.run(Local(1), console=QUIET)
    (code / "on_trial.py").write_text("x = 2\n")
    study = Study.declare(tmp_path / "s", "trials:nothing", grid(seed=[0, 1]), code="on_trial:x")
    study.run(Local(1), console=QUIET)
    with sqlite3.connect(study.directory / "study.sqlite") as connection:
        found = connection.execute("SELECT git FROM attempts ORDER BY trial").fetchall()
    connection.close()
    assert found == [(revision,), (f"{revision}-dirty",)]


def test_checkpoints_are_kept_when_asked(tmp_path):
    settings = grid(lr=[0.1], seed=[0], epochs=[5])
    study = Study.declare(tmp_path / "s", "trials:descend", settings, keep=True)
    for _ in range(2):
        study.run(Local(1), console=QUIET)
        assert [path.name for path in study.directory.glob("trials/*/*.json")] == ["checkpoint.json"]


def test_what_a_killed_driver_had_no_time_to_remove(tmp_path):
    study = Study.declare(tmp_path / "s", "trials:nothing", grid(seed=range(2)))
    study.run(Local(1), console=QUIET)
    for left in ("trials/" + identity("trials:nothing", {"seed": 0}), "trials/0123456789abcdef", "estimate/0123"):
        (study.directory / left).mkdir(parents=True)
        (study.directory / left / "checkpoint.tmp").touch()
    study.run(Local(1), console=QUIET)
    assert {path.name for path in study.directory.iterdir()} == LEFT


# What it says


def test_the_estimate(tmp_path):
    """Oracle: by hand, (60 + 120 + 180) / 3 = 120 s a trial, 5 trials on 2 workers: 300 s."""
    longer = [1, 9, 2, 9, 3]  # the first, the middle and the last are timed
    settings = [{"longer": factor, "seed": i, "lr": 0.1, "epochs": 1} for i, factor in enumerate(longer)]
    study = Study.declare(tmp_path / "s", "trials:descend", settings, timer="trials:timer")
    assert said(study, Local(2))[0] == "s: 5 trials to run on 2 workers, about 5 min"
    with study.records() as records:
        assert records.curve(1)["loss"][0] > 0  # the timer's row is none of the trial's
    assert {path.name for path in study.directory.iterdir()} == LEFT


def test_an_estimate_that_fails_stops_nothing(tmp_path):
    study = Study.declare(tmp_path / "s", "trials:nothing", grid(seed=[0]), timer="trials:fussy")
    assert (
        said(study, Local(1))[0]
        == "s: 1 trial to run on 1 worker; the timing of a trial failed, so nobody knows how long"
    )
    assert statuses(study) == ["finished"]


def test_plain_lines_where_there_is_no_terminal(tmp_path):
    settings = grid(lr=[0.1, 0.5], seed=[0, 1], epochs=[3])
    study = Study.declare(tmp_path / "s", "trials:descend", settings, metric="loss")
    lines = said(study, Local(1))
    with study.records() as records:
        best = min(records.trials(), key=lambda trial: trial.outcome["loss"])
    shown = f"best loss {best.outcome['loss']:.6g} (lr={best.settings['lr']} seed={best.settings['seed']})"
    assert lines == ["s: 4 trials to run on 1 worker", f"s: 4 of 4 trials have finished, {shown}"]
    assert said(study, Local(1)) == lines[1:]


def test_workers_do_not_write_to_the_terminal(tmp_path):
    study = Study.declare(tmp_path / "s", "trials:chatter", grid(seed=[0]))
    done = subprocess.run([*DRIVER, study.directory], capture_output=True, text=True, check=True)
    assert not re.search("printed|written|as an error", done.stdout + done.stderr)
    (output,) = study.directory.glob("trials/*/output.txt")
    assert sorted(output.read_text().splitlines()) == ["and as an error", "printed", "written"]


# Interruptions


@pytest.fixture(scope="module")
def slow(tmp_path_factory):
    """Trials that take a while, and what a run of them gives that nothing disturbs."""
    settings = grid(lr=[0.1, 0.5], seed=[0, 1], epochs=[10], pause=[0.03])
    study = Study.declare(tmp_path_factory.mktemp("undisturbed"), "trials:descend", settings)
    study.run(Local(2), console=QUIET)
    return settings, contents(study.directory)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_ctrl_c_stops_cleanly_and_says_how_to_resume(number, slow, tmp_path):
    settings, undisturbed = slow
    study = Study.declare(tmp_path / "s", "trials:descend", settings)
    driver = subprocess.Popen([*DRIVER, study.directory], stderr=subprocess.PIPE, text=True)
    workers = until(lambda: len(found := children(driver.pid)) == 2 and found)
    until(lambda: any(len(rows) > 1 for rows in [contents(study.directory)["curves"]]))
    driver.send_signal(number)
    _, err = driver.communicate(timeout=20)
    assert driver.returncode == 130
    assert "Traceback" not in err
    assert (
        err.splitlines()[-1] == f'stopped; nothing is lost. To go on: aggmo.lab.study.Study("{study.directory}").run()'
    )
    assert not any(alive(worker) for worker in workers)
    assert "waiting" in statuses(study)
    study.run(Local(2), console=QUIET)
    assert contents(study.directory) == undisturbed
    assert {path.name for path in study.directory.iterdir()} == LEFT


def test_a_second_driver_is_told_who_runs_the_study(slow, tmp_path):
    settings, undisturbed = slow
    study = Study.declare(tmp_path / "s", "trials:descend", settings)
    first = subprocess.Popen([*DRIVER, study.directory], stderr=subprocess.DEVNULL)
    until(lambda: children(first.pid))
    second = subprocess.run([*DRIVER, study.directory], capture_output=True, text=True, check=False)
    assert second.returncode == 2
    assert re.fullmatch(rf"{study.directory}: process {first.pid} on host \S+ is at work here\n", second.stderr)
    with pytest.raises(StudyError, match=f"process {first.pid} on host"):
        Study.declare(study.directory, "trials:descend", settings[:1])
    assert first.wait(timeout=20) == 0
    assert contents(study.directory) == undisturbed


def test_a_directory_that_cannot_be_written():
    with without_root() as directory:
        study = Study.declare(directory / "s", "trials:nothing", grid(seed=[0]))
        before = contents(study.directory)
        directory.chmod(0o555)
        with pytest.raises(StudyError, match=r"new: cannot be written \(Permission denied\)"):
            Study.declare(directory / "new", "trials:nothing", grid(seed=[0]))
        directory.chmod(0o755)
        (study.directory / "study.lock").chmod(0o444)
        study.directory.chmod(0o555)
        with pytest.raises(StudyError, match=r"s: cannot be written \(Permission denied\)"):
            study.run(Local(1), console=QUIET)
        study.directory.chmod(0o755)
        assert contents(study.directory) == before


def test_kill_9_at_random_moments(tmp_path):
    """Oracle: a run that nothing disturbs, compared row by row to the last bit. 20 kills that hit something."""
    settings = grid(lr=[0.1, 0.5], seed=[0, 1], epochs=[8], pause=[0.02])
    study = Study.declare(tmp_path / "undisturbed", "trials:descend", settings)
    subprocess.run([*DRIVER, study.directory], check=True, capture_output=True)
    undisturbed = contents(study.directory)
    generator = np.random.default_rng(0)
    kills = interrupted = 0
    for case in range(60):
        kind = ["worker", "driver", "both"][case % 3]
        study = Study.declare(tmp_path / str(case), "trials:descend", settings)
        driver = subprocess.Popen([*DRIVER, study.directory], stderr=subprocess.DEVNULL)
        wait_for_rows(study, driver, int(generator.integers(len(undisturbed["curves"]))))
        time.sleep(generator.uniform(0, 0.05))
        workers = children(driver.pid)
        victims = {"worker": workers[:1], "driver": [driver.pid], "both": [driver.pid, *workers]}[kind]
        if driver.poll() is None and victims:
            kills += 1
            for victim in generator.permutation(victims):
                kill(int(victim))
        driver.wait(timeout=30)
        until(lambda workers=workers: not any(alive(worker) for worker in workers))
        done = contents(study.directory)
        interrupted += 0 < len(done["curves"]) < len(undisturbed["curves"])
        assert study.run(Local(2), console=QUIET).done
        assert contents(study.directory) == undisturbed, (case, kind)
        assert {path.name for path in study.directory.iterdir()} == LEFT, (case, kind)
        if kills == 20:
            break
    assert kills == 20
    assert interrupted >= 3  # in the middle of the trials, not only before or after all of them


def wait_for_rows(study, driver, n):
    """Until the database has so many rows of curves, or the driver has ended; 0 does not wait."""
    with study.records() as records:
        while n and driver.poll() is None and sum(len(records.curve(i)["epoch"]) for i in (1, 2, 3, 4)) < n:
            time.sleep(0.005)


def test_kill_9_while_a_model_is_trained(tmp_path):
    """The same with AggMo on a model with dropout: the driver is killed once there are a few rows."""
    settings = grid(lr=[0.01, 0.05], betas=[[0, 0.9]], seed=[0], epochs=[8], pause=[0.02])
    study = Study.declare(tmp_path / "undisturbed", "trials:train", settings)
    study.run(Local(1), console=QUIET)
    undisturbed = contents(study.directory)
    assert {row[3] for row in undisturbed["curves"] if row[2] == "threads"} == {(1.0).hex()}
    study = Study.declare(tmp_path / "s", "trials:train", settings)
    driver = subprocess.Popen([*DRIVER, study.directory, "1"], stderr=subprocess.DEVNULL)
    until(lambda: len(contents(study.directory)["curves"]) >= 6)
    kill(driver.pid)
    driver.wait()
    assert len(contents(study.directory)["curves"]) < len(undisturbed["curves"])
    assert study.run(Local(1), console=QUIET).done
    assert contents(study.directory) == undisturbed
    assert {path.name for path in study.directory.iterdir()} == LEFT
