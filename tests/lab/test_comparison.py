"""A comparison: its grid, its tables and its pictures, by hand from trials that are made up."""

import json
import math

import numpy as np
import pytest
from matplotlib.figure import Figure

from aggmo.lab import comparison
from aggmo.lab.charts import pictures
from aggmo.lab.comparison import Comparison
from aggmo.lab.paper.settings import SETTINGS, betas
from aggmo.lab.records import Trial
from aggmo.lab.selection import Score

# The grid


def pairs(settings):
    """Optimizer, lr and betas of each, without seeds."""
    return list(dict.fromkeys((each["optimizer"], each["lr"], tuple(each["betas"])) for each in settings))


@pytest.mark.parametrize("scale", ["paper", "small", "quick"])
@pytest.mark.parametrize("task", SETTINGS)
def test_a_task_of_the_paper_has_its_own_grid(task, scale):
    """Oracle: nested loops over the settings of the task."""
    own = SETTINGS[task][scale]
    expected = [
        (name, lr, damping)
        for name in own.optimizers
        for lr in (own.adam_lr if name == "adam" else own.lr)
        for damping in betas(name, scale)
    ]
    found = comparison.trials(task, scale, "0a")
    assert pairs(found) == expected
    assert len(found) == len(expected) * own.seeds
    assert {(each["task"], each["scale"], each["content"]) for each in found} == {(task, scale, "0a")}
    assert {each["seed"] for each in found[: len(expected)]} == {0}
    assert all("epochs" not in each for each in found)


def test_a_task_of_ones_own_gives_every_method_as_many_settings():
    found = comparison.trials("m:f", None, "0a")
    assert len(found) == 3 * 4 * 15
    numbers = [sum(each["optimizer"] == name for each in found) for name in ("cm", "nesterov", "adam", "aggmo")]
    assert numbers == [45] * 4
    assert "scale" not in found[0]
    assert len(pairs(comparison.trials("m:f", None, "0a", optimizers=["sgd"]))) == 5


def test_a_grid_that_is_asked_for():
    found = comparison.trials(
        "m:f",
        None,
        "0a",
        optimizers=["aggmo", "adam", "cm"],
        lr={"": [0.1, 1], "adam": [0.01]},
        betas={"aggmo": [[0, 0.9], [0, 0.5, 0.9]], "adam": [[0.5]]},
        seeds=2,
        epochs=7,
    )
    expected = [
        *(("aggmo", lr, damping) for lr in (0.1, 1.0) for damping in ((0.0, 0.9), (0.0, 0.5, 0.9))),
        ("adam", 0.01, (0.5, 0.999)),
        *(("cm", lr, (beta,)) for lr in (0.1, 1.0) for beta in (0.0, 0.9, 0.99)),
    ]
    assert pairs(found) == expected
    assert [each["seed"] for each in found] == [0] * 11 + [1] * 11
    assert {each["epochs"] for each in found} == {7}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"optimizers": []}, "the grid is empty: there must be at least one optimizer"),
        ({"optimizers": ["momentum"]}, "optimizer 'momentum': must be one of sgd, nt-asgd, cm"),
        ({"optimizers": ["cm", "cm"]}, "optimizers cm, cm: one of them twice"),
        ({"optimizers": ["cm"], "lr": {"adam": [0.1]}}, "optimizer 'adam': is given settings, but is not among cm"),
        ({"betas": {"momentum": [[0.9]]}}, "optimizer 'momentum': must be one of"),
        ({"lr": {"": []}}, r"lr=\[\]: the list is empty"),
        ({"lr": {"": [0.0]}}, "lr=0.0: must be a number > 0"),
        ({"betas": {"cm": [[0.9, 0.99]]}}, r"betas=\(0.9, 0.99\): cm takes at most 1"),
        ({"betas": {"aggmo": [[0.9, 1.0]]}}, "betas"),
        ({"seeds": 0}, "seeds=0: must be a whole number >= 1"),
        ({"epochs": 0}, "epochs=0: must be a whole number >= 1"),
    ],
)
def test_what_is_no_grid(options, message):
    with pytest.raises(ValueError, match=message):
        comparison.trials("m:f", None, "0a", **options)


