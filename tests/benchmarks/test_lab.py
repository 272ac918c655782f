"""The benchmarks of the lab: that their contenders do the same work, and their tables and answers to bad arguments."""

import subprocess
import sys
from pathlib import Path

import pytest
import torch

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


def run(script, *arguments):
    command = [sys.executable, BENCHMARKS / script, *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def rows(text):
    """The cells of the rows after each ruler."""
    lines = [*text.splitlines(), ""]
    found = [line for i, line in enumerate(lines) if line.startswith("| ") and "---" not in line + lines[i + 1]]
    return [[cell.strip() for cell in line.split("|")[1:-1]] for line in found]


@pytest.fixture
def lab(monkeypatch):
    monkeypatch.syspath_prepend(BENCHMARKS)
    import lab

    return lab


def test_the_loader_gives_the_same_images(lab):
    """Oracle: the lab's own batches. Order and labels aside, a DataLoader has the same floats."""
    plain, loaded = (lab.autoencoder(1, 0.05, kind).data for kind in (lab.ImageBatches, lab.Loaded))
    [(images, _)] = plain.training(lab.BATCH, torch.Generator().manual_seed(0))
    [(pictures, _)] = loaded.training(lab.BATCH, torch.Generator().manual_seed(0))
    assert images.shape == pictures.shape

    def in_order(batch):
        return sorted(map(tuple, batch.flatten(1).tolist()))

    assert in_order(images) == in_order(pictures)


def test_the_table_of_the_loops():
    done = run("lab.py", "--rounds", "1", "--steps", "2", "--widths", "0.05", "--threads", "1")
    assert done.returncode == 0, done.stderr
    found = rows(done.stdout)
    assert [row[0] for row in found] == ["bare loop", "lab", "lab, held batch", "lab, DataLoader"]
    assert float(found[0][4]) == float(found[1][5]) == 1.0


def test_the_table_of_the_studies():
    done = run("study.py", "--trials", "20", "--equal", "2", "--steps", "1", "--rounds", "1")
    assert done.returncode == 0, done.stderr
    trials, *workers = rows(done.stdout)
    assert trials[0] == "20"
    assert [row[0] for row in workers] == ["1", "2"]
    assert workers[0][2] == "1.00"


@pytest.mark.parametrize("arguments", [["--steps", "0"], ["--widths", "2"], ["--rounds", "x"]])
def test_bad_arguments(arguments, lab, capsys):
    with pytest.raises(SystemExit) as ended:
        lab.main(arguments)
    out, err = capsys.readouterr()
    assert (ended.value.code, out, err.count("\n")) == (2, "", 1)
    assert arguments[1] in err


def test_bad_arguments_of_the_studies():
    done = run("study.py", "--trials", "x")
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1)
    assert "'x' is not a whole number >= 1" in done.stderr
