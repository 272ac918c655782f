"""The paper's tasks at scale quick, on data that need no network."""

import math
import struct
from itertools import islice

import pytest
import torch
from torch.nn import functional

from aggmo.lab.data.description import DataError
from aggmo.lab.data.store import Store
from aggmo.lab.models.awd_lstm import Reader
from aggmo.lab.optimizers import build
from aggmo.lab.paper.settings import SETTINGS
from aggmo.lab.paper.tasks import paper_task
from aggmo.lab.schedule import Constant, Milestones, Plateau
from aggmo.lab.setting import Setting
from aggmo.lab.task import find
from aggmo.lab.train import evaluate, train

STORE = Store(embedded=True)


@pytest.fixture(scope="module")
def tasks():
    return {name: find(name, "quick", STORE) for name in SETTINGS}


def bits(records):
    """The records without their times, each float as its eight bytes."""
    return [[struct.pack("<d", value) for name, value in record.items() if name != "seconds"] for record in records]


class StopError(Exception):
    """Ends a training from its report."""


@pytest.mark.parametrize("name", SETTINGS)
def test_two_epochs_and_a_resumed_second(name, tasks, tmp_path):
    """Oracle: the training that was not stopped after its first epoch."""
    optimizer = SETTINGS[name]["quick"].optimizers[0]  # the language model's is NT-ASGD
    setting = Setting(optimizer, 0.03 if optimizer == "cm" else 10.0, epochs=2)

    def stop(record):
        if record["epoch"] == 2:
            raise StopError

    undisturbed = train(tasks[name], setting, 0)
    with pytest.raises(StopError):
        train(tasks[name], setting, 0, tmp_path, stop, checkpoint_seconds=0.0)
    resumed = train(find(name, "quick", STORE), setting, 0, tmp_path)
    assert bits(resumed.records) == bits(undisturbed.records)
    assert resumed.status == "finished"
    assert all(math.isfinite(value) for record in resumed.records for value in record.values())
    assert resumed.records[0]["train_loss"] != resumed.records[1]["train_loss"]


def test_the_autoencoders_loss_and_error(tasks):
    """Oracle: the definitions, over all test images at once, in double precision."""
    task = tasks["autoencoder"]
    torch.manual_seed(0)
    model = task.model()
    images = (task.data.test[0].double() / 255).flatten(1)
    with torch.no_grad():
        r = torch.sigmoid(model(images.float()).double())
    loss = -(images * r.log() + (1 - images) * (1 - r).log()).mean()
    error = (r - images).square().mean(0).sum()  # the mean over images, summed over pixels
    assert evaluate(task, model, "test") == pytest.approx({"loss": loss.item(), "mse": error.item()}, rel=1e-5)
    assert (task.select.name, task.select.direction) == ("mse", "min")


@pytest.mark.parametrize("name", ["cnn5", "resnet32-c10", "resnet32-c100", "resnet32-c100-nobn"])
def test_the_classifiers_loss_and_accuracy(name, tasks):
    """Oracle: the definitions, image by image."""
    task = tasks[name]
    torch.manual_seed(0)
    model = task.model().eval()
    batches = list(task.data.evaluation("validation"))
    right, loss, count = 0, 0.0, 0
    for images, labels in batches:
        with torch.no_grad():
            probabilities = model(images).double().softmax(1)
        for row, label in zip(probabilities, labels, strict=True):
            right += int(row.argmax()) == int(label)
            loss -= math.log(row[label])
            count += 1
    found = evaluate(task, model, "validation")
    assert found == pytest.approx({"loss": loss / count, "accuracy": 100 * right / count}, rel=1e-5)
    assert (task.select.name, task.select.direction) == ("accuracy", "max")
    assert torch.isfinite(batches[0][0]).all()


def test_the_language_models_penalty_is_for_training_alone(tasks):
    """Oracle: nll + 2 mean(dropped^2) + mean((raw_t+1 - raw_t)^2) in training, with the same dropout; nll elsewhere."""
    task, generator = tasks["lstm"], torch.Generator()
    torch.manual_seed(0)
    model = task.model()
    reader = Reader()
    for training in (True, False):
        model.train(training)
        for i, window in enumerate(task.data.training(20, generator.manual_seed(0))):
            torch.manual_seed(i)
            loss = task.loss(output := task.forward(model, window), window)
            nll = task.select.of(output, window)
            torch.manual_seed(i)
            logits, raw, dropped, _ = reader(model, window)
            expected = functional.cross_entropy(logits.flatten(0, 1), window.targets.flatten())
            penalty = 2 * dropped.square().mean() + (raw[1:] - raw[:-1]).square().mean()
            torch.testing.assert_close(nll, expected)
            torch.testing.assert_close(loss, expected + penalty if training else expected)


