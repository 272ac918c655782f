"""Settings for all tests, and the one run of everything that several of them look at."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import settings

# The same examples in every run, so that a failure can be repeated; no deadline, as the machine may be busy.
settings.register_profile("aggmo", derandomize=True, deadline=None, database=None)
settings.load_profile("aggmo")


@pytest.fixture(scope="session")
def quick_run(tmp_path_factory):
    """What `aggmo reproduce --scale quick` leaves: its directory. The studies of `make demo`, where there are any, are
    taken over, as nothing in them is computed again."""
    out = tmp_path_factory.mktemp("quick") / "reproduction"
    demo = Path(__file__).parents[1] / "build" / "demo" / "studies"
    if demo.is_dir():
        shutil.copytree(demo, out / "studies")
    command = [str(Path(sys.executable).with_name("aggmo")), "reproduce", "--scale", "quick", "--out", out.name]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, cwd=out.parent, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return out