# What came of it


def made_up(direction="min"):
    """Two optimizers, two learning rates, two seeds; validation errors by epoch, or accuracies as their negatives."""
    errors = {
        ("cm", 0.1): [[9.0, 4.0, 5.0], [8.0, 6.0, 2.0]],
        ("cm", 1.0): [[7.0, 7.0, 7.0], None],
        ("aggmo", 0.1): [[9.0, 9.0, 8.0], [9.0, 9.0, 8.5]],
        ("aggmo", 1.0): [[3.0, 1.0, 1.5], [9.0, 2.5, 3.0]],
    }
    sign = 1.0 if direction == "min" else -1.0
    trials, curves = [], {}
    for (name, lr), seeds in errors.items():
        for seed, own in enumerate(seeds):
            number = len(trials) + 1
            settings = {"optimizer": name, "lr": lr, "betas": [0.0, 0.9] if name == "aggmo" else [0.9], "seed": seed}
            best = None if own is None else sign * min(own)
            outcome = {
                "diverged": own is None,
                "train_loss": None if own is None else own[-1] / 10,
                "validation_score": best,
                "test_score": None if best is None else best + 0.5,
            }
            trials.append(Trial(number, "", settings, "finished", outcome))
            values = [math.nan] if own is None else [sign * value for value in own]
            epochs = np.arange(1, len(values) + 1)
            loss = [math.nan] if own is None else [value / 10 for value in own]
            curves[number] = {"epoch": epochs, "steps": 10 * epochs, "validation_score": values, "train_loss": loss}
    return Comparison("made up", "score", direction, trials, curves)


@pytest.mark.parametrize(("direction", "sign"), [("min", 1.0), ("max", -1.0)])
def test_the_tables(direction, sign):
    first, second, third = made_up(direction).tables()
    best_cm = Score({"optimizer": "cm", "lr": 0.1, "betas": [0.9]}, (sign * 4.0, sign * 2.0), 0)
    best_aggmo = Score({"optimizer": "aggmo", "lr": 1.0, "betas": [0.0, 0.9]}, (sign * 1.0, sign * 2.5), 0)
    assert first.columns[3:] == ("validation score", "test score", f"epochs to {sign * 4:.4g}")
    shifted = [Score(s.settings, tuple(v + 0.5 for v in s.values), 0) for s in (best_cm, best_aggmo)]
    assert first.rows == (
        ("cm", "0.1", "0.9", best_cm, shifted[0], 2.5),  # at epochs 2 and 3
        ("aggmo", "1", "0, 0.9", best_aggmo, shifted[1], 1.5),  # at epochs 1 and 2
    )
    assert [(row[0], row[1], row[3].mean) for row in second.rows] == [
        ("cm", "0.1", pytest.approx(0.35)),
        ("aggmo", "1", pytest.approx(0.225)),
    ]
    # at 1, half of cm's trials have diverged; at 0.1, aggmo's error is four times that of the best
    assert third.rows == (("cm", 2, 4, 1, "0.1", 0.0), ("aggmo", 2, 4, 0, "1", 0.0))
    wide = made_up(direction).wide()
    assert wide.columns[5:9] == (
        f"epochs to {sign * 4:.4g}",
        "steps to target",
        "train-optimal lr",
        "train-optimal betas",
    )
    assert wide.rows[0][5:8] == (2.5, 25.0, "0.1")
    assert len(wide.columns) == len(wide.rows[0]) == len(wide.rows[1])


@pytest.mark.parametrize(("wanted", "cells"), [(2.0, ["3 (1 of 2)", "2 (1 of 2)"]), (0.5, ["never", "never"])])
def test_a_target_that_not_all_reach(wanted, cells):
    made = made_up()
    made = Comparison(made.task, made.metric, made.direction, made.trials, made.curves, wanted)
    assert [row[-1] for row in made.tables()[0].rows] == cells
    assert made.tables()[0].columns[-1] == f"epochs to {wanted:g}"


