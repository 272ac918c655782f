"""The examples with other people's trainers, each run in a process of its own and held against an oracle.

What the oracle is stands in `checks.py`, beside each check.
"""

import os
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
TORCHRUN = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2")
EXAMPLES = {
    "accelerated": (),
    "compiled": (),
    "ddp": TORCHRUN,
    "from_sgd": (),
    "fsdp2": TORCHRUN,
    "huggingface": (),
    "lightning_resume": (),
}


@pytest.mark.parametrize("name", EXAMPLES)
def test_it_trains_what_it_should(name, tmp_path):
    environment = os.environ | {"OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo", "HF_HUB_OFFLINE": "1"}
    command = [sys.executable, *EXAMPLES[name], str(HERE / "checks.py"), name]
    run = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    if run.returncode or not run.stdout:
        pytest.fail(f"{run.stdout}\n{run.stderr}", pytrace=False)
    assert list(tmp_path.iterdir()) == []  # nothing is left behind


def test_every_example_is_checked():
    found = {path.stem for path in (HERE.parents[1] / "examples").glob("*.py")}
    tested = {path.stem.removeprefix("test_") for path in HERE.glob("test_*.py")}
    assert found - EXAMPLES.keys() <= tested
    assert EXAMPLES.keys() <= found
