"""What the items with trials behind them share."""

import math

import pytest
from made_up_evidence import BEST, K, Made
from matplotlib.figure import Figure

from aggmo.lab.paper.empirical import drawn


def lines(*runs):
    """What is drawn of CM's and AggMo's training losses, by label."""
    made = Made()
    for seed, (optimizer, curve) in enumerate(runs):
        diverged = math.isnan(curve[-1])
        betas = K[3] if optimizer == "aggmo" else BEST[optimizer]
        made.add("cnn5", "train", optimizer, betas, {"train_loss": curve}, seed=seed, diverged=diverged)
    axis = Figure().subplots()
    drawn(made.evidence(), axis, "cnn5", "train", "train_loss")
    found = [line for line in axis.get_lines() if not str(line.get_label()).startswith("_")]
    return {line.get_label(): list(line.get_ydata()) for line in found}


def test_a_curve_is_of_what_did_not_diverge():
    """Oracle: the means by hand, and how many of the trials diverged."""
    found = lines(("cm", [4.0, 3.0]), ("cm", [2.0, 1.0]), ("aggmo", [4.0, 2.0]), ("aggmo", [5.0, math.nan]))
    assert found == {"CM": pytest.approx([3.0, 2.0]), "AggMo (1 of 2 diverged)": pytest.approx([4.0, 2.0])}


def test_where_all_diverged_their_curve_is_shown():
    """Oracle: by hand, up to the last epoch that has a number."""
    found = lines(("cm", [4.0, 3.0]), ("aggmo", [5.0, 6.0, math.nan]))
    assert found["AggMo (1 of 1 diverged)"][:2] == pytest.approx([5.0, 6.0])
