"""A training that is killed and resumed against one that never stopped: the same bits in every record."""

import os
import random
import signal
import struct
import subprocess
import sys
import time
from pathlib import Path

import pytest
import small_tasks
import torch

from aggmo.lab.setting import Setting
from aggmo.lab.train import train

TESTS = Path(small_tasks.__file__).parent


def bits(records):
    """The records without their times, each float as its eight bytes."""
    return [
        {
            name: struct.pack("<d", value) if isinstance(value, float) else value
            for name, value in record.items()
            if name != "seconds"
        }
        for record in records
    ]


class StopError(Exception):
    """Ends a training from its report."""


def interrupted(task, setting, directory, every):
    """The outcome of a training that is stopped after so many epochs, again and again, and all that it reported."""
    reported = []

    def report(record):
        reported.append(record)
        calls[0] += 1
        if calls[0] == every:
            raise StopError

    while True:
        calls = [0]
        try:
            return train(task, setting, 3, directory, report, checkpoint_seconds=0.0), reported
        except StopError:
            assert os.listdir(directory) in ([], ["checkpoint.pt"])


# Each with all it can have: momentum of every kind, a plateau that reduces, milestones, an average that begins.
SETTINGS = {
    "sgd": Setting("sgd", 0.5),
    "cm": Setting("cm", 0.1),
    "nesterov": Setting("nesterov", 0.1, (0.99,)),
    "adam": Setting("adam", 0.01),
    "aggmo": Setting("aggmo", 0.1),
    "nt-asgd": Setting("nt-asgd", 2.0),
}
TASKS = {"classification": small_tasks.classification, "language": small_tasks.language}


def tensors(directory):
    """Every tensor in a checkpoint, by its place."""
    found = {}

    def walk(place, thing):
        if isinstance(thing, torch.Tensor):
            found[place] = thing
        elif isinstance(thing, dict):
            for key, value in thing.items():
                walk((*place, key), value)
        elif isinstance(thing, list | tuple):
            for i, value in enumerate(thing):
                walk((*place, i), value)

    walk((), torch.load(directory / "checkpoint.pt", weights_only=True))
    return found


@pytest.mark.parametrize("setting", SETTINGS.values(), ids=SETTINGS)
@pytest.mark.parametrize("task", TASKS.values(), ids=TASKS)
def test_a_resumed_training_is_one_that_never_stopped(task, setting, tmp_path):
    """The reports, the outcome, and every tensor of the last checkpoint: parameters, optimizer, average, generators."""
    undisturbed = train(task(), setting, 3, tmp_path / "undisturbed")
    resumed, reported = interrupted(task(), setting, tmp_path / "resumed", every=3)
    assert bits(resumed.records) == bits(undisturbed.records)
    assert (resumed.status, bits([resumed.best])) == (undisturbed.status, bits([undisturbed.best]))
    by_epoch = {record["epoch"]: record for record in reported}
    assert bits([by_epoch[record["epoch"]] for record in reported]) == bits(reported)
    assert bits(by_epoch.values()) == bits(undisturbed.records)
    one, other = tensors(tmp_path / "undisturbed"), tensors(tmp_path / "resumed")
    assert one.keys() == other.keys()
    assert all(torch.equal(one[place], other[place]) for place in one)
    assert {("state", "random", "cpu"), ("state", "order"), ("state", "model")} <= {place[:3] for place in one} | {
        place[:2] for place in one
    }


def test_the_cases_have_what_could_be_lost():
    """Otherwise the test above says little: a reduced rate, an average, scores that are not all new bests."""
    records = train(small_tasks.classification(), SETTINGS["aggmo"], 3).records
    assert records[-1]["lr"] < 0.1
    for task in TASKS.values():
        records = train(task(), SETTINGS["nt-asgd"], 3).records
        assert {record["averaged"] for record in records} == {0, 1}


def test_a_training_that_is_over_is_only_looked_up(tmp_path):
    outcome = train(small_tasks.classification(), SETTINGS["cm"], 3, tmp_path)
    reported = []
    again = train(small_tasks.classification(), SETTINGS["cm"], 3, tmp_path, reported.append)
    assert (reported, bits(again.records), again.status) == ([], bits(outcome.records), outcome.status)
    assert again.records == outcome.records  # the times as well: nothing was computed


@pytest.mark.parametrize("status", ["diverged", "stopped early"])
def test_how_a_training_ended_is_kept(status, tmp_path):
    options = {"diverged": {"lr": 1e30}, "stopped early": {"lr": 1e-30, "patience": 2}}[status]
    setting = Setting("cm", **options)
    outcome = train(small_tasks.classification(), setting, 3, tmp_path)
    again = train(small_tasks.classification(), setting, 3, tmp_path)
    assert (outcome.status, bits(again.records)) == (status, bits(outcome.records))
    assert again.status == status


