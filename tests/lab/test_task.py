"""Tasks: their data, what they refuse, and where they are found."""

import math
import sys

import pytest
import small_tasks
import torch
from torch import nn

from aggmo.lab.data.store import Store
from aggmo.lab.setting import Setting
from aggmo.lab.task import Metric, Task, Tensors, find
from aggmo.lab.train import train

ROWS = torch.arange(10.0)


def tensors(**options):
    return Tensors(*3 * [(ROWS[:, None], ROWS + 100)], **options)


def test_an_epoch_has_every_row_once_with_its_label():
    batches = list(tensors().training(4, torch.Generator().manual_seed(0)))
    assert [len(labels) for _, labels in batches] == [4, 4, 2]
    assert all(torch.equal(inputs[:, 0] + 100, labels) for inputs, labels in batches)
    assert torch.equal(torch.cat([inputs[:, 0] for inputs, _ in batches]).sort().values, ROWS)


def test_epochs_differ_and_the_generator_decides():
    def order(generator):
        return [row for (inputs, _) in tensors().training(3, generator) for row in inputs[:, 0].tolist()]

    one, other = torch.Generator().manual_seed(0), torch.Generator().manual_seed(0)
    first, second = order(one), order(one)
    assert first != second
    assert [order(other), order(other)] == [first, second]


def test_augmentation_is_for_training_and_draws_from_the_generator():
    def shift(batch, generator):
        return batch[0] + torch.randint(100, (), generator=generator), batch[1]

    data = tensors(augment=shift)
    sums = [
        [inputs.sum().item() for inputs, _ in data.training(5, torch.Generator().manual_seed(seed))]
        for seed in (0, 0, 1)
    ]
    assert sums[0] == sums[1] != sums[2]
    assert [inputs.sum().item() for inputs, _ in data.evaluation("validation")] == [45.0]


def test_evaluation_batches():
    assert [batch[0][:, 0].tolist() for batch in tensors(evaluation_size=4).evaluation("test")] == [
        [0, 1, 2, 3],
        [4, 5, 6, 7],
        [8, 9],
    ]


@pytest.mark.parametrize(
    ("arguments", "options", "message"),
    [
        (((), (ROWS,), (ROWS,)), {}, "train: must be a tuple of tensors"),
        ((ROWS, (ROWS,), (ROWS,)), {}, "train: must be a tuple of tensors"),
        (((ROWS,), ([1, 2],), (ROWS,)), {}, "validation: must be a tuple of tensors"),
        (((ROWS,), (ROWS,), (torch.tensor(1.0),)), {}, "test: must be a tuple of tensors with rows"),
        (((ROWS, ROWS[:5]), (ROWS,), (ROWS,)), {}, r"train: tensors of \[10, 5\] rows"),
        (((ROWS,), (ROWS[:0],), (ROWS,)), {}, r"validation: tensors of \[0\] rows"),
        (((ROWS,), (ROWS,), (ROWS,)), {"evaluation_size": 0}, "evaluation_size=0"),
    ],
)
def test_bad_tensors(arguments, options, message):
    with pytest.raises(ValueError, match=message):
        Tensors(*arguments, **options)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"description": None}, "description=None"),
        ({"name": 3}, "name=3"),
        ({"data": [ROWS]}, "data of task classification is a list"),
        ({"model": nn.Linear(2, 2), "loss": 3}, "loss=3 of task classification: must be a function"),
        ({"model": None}, "model=None"),
        ({"forward": "forward"}, "forward='forward'"),
        ({"size": 3}, "size=3"),
        ({"lr_factor": 0.5}, "lr_factor=0.5 of task classification: must be a function or None"),
        ({"metrics": ()}, "metrics of task classification: must be at least one Metric"),
        ({"metrics": small_tasks.accuracy}, "metrics of task classification"),
        ({"metrics": (small_tasks.accuracy,)}, "metrics of task classification"),
        ({"metrics": 2 * (Metric("error", small_tasks.accuracy),)}, "two of one name among .*error"),
        ({"epochs": 0}, "epochs=0"),
        ({"batch_size": 1.5}, "batch_size=1.5"),
        ({"schedule": 0.1}, "schedule=0.1: must be a function"),
        ({"clip": -1}, "clip=-1"),
        ({"weight_decay": math.nan}, "weight_decay=nan"),
        ({"patience": True}, "patience=True"),
        ({"by_optimizer": {"sgd": {"clip": 0}}}, "clip=0"),
        ({"by_optimizer": {"sgd": {"lr": 0.1}}}, "lr: the options of a training are"),
        ({"by_optimizer": {"momentum": {}}}, "by_optimizer.*'momentum'"),
        ({"by_optimizer": 3}, "by_optimizer=3"),
    ],
)
def test_bad_tasks(options, message):
    with pytest.raises(ValueError, match=message):
        small_tasks.classification(**options)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("loss", len), "name='loss'"),
        (("", len), "name=''"),
        (("top-1 error", len), "name='top-1 error' of a metric: must be an identifier such as top1_error"),
        (("error", 3), "of=3 of metric error"),
        (("error", len, "less"), "direction='less'"),
        (("error", len, "min", 3), "transform=3 of metric error"),
    ],
)
def test_bad_metrics(arguments, message):
    with pytest.raises(ValueError, match=message):
        Metric(*arguments)


