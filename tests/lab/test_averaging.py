"""NT-ASGD: its trigger, and its average under learning rates that change from step to step, by hand."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from aggmo.lab.averaging import stalled
from aggmo.lab.setting import Setting
from aggmo.lab.task import Metric, Task
from aggmo.lab.train import train


@given(st.lists(st.integers(0, 9), min_size=1, max_size=12), st.integers(1, 5))
def test_the_trigger(scores, window):
    """Oracle: the rule as its published code keeps it, a list of losses to which the newest is added afterwards."""
    losses, triggered = [], False
    for score in scores:
        triggered = len(losses) > window and score > min(losses[:-window])
        losses.append(score)
    assert stalled(scores, window) == triggered


class Numbers:
    """Batches of one number, each with the factor of its step's learning rate; the target of evaluation is 0."""

    steps = ((1.0, 1.5), (2.0, 0.5), (4.0, 1.0))

    def training(self, batch_size, generator):  # noqa: ARG002
        for number, factor in self.steps:
            yield torch.tensor([number], dtype=torch.float64), factor

    def evaluation(self, split):
        yield torch.tensor([{"validation": 0.0, "test": 1.0}[split]], dtype=torch.float64), 1.0


class Guess(nn.Module):
    """One number."""

    def __init__(self):
        super().__init__()
        self.guess = nn.Parameter(torch.zeros(1, dtype=torch.float64))

    def forward(self, numbers):
        return numbers - self.guess


def guessing(direction="min"):
    return Task(
        name="guessing",
        data=Numbers(),
        model=Guess,
        loss=lambda output, _: output.square().mean() / 2,
        metrics=(Metric("miss", lambda output, _: output.abs().mean(), direction),),
        epochs=10,
        batch_size=1,
        lr_factor=lambda batch: batch[1],
    )


LR = 0.1


def iterates(epochs):
    """SGD by hand on (x - guess)^2 / 2: guess + lr f (x - guess), with the f of its own step."""
    guess, found = 0.0, []
    for _ in range(epochs):
        for number, factor in Numbers.steps:
            guess += LR * factor * (number - guess)
            found.append(guess)
    return found


def test_the_average_by_hand():
    """The guess leaves the target of validation from the first epoch on, so that epoch 7 is the first that can switch.

    From epoch 8 on the model that is evaluated is the mean of the iterates after each step of epochs 8, 9, ...
    """
    outcome = train(guessing(), Setting("nt-asgd", LR), seed=0)
    theta = iterates(10)
    for record in outcome.records:
        epoch = record["epoch"]
        since = theta[21 : 3 * epoch]  # 3 steps an epoch
        expected = sum(since) / len(since) if epoch > 7 else theta[3 * epoch - 1]
        assert record["averaged"] == (epoch > 7)
        assert record["validation_miss"] == pytest.approx(expected, rel=1e-12)
        assert record["test_miss"] == pytest.approx(abs(1 - expected), rel=1e-12)
        assert record["lr"] == LR


def test_sgd_itself_goes_on_beside_the_average():
    """Oracle: plain SGD has the same training losses, and never averages."""
    averaged = train(guessing(), Setting("nt-asgd", LR), seed=0).records
    plain = train(guessing(), Setting("sgd", LR), seed=0).records
    assert [record["train_loss"] for record in averaged] == [record["train_loss"] for record in plain]
    assert {record["averaged"] for record in plain} == {0}
    assert averaged[8]["validation_miss"] != plain[8]["validation_miss"]


def test_no_switch_while_scores_get_better():
    task = guessing("max")
    assert {record["averaged"] for record in train(task, Setting("nt-asgd", LR), seed=0).records} == {0}


def test_torchs_asgd_is_another_algorithm():
    """As the module says: its steps have the rate of the step before, and its mean leaves out the first iterate."""
    guess = nn.Parameter(torch.zeros(1, dtype=torch.float64))
    asgd = torch.optim.ASGD([guess], lr=LR, lambd=0.0, t0=0.0)
    by_hand, found, rate = 0.0, [], LR * Numbers.steps[0][1]
    for number, factor in Numbers.steps:
        asgd.param_groups[0]["lr"] = LR * factor
        guess.grad = guess.detach() - number
        asgd.step()
        by_hand += rate * (number - by_hand)
        rate = LR * factor
        found.append(by_hand)
    assert guess.item() == pytest.approx(found[-1], rel=1e-6)  # torch has rates in single precision here
    assert abs(guess.item() - iterates(1)[-1]) > 0.01
    assert asgd.state[guess]["ax"].item() == pytest.approx(sum(found[1:]) / 2, rel=1e-6)
