"""A task: data, model, loss and metrics, and how to train. A task of your own is a function that returns one.

The loop of `aggmo.lab.train` asks a task for batches, and does not look into them:

    output = forward(model, batch)        by default model(batch[0])
    loss(output, batch).backward()        a mean over the batch
    metric.of(output, batch)              a mean over the batch, too
"""

import copy
import importlib
import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal, Protocol, Self, runtime_checkable

import torch
from torch import Generator, Tensor, nn

from aggmo.lab.optimizers import BETAS
from aggmo.lab.schedule import Constant, Schedule
from aggmo.theory.arguments import number, whole

if TYPE_CHECKING:
    from aggmo.lab.data.store import Store

Batch = Any  # whatever the task's data yields
Split = Literal["validation", "test"]


@runtime_checkable
class Data(Protocol):
    """What a task's data has to offer, in batches of any type."""

    def training(self, batch_size: int, generator: Generator) -> Iterable[Batch]:
        """The batches of one epoch, all their randomness from the generator, whose state is all that is kept of it."""

    def evaluation(self, split: Split) -> Iterable[Batch]:
        """The batches of a split, always the same."""


class Tensors:
    """Data held as whole tensors, on one device: a batch is a tuple of their rows.

    Indexing whole tensors costs a fraction of what a DataLoader does with a Python call for each sample.

    Args:
        train, validation, test: tensors of equally many rows, at least one, such as (inputs, labels).
        augment: changes a training batch, given it and the generator that all its randomness has to come from, which
            is on the CPU.
        evaluation_size: the rows of an evaluation batch, >= 1.

    Raises:
        ValueError: an argument that is not so.

    >>> data = Tensors(train=(torch.arange(3),), validation=(torch.arange(2),), test=(torch.arange(1),))
    >>> [batch[0].tolist() for batch in data.training(2, torch.Generator().manual_seed(0))]
    [[2, 0], [1]]
    >>> [batch[0].tolist() for batch in data.evaluation("validation")]
    [[0, 1]]
    """

    def __init__(
        self,
        train: tuple[Tensor, ...],
        validation: tuple[Tensor, ...],
        test: tuple[Tensor, ...],
        augment: Callable[[tuple[Tensor, ...], Generator], tuple[Tensor, ...]] | None = None,
        evaluation_size: int = 1000,
    ) -> None:
        self.train = _rows_agree("train", train)
        self.splits = {"validation": _rows_agree("validation", validation), "test": _rows_agree("test", test)}
        self.augment = augment
        self.evaluation_size = whole("evaluation_size", evaluation_size, least=1)

    def training(self, batch_size: int, generator: Generator) -> Iterator[tuple[Tensor, ...]]:
        """The batches of an epoch in random order, the last one smaller where the batch size does not divide the rows.

        >>> data = Tensors(*3 * [(torch.zeros(5, 2), torch.zeros(5))])
        >>> [len(labels) for inputs, labels in data.training(2, torch.Generator())]
        [2, 2, 1]
        """
        order = torch.randperm(len(self.train[0]), generator=generator).to(self.train[0].device)
        for rows in torch.split(order, batch_size):
            batch = tuple(tensor.index_select(0, rows) for tensor in self.train)
            yield self.augment(batch, generator) if self.augment else batch

    def evaluation(self, split: Split) -> Iterator[tuple[Tensor, ...]]:
        """The batches of a split in the order of its rows.

        >>> data = Tensors(*3 * [(torch.zeros(5, 2), torch.zeros(5))], evaluation_size=3)
        >>> [len(labels) for inputs, labels in data.evaluation("test")]
        [3, 2]
        """
        return zip(*(torch.split(tensor, self.evaluation_size) for tensor in self.splits[split]), strict=True)

    def to(self, device: torch.device | str) -> Self:
        """The same with all tensors on a device.

        >>> Tensors(*3 * [(torch.zeros(5),)]).to("meta").train[0].device
        device(type='meta')
        """
        moved = copy.copy(self)
        moved.train = tuple(tensor.to(device) for tensor in self.train)
        moved.splits = {name: tuple(tensor.to(device) for tensor in part) for name, part in self.splits.items()}
        return moved


