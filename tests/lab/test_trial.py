"""A training as a trial: against `train` called by hand, and what tells one trial from another."""

import json
import math
from dataclasses import replace

import pytest
import small_tasks
import torch

from aggmo.lab import trial
from aggmo.lab.data.store import Store
from aggmo.lab.schedule import Milestones, Plateau, as_plain
from aggmo.lab.setting import Setting
from aggmo.lab.task import Task, Tensors, find
from aggmo.lab.train import Outcome, check, train

OWN = "small_tasks:classification"


@pytest.fixture(autouse=True)
def no_task_is_kept():
    trial._loaded.cache_clear()


def own(**settings):
    content = trial.content(OWN, None, small_tasks.classification())
    return {"task": OWN, "content": content, "optimizer": "aggmo", "lr": 0.1, "seed": 3, **settings}


def test_a_trial_is_a_training(tmp_path):
    """Oracle: `train` called by hand, and the outcome read off its records."""
    options = {"betas": [0.0, 0.5], "weights": [1.0, 0.5], "epochs": 4, "clip": None, "weight_decay": 0.01}
    settings = own(**options, schedule=as_plain(Milestones((2,), 0.1)), batch_size=11, patience=3)
    expected = train(
        small_tasks.classification(),
        Setting("aggmo", 0.1, schedule=Milestones((2,), 0.1), batch_size=11, patience=3, **options),
        seed=3,
    )
    rows = []
    found = trial.trial(json.loads(json.dumps(settings)), tmp_path / "trials" / "1", rows.append)
    for row, record in zip(rows, expected.records, strict=True):
        assert {**row, "seconds": 0} == {**record, "seconds": 0}
    last, best = expected.records[-1], expected.best
    assert found == {
        "diverged": False,
        "status": "finished",
        "epochs": 4,
        "best_epoch": best["epoch"],
        **{name: last[name] for name in ("train_loss", "train_accuracy")},
        **{f"{split}_{name}": best[f"{split}_{name}"] for split in ("validation", "test") for name in NAMES},
    }
    assert (tmp_path / "trials" / "1" / "checkpoint.pt").exists()


NAMES = ("loss", "accuracy")


def test_the_outcome_of_a_divergence_before_any_score():
    record = {"epoch": 1, "train_loss": math.nan, "validation_loss": math.inf, "test_loss": math.nan}
    assert trial.outcome(Outcome("diverged", (record,), None)) == {
        "diverged": True,
        "status": "diverged",
        "epochs": 1,
        "best_epoch": None,
        "train_loss": None,
        "validation_loss": None,
        "test_loss": None,
    }


def test_a_task_of_the_paper_reads_where_its_data_are(tmp_path):
    """Oracle: the task as `find` gives it from the same store. Without the file, the data are downloaded."""
    store = trial.save_store(tmp_path, embedded=True)
    task = find("resnet32-c10", "quick", store)
    settings = {"task": "resnet32-c10", "scale": "quick", "content": trial.content("resnet32-c10", "quick", task)}
    settings |= {"optimizer": "sgd", "lr": 0.1, "seed": 0, "epochs": 1}
    rows = []
    trial.trial(settings, tmp_path / "trials" / "1", rows.append)
    [record] = train(task, Setting("sgd", 0.1, epochs=1), 0).records
    assert {**rows[0], "seconds": 0} == {**record, "seconds": 0}
    assert {path.name for path in tmp_path.iterdir()} == {"data.json", "trials"}


def test_a_trial_computes_on_the_device_that_its_engine_names(tmp_path, monkeypatch):
    """Oracle: `meta`, which trains up to the first number that is to be read, and has none."""
    monkeypatch.setenv("AGGMO_DEVICE", "meta")
    monkeypatch.setattr(torch.backends.cudnn, "deterministic", False)
    settings, task = own(), small_tasks.classification()
    task.data.augment = None  # whose noise is on the CPU
    monkeypatch.setattr(small_tasks, "classification", lambda: task)
    with pytest.raises((RuntimeError, NotImplementedError), match="meta tensor"):
        trial.trial(settings, tmp_path / "trials" / "1", print)
    assert torch.backends.cudnn.deterministic


