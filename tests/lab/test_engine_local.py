"""Workers on this machine: what they are, and that neither they nor their driver outlive one another."""

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
from trials import alive, children, kill, until

from aggmo.lab.engine import End, Report, Task
from aggmo.lab.engine.local import Local
from aggmo.lab.engine.perform import perform


@pytest.fixture
def engine():
    engine = Local(2)
    engine.start()
    yield engine
    engine.stop()
    assert children(os.getpid()) == []


def task(tmp_path, name, trial=1, **settings):
    return Task(trial, f"trials:{name}", settings, str(tmp_path / "s" / "trials" / str(trial)))


def ends(engine, n):
    """The ends of that many tasks, by trial; their reports are acknowledged."""
    found = {}
    deadline = time.monotonic() + 20
    while len(found) < n:
        assert time.monotonic() < deadline
        for message in engine.wait(0.1):
            if isinstance(message, End):
                found[message.trial] = message
        engine.acknowledge()
    return found


def test_workers_are_used_again(engine, tmp_path):
    pids = set()
    for first in range(0, 10, 2):
        for trial in (first, first + 1):
            engine.submit(task(tmp_path, "nothing", trial, seed=trial))
        assert engine.idle() == 0
        found = ends(engine, 2)
        assert {trial: end.outcome for trial, end in found.items()} == {t: {"seed": t} for t in (first, first + 1)}
        pids |= {end.place["pid"] for end in found.values()}
    assert pids == set(children(os.getpid()))
    assert len(pids) == 2


@pytest.mark.parametrize("threads", [1, 2])
def test_a_worker_has_its_threads_from_the_start(threads, tmp_path):
    engine = Local(1, threads)
    engine.start()
    engine.submit(task(tmp_path, "place"))
    end = ends(engine, 1)[1]
    engine.stop()
    assert end.outcome == {
        "session": True,
        "variable": str(threads),
        "threads": threads,
        "devices": None,
        "device": None,
    }
    assert end.place["threads"] == threads
    assert {"python", "aggmo", "numpy", "torch"} <= end.place["versions"].keys()


def test_a_report_returns_when_it_is_acknowledged(engine, tmp_path):
    """The checkpoint that a trial writes next must not be ahead of the database."""
    (tmp_path / "notes").touch()
    engine.submit(task(tmp_path, "descend", lr=0.1, seed=3, epochs=50))
    (message,) = until(lambda: engine.wait(0.1))
    assert isinstance(message, Report)
    assert message.row["epoch"] == 1
    assert engine.wait(0.3) == []
    assert not list(tmp_path.glob("s/trials/1/checkpoint*"))
    epochs = [1]
    while not isinstance(message, End):
        engine.acknowledge()
        (message,) = until(lambda: engine.wait(0.1))
        epochs += [message.row["epoch"]] if isinstance(message, Report) else []
    assert epochs == list(range(1, 51))
    assert list(tmp_path.glob("s/trials/1/checkpoint.json"))


def test_a_worker_killed_in_the_middle_of_a_trial(engine, tmp_path):
    engine.submit(task(tmp_path, "descend", lr=0.1, seed=0, epochs=1000, pause=0.01))
    until(lambda: engine.wait(0.1))
    (worker,) = children(os.getpid())
    kill(worker)
    (end,) = until(lambda: engine.wait(0.1))
    output = tmp_path / "s" / "trials" / "1" / "output.txt"
    assert (end.how, end.reason) == ("died", f"the worker died (killed by signal 9); see {output}")
    assert output.exists()
    engine.submit(task(tmp_path, "nothing", 2, seed=0))
    assert ends(engine, 1)[2].outcome == {"seed": 0}


def test_a_worker_killed_while_it_waits(engine, tmp_path):
    engine.submit(task(tmp_path, "nothing", 1, seed=1))
    ends(engine, 1)
    kill(children(os.getpid())[0])
    until(lambda: not any(map(alive, children(os.getpid()))))
    engine.submit(task(tmp_path, "nothing", 2, seed=2))
    assert ends(engine, 1)[2].outcome == {"seed": 2}


def test_what_a_worker_started_ends_with_it(engine, tmp_path):
    engine.submit(task(tmp_path, "deserted"))
    assert ends(engine, 1)[1].how == "died"
    child = int((tmp_path / "s" / "trials" / "1" / "child").read_text())
    until(lambda: not alive(child), seconds=5)


def test_a_trial_has_its_directory_to_itself(engine, tmp_path):
    engine.submit(task(tmp_path, "guarded"))
    assert ends(engine, 1)[1].outcome == {"guarded": True}


def test_a_module_that_exits_while_it_is_imported(tmp_path, monkeypatch):
    """It is missing, as one that raises, and has not ended the worker."""
    (tmp_path / "a_program.py").write_text("import sys\nsys.exit('not a module')\n")
    monkeypatch.syspath_prepend(tmp_path)
    end = perform(Task(1, "a_program:trial", {}, str(tmp_path)), print)
    assert (end.how, end.reason) == ("missing", "SystemExit: not a module")


def test_stopping_ends_a_trial_at_once(tmp_path):
    engine = Local(1)
    engine.start()
    engine.submit(task(tmp_path, "descend", lr=0.1, seed=0, epochs=1, pause=60))
    (worker,) = children(os.getpid())
    start = time.monotonic()
    engine.stop()
    assert time.monotonic() - start < 5
    assert not alive(worker)


def test_a_worker_ends_with_its_driver_in_the_middle_of_a_trial(tmp_path):
    """Killed with -9 while the worker computes and does not look at its pipe."""
    code = (
        "import sys; from aggmo.lab.engine import Task; from aggmo.lab.engine.local import Local\n"
        "engine = Local(1); engine.submit(Task(1, 'trials:descend',"
        " {'lr': 0.1, 'seed': 0, 'epochs': 1, 'pause': 60}, sys.argv[1])); engine.wait(60)"
    )
    place = tmp_path / "s" / "trials" / "1"
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[1])}
    driver = subprocess.Popen([sys.executable, "-c", code, place], env=environment)
    (worker,) = until(lambda: children(driver.pid))
    until(lambda: (place / "lock").exists())
    kill(driver.pid)
    driver.wait()
    until(lambda: not alive(worker), seconds=5)


@pytest.mark.parametrize(("workers", "threads"), [(0, 1), (1, 0), (True, 1), (1.5, 1), (None, 2.0)])
def test_bad_arguments(workers, threads):
    with pytest.raises(ValueError, match="must be a whole number >= 1"):
        Local(workers, threads)


def test_as_many_workers_as_processors():
    assert Local().workers == len(os.sched_getaffinity(0))
    assert Local(threads=10_000).workers == 1
