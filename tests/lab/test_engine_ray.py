"""The Ray engine, on a cluster of this machine: the same records as the local one, whatever dies."""

import io
import os
import signal
import subprocess
import sys
import threading

import pytest
import trials
from rich.console import Console
from trials import attempts, contents, kill, until

from aggmo.lab.engine.local import Local
from aggmo.lab.engine.ray import Ray
from aggmo.lab.records import StudyError
from aggmo.lab.study import Study, grid

QUIET = Console(file=io.StringIO())
LEFT = {"study.sqlite", "study.lock"}
SETTINGS = grid(lr=[0.1, 0.5], seed=[0, 1], epochs=[10], pause=[0.03])


@pytest.fixture(scope="module")
def cluster():
    """Two processors, and a GPU that only the books know of."""
    before = os.environ.copy()
    os.environ.update(RAY_USAGE_STATS_ENABLED="0", RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO="0")
    import ray

    ray.init(num_cpus=2, num_gpus=1, include_dashboard=False, log_to_driver=False, logging_level="error")
    yield ray.get_runtime_context().gcs_address
    ray.shutdown()
    os.environ.clear()
    os.environ.update(before)


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    """What the local engine gives."""
    study = Study.declare(tmp_path_factory.mktemp("undisturbed"), "trials:descend", SETTINGS)
    study.run(Local(2), console=QUIET)
    return contents(study.directory)


@pytest.mark.usefixtures("cluster")
def test_the_records_are_those_of_the_local_engine(undisturbed, tmp_path):
    study = Study.declare(tmp_path / "s", "trials:descend", SETTINGS)
    assert study.run(Ray(), console=QUIET).done
    assert contents(study.directory) == undisturbed
    assert {path.name for path in study.directory.iterdir()} == LEFT


@pytest.mark.usefixtures("cluster")
def test_a_worker_killed_in_the_middle_of_a_trial(undisturbed, tmp_path):
    """The trial goes on from its checkpoint on another worker, and leaves the same records."""
    notes = tmp_path / "notes"
    notes.touch()
    study = Study.declare(tmp_path / "s", "trials:descend", SETTINGS)

    def kill_the_first():
        until(lambda: len(contents(study.directory)["curves"]) >= 6)
        kill(int(notes.read_text().split()[1]))

    killer = threading.Thread(target=kill_the_first)
    killer.start()
    assert study.run(Ray(), console=QUIET).done
    killer.join()
    begun = [line.split() for line in notes.read_text().splitlines()]
    trial, pid, _ = begun[0]
    (again,) = [line for line in begun[1:] if line[0] == trial]
    assert again[1] != pid
    assert int(again[2]) > 0  # the epoch of the checkpoint
    assert sorted(ended for _, ended in attempts(study.directory)) == ["died"] + ["finished"] * len(SETTINGS)
    assert contents(study.directory) == undisturbed
    assert {path.name for path in study.directory.iterdir()} == LEFT


def test_a_driver_killed_or_stopped(cluster, undisturbed, tmp_path):
    """Drivers that come to the cluster by its address: one is stopped by Ctrl-C, one killed, the third finishes."""
    study = Study.declare(tmp_path / "s", "trials:descend", SETTINGS)
    command = [sys.executable, trials.__file__, study.directory, "2", cluster]
    for number, rows, code in [(signal.SIGINT, 3, 130), (signal.SIGKILL, 12, -9)]:
        driver = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
        until(lambda rows=rows: len(contents(study.directory)["curves"]) >= rows, seconds=60)
        driver.send_signal(number)
        _, err = driver.communicate(timeout=30)
        assert driver.returncode == code
        assert "Traceback" not in err
        assert contents(study.directory) != undisturbed
    subprocess.run(command, check=True, capture_output=True)
    assert contents(study.directory) == undisturbed
    assert {path.name for path in study.directory.iterdir()} == LEFT