def test_a_task_that_has_changed_is_refused(tmp_path, monkeypatch):
    settings = own()
    monkeypatch.setattr(small_tasks, "classification", lambda: small_tasks.language(epochs=2))
    with pytest.raises(ValueError, match=r"content='.*': data or numbers of language have changed, to '.*'"):
        trial.trial(settings, tmp_path / "trials" / "1", print)


def test_what_tells_the_content_of_tasks_apart():
    """The numbers and the data; neither functions nor where the data come from or how they were packed."""
    task = small_tasks.classification()
    different = [
        {},
        {"name": "other"},
        {"description": "digits, sha256 00"},
        {"epochs": 13},
        {"batch_size": 8},
        {"schedule": Plateau(3)},
        {"schedule": lambda scores: 1.0},  # noqa: ARG005
        {"clip": 1.0},
        {"weight_decay": 0.0},
        {"patience": 3},
        {"by_optimizer": {"sgd": {"clip": 1.0}}},
    ]
    contents = [trial.content(OWN, None, replace(task, **options)) for options in different]
    assert len(set(contents)) == len(contents)
    assert trial.content(OWN, None, replace(task, loss=len)) == contents[0]
    paper = find("cnn5", "quick", Store(embedded=True))
    described = [f"CIFAR-10 ({how}): 5 train, sha256 {digest}" for how in ("download", "data-dir") for digest in "01"]
    same = [trial.content("cnn5", "quick", replace(paper, description=each)) for each in described]
    assert same[:2] == same[2:]
    assert same[0] != same[1] != trial.content("cnn5", "small", replace(paper, description=described[1]))


def test_the_estimate(monkeypatch):
    """Oracle: by hand. A step costs 2 s, a look at a batch 3 s; 5 steps and 2 + 4 looks in each of 7 epochs."""
    now = [0.0]
    for module in (trial.time, torch):
        if hasattr(module, "perf_counter"):
            monkeypatch.setattr(module, "perf_counter", lambda: now[0])

    class Costly(torch.nn.Linear):
        def forward(self, inputs):
            now[0] += 2.0 if self.training else 3.0
            return super().forward(inputs)

    rows = [(torch.zeros(n, 2), torch.zeros(n, dtype=torch.long)) for n in (50, 20, 40)]
    task = Task(
        **vars(small_tasks.classification())
        | {"data": Tensors(*rows, evaluation_size=10), "model": lambda: Costly(2, 3), "batch_size": 10}
    )
    assert trial.estimate(task, Setting("sgd", 0.1, epochs=7)) == 7 * (5 * 2.0 + 6 * 3.0)
    task = replace(task, by_optimizer={"sgd": {"epochs": 2, "batch_size": 25}})
    assert trial.estimate(task, Setting("sgd", 0.1)) == 2 * (2 * 2.0 + 6 * 3.0)


def test_an_estimate_leaves_the_generator_alone():
    torch.manual_seed(5)
    expected = torch.rand(3)
    torch.manual_seed(5)
    trial.estimate(small_tasks.classification(), Setting("sgd", 0.1))
    check(small_tasks.classification())
    assert torch.equal(torch.rand(3), expected)


def test_batches_that_say_how_many_they_are_are_not_counted():
    class Sized:
        def __len__(self):
            return 1000

        def __iter__(self):
            raise AssertionError

    assert trial._count(Sized()) == 1000
    assert trial._count(iter("abc")) == 3


def test_checking_a_task():
    """Oracle: parameters by hand: 2·8+8, 8+8, 8·3+3."""
    assert check(small_tasks.classification()) == 24 + 16 + 27
    with pytest.raises(ValueError, match="task classification does not work: ZeroDivisionError"):
        check(small_tasks.classification(model=lambda: 1 / 0))
