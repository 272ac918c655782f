"""Schedules over damping. Oracle: `aggmo.reference` with the betas of each step written out."""

import io

import numpy as np
import pytest
import torch
from problems import assert_close, assert_equal, parameters, train

from aggmo import AggMo, Damping, reference
from aggmo.torch.schedule import DampingSchedule, decay, warmup


def scheduled_run(optimizer, params, schedule, steps):
    for _ in range(steps):
        train(optimizer, params, 1)
        schedule.step()


RULES = {
    "decay": (lambda: decay(0.8), lambda t, beta: beta * 0.8**t),
    "warmup": (lambda: warmup(4), lambda t, beta: 1 - 1 / (1 + (1 / (1 - beta) - 1) * min(1, t / 4))),
    "own": (lambda: lambda t, beta: beta / t, lambda t, beta: beta / t),
}


@pytest.mark.parametrize(("make", "formula"), RULES.values(), ids=RULES)
def test_the_t_th_step_has_the_betas_of_t(backend, make, formula):
    """The paper's beta_i lambda^t, and a terminal velocity that grows linearly; t counts from 1."""
    p = torch.ones(3, dtype=torch.float64, requires_grad=True)
    optimizer = AggMo([p], lr=0.1, betas=(0, 0.9, 0.99), **backend)
    schedule = DampingSchedule(optimizer, make())
    theta, velocities = p.detach().numpy().copy(), [0.0, 0.0, 0.0]
    for t in range(1, 8):
        p.grad = torch.full_like(p, 1 / t)
        optimizer.step()
        schedule.step()
        damping = Damping([0, formula(t, 0.9), formula(t, 0.99)])
        theta, velocities = reference.step(theta, velocities, p.grad.numpy(), damping, 0.1)
        assert_close([p], [torch.from_numpy(theta)])


def test_the_paths_of_the_rules():
    rule = warmup(100)
    assert [rule(t, 0.99) for t in (100, 101, 10**9)] == [0.99] * 3
    assert 1 / (1 - rule(50, 0.99)) == pytest.approx(1 + 99 / 2)
    assert decay(1.0)(5, 0.9) == 0.9


def test_a_schedule_is_resumed_bit_for_bit():
    """Oracle: the run that was never stopped; optimizer and schedule through their state dicts."""
    whole, first = parameters(), parameters()
    optimizer = AggMo(whole, lr=0.02)
    scheduled_run(optimizer, whole, DampingSchedule(optimizer, warmup(8)), 10)
    optimizer = AggMo(first, lr=0.02)
    schedule = DampingSchedule(optimizer, warmup(8))
    scheduled_run(optimizer, first, schedule, 4)
    file = io.BytesIO()
    torch.save([optimizer.state_dict(), schedule.state_dict()], file)
    file.seek(0)
    saved = torch.load(file, weights_only=True)
    rest = [p.detach().clone().requires_grad_() for p in first]
    optimizer = AggMo(rest, lr=0.02)
    schedule = DampingSchedule(optimizer, warmup(8))
    optimizer.load_state_dict(saved[0])
    schedule.load_state_dict(saved[1])
    scheduled_run(optimizer, rest, schedule, 6)
    assert_equal(whole, rest)


def test_a_schedule_made_after_loading_starts_from_the_initial_betas():
    params = parameters()
    optimizer = AggMo(params, betas=(0, 0.5))
    scheduled_run(optimizer, params, DampingSchedule(optimizer, decay(0.5)), 3)
    other = AggMo(parameters())
    other.load_state_dict(optimizer.state_dict())
    DampingSchedule(other, decay(0.5))
    assert other.param_groups[0]["betas"] == (0.0, 0.25)


def test_groups_each_have_their_betas_and_late_ones_join():
    params = parameters()
    optimizer = AggMo([{"params": params[:1], "betas": (0.5,)}, {"params": params[1:2]}])
    schedule = DampingSchedule(optimizer, decay(0.5))
    optimizer.add_param_group({"params": params[2:], "betas": (0.5, 0.0)})
    schedule.step()
    assert [g["betas"] for g in optimizer.param_groups] == [(0.125,), (0.0, 0.225, 0.2475), (0.125, 0.0)]


def test_a_rule_may_return_any_number_and_a_group_hold_a_damping():
    """Oracle: the product by hand; the weights of the Damping count. Numbers are stored as floats."""
    p = torch.ones(1, dtype=torch.float64, requires_grad=True)
    optimizer = AggMo([p], lr=1.0, betas=(0, 0.5))
    optimizer.param_groups[0]["betas"] = Damping.nesterov(0.5)
    schedule = DampingSchedule(optimizer, lambda _, beta: np.float64(beta))
    p.grad = torch.full_like(p, 0.1)
    optimizer.step()
    schedule.step()
    assert p.item() == pytest.approx(1 - 0.1 - 0.5 * 0.1)
    assert all(type(beta) is float for beta in optimizer.param_groups[0]["betas"])


def test_beside_a_learning_rate_scheduler():
    params = parameters()
    optimizer = AggMo(params, lr=0.5)
    schedules = [DampingSchedule(optimizer, decay(0.5)), torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.5)]
    train(optimizer, params, 1)
    for schedule in schedules:
        schedule.step()
    assert optimizer.param_groups[0]["lr"] == 0.25
    assert optimizer.param_groups[0]["betas"] == (0.0, 0.225, 0.2475)


def test_a_rule_that_leaves_the_range_changes_nothing():
    optimizer = AggMo([{"params": parameters()[:1], "betas": (0.1,)}, {"params": parameters()[1:], "betas": (0.5,)}])
    with pytest.raises(ValueError, match=r"betas\[0\] is 1.0: every beta must be in \[0, 1\)"):
        DampingSchedule(optimizer, lambda _, beta: 2 * beta)
    schedule = DampingSchedule(optimizer, lambda t, beta: t * beta)
    with pytest.raises(ValueError, match=r"betas\[0\] is 1.0"):
        schedule.step()
    assert [g["betas"] for g in optimizer.param_groups] == [(0.1,), (0.5,)]
    assert schedule.t == 1


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: decay(0.0), "factor=0.0"),
        (lambda: decay(1.5), "factor=1.5"),
        (lambda: decay(float("nan")), "factor=nan"),
        (lambda: decay("x"), "factor='x'"),
        (lambda: warmup(0), "steps=0"),
        (lambda: warmup(2.5), "steps=2.5"),
        (lambda: warmup("10"), "steps='10'"),
        (lambda: DampingSchedule(AggMo(parameters()), None), "rule=None"),
        (lambda: DampingSchedule(AggMo(parameters()), decay(0.5)).load_state_dict({}), "t=None"),
        (lambda: DampingSchedule(torch.optim.SGD(parameters()), decay(0.5)), "optimizer is a SGD"),
        (lambda: DampingSchedule(AggMo(parameters()), decay(0.5)).load_state_dict({"t": 0}), "t=0"),
    ],
    ids=["decay 0", "decay 1.5", "nan", "x", "warmup 0", "warmup 2.5", "10", "no rule", "no t", "SGD", "t 0"],
)
def test_bad_arguments_are_refused_by_name(make, message):
    with pytest.raises(ValueError, match=message):
        make()
