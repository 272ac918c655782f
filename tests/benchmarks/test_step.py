"""The benchmark of one step: its parameters against published counts, its page, its answer to bad arguments."""

import subprocess
import sys
from pathlib import Path

import pytest

from aggmo.torch import kernel_available

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
SMALL = {"vector": [(300,)], "resnet32": [(3, 2)] * 4, "gpt2": [(7,), (2, 5)], "autoencoder": [(4,), ()]}

pytestmark = [
    # HeavyBall compiles its step, and what that imports uses what torch itself deprecates.
    pytest.mark.filterwarnings("ignore:.torch.jit.script_method. is deprecated:DeprecationWarning"),
]


@pytest.fixture(scope="module")
def step():
    """The script as a module, and its neighbours."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(BENCHMARKS)
        import step

        yield step


def rows(text):
    """The cells of all tables, without heads and rulers."""
    cells = [[cell.strip() for cell in line.split("|")[1:-1]] for line in text.splitlines() if line.startswith("| ")]
    return [
        row
        for i, row in enumerate(cells)
        if "---" not in row[0] and (i + 1 == len(cells) or "---" not in cells[i + 1][0])
    ]


def test_parameters(step):
    """Oracles: He et al. 2016, without projections; GPT-2 small; the paper's autoencoder; the text's 64M."""
    assert {name: step.page.size(name) for name in step.PARAMETERS} == {
        "vector": (1, 2**26),
        "resnet32": (95, 464_154),
        "gpt2": (148, 124_439_808),
        "autoencoder": (16, 2_837_314),
    }


def test_a_whole_run_writes_page_and_plot(step, tmp_path, monkeypatch, capsys):
    """Tiny parameters, but every contender; bytes of state by hand: 4 for each float32 that is kept."""
    for name, shapes in SMALL.items():
        monkeypatch.setitem(step.PARAMETERS, name, shapes)
    page = tmp_path / "performance.md"
    step.main(["--seconds", "1", "--rounds", "1", "--threads", "1", "2", "--scale", "quick", "--page", str(page)])
    printed = capsys.readouterr().out
    assert "**gpt2** (GPT-2 small): tensors: 2, elements: 17" in printed
    networks = [row for row in rows(printed) if row[0] in step.TASKS.values()]
    steps = [row for row in rows(printed) if row not in networks]
    by_name = {row[0]: row for row in reversed(steps)}  # of the vector, whose counters of steps weigh little
    for name, *numbers in steps:
        for least, median, ratio in (numbers[:3], numbers[3:6]):
            assert 0 < float(least) <= float(median)
            assert float(ratio) == 1 or name != "Adam, fused"
    kept = {"Adam, loop": 8, "SGD, fused": 4, "pytorch_optimizer AggMo": 12, "AggMo, loop in blocks": 8}
    assert {name: round(float(by_name[name][7])) for name in kept} == kept
    assert [row[0] for row in networks] == list(step.TASKS.values())
    assert all(0 < float(cell.removesuffix(" %")) < 100 for row in networks for cell in row[3:])
    if kernel_available():
        text = page.read_text()
        assert rows(text)[-len(networks) :] == networks
        in_short = {row[0]: row[1:] for row in rows(text.split("\n## ")[1])}
        assert len(in_short) == 11
        assert in_short["bytes of state a parameter: float32, all bf16"] == ["8, 4", "8, 4", "yes"]
        assert (tmp_path / "performance.svg").read_text().count("GPT-2 small") == 1
        assert all(len(line) <= 120 for line in text.splitlines() if not line.startswith("|"))


@pytest.mark.usefixtures("step")
def test_the_extra_memory_of_a_step():
    """By hand: foreach holds one intermediate, 4 bytes an element; for Adam the roots of the second moments."""
    from contest import _extra_bytes, _made

    extra = {
        c.name: (racer.prepare(), racer.step(), _extra_bytes(racer))[2]
        for c, racer in _made("autoencoder", [(100_000,)], 1)
        if c.name.startswith(("Adam", "AggMo, f"))
    }
    assert 400_000 <= extra["Adam, foreach"] < 401_000
    assert extra["Adam, fused"] < 100
    assert 400_000 <= extra["AggMo, foreach"] < 401_000
    if kernel_available():
        assert extra["AggMo, fused"] == 0


@pytest.mark.parametrize(
    "bad", [("--rounds", "0"), ("--seconds", "many"), ("--threads", "-1"), ("--parameters", "none"), ("--fast",)]
)
def test_bad_arguments(step, bad, capsys):
    with pytest.raises(SystemExit) as exit_:
        step.main(bad)
    out, err = capsys.readouterr()
    assert (exit_.value.code, out, err.count("\n")) == (2, "", 1)
    assert bad[0] in err


def test_it_runs_as_a_script():
    """As `make bench` calls it."""
    result = subprocess.run(
        [sys.executable, BENCHMARKS / "step.py", "--help"], capture_output=True, text=True, check=True
    )
    assert "--parameters" in result.stdout


@pytest.mark.parametrize(
    ("goal", "measured", "reached"),
    [
        ("≤ 0.33", "0.30, 0.33", "yes"),
        ("≤ 0.33", "0.30, 0.34", "in part"),
        ("≤ 0.75", "0.88", "no"),
        ("≥ 0.90", "0.91, 0.95", "yes"),
        ("≥ 0.90", "0.89", "no"),
        ("8, 4", "8, 4", "yes"),
        ("8, 4", "12, 4", "no"),
    ],
)
def test_whether_a_goal_is_reached(step, goal, measured, reached):
    """Oracle: by hand."""
    assert step.page.Claim("", goal, measured).reached == reached
