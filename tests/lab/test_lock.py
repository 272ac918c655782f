"""The lock: one process at a time, freed by the kernel however its holder ends."""

import os
import socket
import subprocess
import sys
import threading
import time

import pytest
from trials import kill

from aggmo.lab import lock
from aggmo.lab.records import StudyError

HOLD = """
import pathlib, sys, time
from aggmo.lab import lock
with lock.held(pathlib.Path(sys.argv[1])):
    print(flush=True)
    time.sleep(60)
"""


@pytest.fixture
def path(tmp_path):
    return tmp_path / "s" / "lock"


@pytest.fixture
def holder(path):
    """Another process that holds it."""
    process = subprocess.Popen([sys.executable, "-c", HOLD, path], stdout=subprocess.PIPE)
    process.stdout.readline()
    yield process
    process.kill()
    process.communicate()


def test_the_holder_is_named(path, holder):
    with (
        pytest.raises(
            StudyError, match=f"{path.parent}: process {holder.pid} on host {socket.gethostname()} is at work"
        ),
        lock.held(path),
    ):
        pass


def test_a_killed_holder_holds_nothing(path, holder):
    kill(holder.pid)
    holder.wait()
    with lock.held(path):
        assert path.read_text() == f"process {os.getpid()} on host {socket.gethostname()}"


def test_patience(path, holder):
    threading.Timer(0.3, lambda: kill(holder.pid)).start()
    start = time.monotonic()
    with lock.held(path, patience=30.0):
        assert time.monotonic() - start >= 0.3


def test_a_process_that_it_starts_does_not_hold_it(path):
    with lock.held(path):
        child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
    with lock.held(path):
        pass
    child.kill()
    child.wait()


def test_a_file_system_without_locks(path, monkeypatch):
    """There is none at hand: the kernel's answer is played."""
    monkeypatch.setattr(
        lock.fcntl, "flock", lambda *_: (_ for _ in ()).throw(OSError(lock.errno.ENOLCK, "No locks available"))
    )
    with pytest.raises(StudyError, match="this file system has no locks; keep the study on another"), lock.held(path):
        pass