def test_checkpoints_are_no_more_frequent_than_asked(tmp_path):
    seen = []
    report = lambda _: seen.append((tmp_path / "checkpoint.pt").exists())  # noqa: E731
    train(small_tasks.classification(), SETTINGS["cm"], 3, tmp_path, report, checkpoint_seconds=1000.0)
    assert set(seen) == {False}
    assert (tmp_path / "checkpoint.pt").exists()


@pytest.mark.parametrize(
    ("task", "setting", "seed", "message"),
    [
        (small_tasks.classification, SETTINGS["adam"], 3, "another trial, with setting"),
        (small_tasks.classification, SETTINGS["cm"], 4, "another trial, with seed 3, not 4"),
        (small_tasks.language, SETTINGS["cm"], 3, "another trial, with task 'classification', not 'language'"),
        (
            lambda: small_tasks.classification(model=lambda: torch.nn.Linear(2, 3)),
            SETTINGS["cm"],
            3,
            "checkpoint.pt does not fit the task as it is now: RuntimeError: Error.s. in loading state_dict",
        ),
    ],
)
def test_the_checkpoint_of_another_trial(task, setting, seed, message, tmp_path):
    train(small_tasks.classification(), SETTINGS["cm"], 3, tmp_path)
    with pytest.raises(ValueError, match=message) as caught:
        train(task(), setting, seed, tmp_path)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"seed": -1}, "seed=-1"),
        ({"seed": True}, "seed=True"),
        ({"seed": 0.5}, "seed=0.5"),
        ({"checkpoint_seconds": -1.0}, "checkpoint_seconds=-1.0"),
        ({"checkpoint_seconds": float("nan")}, "checkpoint_seconds=nan"),
    ],
)
def test_bad_arguments(arguments, message):
    with pytest.raises(ValueError, match=message):
        train(**{"task": small_tasks.classification(), "setting": SETTINGS["cm"], "seed": 3, **arguments})


# Forks a process for each line that it reads, so that only the first one waits for torch to be imported.
SERVER = """
import json, os, sys, traceback
import torch
from aggmo.lab.setting import Setting
from aggmo.lab.task import find
from aggmo.lab.train import train

def work(name, setting, directory):
    with open(directory + "/reported", "a", buffering=1) as reported:
        report = lambda record: print(json.dumps({k: float(v).hex() for k, v in record.items()}), file=reported)
        train(find(name), Setting.from_json(setting), 3, directory, report, checkpoint_seconds=0.0)

torch.set_num_threads(1)
for _ in sys.stdin:
    pid = os.fork()
    if not pid:
        try:
            work(*sys.argv[1:])
        except BaseException:
            traceback.print_exc()
            os._exit(1)
        os._exit(0)
    print(pid, flush=True)
    print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), flush=True)
"""


def test_a_process_killed_at_random_moments(tmp_path):
    """Real processes, killed by the system without a chance to clean up, the last of which comes to the end."""
    setting = Setting("aggmo", 0.1, epochs=200)
    undisturbed = train(small_tasks.classification(), setting, 3)
    reported, moments, sizes = tmp_path / "reported", random.Random(0), [0]
    reported.touch()
    command = [sys.executable, "-c", SERVER, "small_tasks:classification", setting.to_json(), str(tmp_path)]
    environment = os.environ | {"PYTHONPATH": str(TESTS), "OMP_NUM_THREADS": "1"}
    with subprocess.Popen(command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as server:
        for _ in range(8):
            print(file=server.stdin, flush=True)
            pid = int(server.stdout.readline())
            deadline = time.monotonic() + 60
            while reported.stat().st_size == sizes[-1] and time.monotonic() < deadline:
                time.sleep(0.002)
            time.sleep(moments.uniform(0.0, 0.1))
            os.kill(pid, signal.SIGKILL)
            assert int(server.stdout.readline()) == -signal.SIGKILL
            sizes.append(reported.stat().st_size)
        print(file=server.stdin, flush=True)
        server.stdout.readline()
        assert int(server.stdout.readline()) == 0
        server.stdin.close()
    assert sizes == sorted(set(sizes))  # each of them came further
    resumed = train(small_tasks.classification(), setting, 3, tmp_path)
    assert bits(resumed.records) == bits(undisturbed.records)
    assert resumed.status == undisturbed.status == "finished"
    assert sorted(os.listdir(tmp_path)) == ["checkpoint.pt", "reported"]