@dataclass(frozen=True, slots=True)
class Metric:
    """A number by which a model is judged: the mean over all samples of a split.

    Args:
        name: an identifier, as it becomes part of the names of columns; any but "loss", which is a column of its own.
        of: from output and batch to the mean over the batch, a tensor with one element.
        direction: "min" or "max", whichever is better.
        transform: applied to the mean over all samples, such as `torch.exp` for a perplexity; None leaves it.

    Raises:
        ValueError: an argument that is not so.

    >>> error = Metric("error", lambda output, batch: (output.argmax(1) != batch[1]).float().mean())
    >>> error.of(torch.eye(2), (None, torch.tensor([0, 0])))
    tensor(0.5000)
    """

    name: str
    of: Callable[[Any, Batch], Tensor]
    direction: Literal["min", "max"] = "min"
    transform: Callable[[Tensor], Tensor] | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.name, str) or not self.name.isidentifier() or self.name == "loss":
            raise ValueError(
                f"name={self.name!r} of a metric: must be an identifier such as top1_error, and not 'loss'"
            )
        if self.direction not in ("min", "max"):
            raise ValueError(f"direction={self.direction!r} of metric {self.name}: must be 'min' or 'max'")
        _check_callable(f"metric {self.name}", self, "of")
        _check_callable(f"metric {self.name}", self, "transform", or_none=True)

    def score(self, value: float) -> float:
        """The value, or its negative where larger is better: lower is better, as schedules have it.

        >>> Metric("accuracy", lambda output, batch: output, "max").score(90.0)
        -90.0
        """
        return value if self.direction == "min" else -value


_CONSTANT = Constant()


def _first_input(model: nn.Module, batch: Batch) -> Any:
    """The model's output for the first of the batch's tensors."""
    return model(batch[0])


def _rows(batch: Batch) -> int:
    """The rows of the first of the batch's tensors."""
    return len(batch[0])


