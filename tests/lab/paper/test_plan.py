"""The trials behind the items: equal budgets, and what is chosen from them."""

import pytest

from aggmo.lab.paper.items import ITEMS, wanted
from aggmo.lab.paper.plan import CHOICE_SEED, FUNCTION, USUAL, chosen, first, members
from aggmo.lab.paper.settings import SCALES, SETTINGS
from aggmo.lab.records import Trial
from aggmo.lab.study import identity


def finished(settings, outcome):
    """Trials with these settings, the outcome computed from each."""
    return [Trial(i, identity(FUNCTION, each), each, "finished", outcome(each)) for i, each in enumerate(settings)]


@pytest.mark.parametrize("scale", SCALES)
@pytest.mark.parametrize("task", SETTINGS)
def test_every_optimizer_with_damping_has_the_same_budget(task, scale):
    """Oracle: the counts of trials; the paper itself has one damping more for CM and Nesterov than for the others."""
    counts = {}
    for settings in first(task, scale, "0")["tuning"]:
        assert settings["seed"] == CHOICE_SEED
        if settings["betas"]:
            counts[settings["optimizer"]] = counts.get(settings["optimizer"], 0) + 1
    if scale == "small":
        assert len(set(counts.values())) == 1, counts
    assert {"cm", "aggmo"} <= counts.keys()


def test_the_seeds_that_are_reported_are_not_the_one_of_the_choice():
    """Oracle: the seeds 1 to 5 of the settings of scale small."""
    tuning = finished(
        first("autoencoder", "small", "0")["tuning"],
        lambda each: {
            "diverged": False,
            "train_mse": each["lr"] + each["betas"][0],
            "validation_mse": 1 / each["lr"] + each["betas"][0],
        },
    )
    groups = chosen("autoencoder", "small", tuning)
    assert {each["seed"] for group in groups.values() for each in group} == {1, 2, 3, 4, 5}
    best = {each["optimizer"]: each for each in groups["train"]}
    assert {name: each["lr"] for name, each in best.items()} == {
        "cm": 0.3,
        "nesterov": 0.3,
        "adam": 0.0003,
        "aggmo": 0.3,
    }
    assert {each["lr"] for each in groups["validation"] if each["optimizer"] != "adam"} == {10.0}
    for each in groups["usual-validation"]:
        assert tuple(each["betas"]) == USUAL[each["optimizer"]]


def test_the_language_models_special_trials():
    """Oracle: the paper's clip of .25 for momentum, and a halving rate for SGD."""
    tuning = finished(
        first("lstm", "small", "0")["tuning"],
        lambda each: {"diverged": False, "train_perplexity": each["lr"], "validation_perplexity": each["lr"]},
    )
    groups = chosen("lstm", "small", tuning)
    assert {each["optimizer"] for each in groups["clipping"]} == {"cm", "nesterov", "adam", "aggmo"}
    assert {each["clip"] for each in groups["clipping"]} == {0.25}
    assert {each["optimizer"] for each in groups["decay"]} == {"sgd"}
    assert {each["schedule"]["kind"] for each in groups["decay"]} == {"plateau"}


def test_figure_5_has_the_papers_runs():
    """Oracle: section 5.1: K from 2 to 5 at .1, Nesterov up to .9999 at .05, all at a constant rate."""
    runs = first("autoencoder", "paper", "0")["figure-5"]
    found = {(each["optimizer"], max(each["betas"]), each["lr"]) for each in runs}
    ks = {("aggmo", 1 - 0.1 ** (k - 1), 0.1) for k in (2, 3, 4, 5)}
    assert found == ks | {("nesterov", beta, 0.05) for beta in (0.9, 0.99, 0.999, 0.9999)}
    assert {each["schedule"]["kind"] for each in runs} == {"constant"}


def test_members_keep_the_order_of_the_group():
    """Oracle: the group's own order, whatever that of the trials."""
    group = first("cnn5", "quick", "0")["tuning"]
    trials = finished(group, dict)
    assert [trial.settings for trial in members(reversed(trials), group)] == group


def test_the_items_are_those_of_the_checklist():
    """Oracle: the figures and tables of the paper, 1 to 7 and 1 to 3, and its appendices."""
    names = [item.name for item in ITEMS]
    assert {f"figure-{i}" for i in range(1, 8)} | {f"table-{i}" for i in (1, 2, 3)} < set(names)
    assert {"appendix-a", "appendix-b", "appendix-e-toy", "appendix-e-default", "appendix-f"} < set(names)
    assert len(set(names)) == len(names) == 24
    assert list(wanted(ITEMS)) == list(SETTINGS)
