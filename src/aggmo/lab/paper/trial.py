"""A trial of the paper's experiments: a training as in `aggmo.lab.trial`, or a few timed steps of one."""

import json
import statistics
import time
from collections.abc import Callable
from itertools import chain, islice
from pathlib import Path
from typing import Any

import torch
from torch import Generator

from aggmo.lab import trial as training
from aggmo.lab.data.store import Store
from aggmo.lab.optimizers import build
from aggmo.lab.setting import Setting
from aggmo.lab.task import Task, find


def trial(settings: dict[str, Any], directory: Path, report: Callable[[dict[str, float]], None]) -> dict[str, Any]:
    """Train as the settings say; or, with a number `timed` among them, take so many steps and time them.

    Returns:
        The outcome of the training; of timed steps the medians `step`, `forward_backward` and `optimizer`, in seconds.
    """
    if "timed" not in settings:
        return training.trial(settings, directory, report)
    store = Store(**json.loads((directory.parents[1] / training.STORE).read_text()))
    return timed(find(settings["task"], settings["scale"], store), training.setting(settings), settings["timed"])


def timed(task: Task, setting: Setting, steps: int) -> dict[str, Any]:
    """Median times of the parts of a training step, after two for warming up.

    Args:
        task, setting: what is trained, and how.
        steps: how many, >= 1.
    """
    torch.manual_seed(0)
    model = task.model()
    optimizer = build(
        setting.optimizer, model.parameters(), setting.lr, setting.betas, setting.weights, task.weight_decay
    )
    generator = Generator().manual_seed(0)
    batches = chain.from_iterable(task.data.training(task.batch_size, generator) for _ in iter(int, 1))
    times = []
    model.train()
    for batch in islice(batches, steps + 2):
        start = time.perf_counter()
        optimizer.zero_grad()
        task.loss(task.forward(model, batch), batch).backward()  # type: ignore[no-untyped-call]
        middle = time.perf_counter()
        optimizer.step()
        times.append((middle - start, time.perf_counter() - middle))
    first, second = (statistics.median(column) for column in zip(*times[2:], strict=True))
    return {"diverged": False, "step": first + second, "forward_backward": first, "optimizer": second}
