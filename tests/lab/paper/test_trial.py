"""Trials of the paper's experiments: trained as any, or a few steps timed."""

from dataclasses import replace

import pytest

from aggmo.lab import trial as training
from aggmo.lab.data.store import Store
from aggmo.lab.paper.trial import timed, trial
from aggmo.lab.setting import Setting
from aggmo.lab.task import find


@pytest.fixture(scope="module")
def task():
    return find("autoencoder", "quick", Store(embedded=True))


def settings(task, **more):
    """Of a trial of the autoencoder."""
    found = {"task": "autoencoder", "scale": "quick", "content": training.content("autoencoder", "quick", task)}
    return found | {"optimizer": "aggmo", "betas": [0.0, 0.9], "lr": 0.1, "seed": 0} | more


def test_a_timed_trial_reports_no_epoch_and_adds_up(task, tmp_path):
    """Oracle: the sum of the parts; nothing is trained, so nothing is reported."""
    directory = tmp_path / "trials" / "one"
    directory.mkdir(parents=True)
    training.save_store(tmp_path, embedded=True)
    reported = []
    found = trial(settings(task, timed=3), directory, reported.append)
    assert reported == []
    assert found["step"] == found["forward_backward"] + found["optimizer"]
    assert min(found["forward_backward"], found["optimizer"]) > 0.0
    assert found["diverged"] is False


def test_other_trials_are_the_labs(task, tmp_path):
    """Oracle: `aggmo.lab.trial.trial` with the same settings."""
    outcomes = []
    for function in (trial, training.trial):
        directory = tmp_path / function.__module__ / "trials" / "one"
        directory.mkdir(parents=True)
        training.save_store(directory.parents[1], embedded=True)
        outcomes.append(function(settings(task, epochs=2), directory, lambda _: None))
    assert outcomes[0] == outcomes[1]
    assert outcomes[0]["epochs"] == 2


def test_the_steps_that_are_timed(task):
    """Oracle: the calls of the task's loss, two of them to warm up."""
    calls = []

    def loss(output, batch):
        calls.append(len(batch[0]))
        return task.loss(output, batch)

    timed(replace(task, loss=loss), Setting("sgd", lr=1e-4), steps=12)
    assert len(calls) == 14
    assert set(calls) == {task.batch_size}
