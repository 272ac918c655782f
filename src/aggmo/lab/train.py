"""The one training loop, for every task and every optimizer.

An epoch of a trial is a function of the state that a checkpoint holds, down to the last bit: parameters, optimizer,
average, records (whose validation scores are all that schedules and early stopping read), the state of torch's global
generator, which dropout uses, and that of the generator of the data's order. So a trial that is killed and resumed
gives the records of one that was not, on the same machine with the same number of threads.
"""

import math
import time
import typing
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from torch import Generator, Tensor, nn
from torch.nn.utils import clip_grad_norm_
from torch.optim.swa_utils import AveragedModel

from aggmo.lab import checkpoint
from aggmo.lab.averaging import stalled
from aggmo.lab.optimizers import build
from aggmo.lab.setting import Setting
from aggmo.lab.task import Batch, Split, Task, one_line
from aggmo.theory.arguments import number, whole

Record = dict[str, float]  # epoch and steps are int
Status = Literal["finished", "stopped early", "diverged"]

LOOKS = 100  # steps between looks at the running loss, each of which waits for the device


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of a trial.

    Attributes:
        status: "finished" after all epochs, "stopped early" without a better validation score for `patience` epochs, or
            "diverged": a training loss or a validation score was not finite, and the trial ranks last.
        records: those of all epochs.
        best: the record of the epoch with the best validation score, whose test metrics are the trial's; None if no
            epoch has a finite one.

    >>> Outcome("diverged", records=({"epoch": 1, "train_loss": math.inf},), best=None).status
    'diverged'
    """

    status: Status
    records: tuple[Record, ...]
    best: Record | None


def train(
    task: Task,
    setting: Setting,
    seed: int,
    directory: Path | str | None = None,
    report: Callable[[Record], object] | None = None,
    *,
    checkpoint_seconds: float = 10.0,
) -> Outcome:
    """Train the task's model under a setting.

    Each epoch gives a record, a dict of plain numbers: `epoch` and `steps` from 1, the learning rate `lr`, `averaged`
    (1 while an average is evaluated, else 0), `train_loss` and `train_` + each metric's name, means over the epoch's
    samples as they were trained on; `validation_` and `test_` likewise, from the model after the epoch; and `seconds`,
    the time spent in training steps so far, which is all of a record that two runs do not have in common. After a
    divergence, what was not computed is NaN.

    Args:
        task: what is trained.
        setting: the optimizer and its numbers; its overrides go before the task's own options.
        seed: of parameters, data order and dropout, >= 0; the same for every setting. The global generators of the
            caller are left as they were.
        directory: for the checkpoint; a trial that has one there goes on from it, and one that is over is only
            looked up. None keeps nothing.
        report: is given each record before its epoch is in a checkpoint. A resumed trial reports an epoch again if it
            was not, with the same numbers.
        checkpoint_seconds: the time between checkpoints, >= 0; they are written after an epoch, one always at the end.

    Returns:
        The outcome.

    Raises:
        ValueError: an argument out of range, a task whose parts do not fit each other, or a checkpoint that is damaged
            or of another trial.

    >>> from aggmo.lab.task import Metric, Tensors
    >>> def model():  # one weight, which starts at 0 and should become 1
    ...     layer = nn.Linear(1, 1, bias=False)
    ...     nn.init.zeros_(layer.weight)
    ...     return layer
    >>> task = Task(
    ...     name="one weight",
    ...     data=Tensors(*3 * [(torch.ones(1, 1),)]),
    ...     model=model,
    ...     loss=lambda output, batch: (output - 1).square().mean(),
    ...     metrics=(Metric("distance", lambda output, batch: (output - 1).abs().mean()),),
    ...     epochs=2,
    ...     batch_size=1,
    ... )
    >>> outcome = train(task, Setting("sgd", lr=0.25), seed=0)
    >>> outcome.status, [record["validation_distance"] for record in outcome.records]  # each step halves it
    ('finished', [0.5, 0.25])
    """
    whole("seed", seed, least=0)
    number("checkpoint_seconds", checkpoint_seconds, ">= 0", lambda x: x >= 0.0)
    file = None if directory is None else Path(directory, "checkpoint.pt")
    with _random_state_kept():
        trial = _Trial(task, setting, seed)
        if file and (state := checkpoint.load(file, trial.identity)):
            trial.resume(file, state)
        saved = time.monotonic()
        while not trial.status:
            record = trial.epoch()
            if report:
                report(dict(record))
            if file and (trial.status or time.monotonic() - saved >= checkpoint_seconds):
                checkpoint.save(file, trial.identity, trial.state_dict())
                saved = time.monotonic()
    return Outcome(trial.status, tuple(trial.records), trial.best)


def check(task: Task) -> int:
    """Try the task on one batch, and count the parameters of its model.

    Raises:
        ValueError: its parts raise, or do not fit each other.

    >>> from aggmo.lab.task import Metric, Tensors
    >>> metric = Metric("mean", lambda output, batch: output.mean())
    >>> check(Task("mine", Tensors(*3 * [(torch.ones(1, 2),)]), lambda: nn.Linear(2, 1), metric.of, (metric,), 1, 1))
    3
    """
    with _random_state_kept():
        return sum(parameter.numel() for parameter in _model(task).parameters())


@torch.no_grad()
def evaluate(task: Task, model: nn.Module, split: Split) -> dict[str, float]:
    """Loss and metrics of a model on a split, in evaluation mode: means over all samples.

    Raises:
        FloatingPointError: the model's output is not finite, and the loss refuses it.
        ValueError: the split has no batch.

    >>> from aggmo.lab.task import Metric, Tensors
    >>> task = Task(
    ...     name="identity",
    ...     data=Tensors(*3 * [(torch.tensor([[1.0], [2.0], [6.0]]),)], evaluation_size=2),
    ...     model=nn.Identity,
    ...     loss=lambda output, batch: output.mean(),
    ...     metrics=(Metric("square", lambda output, batch: output.square().mean()),),
    ...     epochs=1,
    ...     batch_size=1,
    ... )
    >>> evaluate(task, task.model(), "test")  # 9/3 and 41/3, though the last batch is smaller
    {'loss': 3.0, 'square': 13.666666666666666}
    """
    model.eval()
    means = _Means(task)
    for batch in task.data.evaluation(split):
        output = task.forward(model, batch)
        means.add(output, batch, _loss(task, output, batch))
    return means.values(split)


def _loss(task: Task, output: Any, batch: Batch) -> Tensor:
    """The task's loss, which may refuse NaN, as torch's cross-entropy of probabilities does."""
    try:
        return task.loss(output, batch)
    except (RuntimeError, ValueError) as error:
        tensors = output if isinstance(output, tuple | list) else [output]
        if all(tensor.isfinite().all() for tensor in tensors if isinstance(tensor, Tensor)):
            raise
        raise FloatingPointError(f"task {task.name}: the model's output is not finite") from error


class _Means:
    """Means of loss and metrics over samples, summed in double precision where the batches are."""

    def __init__(self, task: Task) -> None:
        self.task = task
        self.sums: Tensor | None = None
        self.samples = 0

    def add(self, output: Any, batch: Batch, loss: Tensor) -> None:
        """Add a batch, of which loss and metrics are means."""
        with torch.no_grad():
            size = self.task.size(batch)
            means = [loss, *(metric.of(output, batch) for metric in self.task.metrics)]
            sums = torch.stack([mean.reshape(()) for mean in means]).double() * size
            self.sums = sums if self.sums is None else self.sums.add_(sums)
            self.samples += size

    def finite(self) -> bool:
        """Whether every loss so far was finite; waits for the device."""
        return self.sums is not None and math.isfinite(self.sums[0].item())

    def values(self, split: str) -> dict[str, float]:
        """The means by name, metrics transformed."""
        if self.sums is None:
            raise ValueError(f"task {self.task.name}: its data has no batch for {split}")
        means = self.sums / self.samples
        for i, metric in enumerate(self.task.metrics, start=1):
            if metric.transform:
                means[i] = metric.transform(means[i])
        return dict(zip(["loss", *(metric.name for metric in self.task.metrics)], means.tolist(), strict=True))


class _Trial:
    """All that changes from epoch to epoch."""

    def __init__(self, task: Task, setting: Setting, seed: int) -> None:
        options = {**task.by_optimizer.get(setting.optimizer, {}), **dict(setting.overrides)}
        self.task = task = replace(task, **options)
        self.setting = setting
        self.identity = {
            "task": task.name,
            "data": task.description,
            "setting": setting.to_json(),
            "seed": int(seed),
        }
        parameters, dropout, order = np.random.SeedSequence(seed).generate_state(3, np.uint64).tolist()
        torch.manual_seed(parameters)
        self.model = _model(task)
        self.params = list(self.model.parameters())
        self.optimizer = build(
            setting.optimizer, self.params, setting.lr, setting.betas, setting.weights, task.weight_decay
        )
        torch.manual_seed(dropout)
        self.order = Generator().manual_seed(order)
        self.average: AveragedModel | None = None
        self.records: list[Record] = []
        self.status: Status | None = None
        self.steps = 0
        self.seconds = 0.0

    @property
    def scores(self) -> list[float]:
        """The validation scores by epoch, lower for better."""
        select = self.task.select
        return [select.score(record[f"validation_{select.name}"]) for record in self.records]

    @property
    def best(self) -> Record | None:
        """The record of the first epoch with the least score that is a number."""
        finite = [pair for pair in zip(self.scores, self.records, strict=True) if math.isfinite(pair[0])]
        return min(finite, key=lambda pair: pair[0])[1] if finite else None

    def epoch(self) -> Record:
        """Train for an epoch, evaluate, and decide how it goes on."""
        averaged = self.average is not None
        lr = self.setting.lr * self.task.schedule(self.scores)
        means = self._means(lr)
        record: Record = {
            "epoch": len(self.records) + 1,
            "steps": self.steps,
            "seconds": self.seconds,
            "lr": lr,
            "averaged": int(averaged),
            **means,
        }
        self.records.append(record)
        self._decide()
        return record

    def _means(self, lr: float) -> Record:
        """Loss and metrics of all splits in one epoch; NaN from the divergence on."""
        names = ["loss", *(metric.name for metric in self.task.metrics)]
        means = {f"{split}_{name}": math.nan for split in ("train", "validation", "test") for name in names}
        try:
            training = self._train(lr)
            means |= {f"train_{name}": value for name, value in training.items()}
            if math.isfinite(training["loss"]):
                model = self.average.module if self.average else self.model
                for split in typing.get_args(Split):
                    means |= {f"{split}_{name}": value for name, value in evaluate(self.task, model, split).items()}
        except FloatingPointError:
            pass
        return means

    def _train(self, lr: float) -> dict[str, float]:
        """The steps of an epoch, or those up to a loss that is not finite."""
        task, model, optimizer, average = self.task, self.model, self.optimizer, self.average
        model.train()
        means = _Means(task)
        start = time.perf_counter()
        try:
            for batch in task.data.training(task.batch_size, self.order):
                step_lr = lr * task.lr_factor(batch) if task.lr_factor else lr
                for group in optimizer.param_groups:
                    group["lr"] = step_lr
                optimizer.zero_grad()
                output = task.forward(model, batch)
                loss = _loss(task, output, batch)
                loss.backward()  # type: ignore[no-untyped-call]
                if task.clip is not None:
                    clip_grad_norm_(self.params, task.clip)
                optimizer.step()
                if average is not None:
                    average.update_parameters(model)
                means.add(output, batch, loss)
                self.steps += 1
                if self.steps % LOOKS == 0 and not means.finite():
                    break
            return means.values("training")
        finally:
            self.seconds += time.perf_counter() - start

    def _decide(self) -> None:
        """Whether the trial is over after the newest record, and if not, whether to average from here on."""
        scores, best = self.scores, self.best
        if not (math.isfinite(self.records[-1]["train_loss"]) and math.isfinite(scores[-1])):
            self.status = "diverged"
        elif len(scores) >= self.task.epochs:
            self.status = "finished"
        elif best is not None and len(scores) - best["epoch"] >= self.task.patience:
            self.status = "stopped early"
        elif self.setting.optimizer == "nt-asgd" and self.average is None and stalled(scores):
            self.average = AveragedModel(self.model)

    def state_dict(self) -> dict[str, Any]:
        """All of it, as a checkpoint holds it."""
        return {
            "model": self.model.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "average": self.average.state_dict() if self.average else None,
            "records": self.records,
            "status": self.status,
            "steps": self.steps,
            "seconds": self.seconds,
            "random": _random_state(),
            "order": self.order.get_state(),
        }

    def resume(self, file: Path, state: dict[str, Any]) -> None:
        """Go on from the state in the file."""
        try:
            self._load_state_dict(state)
        except Exception as error:
            raise ValueError(f"{file} does not fit the task as it is now: {one_line(error)}") from error

    def _load_state_dict(self, state: dict[str, Any]) -> None:
        self.model.load_state_dict(state["model"])
        self.optimizer.load_state_dict(state["optimizer"])
        if state["average"] is not None:
            self.average = AveragedModel(self.model)
            self.average.load_state_dict(state["average"])
        self.records, self.status = state["records"], state["status"]
        self.steps, self.seconds = state["steps"], state["seconds"]
        _set_random_state(state["random"])
        self.order.set_state(state["order"])


def _model(task: Task) -> nn.Module:
    """The task's model, after a look at whether its forward pass, loss and metrics fit it and the data."""
    try:
        model = task.model()
        if not isinstance(model, nn.Module):
            raise ValueError(f"model() returned a {type(model).__name__}, not a torch.nn.Module")
        model.eval()
        batch = next(iter(task.data.evaluation("validation")))
        output = task.forward(model, batch)
        loss = task.loss(output, batch)
        for name, value in [("loss", loss), *((metric.name, metric.of(output, batch)) for metric in task.metrics)]:
            if not isinstance(value, Tensor) or value.numel() != 1:
                found = tuple(value.shape) if isinstance(value, Tensor) else type(value).__name__
                raise ValueError(f"{name} of a batch is {found}: must be a tensor with one element")
        if not isinstance(size := task.size(batch), int) or size < 1:
            raise ValueError(f"size of a batch is {size!r}: must be a whole number >= 1")
        if not loss.requires_grad:
            raise ValueError("the loss does not depend on any parameter of the model")
    except Exception as error:
        raise ValueError(f"task {task.name} does not work: {one_line(error)}") from error
    return model


def _random_state() -> dict[str, Any]:
    """The state of torch's global generators, the GPUs' as well if any is in use: to ask would take memory on each."""
    in_use = torch.cuda.is_initialized()  # type: ignore[no-untyped-call]
    return {"cpu": torch.get_rng_state(), "cuda": torch.cuda.get_rng_state_all() if in_use else []}


def _set_random_state(state: dict[str, Any]) -> None:
    torch.set_rng_state(state["cpu"])
    torch.cuda.set_rng_state_all(state["cuda"])


@contextmanager
def _random_state_kept() -> Iterator[None]:
    """Leave the global generators as they were."""
    state = _random_state()
    try:
        yield
    finally:
        _set_random_state(state)
