"""The study behind the items: what it says before it starts."""

from io import StringIO

import pytest
import torch
from rich.console import Console

from aggmo.lab.engine.local import Local
from aggmo.lab.paper import experiment
from aggmo.lab.paper.settings import SETTINGS


@pytest.fixture
def two_threads():
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(before)


@pytest.mark.usefixtures("two_threads")
def test_the_estimate_is_that_of_a_workers_one_thread(monkeypatch, tmp_path):
    """Oracle: 14 trials of the grid and 4 optimizers' choice on 2 seeds, 30 s each, and 2 workers."""
    seen = []

    def thirty_seconds(*_):
        seen.append(torch.get_num_threads())
        return 30.0

    monkeypatch.setattr(experiment, "estimate", thirty_seconds)
    console = Console(file=StringIO())
    made = experiment.Experiment(tmp_path, "quick", {"cnn5": {"validation"}})
    made._estimate(made._declare(), Local(2), console)
    assert SETTINGS["cnn5"]["quick"].seeds == 2
    assert console.file.getvalue().splitlines() == [
        "cnn5: 14 trials, and up to 8 of what is chosen from them, about 11 min on one thread",
        "together about 5 min 30 s on 2 workers",
    ]
    assert seen == [1]
    assert torch.get_num_threads() == 2
