"""Every scheduler of torch.optim over AggMo."""

import inspect

import pytest
import torch
from problems import assert_close, assert_equal, loss, parameters, train
from torch.optim import SGD, lr_scheduler
from torch.optim.swa_utils import SWALR

from aggmo import AggMo, Damping

SCHEDULERS = {
    "LambdaLR": lambda o: lr_scheduler.LambdaLR(o, lambda t: 1 / (1 + t)),
    "MultiplicativeLR": lambda o: lr_scheduler.MultiplicativeLR(o, lambda _: 0.9),
    "StepLR": lambda o: lr_scheduler.StepLR(o, 3, 0.5),
    "MultiStepLR": lambda o: lr_scheduler.MultiStepLR(o, [2, 5], 0.5),
    "ConstantLR": lambda o: lr_scheduler.ConstantLR(o, 0.5, 4),
    "LinearLR": lambda o: lr_scheduler.LinearLR(o, 0.1, total_iters=6),
    "ExponentialLR": lambda o: lr_scheduler.ExponentialLR(o, 0.9),
    "SequentialLR": lambda o: lr_scheduler.SequentialLR(
        o, [lr_scheduler.ConstantLR(o, 0.1, 2), lr_scheduler.ExponentialLR(o, 0.9)], milestones=[3]
    ),
    "PolynomialLR": lambda o: lr_scheduler.PolynomialLR(o, 8, 2),
    "CosineAnnealingLR": lambda o: lr_scheduler.CosineAnnealingLR(o, 8),
    "ChainedScheduler": lambda o: lr_scheduler.ChainedScheduler(
        [lr_scheduler.ConstantLR(o, 0.1, 2), lr_scheduler.ExponentialLR(o, 0.9)]
    ),
    "ReduceLROnPlateau": lambda o: lr_scheduler.ReduceLROnPlateau(o, patience=1),
    "CyclicLR": lambda o: lr_scheduler.CyclicLR(o, 0.01, 0.05, step_size_up=3, cycle_momentum=False),
    "CosineAnnealingWarmRestarts": lambda o: lr_scheduler.CosineAnnealingWarmRestarts(o, 4),
    "OneCycleLR": lambda o: lr_scheduler.OneCycleLR(o, 0.05, total_steps=20, cycle_momentum=False),
    "SWALR": lambda o: SWALR(o, swa_lr=0.005, anneal_epochs=5),
}


def test_no_scheduler_is_left_out():
    """Oracle: the classes torch.optim.lr_scheduler exports."""
    exported = {name for name in lr_scheduler.__all__ if inspect.isclass(getattr(lr_scheduler, name))}
    assert exported - {"LRScheduler"} <= SCHEDULERS.keys()


def scheduled_run(optimizer, params, make, steps, state=None):
    """Train, return the learning rates used and the state dicts of optimizer and scheduler."""
    scheduler = make(optimizer)
    if state:
        optimizer.load_state_dict(state[0])
        scheduler.load_state_dict(state[1])
    lrs = []
    for _ in range(steps):
        lrs.append(float(optimizer.param_groups[0]["lr"]))
        train(optimizer, params, 1)
        if isinstance(scheduler, lr_scheduler.ReduceLROnPlateau):
            scheduler.step(1.0)  # never better
        else:
            scheduler.step()
    return lrs, (optimizer.state_dict(), scheduler.state_dict())


@pytest.mark.parametrize("make", SCHEDULERS.values(), ids=SCHEDULERS)
@pytest.mark.parametrize("tensor_lr", [False, True])
def test_a_schedule_does_what_it_does_to_sgd(make, tensor_lr):
    """Oracle: torch.optim.SGD under the same scheduler, parameters and learning rates."""

    def lr():
        return torch.tensor(0.02, dtype=torch.float64) if tensor_lr else 0.02

    params, others = parameters(), parameters()
    ours, _ = scheduled_run(AggMo(params, lr=lr(), betas=Damping.classical(0.9)), params, make, 12)
    theirs, _ = scheduled_run(SGD(others, lr=lr(), momentum=0.9), others, make, 12)
    assert ours == theirs
    assert_close(params, others)


@pytest.mark.parametrize("make", SCHEDULERS.values(), ids=SCHEDULERS)
def test_a_scheduled_run_is_resumed_bit_for_bit(make):
    """Oracle: the run that was never stopped."""
    params, others = parameters(), parameters()
    whole, _ = scheduled_run(AggMo(params, lr=0.02), params, make, 12)
    first, state = scheduled_run(AggMo(others, lr=0.02), others, make, 5)
    twins = [p.detach().clone().requires_grad_() for p in others]
    rest, _ = scheduled_run(AggMo(twins, lr=0.02), twins, make, 7, state)
    assert first + rest == whole
    assert_equal(params, twins)


CYCLES = {
    "OneCycleLR": lambda o: lr_scheduler.OneCycleLR(o, 0.05, total_steps=20),
    "CyclicLR": lambda o: lr_scheduler.CyclicLR(o, 0.01, 0.05, step_size_up=3),
}


@pytest.mark.parametrize("make", CYCLES.values(), ids=CYCLES)
@pytest.mark.parametrize("started", [False, True])
def test_cycling_a_beta_that_is_not_stored_is_refused(make, started):
    """They write (m, *betas[1:]), which would silently lose the velocity of beta 0."""
    params = parameters()
    optimizer = AggMo(params)
    if started:
        train(optimizer, params, 1)
    make(optimizer)
    loss(params).backward()
    with pytest.raises(ValueError, match=r"betas\[0\] is 0.9\d?, but was 0 .*OneCycleLR.*cycle_momentum=False"):
        optimizer.step()


def test_cycling_a_stored_beta_works():
    """Oracle: torch.optim.SGD, whose momentum OneCycleLR cycles in the same way."""
    params, others = parameters(), parameters()
    scheduled_run(AggMo(params, betas=(0.9,)), params, CYCLES["OneCycleLR"], 12)
    scheduled_run(SGD(others, momentum=0.9), others, CYCLES["OneCycleLR"], 12)
    assert_close(params, others)
