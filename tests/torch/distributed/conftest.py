"""Runs the distributed cases of this session, all in one pair of processes."""

import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

HERE = Path(__file__).parent
DEADLINE = 300.0  # seconds for all cases together; they take about 20
GRACE = 10.0  # seconds for the other process once one is gone

sys.path.append(str(HERE))  # where the test finds its cases; no package may be named torch but torch itself


@pytest.fixture(scope="session")
def distributed_report(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Callable[[str], str]:
    """What became of a case: nothing if it passed on both ranks, else tracebacks and the end of the process."""
    names = [
        item.callspec.params["case"]
        for item in request.session.items
        if "distributed_report" in getattr(item, "fixturenames", ())
    ]
    directory = tmp_path_factory.mktemp("distributed")
    codes = _run(directory, names)

    return lambda case: "\n".join(_outcome(directory, case, rank, code) for rank, code in enumerate(codes)).strip()


def _run(directory: Path, names: list[str]) -> list[int]:
    """The exit codes of the two processes, which are killed after the deadline."""
    environment = os.environ | {"OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo", "TORCH_CPP_LOG_LEVEL": "ERROR"}
    workers = []
    for rank in range(2):
        with (directory / f"output.{rank}").open("w") as output:
            command = [sys.executable, str(HERE / "worker.py"), str(rank), str(directory), *names]
            workers.append(subprocess.Popen(command, env=environment, stdout=output, stderr=subprocess.STDOUT))
    deadline = time.monotonic() + DEADLINE
    try:
        while any(worker.poll() is None for worker in workers) and time.monotonic() < deadline:
            if any(worker.poll() is not None for worker in workers):
                deadline = min(deadline, time.monotonic() + GRACE)
            time.sleep(0.05)
    finally:
        for worker in workers:
            worker.kill()
    return [worker.wait() for worker in workers]


def _outcome(directory: Path, case: str, rank: int, code: int) -> str:
    """What one rank says about a case; that it says nothing is no success."""
    file = directory / f"{case}.{rank}"
    if file.exists():
        return file.read_text() and f"rank {rank}: {file.read_text()}"
    output = (directory / f"output.{rank}").read_text()[-3000:]
    return f"rank {rank}: not run to its end; the process ended with exit code {code} and the output\n{output}"
