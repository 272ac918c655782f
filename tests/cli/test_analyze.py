"""`aggmo analyze`. Oracles: the functions of `aggmo.theory` that it calls, called here, and closed forms."""

import json
import subprocess
import sys

import numpy as np
import pytest
from PIL import Image

from aggmo import Damping
from aggmo.cli import main
from aggmo.theory.stability import best_lr, classical_optimum, limit, real_windows, underdamped


def analyze(capsys, *arguments):
    """Exit code, standard output and standard error."""
    with pytest.raises(SystemExit) as ended:
        main(["analyze", *arguments])
    return ended.value.code or 0, *capsys.readouterr()


def test_the_table_of_the_default(capsys):
    code, out, err = analyze(capsys)
    assert (code, err) == (0, "")
    rows = [line.split() for line in out.splitlines()]
    assert ["3", "0.99", "0.3333", "33.33"] in rows
    assert ["together", "1", "37", "2.957"] in rows
    assert ["CM", "0.99", "100", "3.98"] in rows
    assert ["Nesterov", "0.99", "100", "1.336"] in rows
    assert "7.133e-05 < lr·λ < 2.628." in out
    # Rates of DESIGN and of the closed forms: at 100 the optimum is 2 / 11, and CM's rate 1 - sqrt(0.99).
    assert ["100", "2.934", "3.09e-02", "5.01e-03", "1.17e-02", "1.82e-01", "5.88×"] in rows
    assert [row[0] for row in rows if row and row[-1].endswith("×")] == [f"{10**i:,}" for i in range(1, 8)]
    assert max(map(len, out.splitlines())) <= 80


def test_json_has_everything_in_full(capsys):
    code, out, _ = analyze(capsys, "0,0.01,0.99", "--weights", "1,1,0.5", "--kappas", "1,37.5,1e6", "--json")
    found, damping = json.loads(out), Damping((0, 0.01, 0.99), (1, 1, 0.5))
    assert code == 0
    assert (found["betas"], found["weights"]) == ([0, 0.01, 0.99], [1, 1, 0.5])
    assert found["terminal_velocity"] == damping.terminal_velocity
    assert found["stability_limit"] == limit(damping)
    assert tuple(found["underdamped"]) == underdamped(damping)
    assert [tuple(window) for window in found["real_windows"]] == list(real_windows(damping))
    assert found["rivals"]["nesterov"]["stability_limit"] == limit(Damping.nesterov(0.99))
    assert [row["condition_number"] for row in found["condition_numbers"]] == [1, 37.5, 1e6]
    for row in found["condition_numbers"]:
        kappa = row["condition_number"]
        assert (row["lr"], row["rate"]) == best_lr(damping, kappa)
        assert (row["classical"]["lr"], row["classical"]["rate"]) == best_lr((0.99,), kappa)
        assert (row["nesterov"]["lr"], row["nesterov"]["rate"]) == best_lr(Damping.nesterov(0.99), kappa)
        assert row["classical_optimum"] == classical_optimum(kappa)._asdict()
        assert row["slowdown"] == row["classical_optimum"]["rate"] / row["rate"]


def test_windows_and_their_absence_are_said(capsys):
    assert "lr·λ < 1.649,\nbut none in 1.312 … 1.352." in analyze(capsys, "0,0.01,0.99", "--kappas", "10")[1]
    assert "Nothing oscillates" in analyze(capsys, "0", "--kappas", "10")[1]
    assert json.loads(analyze(capsys, "0", "--kappas", "10", "--json")[1])["underdamped"] is None


@pytest.mark.parametrize("betas", ["0", "0,0.01,0.99"])
def test_a_picture(capsys, tmp_path, betas):
    file = tmp_path / "rates.png"
    assert analyze(capsys, betas, "--plot", str(file))[0] == 0
    with Image.open(file) as picture:
        assert picture.width > 1000
        colours = np.unique(np.asarray(picture.convert("RGB")).reshape(-1, 3), axis=0)
    for tone in ((0x14, 0x50, 0xB4), (0xC2, 0x50, 0x0F), (0x0A, 0x82, 0x65)):  # AggMo, CM and Nesterov
        assert (colours == tone).all(axis=1).any()


@pytest.mark.parametrize(("kappas", "low", "high"), [("300,2,50", 2, 300), ("2,2", 1, 20)])
def test_a_picture_is_of_the_condition_numbers_given(capsys, tmp_path, monkeypatch, kappas, low, high):
    """Oracle: the condition numbers at which the curves ask for rates; one alone gets a decade to each side."""
    asked = []

    def watched(damping, kappa):
        asked.append(kappa)
        return best_lr(damping, kappa)

    monkeypatch.setattr("aggmo.theory.stability.best_lr", watched)
    assert analyze(capsys, "--kappas", kappas, "--plot", str(tmp_path / "rates.svg"))[0] == 0
    curves = [kappa for kappa in asked if np.ndim(kappa)]
    assert len(curves) == 3
    for kappa in curves:
        assert (kappa[0], kappa[-1]) == pytest.approx((low, high))


def test_a_beta_near_1_is_not_rounded_to_it(capsys):
    rows = [line.split() for line in analyze(capsys, "0,0.99999999", "--kappas", "10")[1].splitlines()]
    assert ["2", "0.99999999", "0.5", "5e+07"] in rows
    assert ["CM", "0.99999999", "1e+08", "4"] in rows


def test_a_picture_as_vectors(capsys, tmp_path):
    file = tmp_path / "rates.svg"
    assert analyze(capsys, "--plot", str(file))[0] == 0
    assert "<svg" in file.read_text()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["0,1"], "betas[1] is 1.0: every beta must be in [0, 1)"),
        (["0,x"], "betas '0,x': must be numbers with commas between"),
        (["0,nan"], "betas[1] is nan"),
        (["0,0.9", "--weights", "1"], "1 weights for 2 betas"),
        (["--weights", "1,-1,1"], "weights[1] is -1.0"),
        (["--weights", ""], "--weights '': must be numbers"),
        (["--kappas", "10,0.5"], "condition_number=0.5: must be"),
        (["--kappas", "1e400"], "condition_number=inf: must be"),
        (["--plot", "no/such/directory/rates.png"], "No such file or directory: 'no/such/directory/rates.png'"),
        (["--plot", "rates.docx"], "Format 'docx' is not supported"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_bad_input_is_one_line_and_code_2(capsys, tmp_path, monkeypatch, arguments, message):
    monkeypatch.chdir(tmp_path)
    code, out, err = analyze(capsys, *arguments)
    assert (code, out) == (2, "")
    assert err.startswith("aggmo: ")
    assert message in err
    assert err.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


def test_the_table_needs_no_framework():
    code = "import sys; from aggmo.cli import main\ntry:\n main(['analyze', '--kappas', '10'])\nfinally:\n"
    code += " print(*{name.split('.')[0] for name in sys.modules}, file=sys.stderr)"
    done = subprocess.run([sys.executable, "-W", "error", "-c", code], capture_output=True, text=True, check=True)
    assert not {"jax", "keras", "matplotlib", "optax", "torch"} & set(done.stderr.split())
