"""Trials for the tests of studies and engines, and what two runs of a study have to have in common.

As a program it is a driver: python trials.py DIRECTORY [WORKERS [ADDRESS]]
"""

import fcntl
import json
import os
import random
import signal
import sqlite3
import sys
import tempfile
import time
from contextlib import contextmanager, suppress
from pathlib import Path

COMPARED = {
    "study": "SELECT name, value FROM study ORDER BY name",
    "trials": "SELECT trial, identity, settings, status, outcome, error FROM trials ORDER BY trial",
    "curves": "SELECT trial, epoch, name, value FROM curves ORDER BY trial, epoch, name",
}


def contents(directory):
    """Every row of the tables that are the result, floats to the last bit."""
    connection = sqlite3.connect(Path(directory, "study.sqlite"))
    assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
    rows = {table: connection.execute(query).fetchall() for table, query in COMPARED.items()}
    connection.close()
    return {
        table: [tuple(value.hex() if isinstance(value, float) else value for value in row) for row in found]
        for table, found in rows.items()
    }


def attempts(directory):
    """How the attempts ended, in order."""
    connection = sqlite3.connect(Path(directory, "study.sqlite"))
    rows = connection.execute("SELECT trial, ended FROM attempts ORDER BY attempt").fetchall()
    connection.close()
    return rows


@contextmanager
def without_root():
    """A new directory, in the name of someone whom permissions bind, which they do not root."""
    with tempfile.TemporaryDirectory() as directory:
        root = os.geteuid() == 0
        if root:
            os.chown(directory, 65534, 65534)
            os.setresuid(65534, 65534, 0)
        try:
            yield Path(directory)
        finally:
            Path(directory).chmod(0o755)
            if root:
                os.setresuid(0, 0, 0)


def descend(settings, directory, report):
    """Gradient descent with momentum and noise on x^2/2, with a checkpoint after each epoch."""
    checkpoint = directory / "checkpoint.json"
    generator = random.Random(settings["seed"])
    x, v, epoch = 1.0, 0.0, 0
    if checkpoint.exists():
        x, v, epoch, (version, numbers, gauss) = json.loads(checkpoint.read_text())
        generator.setstate((version, tuple(numbers), gauss))
    note(directory, f"{directory.name} {os.getpid()} {epoch}")
    while epoch < settings["epochs"]:
        for _ in range(10):
            v = settings.get("beta", 0.0) * v + x + 0.1 * generator.gauss(0, 1)
            x -= settings["lr"] * v
        time.sleep(settings.get("pause", 0.0))
        epoch += 1
        report({"epoch": epoch, "loss": x * x / 2, "seconds": time.process_time()})
        if generator.random() < 0.7:  # a row may be beyond the checkpoint
            unfinished = checkpoint.with_suffix(".tmp")
            unfinished.write_text(json.dumps([x, v, epoch, generator.getstate()]))
            unfinished.replace(checkpoint)
    return {"loss": x * x / 2, "diverged": not abs(x) < 1e6}


def note(directory, text):
    """Add a line to the file `notes` beside the study, if the test has made it."""
    notes = directory.parents[2] / "notes"
    if notes.exists():
        with notes.open("a") as file:
            file.write(f"{text}\n")


def train(settings, directory, report):
    """A tiny model trained with AggMo and dropout, its checkpoint the whole state."""
    import torch

    from aggmo import AggMo

    torch.manual_seed(settings["seed"])
    x, y = torch.randn(32, 4), torch.randn(32, 1)
    model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Dropout(0.25), torch.nn.Linear(8, 1))
    optimizer = AggMo(model.parameters(), settings["lr"], settings["betas"])
    checkpoint, first = directory / "checkpoint.pt", 1
    if checkpoint.exists():
        state = torch.load(checkpoint)
        model.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
        torch.set_rng_state(state["random"])
        first = state["epoch"] + 1
    for epoch in range(first, settings["epochs"] + 1):
        for _ in range(5):
            optimizer.zero_grad()
            loss = torch.nn.functional.mse_loss(model(x), y)
            loss.backward()
            optimizer.step()
        time.sleep(settings["pause"])
        report({"epoch": epoch, "loss": loss.item(), "threads": torch.get_num_threads()})
        state = {"model": model.state_dict(), "optimizer": optimizer.state_dict()}
        torch.save({**state, "random": torch.get_rng_state(), "epoch": epoch}, directory / "checkpoint.tmp")
        (directory / "checkpoint.tmp").replace(checkpoint)
    return {"norm": sum(p.square().sum().item() for p in model.parameters())}