@dataclass(frozen=True, eq=False)
class Task:
    """Data, model, loss and metrics, and how the training goes unless a setting says otherwise.

    Args:
        name: how records and checkpoints call it.
        data: `Tensors`, or any object with the two methods of `Data`.
        model: makes the model, with fresh random parameters from torch's global generator.
        loss: from output and batch to what is minimized: a mean over the batch, a tensor with one element. In
            evaluation it is called as well, with the model in evaluation mode.
        metrics: at least one; the first selects the best epoch, by its value on the validation split.
        epochs, batch_size: of the training, >= 1.
        forward: from model and batch to the output.
        size: the samples in a batch, by which means are weighted.
        schedule: from the validation scores so far to the factor of the learning rate in the next epoch.
        lr_factor: from a batch to one more factor, for its step alone; None is 1.
        clip: the largest norm of the gradient, all parameters together; None does not clip.
        weight_decay: the coefficient of the parameters in the gradient, >= 0.
        patience: the epochs without a better validation score after which the training stops, >= 1.
        description: of the data, so that no checkpoint is continued on others.
        by_optimizer: what is different for an optimizer, by its name: a dict of the six options that a `Setting` may
            override as well.

    Raises:
        ValueError: an argument that is not so.

    >>> part = torch.eye(2), torch.tensor([0, 1])
    >>> task = Task(
    ...     name="identity",
    ...     data=Tensors(part, part, part),
    ...     model=lambda: nn.Linear(2, 2),
    ...     loss=lambda output, batch: nn.functional.cross_entropy(output, batch[1]),
    ...     metrics=(Metric("hits", lambda output, batch: (output.argmax(1) == batch[1]).float().mean(), "max"),),
    ...     epochs=3,
    ...     batch_size=1,
    ... )
    >>> task.select.name
    'hits'
    """

    name: str
    data: Data
    model: Callable[[], nn.Module]
    loss: Callable[[Any, Batch], Tensor]
    metrics: tuple[Metric, ...]
    epochs: int
    batch_size: int
    forward: Callable[[nn.Module, Batch], Any] = _first_input
    size: Callable[[Batch], int] = _rows
    schedule: Schedule = _CONSTANT
    lr_factor: Callable[[Batch], float] | None = None
    clip: float | None = None
    weight_decay: float = 0.0
    patience: int = 250
    description: str = ""
    by_optimizer: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for name in ("name", "description"):
            if not isinstance(getattr(self, name), str):
                raise ValueError(f"{name}={getattr(self, name)!r} of a task: must be a string")
        if not isinstance(self.data, Data):
            raise ValueError(
                f"data of task {self.name} is a {type(self.data).__name__}: must be Tensors, or have their two methods"
            )
        for name in ("model", "loss", "forward", "size"):
            _check_callable(f"task {self.name}", self, name)
        _check_callable(f"task {self.name}", self, "lr_factor", or_none=True)
        object.__setattr__(self, "metrics", _metrics(self.name, self.metrics))
        for name, value in check_options({name: getattr(self, name) for name in _CHECKS}).items():
            object.__setattr__(self, name, value)
        if not isinstance(self.by_optimizer, Mapping) or self.by_optimizer.keys() - BETAS.keys():
            raise ValueError(f"by_optimizer={self.by_optimizer!r}: must be a dict with keys out of {', '.join(BETAS)}")
        for options in self.by_optimizer.values():
            check_options(options)

    @property
    def select(self) -> Metric:
        """The metric whose validation value selects the best epoch."""
        return self.metrics[0]

    def to(self, device: torch.device | str) -> "Task":
        """The same with its data and its models on a device.

        Raises:
            ValueError: data that have no method `to`, which gives the same on a device.

        >>> part = torch.eye(2), torch.tensor([0, 1])
        >>> metric = Metric("mean", lambda output, batch: output.mean())
        >>> task = Task("mine", Tensors(part, part, part), lambda: nn.Linear(2, 2), metric.of, (metric,), 1, 1)
        >>> task.to("meta").model().weight.device
        device(type='meta')
        """
        move = getattr(self.data, "to", None)
        if move is None:
            raise ValueError(
                f"task {self.name} on {device}: its data, a {type(self.data).__name__}, has no method `to`"
            )
        return replace(self, data=move(device), model=lambda: self.model().to(device))


def check_options(options: Mapping[str, Any]) -> dict[str, Any]:
    """The options of a training in their usual form.

    Raises:
        ValueError: a name that is not one of the six, or a value out of range.

    >>> check_options({"epochs": 3, "clip": 1})
    {'epochs': 3, 'clip': 1.0}
    """
    if unknown := options.keys() - _CHECKS.keys():
        raise ValueError(f"{', '.join(sorted(unknown))}: the options of a training are {', '.join(_CHECKS)}")
    return {name: _CHECKS[name](name, value) for name, value in options.items()}


