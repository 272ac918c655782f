"""What a study shows: every figure against one computed by hand, on a terminal and elsewhere."""

import fcntl
import io
import os
import pty
import struct
import subprocess
import sys
import termios
import time
from pathlib import Path

import pytest
import trials
from rich.console import Console
from trials import children, until

from aggmo.lab.progress import Progress, duration
from aggmo.lab.records import Trial
from aggmo.lab.study import Study, grid

TRIALS = [
    Trial(i, f"{i:016}", settings, "waiting")
    for i, settings in enumerate(grid({"optimizer": ["cm"], "lr": [0.1, 0.5]}, task=["toy"], seed=range(5)), start=1)
]


def shown(progress, width=80):
    console = Console(file=io.StringIO(), width=width)
    console.print(progress.screen())
    return [line.rstrip() for line in console.file.getvalue().splitlines()]


@pytest.fixture
def progress():
    return Progress(Console(file=io.StringIO()), "mine", TRIALS, "loss")


def test_only_what_differs_is_shown(progress):
    assert progress.described(TRIALS[3].settings) == "lr=0.5 seed=1"


def test_the_best_is_the_least_or_the_largest_that_is_a_number():
    outcomes = [
        {"loss": 2.0},
        {"loss": None, "diverged": True},
        {"loss": -1.0},
        {"other": -9},
        {"loss": 3.0},
        {"loss": "-9"},
    ]
    for direction, best in [("min", "best loss -1 (lr=0.1 seed=1)"), ("max", "best loss 3 (lr=0.1 seed=2)")]:
        progress = Progress(Console(), "mine", TRIALS, "loss", direction)
        for trial, outcome in zip(TRIALS, outcomes, strict=False):
            progress.finished(trial.settings, outcome)
        assert progress.line() == f"6 of 10 trials, 1 diverged, {best}"


def test_what_an_earlier_run_left_is_counted():
    left = [Trial(1, "aa", {"x": 1}, "finished", {"loss": 4.0}), Trial(2, "bb", {"x": 2}, "failed", error="e")]
    assert Progress(Console(), "mine", left, "loss").line() == "1 of 2 trials, 1 failed, best loss 4 (x=1)"


def test_the_time_left_by_hand(progress):
    """Two trials took 100 s and 140 s, so 120 s each; 8 are left on 2 workers, two of them for 30 s and for 300 s.

    6 * 120 s wait, 90 s of one and nothing of the other are left: 810 s on two workers.
    """
    assert progress.needed() == ""
    progress.workers = 2
    for trial, seconds in zip(TRIALS, (100.0, 140.0), strict=False):
        progress.finished(trial.settings, {}, seconds)
    now = time.monotonic()
    progress.running = {3: now - 30, 4: now - 300}
    assert progress.needed() == "about 6 min 45 s"


def test_the_last_trial_alone_takes_its_own_time(progress):
    progress.workers = 2
    for trial in TRIALS[:9]:
        progress.finished(trial.settings, {}, 100.0)
    progress.running = {10: time.monotonic() - 40}
    assert progress.needed() == "about 1 min"


def test_the_screen(progress):
    assert shown(progress)[1:] == ["best  none yet", "time  0 s so far, 1 at a time"]
    progress.finished(TRIALS[0].settings, {"loss": 0.25, "diverged": False}, seconds=10.0)
    progress.finished(TRIALS[1].settings, {"loss": None, "diverged": True}, seconds=10.0)
    progress.failed, progress.died = 1, 2
    first, *rest = shown(progress)
    assert first.startswith("mine  ━")
    assert first.endswith("  2 of 10 trials")
    assert rest == [
        "best  loss 0.25   lr=0.1 seed=0",
        "time  0 s so far, about 1 min 10 s left, 1 at a time",
        "note  1 diverged, 1 failed, 2 put back after a worker died",
    ]
    assert all(len(line) <= 40 for line in shown(progress, width=40))


def test_lines_are_seldom(progress, monkeypatch):
    """A line for each of ten thousand trials would drown what matters."""
    now = time.monotonic()
    for seconds in (0, 5, 11, 12, 22):
        monkeypatch.setattr(time, "monotonic", lambda seconds=seconds: now + seconds)
        progress.refresh()
    assert progress.console.file.getvalue().splitlines() == ["mine: 0 of 10 trials"] * 2


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0 s"),
        (3.25, "3.2 s"),
        (59.6, "1 min"),
        (60, "1 min"),
        (3599, "59 min 59 s"),
        (3600, "1 h"),
        (90_000, "1 d 1 h"),
    ],
)
def test_durations(seconds, text):
    assert duration(seconds) == text


def test_ctrl_c_on_a_terminal(tmp_path):
    """A real one: the display is live, and Ctrl-C, which a terminal sends to every process, leaves no traceback."""
    study = Study.declare(tmp_path / "mine", "trials:descend", grid(lr=[0.1], seed=range(4), epochs=[9], pause=[0.1]))
    master, slave = pty.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
    code = "import fcntl, sys, termios; fcntl.ioctl(0, termios.TIOCSCTTY, 0); import trials; trials.main(sys.argv[1])"
    driver = subprocess.Popen(
        [sys.executable, "-c", code, study.directory],
        stdin=slave,
        stdout=slave,
        stderr=slave,
        start_new_session=True,
        env={**os.environ, "PYTHONPATH": str(Path(trials.__file__).parent), "TERM": "xterm"},
    )
    os.close(slave)
    until(lambda: len(children(driver.pid)) == 2)
    written = b""
    while b"so far" not in written:
        written += os.read(master, 65536)
    os.write(master, b"\x03")
    try:
        while block := os.read(master, 65536):
            written += block
    except OSError:  # as a terminal ends, on Linux
        pass
    os.close(master)
    assert driver.wait(timeout=20) == 130
    text = written.decode()
    assert "mine: 4 trials to run on 2 workers" in text
    assert "\x1b[2K" in text  # lines are written over
    assert "Traceback" not in text
    assert "stopped; nothing is lost. To go on:" in text