def nothing(settings, directory, report):  # noqa: ARG001
    return {"seed": settings["seed"]}


def chatter(settings, directory, report):  # noqa: ARG001
    """Prints in every way there is."""
    print("printed")
    os.write(1, b"written\n")
    os.write(2, b"and as an error\n")
    raise RuntimeError("so that its directory stays")


def deserted(settings, directory, report):  # noqa: ARG001
    """Dies, and leaves a process behind that has its files open."""
    child = os.fork()
    if child == 0:
        time.sleep(60)
    (directory / "child").write_text(str(child))
    os.kill(os.getpid(), signal.SIGKILL)


def guarded(settings, directory, report):  # noqa: ARG001
    """Whether another process is kept from its directory."""
    with Path(directory, "lock").open() as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return {"guarded": True}
    return {"guarded": False}


def stubborn(settings, directory, report):
    """Dies as often as its settings say, counting in its directory; then goes on from the epoch where it was."""
    deaths = directory / "deaths"
    died = int(deaths.read_text()) if deaths.exists() else 0
    report({"epoch": died, "loss": 1.0 / (1 + died)})
    if died < settings["deaths"]:
        deaths.write_text(str(died + 1))
        os.kill(os.getpid(), signal.SIGKILL)
    return {"died": died}


def fussy(settings, directory, report):  # noqa: ARG001
    """Fails until there is a file `calm` beside the study."""
    if not (directory.parents[2] / "calm").exists():
        raise ArithmeticError(f"seed {settings['seed']} is not to its taste")
    return {"seed": settings["seed"]}


def wrong(settings, directory, report):  # noqa: ARG001
    """Reports or returns what it must not."""
    if settings["what"] == "outcome":
        return {"loss": object()}
    if settings["what"] == "none":
        return None
    if settings["what"] == "exit":
        sys.exit("it left")
    for row in settings["what"]:
        report(row)
    return {}


def timer(settings, directory, report):
    """Says that a trial takes 60 seconds; leaves a file, and a row that is no result."""
    (directory / "checkpoint.tmp").write_text("")
    report({"epoch": 1, "loss": 0.0})
    return {"seconds": 60.0 * settings.get("longer", 1)}


def place(settings, directory, report):  # noqa: ARG001
    """Where and how it runs."""
    import torch

    return {
        "session": os.getsid(0) == os.getpid(),
        "variable": os.environ["OMP_NUM_THREADS"],
        "threads": torch.get_num_threads(),
        "devices": os.environ.get("CUDA_VISIBLE_DEVICES"),
        "device": os.environ.get("AGGMO_DEVICE"),
    }


def children(pid):
    """The processes that a process has started."""
    try:
        return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except OSError:
        return []


def alive(pid):
    """Whether it runs; one that has ended, with all its threads, and that nobody has asked about does not."""
    try:
        threads = len(list(Path(f"/proc/{pid}/task").iterdir()))
        return threads > 1 or Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def kill(pid):
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)


def until(condition, seconds=20.0):
    """Wait for it."""
    deadline = time.monotonic() + seconds
    while not (found := condition()):
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.01)
    return found


def main(directory, workers=2, address=None):
    from aggmo.lab.engine.local import Local
    from aggmo.lab.engine.ray import Ray
    from aggmo.lab.records import StudyError
    from aggmo.lab.study import Study

    engine = Ray(address) if address else Local(int(workers))
    try:
        summary = Study(directory).run(engine)
    except (StudyError, ValueError) as error:
        print(error, file=sys.stderr)
        sys.exit(2)
    sys.exit(130 if summary.interrupted else 0)


if __name__ == "__main__":
    main(*sys.argv[1:])
