"""The training loop against loops written out by hand, and what ends a training."""

import math

import pytest
import small_tasks
import torch
from torch import nn
from torch.nn import functional

from aggmo.lab.schedule import Milestones
from aggmo.lab.setting import Setting
from aggmo.lab.task import Metric, Task, Tensors
from aggmo.lab.train import evaluate, train


class InOrder(Tensors):
    """The training batches in the order of their rows, whatever the generator."""

    def training(self, batch_size, generator):  # noqa: ARG002
        yield from zip(*(torch.split(tensor, batch_size) for tensor in self.train), strict=True)


GENERATOR = torch.Generator().manual_seed(0)
POINTS = torch.randn(10, 3, generator=GENERATOR)
TARGETS = torch.randn(10, 1, generator=GENERATOR)


def linear():
    """A linear model that is always the same."""
    layer = nn.Linear(3, 1)
    with torch.no_grad():
        layer.weight.copy_(torch.tensor([[1.0, -2.0, 0.5]]))
        layer.bias.zero_()
    return layer


def squares(output, batch):
    return (output - batch[1]).square().mean()


def distance(output, batch):
    return (output - batch[1]).abs().mean()


def regression(**options):
    return Task(
        **{
            "name": "regression",
            "data": InOrder((POINTS[:7], TARGETS[:7]), (POINTS[7:9], TARGETS[7:9]), (POINTS[9:], TARGETS[9:])),
            "model": linear,
            "loss": squares,
            "metrics": (Metric("distance", distance),),
            "epochs": 5,
            "batch_size": 3,  # batches of 3, 3 and 1
            **options,
        }
    )


def by_hand(epochs=5, factors=(1.0,) * 5, clip=None, weight_decay=0.0, lr=0.05):
    """Losses, metrics and learning rates of AggMo on the regression, in a loop without anything else."""
    model = linear()
    velocities = {p: [torch.zeros_like(p) for _ in range(2)] for p in model.parameters()}
    records = []
    for epoch in range(epochs):
        losses, distances = [], []
        for rows in ([0, 1, 2], [3, 4, 5], [6]):
            batch = POINTS[rows], TARGETS[rows]
            output = model(batch[0])
            loss = squares(output, batch)
            losses += [loss.item()] * len(rows)
            distances += [distance(output, batch).item()] * len(rows)
            grads = torch.autograd.grad(loss, list(model.parameters()))
            norm = math.sqrt(sum(g.square().sum().item() for g in grads))
            scale = min(1.0, clip / (norm + 1e-6)) if clip else 1.0  # torch's guard against a norm of 0
            with torch.no_grad():
                for p, g in zip(model.parameters(), grads, strict=True):
                    total = 0
                    for beta, v in zip((0.0, 0.9), velocities[p], strict=True):
                        v.mul_(beta).add_(g * scale + weight_decay * p)
                        total = total + v / 2
                    p.sub_(lr * factors[epoch] * total)
        record = {"train_loss": sum(losses) / 7, "train_distance": sum(distances) / 7, "lr": lr * factors[epoch]}
        with torch.no_grad():
            for split, rows in (("validation", [7, 8]), ("test", [9])):
                output, batch = model(POINTS[rows]), (POINTS[rows], TARGETS[rows])
                record[f"{split}_loss"] = squares(output, batch).item()
                record[f"{split}_distance"] = distance(output, batch).item()
        records.append(record)
    return records


AGGMO = {"optimizer": "aggmo", "lr": 0.05, "betas": (0, 0.9)}


@pytest.mark.parametrize(
    ("task", "overrides", "hand"),
    [
        ({}, {}, {}),
        ({"clip": 0.5, "weight_decay": 0.1}, {}, {"clip": 0.5, "weight_decay": 0.1}),
        ({"schedule": Milestones((1, 3), 0.5)}, {}, {"factors": (1, 0.5, 0.5, 0.25, 0.25)}),
        ({"clip": 0.5, "weight_decay": 0.1}, {"clip": None, "weight_decay": 0.2}, {"weight_decay": 0.2}),
        ({"by_optimizer": {"aggmo": {"clip": 0.5}, "sgd": {"clip": 0.1}}}, {}, {"clip": 0.5}),
        ({"clip": 3, "by_optimizer": {"aggmo": {"clip": 2}}}, {"clip": 0.5}, {"clip": 0.5}),
        ({"schedule": lambda scores: 0.5 ** len(scores)}, {"epochs": 2}, {"factors": (1, 0.5), "epochs": 2}),
    ],
)
def test_the_loop_is_the_one_by_hand(task, overrides, hand):
    outcome = train(regression(**task), Setting(**AGGMO, **overrides), seed=0)
    expected = by_hand(**hand)
    assert outcome.status == "finished"
    assert [(record["epoch"], record["steps"]) for record in outcome.records] == [
        (epoch, 3 * epoch) for epoch in range(1, len(expected) + 1)
    ]
    for record, other in zip(outcome.records, expected, strict=True):
        for name, value in other.items():
            assert math.isclose(record[name], value, rel_tol=1e-5, abs_tol=1e-6), name
        assert record.keys() == {"epoch", "steps", "seconds", "averaged", *other}
        assert record["averaged"] == 0


