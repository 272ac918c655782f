"""The benchmark of one step: its parameters against published counts, its table, its answer to bad arguments."""

import importlib.util
import math
from pathlib import Path

import pytest

SPEC = importlib.util.spec_from_file_location("step", Path(__file__).parents[2] / "benchmarks" / "step.py")
step = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(step)


@pytest.fixture
def lines(capsys):
    step.main(["--rounds", "2", "--steps", "1", "--threads", "1", "--parameters", "resnet32", "autoencoder"])
    return capsys.readouterr().out.splitlines()


def test_parameters(lines):
    assert "**resnet32**: tensors: 95, elements: 464,154" in lines  # He et al. 2016: 0.46M, without projections
    assert "**autoencoder**: tensors: 16, elements: 2,837,314" in lines  # the paper's


def test_table(lines):
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in lines if line.startswith("| ")]
    rows = [row for row in rows if row[0] not in ("contender", "---")]
    names = [row[0] for row in rows]
    assert names[: len(names) // 2] == names[len(names) // 2 :]  # two sets of parameters, the same contenders
    assert {"AggMo, loop", "AggMo, foreach", "SGD, fused", "Adam, fused"} <= set(names)
    for name, minimum, median, ratio in rows:
        assert 0 < float(minimum) <= float(median)
        assert float(ratio) > 0
        assert math.isclose(float(ratio), 1) or name != "Adam, fused"


@pytest.mark.parametrize("bad", [("--rounds", "0"), ("--steps", "many"), ("--parameters", "none"), ("--fast",)])
def test_bad_arguments(bad, capsys):
    with pytest.raises(SystemExit) as exit_:
        step.main(bad)
    out, err = capsys.readouterr()
    assert (exit_.value.code, out, err.count("\n")) == (2, "", 1)
    assert bad[0] in err
