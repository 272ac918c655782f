"""The experiment on the edge of stability: where training settles, the form of the table, bad arguments."""

import importlib.util
from pathlib import Path

import pytest

SPEC = importlib.util.spec_from_file_location(
    "edge_of_stability", Path(__file__).parents[2] / "benchmarks" / "edge_of_stability.py"
)
edge_of_stability = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(edge_of_stability)


@pytest.mark.parametrize(("name", "steps"), [("gradient descent", 1800), ("AggMo (0, 0.9)", 600)])
def test_the_sharpness_rises_to_the_edge(name, steps):
    """Oracle: the stability limit over lr, where Cohen et al. found gradient descent."""
    run = edge_of_stability.train(edge_of_stability.DAMPINGS[name], edge=5, steps=steps, seed=0, measurements=10)
    assert not run.diverged
    assert run.sharpness[0] < 0.7 * run.edge
    assert abs(run.settled() - 1) < 0.1


def test_table(capsys):
    edge_of_stability.main(["--steps", "1", "--seeds", "2", "--edges", "4", "9"])
    rows = [line.split("|")[1:-1] for line in capsys.readouterr().out.splitlines()[2:]]
    assert len(rows) == 2 * len(edge_of_stability.DAMPINGS)
    for name, limit, lr, edge, settled, _, _ in rows:
        assert name.strip() in edge_of_stability.DAMPINGS
        assert float(lr) == pytest.approx(float(limit) / float(edge), abs=1e-3)
        assert len(settled.split(",")) == 2


@pytest.mark.parametrize("bad", [("--steps", "0"), ("--seeds", "many"), ("--edges", "-1"), ("--fast",)])
def test_bad_arguments(bad, capsys):
    with pytest.raises(SystemExit) as exit_:
        edge_of_stability.main(bad)
    out, err = capsys.readouterr()
    assert (exit_.value.code, out, err.count("\n")) == (2, "", 1)
    assert bad[0] in err