def test_a_factor_for_a_step_is_for_that_step_alone():
    """Oracle: SGD by hand, theta = theta - lr f g with f a third of the batch's size, from epoch to epoch."""
    model, expected = linear(), []
    for _ in range(3):
        for rows in ([0, 1, 2], [3, 4, 5], [6]):
            grads = torch.autograd.grad(squares(model(POINTS[rows]), (None, TARGETS[rows])), list(model.parameters()))
            with torch.no_grad():
                for p, g in zip(model.parameters(), grads, strict=True):
                    p.sub_(0.05 * len(rows) / 3 * g)
        expected.append(squares(model(POINTS[7:9]), (None, TARGETS[7:9])).item())
    task = regression(lr_factor=lambda batch: len(batch[0]) / 3)
    records = train(task, Setting("sgd", 0.05, epochs=3), seed=0).records
    assert [record["validation_loss"] for record in records] == pytest.approx(expected, rel=1e-5)
    assert {record["lr"] for record in records} == {0.05}


def test_batch_size_and_size():
    """Oracle: with batches of all 7 rows, a size of 1 for each batch changes no mean over it."""
    whole = train(regression(size=lambda _: 1), Setting("sgd", 0.05, batch_size=7), seed=0).records
    rows = train(regression(), Setting("sgd", 0.05, batch_size=7), seed=0).records
    assert [record["steps"] for record in whole] == [1, 2, 3, 4, 5]
    assert [record["train_loss"] for record in whole] == pytest.approx([record["train_loss"] for record in rows])
    assert rows[0]["train_loss"] == pytest.approx(squares(linear()(POINTS[:7]), (None, TARGETS[:7])).item())


def test_training_metrics_are_of_the_model_in_training_mode():
    """Oracle: a dropout of everything leaves zeros in training, and nothing changes in evaluation."""
    task = regression(
        model=lambda: nn.Sequential(nn.Identity(), linear(), nn.Dropout(1.0)),
        metrics=(Metric("output", lambda output, _: output.abs().max()),),
        epochs=1,
    )
    record = train(task, Setting("sgd", 0.05), seed=0).records[0]
    assert record["train_output"] == 0
    assert record["test_output"] == linear()(POINTS[9:]).abs().max().item()


def test_a_transform_is_of_the_mean_over_all_samples():
    """Oracle: exp of the mean over all rows, in batches of 4 and 1 in evaluation, and 3, 3 and 1 in training."""
    five = InOrder((POINTS[:7], TARGETS[:7]), (POINTS[:5], TARGETS[:5]), (POINTS[9:], TARGETS[9:]), evaluation_size=4)
    task = regression(data=five, metrics=(Metric("exp", squares, transform=torch.exp),))
    found = evaluate(task, linear(), "validation")
    mean = squares(linear()(POINTS[:5]), (None, TARGETS[:5])).item()
    assert found == pytest.approx({"loss": mean, "exp": math.exp(mean)}, rel=1e-6)
    record = train(task, Setting("sgd", 0.05), seed=0).records[0]
    assert record["train_exp"] == pytest.approx(math.exp(record["train_loss"]))


class Counting(nn.Module):
    """Counts the epochs by its calls in evaluation mode, of which one comes before the first epoch."""

    def __init__(self):
        super().__init__()
        self.linear = linear()
        self.register_buffer("epochs", torch.tensor(-1))

    def forward(self, points):
        if not self.training and len(points) == 2:  # the validation split
            self.epochs += 1
        return self.linear(points), self.epochs.clone()


def counting(scores, direction="min", **options):
    """A task whose validation metric takes these values, one an epoch; on the test split it is ten times that."""

    def score(output, batch):
        return torch.tensor(float(scores[max(int(output[1]) - 1, 0)] * (10 if len(batch[0]) == 1 else 1)))

    return regression(
        model=Counting,
        loss=lambda output, batch: squares(output[0], batch),
        metrics=(Metric("score", score, direction),),
        epochs=len(scores),
        **options,
    )