def test_perplexity(tasks):
    """Oracle: exp of the mean over all words, read at once."""
    task = tasks["lstm"]
    torch.manual_seed(0)
    model = task.model().eval()
    text = task.data.columns["test"]
    with torch.no_grad():
        logits = model(text[:-1], model.initial(text.shape[1])).logits
    nll = functional.cross_entropy(logits.flatten(0, 1), text[1:].flatten()).item()
    found = evaluate(task, model, "test")
    assert found == pytest.approx({"loss": nll, "perplexity": math.exp(nll)}, rel=1e-5)


def test_the_language_models_learning_rates_follow_the_windows(tasks):
    task = tasks["lstm"]
    windows = list(task.data.training(20, torch.Generator().manual_seed(0)))
    assert [task.lr_factor(window) for window in windows] == [len(window.words) / 20 for window in windows]
    assert [task.size(window) for window in windows] == [20 * len(window.words) for window in windows]
    assert len({len(window.words) for window in windows}) > 3


@pytest.mark.parametrize("name", SETTINGS)
def test_a_step_on_another_device(name, tasks):
    """Oracle: torch's device `meta`, which computes nothing, and refuses tensors of two devices in one operation."""
    task = tasks[name].to("meta")
    model = task.model()
    optimizer = build("aggmo", model.parameters(), 0.1, (0.0, 0.9), weight_decay=task.weight_decay)
    for batch in islice(task.data.training(task.batch_size, torch.Generator()), 2):
        output = task.forward(model, batch)
        task.loss(output, batch).backward()
        optimizer.step()
    assert {p.grad.device.type for p in model.parameters()} == {"meta"}
    model.eval()
    for split in ("validation", "test"):
        batch = next(iter(task.data.evaluation(split)))
        assert task.select.of(task.forward(model, batch), batch).device.type == "meta"
    assert next(tasks[name].model().parameters()).device.type == "cpu"


def test_what_differs_by_optimizer(tasks):
    lstm = tasks["lstm"]
    assert lstm.schedule == Plateau(2, 0.5)
    assert lstm.clip is None
    assert lstm.by_optimizer == {name: {"schedule": Constant(), "clip": 0.25} for name in ("sgd", "nt-asgd")}
    assert all(not task.by_optimizer for name, task in tasks.items() if name != "lstm")


def test_settings_of_the_training(tasks):
    """Oracle: the settings' own numbers, which are data."""
    for name, task in tasks.items():
        settings = SETTINGS[name]["quick"]
        assert (task.epochs, task.batch_size, task.weight_decay, task.patience) == (
            settings.epochs,
            settings.batch_size,
            settings.weight_decay,
            250,
        )
        if name != "lstm":
            assert task.schedule == Milestones(settings.milestones, 0.1)
        assert task.name == f"{name} (quick)"
        assert "embedded" in task.description


def test_the_checkpoint_of_other_data_is_refused(tasks, tmp_path):
    task, setting = tasks["autoencoder"], Setting("sgd", 0.1, epochs=1)
    train(task, setting, 0, tmp_path)
    other = type(task)(**{**vars(task), "description": "MNIST (download): 60,000 train"})
    with pytest.raises(ValueError, match=r"another trial, with data .*scikit-learn's digits"):
        train(other, setting, 0, tmp_path)


@pytest.mark.parametrize("name", SETTINGS)
def test_the_papers_scale_insists_on_the_papers_data(name):
    with pytest.raises(DataError, match="not the whole data set, which scale paper needs"):
        find(name, store=STORE)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [(("mnist", "quick"), "name='mnist': must be one of autoencoder"), (("cnn5", "tiny"), "scale='tiny': must be one")],
)
def test_bad_arguments(arguments, message):
    with pytest.raises(ValueError, match=message):
        paper_task(*arguments, STORE)
