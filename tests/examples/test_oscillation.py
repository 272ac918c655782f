"""The demo, run as a user runs it."""

import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

EXAMPLE = Path(__file__).parents[2] / "examples" / "oscillation.py"


def run(*arguments, cwd):
    return subprocess.run(
        [sys.executable, EXAMPLE, *arguments], cwd=cwd, capture_output=True, text=True, encoding="utf-8", check=False
    )


def nesterov_settles(curvature, lr=0.33, beta=0.999, steps=3000):
    """The last step with |phi| >= 0.01, phi = theta + lr beta v being what torch.optim.SGD calls the parameter."""
    theta, v, last = 1.0, 0.0, 0
    for t in range(1, steps + 1):
        v = beta * v - curvature * (theta + lr * beta * v)
        theta += lr * v
        last = t if abs(theta + lr * beta * v) >= 0.01 else last
    return "-" if last == steps else str(last)


def test_it_shows_what_the_paper_shows(tmp_path):
    """Oracle: settling steps known from outside this package; Nesterov's from its equation (2), written out here."""
    result = run("--out", "pictures", cwd=tmp_path)
    assert result.returncode == 0, result.stderr
    rows = {line[:34].strip(): line[34:].split() for line in result.stdout.splitlines() if "β" in line}
    assert rows == {
        "classical momentum, β = 0.9": ["84", "76", "84", "1359"],
        "classical momentum, β = 0.999": ["-", "-", "-", "-"],
        "Nesterov momentum, β = 0.999": [nesterov_settles(curvature) for curvature in (1, 0.1, 0.01, 0.001)],
        "AggMo, β = 0, 0.9, 0.99, 0.999": ["72", "209", "673", "1614"],
    }
    assert (tmp_path / "pictures/oscillation.png").read_bytes().startswith(b"\x89PNG")
    assert ElementTree.parse(tmp_path / "pictures/oscillation.svg").getroot().tag.endswith("svg")


def test_a_place_that_cannot_be_written_is_one_clear_line(tmp_path):
    (tmp_path / "file").write_text("")
    result = run("--out", "file", cwd=tmp_path)
    assert result.returncode == 2
    assert result.stderr.splitlines()[-1].endswith(
        "error: --out file: not a directory that can be written: File exists"
    )