def find(name: str, scale: str | None = None, store: "Store | None" = None) -> Task:
    """The task of that name: one of the paper's, or `module:function` for one of your own.

    Args:
        name: the module is looked for where Python looks for any; the function is called without arguments.
        scale: of a task of the paper: "paper" (what None means), "small" or "quick".
        store: where the data of a task of the paper come from; None downloads them, or takes those downloaded before.

    Raises:
        ValueError: there is no such task, its function raises or returns no `Task`, or a scale or a store for a task of
            your own.
        DataError: the data of a task of the paper cannot be had or used.

    >>> find("mnist")
    Traceback (most recent call last):
        ...
    ValueError: task 'mnist': must be module:function, or one of autoencoder, cnn5, resnet32-c10, resnet32-c100, \
resnet32-c100-nobn, lstm
    """
    module, colon, function = name.partition(":") if isinstance(name, str) else ("", "", "")
    if not colon:
        return _of_the_paper(name, "paper" if scale is None else scale, store)
    if not (module and function.isidentifier()):
        raise ValueError(f"task {name!r}: must be module:function")
    if scale is not None or store is not None:
        raise ValueError(f"task {name!r} with a scale or a store: only the paper's tasks have them")
    try:
        task = getattr(importlib.import_module(module), function)()
    except (Exception, SystemExit) as error:  # a program that is imported may end itself
        raise ValueError(f"task {name!r} cannot be made: {one_line(error)}") from error
    if not isinstance(task, Task):
        raise ValueError(f"task {name!r}: {function}() returned a {type(task).__name__}, not a Task")
    return task


def _of_the_paper(name: str, scale: str, store: "Store | None") -> Task:
    """The task of the paper of that name."""
    from aggmo.lab.data.store import Store
    from aggmo.lab.paper.settings import SETTINGS
    from aggmo.lab.paper.tasks import paper_task  # which imports this module

    if name not in SETTINGS:
        raise ValueError(f"task {name!r}: must be module:function, or one of {', '.join(SETTINGS)}")
    return paper_task(name, scale, store or Store())


def one_line(error: BaseException) -> str:
    """An exception's type and message on one line.

    >>> one_line(ValueError("two    lines"))
    'ValueError: two lines'
    """
    return " ".join(f"{type(error).__name__}: {error}".split())


def _rows_agree(split: str, tensors: Any) -> tuple[Tensor, ...]:
    """The tensors of a split, checked."""
    found = tuple(tensors) if isinstance(tensors, tuple | list) else ()
    if not found or not all(isinstance(tensor, Tensor) and tensor.ndim for tensor in found):
        raise ValueError(f"{split}: must be a tuple of tensors with rows, such as (inputs, labels)")
    rows = [len(tensor) for tensor in found]
    if rows[0] == 0 or len(set(rows)) > 1:
        raise ValueError(f"{split}: tensors of {rows} rows; must have equally many, at least one")
    return found


def _check_callable(owner: str, thing: object, name: str, or_none: bool = False) -> None:
    """Raise ValueError unless the attribute is a function."""
    value = getattr(thing, name)
    if not (callable(value) or (or_none and value is None)):
        raise ValueError(f"{name}={value!r} of {owner}: must be a function{' or None' if or_none else ''}")


def _metrics(task: str, metrics: Any) -> tuple[Metric, ...]:
    """The metrics of a task, checked."""
    found = tuple(metrics) if isinstance(metrics, tuple | list) else ()
    if not found or not all(isinstance(metric, Metric) for metric in found):
        raise ValueError(f"metrics of task {task}: must be at least one Metric, in a tuple")
    names = [metric.name for metric in found]
    if len(set(names)) < len(names):
        raise ValueError(f"metrics of task {task}: two of one name among {names}")
    return found


def _positive(name: str, value: Any) -> int:
    return whole(name, value, least=1)


def _decay(name: str, value: Any) -> float:
    return number(name, value, ">= 0 and finite", lambda x: 0.0 <= x < math.inf)


def _clip(name: str, value: Any) -> float | None:
    return None if value is None else number(name, value, "> 0 and finite, or None", lambda x: 0.0 < x < math.inf)


def _schedule(name: str, value: Any) -> Schedule:
    if not callable(value):
        raise ValueError(f"{name}={value!r}: must be a function of the validation scores, such as Plateau(15)")
    schedule: Schedule = value
    return schedule


_CHECKS: dict[str, Callable[[str, Any], Any]] = {
    "epochs": _positive,
    "batch_size": _positive,
    "schedule": _schedule,
    "clip": _clip,
    "weight_decay": _decay,
    "patience": _positive,
}
