"""Selection: rankings, warnings, steps to a target, sensitivity and maps, against hand and brute-force computations."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from aggmo.lab.records import Trial
from aggmo.lab.selection import (
    Score,
    heat_map,
    lr_sensitivity,
    rank,
    select,
    steps_to_target,
    summarize,
    train_optimal,
    validation_optimal,
)
from aggmo.lab.study import grid


def finished(settings, **outcome):
    return Trial(0, "", settings, "finished", outcome)


def study(values, **shared):
    """Trials of settings as (optimizer, lr) with the losses of their seeds; None has diverged, ... is not done."""
    return [
        Trial(0, "", settings, "waiting") if loss is ... else finished(settings, loss=loss, diverged=loss is None)
        for (optimizer, lr), losses in values.items()
        for seed, loss in enumerate(losses)
        for settings in [{"optimizer": optimizer, "lr": lr, "seed": seed, **shared}]
    ]


# Scores


@given(st.lists(st.floats(-1e6, 1e6), min_size=2, max_size=20))
def test_mean_and_sd(values):
    """Oracle: NumPy."""
    score = summarize([finished({"seed": i}, loss=value) for i, value in enumerate(values)], "loss")
    assert score.values == tuple(values)
    assert score.n == len(values)
    assert score.mean == pytest.approx(np.mean(values), abs=1e-9)
    assert score.sd == pytest.approx(np.std(values, ddof=1), abs=1e-9)


def test_diverged_trials_count_but_have_no_value():
    """Whether an outcome says so, or has no finite number under that name."""
    trials = [
        finished({"lr": 1, "seed": 0}, loss=2.0, diverged=False),
        finished({"lr": 1, "seed": 1}, loss=1.0, diverged=True),
        finished({"lr": 1, "seed": 2}, diverged=True),
        finished({"lr": 1, "seed": 3}, loss=None),
        finished({"lr": 1.0, "seed": 4}, loss=math.inf),
        Trial(0, "", {"lr": 1, "seed": 5}, "waiting"),
        Trial(0, "", {"lr": 1, "seed": 6}, "failed", error="no"),
    ]
    assert summarize(trials, "loss") == Score({"lr": 1}, (2.0,), 4)


def test_what_cannot_be_summarized():
    two = study({("cm", 0.1): [1.0], ("cm", 0.2): [1.0]})
    with pytest.raises(ValueError, match="2 trials of 2 settings: must be of one, and finished"):
        summarize(two, "loss")
    with pytest.raises(ValueError, match="0 trials of 0 settings"):
        summarize([], "loss")
    with pytest.raises(ValueError, match="'error': the outcome of trial 0 has loss, diverged"):
        summarize(two[:1], "error")
    with pytest.raises(ValueError, match="direction='least': must be 'min' or 'max'"):
        rank(two, "loss", "least")


# Rankings

LOSSES = st.lists(st.one_of(st.none(), st.sampled_from([0.0, 1.0, 2.5, 4.0])), min_size=1, max_size=3)


@given(st.dictionaries(st.sampled_from([0.001, 0.01, 0.1, 1.0]), LOSSES, min_size=1), st.sampled_from(["min", "max"]))
def test_the_ranking(values, direction):
    """Oracle: no setting is better than one before it, by the share of diverged trials first, by the mean then."""
    scores = rank(study({("cm", lr): losses for lr, losses in values.items()}), "loss", direction)
    assert sorted(score.settings["lr"] for score in scores) == sorted(values)
    for better, worse in itertools.pairwise(scores):
        shares = [np.mean([loss is None for loss in values[score.settings["lr"]]]) for score in (better, worse)]
        assert shares[0] <= shares[1]
        if shares[0] == shares[1] < 1.0:
            assert better.mean <= worse.mean if direction == "min" else better.mean >= worse.mean


def test_the_protocol_of_the_paper():
    """Two selections with different answers, and test figures of the second, all by hand."""
    outcomes = {  # by lr: final training loss, best validation accuracy and the test accuracy there, for two seeds
        0.1: [(0.5, 70.0, 69.0), (0.3, 72.0, 70.0)],
        0.2: [(0.1, 60.0, 61.0), (0.2, 65.0, 64.0)],
        0.3: [(0.2, 99.0, 99.0), (None, None, None)],
    }
    trials = [
        finished(
            {"optimizer": "cm", "lr": lr, "seed": seed},
            train_loss=loss,
            validation_accuracy=accuracy,
            test_accuracy=test,
            diverged=loss is None,
        )
        for lr, seeds in outcomes.items()
        for seed, (loss, accuracy, test) in enumerate(seeds)
    ]
    by_training = train_optimal(trials)["cm"]
    assert by_training.score.settings == {"optimizer": "cm", "lr": 0.2}
    assert by_training.score.mean == pytest.approx(0.15)
    by_validation = validation_optimal(trials, "validation_accuracy", "max")["cm"]
    assert by_validation.score.settings == {"optimizer": "cm", "lr": 0.1}
    test = summarize(by_validation.trials, "test_accuracy")
    assert (test.mean, test.sd) == (69.5, pytest.approx(math.sqrt(0.5)))
    assert [score.settings["lr"] for score in by_validation.ranking] == [0.1, 0.2, 0.3]
    assert by_validation.ranking[2].diverged == 1


def test_each_optimizer_has_a_choice_of_its_own():
    trials = study({("cm", 0.1): [2.0], ("cm", 0.2): [1.0], ("adam", 0.1): [3.0], ("sgd", 0.1): [...]})
    choices = select(trials, "loss")
    assert {name: choice.score.mean for name, choice in choices.items()} == {"cm": 1.0, "adam": 3.0}
    by_lr = select(trials, "loss", by="lr")
    assert {lr: choice.score.settings["optimizer"] for lr, choice in by_lr.items()} == {0.1: "cm", 0.2: "cm"}
    with pytest.raises(ValueError, match="'task': the settings of trial 0 are optimizer, lr, seed"):
        select(trials, "loss", by="task")


# Warnings


def warnings(trials):
    return select(trials, "loss")["cm"].warnings


@pytest.mark.parametrize(
    ("best", "expected"),
    [
        (0.01, ["lr=0.01 is the least of its grid, the optimum may lie beyond"]),
        (0.1, []),
        (1.0, ["lr=1.0 is the largest of its grid, the optimum may lie beyond"]),
    ],
)
def test_an_optimum_on_the_edge_of_the_learning_rates(best, expected):
    losses = {("cm", lr): [1.0 + abs(math.log10(lr / best))] for lr in (1.0, 0.01, 0.1)}
    assert list(warnings(study(losses))) == expected
    assert list(warnings(study({**losses, ("adam", 10.0): [9.0], ("adam", 0.001): [9.0]}))) == expected


@pytest.mark.parametrize(
    ("grid_of_betas", "best", "edge"),
    [
        ([[0.0], [0.9], [0.99]], [0.0], None),  # there is nothing below 0
        ([[0.0], [0.9], [0.99]], [0.9], None),
        ([[0.0], [0.9], [0.99]], [0.99], "largest"),
        ([[0.9, 0.999], [0.99, 0.999]], [0.9, 0.999], "least"),
        ([[0.0, 0.9], [0.0, 0.9, 0.99], [0.0, 0.9, 0.99, 0.999]], [0.0, 0.9, 0.99, 0.999], "largest"),
        ([[0.0, 0.9], [0.0, 0.9, 0.99], [0.0, 0.9, 0.99, 0.999]], [0.0, 0.9, 0.99], None),
        ([[0.9]], [0.9], None),  # a grid of one has no edge
        ([None, [0.9]], [0.9], None),  # what is no number has no order
    ],
)
def test_an_optimum_on_the_edge_of_the_dampings(grid_of_betas, best, edge):
    settings = grid({"optimizer": ["cm"], "betas": grid_of_betas}, lr=[0.1])
    found = warnings([finished(each, loss=float(each["betas"] != best)) for each in settings])
    assert list(found) == ([f"betas={best} is the {edge} of its grid, the optimum may lie beyond"] if edge else [])


def test_the_grid_includes_what_has_diverged_or_is_not_done():
    assert warnings(study({("cm", 0.1): [2.0], ("cm", 0.2): [1.0], ("cm", 0.4): [None]})) == ()
    edge = warnings(study({("cm", 0.1): [2.0], ("cm", 0.2): [1.0], ("cm", 0.4): [...]}))
    assert edge == ("1 of 3 trials have no outcome",)
    withdrawn = Trial(0, "", {"optimizer": "cm", "lr": 9.0}, "withdrawn")
    assert warnings([*study({("cm", 0.1): [1.0]}), withdrawn]) == ()


def test_diverged_trials_are_shown():
    found = warnings(study({("cm", 0.1): [1.0, None, 2.0], ("cm", 0.2): [None, None, 0.5], ("cm", 0.05): [None] * 3}))
    assert found == ("1 of its 3 trials diverged",)


# Steps to a target

CURVE = {"epoch": [1, 2, 3, 4], "steps": [10, 20, 30, 40], "loss": [4.0, math.nan, 1.0, 2.0], "accuracy": [1, 5, 3, 9]}


@pytest.mark.parametrize(
    ("metric", "target", "direction", "epoch"),
    [
        ("loss", 4.0, "min", 1),
        ("loss", 3.9, "min", 3),
        ("loss", 0.9, "min", math.inf),
        ("accuracy", 1, "max", 1),
        ("accuracy", 4, "max", 2),
        ("accuracy", 10, "max", math.inf),
    ],
)
def test_steps_to_a_target(metric, target, direction, epoch):
    assert steps_to_target(CURVE, metric, target, direction) == epoch
    assert steps_to_target(CURVE, metric, target, direction, axis="steps") == 10 * epoch


def test_a_curve_without_the_column():
    for names in ({"metric": "error"}, {"metric": "loss", "axis": "time"}):
        with pytest.raises(ValueError, match="the curve has epoch, steps, loss, accuracy"):
            steps_to_target(CURVE, target=1.0, **names)


# Sensitivity


def test_the_range_of_learning_rates():
    """By hand: within 50% of the best, from the best outwards, up to the first that is not."""
    losses = {1e-4: [1.1], 1e-3: [1.6], 1e-2: [1.4], 1e-1: [1.0], 1e0: [1.5], 1e1: [1.2, None]}
    sensitivity = lr_sensitivity(study({("cm", lr): seeds for lr, seeds in losses.items()}), "loss", tolerance=0.5)
    assert sensitivity.lrs == tuple(losses)
    assert [score.mean for score in sensitivity.scores] == [1.1, 1.6, 1.4, 1.0, 1.5, 1.2]
    assert (sensitivity.low, sensitivity.high) == (1e-2, 1e0)
    assert sensitivity.decades == pytest.approx(2.0)


def test_at_each_learning_rate_the_best_of_the_rest_counts():
    settings = grid(lr=[0.1, 0.2], betas=[[0.9], [0.99]])
    accuracies = [10.0, 50.0, 49.0, 20.0]
    trials = [finished(each, accuracy=value) for each, value in zip(settings, accuracies, strict=True)]
    sensitivity = lr_sensitivity(trials, "accuracy", "max", tolerance=0.05)
    assert [score.settings["betas"] for score in sensitivity.scores] == [[0.99], [0.9]]
    assert (sensitivity.low, sensitivity.high) == (0.1, 0.2)


def test_a_sensitivity_of_nothing():
    diverged = lr_sensitivity(study({("cm", 0.1): [None]}), "loss")
    assert math.isnan(diverged.low)
    assert math.isnan(diverged.decades)
    with pytest.raises(ValueError, match="no trial has an outcome"):
        lr_sensitivity(study({("cm", 0.1): [...]}), "loss")
    with pytest.raises(ValueError, match=r"tolerance=-0.1: must be a number >= 0"):
        lr_sensitivity([], "loss", tolerance=-0.1)


# Maps


@pytest.mark.parametrize(("direction", "worst"), [("min", math.inf), ("max", -math.inf)])
def test_a_heat_map(direction, worst):
    """By hand: the mean over seeds, the best over momentum's other settings; diverged, and not done."""
    cells = {(0.2, (0.0, 0.9)): [1.0, 3.0], (0.1, (0.0, 0.9)): [None, 4.0], (0.2, (0.0,)): [None, None]}
    trials = [
        finished({"lr": lr, "betas": list(betas), "seed": seed, "clip": clip}, loss=loss and loss + worse)
        for (lr, betas), losses in cells.items()
        for seed, loss in enumerate(losses)
        for clip, worse in [(1.0, 0.0), (2.0, 5.0 if direction == "min" else -5.0)]
    ]
    found = heat_map([*trials, Trial(0, "", {"lr": 7.0}, "waiting")], "loss", direction=direction)
    assert found.xs == (0.1, 0.2)
    assert found.ys == ((0.0,), (0.0, 0.9))
    np.testing.assert_array_equal(found.means, [[math.nan, worst], [4.0, 2.0]])
    np.testing.assert_array_equal(found.diverged, [[math.nan, 1.0], [0.5, 0.0]])


def test_the_axes_are_in_order():
    betas = [[0.0, 0.9, 0.99], [0.5], [0.0, 0.9], None]
    found = heat_map([finished(each, loss=1.0) for each in grid(lr=[3, 0.5, 20.0], betas=betas)], "loss")
    assert found.xs == (0.5, 3, 20.0)
    assert found.ys == (None, (0.0, 0.9), (0.0, 0.9, 0.99), (0.5,))
    with pytest.raises(ValueError, match="'lr': the settings of trial 0 are optimizer"):
        heat_map([finished({"optimizer": "sgd"}, loss=1.0)], "loss")