def test_the_scores_are_as_chosen():
    outcome = train(counting([3, 1, 2]), Setting("sgd", 0.05), seed=0)
    assert [record["validation_score"] for record in outcome.records] == [3, 1, 2]


@pytest.mark.parametrize(
    ("scores", "direction", "patience", "status", "epochs", "best"),
    [
        ([5, 4, 4, 4, 3, 3, 3, 3, 0], "min", 3, "stopped early", 8, 5),
        ([5, 4, 4, 4, 4, 3, 3, 3], "min", 3, "stopped early", 5, 2),
        ([1, 2, 2, 1, 0], "max", 2, "stopped early", 4, 2),
        ([1, 2, 2, 3, 0], "max", 3, "finished", 5, 4),
        ([2, 2, 2], "min", 3, "finished", 3, 1),
        ([2, 2, 2], "min", 1, "stopped early", 2, 1),
    ],
)
def test_early_stopping_and_the_best_epoch(scores, direction, patience, status, epochs, best):
    outcome = train(counting(scores, direction, patience=patience), Setting("sgd", 0.01), seed=0)
    assert (outcome.status, len(outcome.records)) == (status, epochs)
    assert outcome.best is outcome.records[best - 1]
    assert outcome.best["test_score"] == 10 * scores[best - 1]


def test_the_schedule_sees_scores_that_are_lower_for_better():
    seen = []
    task = counting([1, 3, 2], "max", schedule=lambda scores: seen.append(list(scores)) or 1.0)
    train(task, Setting("sgd", 0.01), seed=0)
    assert seen == [[], [-1], [-1, -3], [-1, -3, -2]][:3]


def test_a_divergence_is_an_outcome():
    """Oracle: at lr 1e30 the loss overflows single precision; the look at it comes at the end of the epoch."""
    outcome = train(regression(), Setting("sgd", 1e30), seed=0)
    assert (outcome.status, outcome.best) == ("diverged", None)
    (record,) = outcome.records
    assert (record["epoch"], record["steps"], record["lr"]) == (1, 3, 1e30)
    assert not math.isfinite(record["train_loss"])
    assert math.isnan(record["validation_distance"])
    assert math.isnan(record["test_loss"])


def test_a_divergence_ends_a_long_epoch():
    many = POINTS.repeat(50, 1), TARGETS.repeat(50, 1)  # 500 rows
    outcome = train(regression(data=InOrder(many, many, many)), Setting("sgd", 1e30, batch_size=1), seed=0)
    assert (outcome.status, outcome.records[-1]["steps"]) == ("diverged", 100)


def test_a_divergence_after_good_epochs_keeps_the_best():
    task = regression(schedule=lambda scores: 1e30 if len(scores) == 2 else 1.0)
    outcome = train(task, Setting("sgd", 0.05), seed=0)
    assert (outcome.status, len(outcome.records)) == ("diverged", 3)
    undisturbed = train(regression(), Setting("sgd", 0.05, epochs=2), seed=0)
    assert bits([outcome.best]) == bits([undisturbed.best])


def test_a_validation_score_that_is_not_finite_is_a_divergence():
    outcome = train(counting([1.0, math.inf, 1.0]), Setting("sgd", 0.01), seed=0)
    assert (outcome.status, len(outcome.records), outcome.best["epoch"]) == ("diverged", 2, 1)


def refusing(output, batch):
    """torch's cross-entropy of probabilities, which raises a RuntimeError for NaN."""
    return functional.binary_cross_entropy(output, batch[1].sigmoid())


class Overflowing(nn.Module):
    """Infinity less infinity, and so NaN, once its parameter is beyond 10."""

    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.tensor(1.0))

    def forward(self, points):
        huge = math.inf if self.weight.abs() > 10 else 0.0
        return torch.sigmoid(self.weight * points[:, :1] + (huge - huge))


def test_a_loss_that_refuses_nan_is_a_divergence():
    task = regression(model=Overflowing, loss=refusing)
    assert train(task, Setting("sgd", 0.01), seed=0).status == "finished"
    in_training = train(task, Setting("sgd", 1e6), seed=0)
    assert (in_training.status, in_training.records[-1]["steps"]) == ("diverged", 1)
    in_evaluation = train(task, Setting("sgd", 1e6, batch_size=7), seed=0)
    assert (in_evaluation.status, in_evaluation.records[-1]["steps"]) == ("diverged", 1)
    assert math.isfinite(in_evaluation.records[-1]["train_loss"])
    assert math.isnan(in_evaluation.records[-1]["validation_loss"])