def test_the_warnings():
    made = made_up()
    extra = [
        Trial(9, "", {"optimizer": "cm", "lr": 0.01, "betas": [0.9], "seed": 0}, "finished", made.trials[0].outcome),
        Trial(10, "", {"optimizer": "sgd", "lr": 0.1, "betas": [], "seed": 0}, "failed", error="no"),
    ]
    extra[0].outcome.update(validation_score=9.0)
    curves = {**made.curves, 9: made.curves[1]}
    found = Comparison("m", "score", "min", [*made.trials, *extra], curves).warnings()
    assert found == [
        "sgd: no trial has an outcome",
        "aggmo, by both: lr=1.0 is the largest of its grid, the optimum may lie beyond",
        "the optimizers had different numbers of settings to choose from: cm 3, aggmo 2",
    ]


def test_what_json_has():
    plain = made_up().plain()
    assert json.loads(json.dumps(plain, allow_nan=False)) == plain
    cm = plain["optimizers"]["cm"]
    assert (cm["validation"]["mean"], cm["validation"]["values"]) == (3.0, [4.0, 2.0])
    assert cm["test"]["sd"] == pytest.approx(math.sqrt(2))
    assert (cm["epochs_to_target"], cm["steps_to_target"]) == ([2.0, 3.0], [20.0, 30.0])
    assert [(each["settings"]["lr"], each["diverged"]) for each in cm["ranking"]] == [(0.1, 0), (1.0, 1)]
    assert (plain["target"], plain["direction"]) == (4.0, "min")


def test_a_comparison_in_which_all_diverged():
    settings = {"optimizer": "cm", "lr": 0.1, "betas": [0.9], "seed": 0}
    outcome = {"diverged": True, "train_loss": None, "validation_score": None, "test_score": None}
    curve = {"epoch": [1], "steps": [3], "train_loss": [math.nan], "validation_score": [math.nan]}
    made = Comparison("m", "score", "max", [Trial(1, "", settings, "finished", outcome)], {1: curve})
    first, _, third = made.tables()
    assert first.rows[0][5] == "never"
    assert third.rows == (("cm", 1, 1, 1, None, None),)
    assert made.plain()["optimizers"]["cm"]["lr_near_best"] == [None, None]
    for picture in pictures(made):
        picture.draw(Figure())


# Pictures


def drawn(made, name):
    figure = Figure()
    next(picture for picture in pictures(made) if picture.name == name).draw(figure)
    return [axis for axis in figure.axes if axis.get_visible()]


def lines(axis):
    return {line.get_label(): line.get_ydata().tolist() for line in axis.get_lines() if line.get_label()[0] != "_"}


def test_the_curves():
    """The means over seeds, by hand."""
    [axis] = drawn(made_up(), "validation")
    assert lines(axis) == {"CM": [8.5, 5.0, 3.5], "AggMo": [6.0, 1.75, 2.25]}
    [axis] = drawn(made_up(), "training")
    assert lines(axis)["AggMo"] == pytest.approx([0.6, 0.175, 0.225])
    assert {text.get_text() for text in axis.texts} == {"CM", "AggMo"}


def test_the_learning_rates():
    [axis] = drawn(made_up(), "sensitivity")
    assert lines(axis) == {"CM": [3.0, 7.0], "AggMo": [8.25, 1.75]}
    assert [text.get_text() for text in axis.get_xticklabels()] == ["0.1", "1"]


@pytest.mark.parametrize("direction", ["min", "max"])
def test_the_maps(direction):
    trial = Trial(9, "", {"optimizer": "cm", "lr": 0.1, "betas": [0.99], "seed": 0}, "finished", {"diverged": True})
    made = made_up(direction)
    made = Comparison("m", "score", direction, [*made.trials, trial], {**made.curves, 9: made.curves[4]})
    cm, aggmo = drawn(made, "maps")
    sign = "" if direction == "min" else "-"
    assert [text.get_text() for text in cm.texts] == [f"{sign}3", f"{sign}7", "×"]
    assert [text.get_text() for text in aggmo.texts] == [f"{sign}8.25", f"{sign}1.75"]
    assert [text.get_text() for text in cm.get_yticklabels()] == ["0.9", "0.99"]
    [image] = cm.get_images()
    lightness = image.cmap(image.norm(np.asarray(image.get_array())[0].astype(float)))[:, :3].mean(axis=1)
    assert lightness[0] > lightness[1]  # what is good is light