@pytest.mark.usefixtures("cluster")
def test_a_trial_that_kills_every_worker_fails(tmp_path):
    study = Study.declare(tmp_path / "s", "trials:stubborn", grid(deaths=[1, 9]))
    summary = study.run(Ray(), attempts=2, console=QUIET)
    assert (summary.finished, summary.failed) == (1, 1)
    with study.records() as records:
        assert records.trial(2).error.startswith("the worker died (WorkerCrashedError: ")
        assert records.curve(1)["loss"].tolist() == [1.0, 0.5]
        assert records.curve(2)["loss"].tolist() == [1.0, 0.5]


@pytest.mark.usefixtures("cluster")
def test_an_exception_is_a_failure(tmp_path):
    study = Study.declare(tmp_path / "s", "trials:fussy", grid(seed=[0]))
    study.run(Ray(), console=QUIET)
    with study.records() as records:
        assert records.trial(1).error.endswith("ArithmeticError: seed 0 is not to its taste\n")


@pytest.mark.usefixtures("cluster")
def test_a_function_that_is_not_there(tmp_path):
    study = Study.declare(tmp_path / "s", "trials:no_such_function", grid(seed=[0]))
    with pytest.raises(StudyError, match="no worker can import trials:no_such_function: AttributeError"):
        study.run(Ray(), console=QUIET)


@pytest.mark.usefixtures("cluster")
@pytest.mark.parametrize(
    ("shares", "workers"),
    [({}, 2), ({"cpus": 0.5}, 4), ({"cpus": 2}, 1), ({"gpus": 0.5}, 2), ({"gpus": 1}, 1), ({"workers": 7}, 7)],
)
def test_shares(shares, workers):
    """Oracle: by hand, from 2 processors and 1 GPU."""
    engine = Ray(**shares)
    engine.start()
    assert (engine.workers, engine.idle()) == (workers, workers)
    engine.stop()


@pytest.mark.usefixtures("cluster")
def test_a_trial_sees_its_share(tmp_path):
    study = Study.declare(tmp_path / "s", "trials:place", grid(seed=[0]))
    study.run(Ray(gpus=0.5), console=QUIET)
    with study.records() as records:
        outcome = records.trial(1).outcome
    assert (outcome["devices"], outcome["threads"], outcome["device"]) == ("0", 1, "cuda")
    study = Study.declare(tmp_path / "other", "trials:place", grid(seed=[0]))
    study.run(Ray(), console=QUIET)
    with study.records() as records:
        assert records.trial(1).outcome["device"] == "cpu"


@pytest.mark.usefixtures("cluster")
@pytest.mark.parametrize("shares", [{"cpus": 3}, {"gpus": 2}])
def test_a_cluster_without_room(shares, tmp_path):
    study = Study.declare(tmp_path / "s", "trials:nothing", grid(seed=[0]))
    with pytest.raises(StudyError, match="the Ray cluster has no room for a trial of"):
        study.run(Ray(**shares), console=QUIET)


@pytest.mark.parametrize("address", ["127.0.0.1:9", "ray://127.0.0.1:9", "nowhere"])
def test_no_cluster_at_the_address(address, tmp_path):
    study = Study.declare(tmp_path / "s", "trials:nothing", grid(seed=[0]))
    command = [sys.executable, trials.__file__, study.directory, "1", address]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert done.stderr.startswith(f"no Ray cluster at {address}: ")
    assert done.stderr.count("\n") == 1


def test_without_ray(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    study = Study.declare(tmp_path / "s", "trials:nothing", grid(seed=[0]))
    with pytest.raises(StudyError, match=r"the Ray engine needs Ray: pip install 'aggmo\[cluster\]'"):
        study.run(Ray(), console=QUIET)


@pytest.mark.parametrize(
    "bad",
    [
        {"cpus": 0},
        {"cpus": float("inf")},
        {"gpus": -1},
        {"gpus": "1"},
        {"gpus": float("nan")},
        {"workers": 0},
        {"threads": 0},
    ],
)
def test_bad_arguments(bad):
    with pytest.raises(ValueError, match=f"{next(iter(bad))}="):
        Ray(**bad)
