"""Checkpoints: whole files only, of this trial only."""

import os
import subprocess
import sys

import pytest
import torch

from aggmo.lab import checkpoint

TRIAL = {"task": "autoencoder", "setting": '{"lr": 0.1}', "seed": 0}
STATE = {
    "tensor": torch.arange(3.0),
    "records": [{"epoch": 1, "loss": float("nan")}],
    "betas": (0.0, 0.9),
    "status": None,
}


@pytest.fixture
def file(tmp_path):
    return tmp_path / "trial" / "checkpoint.pt"


def test_a_state_comes_back(file):
    checkpoint.save(file, TRIAL, STATE)
    found = checkpoint.load(file, TRIAL)
    assert torch.equal(found["tensor"], STATE["tensor"])
    assert (found["betas"], found["status"], found["records"][0]["epoch"]) == ((0.0, 0.9), None, 1)
    assert os.listdir(file.parent) == [file.name]


def test_no_checkpoint(file):
    assert checkpoint.load(file, TRIAL) is None
    assert not file.parent.exists()


@pytest.mark.parametrize("length", [0, 1, 100, 0.5, -1])
def test_a_damaged_file_is_an_error_and_stays(file, length):
    checkpoint.save(file, TRIAL, STATE)
    whole = file.read_bytes()
    part = whole[: int(length * len(whole)) if isinstance(length, float) else length]
    file.write_bytes(part)
    with pytest.raises(ValueError, match=r"checkpoint.pt is damaged, or no checkpoint .*: remove it") as caught:
        checkpoint.load(file, TRIAL)
    assert "\n" not in str(caught.value)
    assert file.read_bytes() == part


class Opener:
    """What a hostile pickle would do: make a file."""

    def __reduce__(self):
        return open, ("opened", "w")


@pytest.mark.parametrize("content", [{"epoch": 3}, [1, 2], torch.zeros(2), {"format": 1, "trial": 3, "state": {}}])
def test_a_foreign_file_is_an_error(file, content):
    file.parent.mkdir()
    torch.save(content, file)
    with pytest.raises(ValueError, match="damaged, or no checkpoint"):
        checkpoint.load(file, TRIAL)


def test_nothing_but_tensors_and_plain_values_is_loaded(file, monkeypatch):
    file.parent.mkdir()
    monkeypatch.chdir(file.parent)
    torch.save({"format": checkpoint.FORMAT, "trial": TRIAL, "state": {"opener": Opener()}}, file)
    with pytest.raises(ValueError, match=r"damaged, or no checkpoint \(UnpicklingError\)"):
        checkpoint.load(file, TRIAL)
    assert os.listdir() == [file.name]


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("seed", 1, "with seed 0, not 1"),
        ("task", "cnn5", "with task 'autoencoder', not 'cnn5'"),
        ("setting", "{}", "with setting '{\"lr\": 0.1}', not '{}'"),
        ("scale", "quick", "with scale None, not 'quick'"),
    ],
)
def test_the_checkpoint_of_another_trial_is_an_error(file, name, value, message):
    checkpoint.save(file, TRIAL, STATE)
    with pytest.raises(ValueError, match="is the checkpoint of another trial, " + message.replace(".", r"\.")):
        checkpoint.load(file, TRIAL | {name: value})


def test_another_format_is_an_error(file, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr(checkpoint, "FORMAT", 99)
        checkpoint.save(file, TRIAL, STATE)
    with pytest.raises(ValueError, match="format 99: this version reads format 1"):
        checkpoint.load(file, TRIAL)


# A process for each moment of `save`, killed right there.
KILLED = """
import os, signal, sys
from pathlib import Path
import torch
from aggmo.lab import checkpoint

def die(*_):
    os.kill(os.getpid(), signal.SIGKILL)

def half(_, stream):
    stream.write(b"half of a checkpoint")
    stream.flush()
    die()

moments = {"torch.save": (torch, "save", half), "fsync": (os, "fsync", die), "replace": (Path, "replace", die)}
for name, moment in moments.items():
    pid = os.fork()
    if not pid:
        file = Path(sys.argv[1], name, "checkpoint.pt")
        checkpoint.save(file, {"seed": 0}, {"epoch": 1})
        setattr(*moment)
        checkpoint.save(file, {"seed": 0}, {"epoch": 2})
    print(name, os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
"""


@pytest.fixture(scope="module")
def killed(tmp_path_factory):
    """A directory with what each of the processes left."""
    directory = tmp_path_factory.mktemp("killed")
    done = subprocess.run([sys.executable, "-c", KILLED, directory], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["torch.save", "-9", "fsync", "-9", "replace", "-9"]
    return directory


@pytest.mark.parametrize("moment", ["torch.save", "fsync", "replace"])
def test_a_process_killed_while_it_saves_leaves_the_checkpoint_before(killed, moment):
    """And what else it leaves is gone after the next load."""
    assert sorted(os.listdir(killed / moment)) == ["checkpoint.pt", "checkpoint.pt.unfinished"]
    assert checkpoint.load(killed / moment / "checkpoint.pt", {"seed": 0}) == {"epoch": 1}
    assert os.listdir(killed / moment) == ["checkpoint.pt"]


def test_a_save_that_fails_leaves_the_checkpoint_before(file):
    """Oracle: what cannot be pickled cannot be saved."""
    checkpoint.save(file, TRIAL, {"epoch": 1})
    with pytest.raises(Exception, match="pickle"):
        checkpoint.save(file, TRIAL, {"tensor": torch.zeros(1000), "function": lambda: None})
    assert os.listdir(file.parent) == [file.name]
    assert checkpoint.load(file, TRIAL) == {"epoch": 1}
