"""The benchmark of the Optax step, run as users run it: its parameters, its table, its answer to bad arguments."""

import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "optax_step.py"


def run(*arguments):
    """In a process of its own: once JAX has started its threads, a fork in another test draws a warning."""
    return subprocess.run([sys.executable, SCRIPT, *arguments], capture_output=True, text=True, check=False)


def test_table():
    done = run("--rounds", "2", "--steps", "1", "--width", "8")
    assert done.returncode == 0, done.stderr
    assert "**GPT-2**: 148 tensors, 18,992 elements" in done.stdout  # 12 (12 w^2 + 13 w) + 2 w + 1064 w, w = 8
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in done.stdout.splitlines() if line[:2] == "| "]
    rows = {row[0]: list(map(float, row[1:])) for row in rows[2:]}
    assert list(rows) == ["AggMo (0, 0.9, 0.99)", "AggMo (0, 0.9)", "optax.adam", "optax.sgd, momentum"]
    for least, _, median, ratio, cpu, _, _, _ in rows.values():
        assert 0 < least <= median
        assert min(ratio, cpu) > 0
    assert rows["optax.adam"][1] == rows["optax.adam"][3] == rows["optax.adam"][5] == 1
    assert [row[-1] for row in rows.values()] == [2, 1, 2, 1]  # velocities; Adam's two moments
    # Counted by XLA, as docs/jax.md has them; at this size Adam's count of steps weighs a little.
    assert [row[-2] for row in rows.values()] == pytest.approx([11, 7, 10, 6], abs=0.2)


@pytest.mark.parametrize("bad", [("--rounds", "0"), ("--fast",)])
def test_bad_arguments(bad):
    done = run(*bad)
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1)
    assert bad[0] in done.stderr