def test_an_error_that_is_no_divergence_is_raised():
    def loss(output, batch):
        if len(batch[0]) == 3 and output.requires_grad:
            raise RuntimeError("a mistake")
        return squares(output, batch)

    with pytest.raises(RuntimeError, match="a mistake"):
        train(regression(loss=loss), Setting("sgd", 0.01), seed=0)


def test_every_record_is_reported_as_it_is_made():
    reported = []
    outcome = train(regression(), Setting("sgd", 0.05), seed=0, report=reported.append)
    assert tuple(reported) == outcome.records
    assert all(type(value) in (int, float) for record in reported for value in record.values())
    assert all(type(record[name]) is int for record in reported for name in ("epoch", "steps", "averaged"))
    seconds = [record["seconds"] for record in reported]
    assert seconds[0] > 0
    assert seconds == sorted(seconds)


def bits(records):
    """The records, without their times, in a form whose equality is that of bits."""
    return [{name: float(value).hex() for name, value in record.items() if name != "seconds"} for record in records]


def test_the_seed_is_all_that_randomness_depends_on():
    def records(seed, **options):
        torch.manual_seed(0 if options else 1)  # which must not matter
        setting = Setting("aggmo", 0.05, epochs=2)
        return bits(train(small_tasks.classification(**options), setting, seed).records)

    assert records(3) == records(3, patience=100)
    assert records(3) != records(4)


def test_one_seed_means_the_same_parameters_and_batches_for_every_setting():
    """Oracle: at lr 1e-30 nothing moves, so that losses of different optimizers are equal."""

    def loss(*arguments):
        task = small_tasks.classification(weight_decay=0.0)
        return train(task, Setting(*arguments, epochs=1), seed=5).records[0]["train_loss"]

    assert loss("sgd", 1e-30) == loss("cm", 1e-30) == loss("aggmo", 1e-30) == loss("adam", 1e-30)


def interrupt(_):
    raise KeyboardInterrupt


@pytest.mark.parametrize("report", [None, interrupt])
def test_the_callers_random_numbers_are_left_alone(report):
    torch.manual_seed(7)
    expected = torch.rand(3)
    torch.manual_seed(7)
    try:
        train(small_tasks.classification(), Setting("sgd", 0.05, epochs=2), 0, report=report)
    except KeyboardInterrupt:
        assert report
    assert torch.equal(torch.rand(3), expected)


class SameWindows(small_tasks.Text):
    """The same windows in every epoch, whatever the generator."""

    def training(self, batch_size, generator=None):  # noqa: ARG002
        return super().training(batch_size, torch.Generator().manual_seed(3))


def recurrent():
    """A recurrent model without dropout that is always the same."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return small_tasks.Recurrent(dropout=0.0)


def test_the_language_model_is_trained_as_by_hand():
    """Oracle: the loop written out: the hidden state over windows, rescaled rates, clipping, the penalty."""
    text = SameWindows()
    outcome = train(small_tasks.language(data=text, model=recurrent, epochs=2), Setting("cm", 0.5, (0.9,)), seed=0)
    model = recurrent()
    sgd = torch.optim.SGD(model.parameters(), lr=0.5, momentum=0.9)
    for record in outcome.records:
        state, nll, loss = None, 0.0, 0.0
        for window in text.training(2):
            length = len(window.words)
            sgd.param_groups[0]["lr"] = 0.5 * length / 7
            sgd.zero_grad()
            output, hidden, state = model(window.words, state)
            mean = functional.cross_entropy(output.flatten(0, 1), window.following.flatten())
            objective = mean + 0.1 * hidden.square().mean()
            objective.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 0.25)
            sgd.step()
            state = state.detach()
            nll += mean.item() * length / 80
            loss += objective.item() * length / 80
        with torch.no_grad():
            output, _, _ = model(text.words[100:120], None)
            mean = functional.cross_entropy(output.flatten(0, 1), text.words[101:121].flatten())
        assert record["train_perplexity"] == pytest.approx(math.exp(nll), rel=1e-6)
        assert record["train_loss"] == pytest.approx(loss, rel=1e-6)
        assert record["test_perplexity"] == pytest.approx(mean.exp().item(), rel=1e-5)
