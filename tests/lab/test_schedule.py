"""Schedules against the schedulers of torch."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from aggmo.lab.schedule import Constant, Milestones, Plateau, as_plain, from_plain

SCORES = st.lists(st.integers(0, 5).map(float), max_size=40)  # few values, so that equal ones come up
FACTORS = st.sampled_from([0.1, 0.5, 2.0])
MILESTONES = st.builds(Milestones, st.sets(st.integers(1, 40), min_size=1).map(sorted).map(tuple), FACTORS)
SCHEDULES = st.one_of(st.just(Constant()), MILESTONES, st.builds(Plateau, st.integers(1, 10), FACTORS))


def optimizer():
    return torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=1.0)


@given(SCORES, MILESTONES)
def test_milestones_are_torchs(scores, schedule):
    sgd = optimizer()
    scheduler = torch.optim.lr_scheduler.MultiStepLR(sgd, schedule.epochs, gamma=schedule.factor)
    for epoch in range(len(scores) + 1):
        assert math.isclose(schedule(scores[:epoch]), sgd.param_groups[0]["lr"], rel_tol=1e-12)
        sgd.step()
        scheduler.step()


@given(SCORES, st.integers(1, 6), FACTORS.filter(lambda factor: factor < 1))
def test_plateau_is_torchs(scores, patience, factor):
    """Whose patience is the number of epochs that are let pass, one less than those waited for."""
    sgd = optimizer()
    scheduler = torch.optim.lr_scheduler.ReduceLROnPlateau(
        sgd, factor=factor, patience=patience - 1, threshold=0, eps=0
    )
    for epoch in range(len(scores) + 1):
        assert math.isclose(Plateau(patience, factor)(scores[:epoch]), sgd.param_groups[0]["lr"], rel_tol=1e-12)
        if epoch < len(scores):
            scheduler.step(scores[epoch])


@given(SCORES)
def test_constant(scores):
    assert Constant()(scores) == 1


@given(SCHEDULES)
def test_a_schedule_comes_back_from_its_dict(schedule):
    assert from_plain(as_plain(schedule)) == schedule


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Milestones(()), r"epochs=\(\)"),
        (lambda: Milestones("12"), "epochs='12'"),
        (lambda: Milestones((3, 3)), r"epochs=\(3, 3\): must ascend"),
        (lambda: Milestones((0,)), r"epochs\[0\]=0"),
        (lambda: Milestones((True,)), r"epochs\[0\]=True"),
        (lambda: Milestones((1,), factor=0), "factor=0"),
        (lambda: Milestones((1,), factor=math.inf), "factor=inf"),
        (lambda: Plateau(0), "patience=0"),
        (lambda: Plateau(2.5), "patience=2.5"),
        (lambda: Plateau(2, math.nan), "factor=nan"),
        (lambda: from_plain({"kind": "cosine"}), "schedule={'kind': 'cosine'}.*constant"),
        (lambda: from_plain({"kind": "plateau", "epochs": 3}), "schedule=.*epochs"),
        (lambda: from_plain("plateau"), "schedule='plateau'"),
    ],
)
def test_bad_arguments(make, message):
    with pytest.raises(ValueError, match=message):
        make()
