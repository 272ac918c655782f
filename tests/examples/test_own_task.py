"""The example of a task of one's own, as a user has it: a file in the working directory, and the console script."""

import shutil
import subprocess
import sys
from pathlib import Path

import own_task

from aggmo.lab.records import Records
from aggmo.lab.setting import Setting
from aggmo.lab.train import train

FILE = Path(own_task.__file__)


def test_optimizers_are_compared_on_it(tmp_path):
    """Oracle: `train` called by hand, of which errors do not depend on the number of threads."""
    shutil.copy(FILE, tmp_path)
    options = ["--optimizers", "adam", "--lr", "0.01", "--betas", "adam=0.9", "--seeds", "2", "--workers", "1"]
    command = [Path(sys.executable).with_name("aggmo"), "compare", "own_task:digits", *options, "--no-figures"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    with Records(tmp_path / "runs" / "own_task-digits" / "study.sqlite") as records:
        curves = [records.curve(trial.trial) for trial in records.trials()]
    for seed, curve in enumerate(curves):
        expected = train(own_task.digits(), Setting("adam", 0.01), seed)
        for name in ("validation_error", "test_error"):
            assert curve[name].tolist() == [record[name] for record in expected.records]
    assert max(curve["test_error"][-1] for curve in curves) < 10  # per cent: it learns to read
    assert "test error" in done.stdout


def test_it_is_as_short_as_it_is_said_to_be():
    lines = [line for line in FILE.read_text().splitlines()[1:] if line]
    assert len(lines) <= 30