class Empty(Tensors):
    def training(self, batch_size, generator):  # noqa: ARG002
        return iter(())


def mean(output, batch):  # noqa: ARG001
    return output.mean()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"model": lambda: "a model"}, r"model\(\) returned a str, not a torch.nn.Module"),
        ({"model": lambda: 1 / 0}, "ZeroDivisionError: division by zero"),
        ({"model": lambda: nn.Linear(3, 3)}, "RuntimeError: mat1 and mat2 shapes"),
        ({"loss": lambda output, _: output}, r"loss of a batch is \(30, 3\)"),
        ({"loss": lambda output, _: output.sum().item()}, "loss of a batch is float"),
        ({"loss": lambda _output, batch: batch[0].sum()}, "does not depend on any parameter"),
        ({"metrics": (Metric("error", lambda output, _: output[0]),)}, r"error of a batch is \(3,\)"),
        ({"metrics": (Metric("error", lambda _output, _batch: 0.5),)}, "error of a batch is float"),
        ({"size": lambda _: "three"}, "size of a batch is 'three'"),
        ({"data": Empty(*3 * [(ROWS[:, None].repeat(1, 2),)]), "loss": mean}, "no batch for training"),
    ],
)
def test_tasks_whose_parts_do_not_fit(options, message):
    task = small_tasks.classification(metrics=(Metric("mean", mean),))
    task = Task(**{**vars(task), **options})
    with pytest.raises(ValueError, match=f"classification.*{message}") as caught:
        train(task, Setting("sgd", 0.1), seed=0)
    assert "\n" not in str(caught.value)


def test_a_task_of_ones_own_is_found():
    task = find("small_tasks:language")
    assert (task.name, task.metrics[0].name) == ("language", "perplexity")


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("mnist", "task 'mnist': must be module:function, or one of autoencoder, cnn5, resnet32-c10"),
        ("", "task '': must be module:function"),
        (":language", "must be module:function"),
        ("small_tasks:", "must be module:function"),
        ("small_tasks:language()", "must be module:function"),
        (3, "task 3: must be module:function"),
        ("no_such_module:task", "ModuleNotFoundError: No module named 'no_such_module'"),
        ("small_tasks:no_such_task", "AttributeError: module 'small_tasks' has no attribute 'no_such_task'"),
        ("small_tasks:broken", r"task 'small_tasks:broken' cannot be made: KeyError: 'no such\\nthing'"),
        ("small_tasks:leaving", r"task 'small_tasks:leaving' cannot be made: SystemExit: 0"),
        ("small_tasks:rubbish", r"rubbish\(\) returned a dict, not a Task"),
        ("small_tasks:jitter", "TypeError: jitter.* missing 2 required positional arguments"),
        ("small_tasks:Task", "TypeError: .*missing"),
        ("small_tasks:torch", "TypeError: 'module' object is not callable"),
    ],
)
def test_what_is_no_task(name, message):
    with pytest.raises(ValueError, match=message) as caught:
        find(name)
    assert "\n" not in str(caught.value)


def test_a_module_that_does_not_load(tmp_path, monkeypatch):
    (tmp_path / "unfinished.py").write_text("def task(:\n")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ValueError, match=r"task 'unfinished:task' cannot be made: SyntaxError") as caught:
        find("unfinished:task")
    assert "\n" not in str(caught.value)
    assert "unfinished" not in sys.modules


def test_tensors_on_another_device():
    """Oracle: the device of the batches; the tensors that were given stay where they are."""
    data = tensors(evaluation_size=4, augment=lambda batch, _: batch)
    moved = data.to("meta")
    batches = [*moved.training(4, torch.Generator()), *moved.evaluation("validation"), *moved.evaluation("test")]
    assert len(batches) == 3 * 3
    assert {tensor.device.type for batch in batches for tensor in batch} == {"meta"}
    assert (moved.evaluation_size, moved.augment) == (data.evaluation_size, data.augment)
    assert {tensor.device.type for tensor in (*data.train, *data.splits["test"])} == {"cpu"}


def test_data_that_stay_where_they_are():
    task = small_tasks.language()
    with pytest.raises(ValueError, match="task language on cuda: its data, a Text, has no method `to`"):
        task.to("cuda")


@pytest.mark.parametrize("options", [{"scale": "quick"}, {"store": Store(embedded=True)}])
def test_scale_and_store_are_for_the_papers_tasks(options):
    with pytest.raises(ValueError, match="'small_tasks:language' with a scale or a store: only the paper's tasks"):
        find("small_tasks:language", **options)


@pytest.mark.parametrize("scale", ["large", "", 3])
def test_no_scale(scale):
    with pytest.raises(ValueError, match=f"scale={scale!r}: must be one of paper, small, quick"):
        find("autoencoder", scale, Store(embedded=True))
