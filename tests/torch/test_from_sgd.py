"""Taking over a running SGD. Oracle throughout: the SGD run itself, gone on with."""

import copy

import pytest
import torch
from problems import assert_close, assert_equal, parameters, train, values
from torch.optim import SGD, lr_scheduler

from aggmo import AggMo, Damping

RUNS = [
    {"momentum": 0.9},
    {"momentum": 0.9, "weight_decay": 0.05, "maximize": True},
    {"momentum": 0.9, "dampening": 0.3},
    {"momentum": 0.9, "nesterov": True, "weight_decay": 0.05},
    {"momentum": 0.9, "nesterov": True, "maximize": True},
    {},
    {"dampening": 1.0},  # without momentum SGD does not look at it
]


def same_algorithm(sgd_options):
    """The damping under which AggMo is this SGD."""
    beta = sgd_options.get("momentum", 0.0)
    return Damping.nesterov(beta) if sgd_options.get("nesterov") else Damping.classical(beta)


@pytest.mark.parametrize("options", RUNS, ids=str)
@pytest.mark.parametrize("steps", [0, 1, 7])
def test_the_run_goes_on_to_rounding(backend, options, steps):
    params, others = parameters(), parameters()
    sgd = SGD(params, lr=0.01, **options)
    uninterrupted = SGD(others, lr=0.01, **options)
    train(sgd, params, steps)
    before = values(params)
    optimizer = AggMo.from_sgd(sgd, betas=same_algorithm(options), **backend)
    assert_equal(params, before)
    train(optimizer, params, 10)
    if steps == 0 and "momentum" in options and "dampening" in options:
        return  # SGD's first buffer is the undampened gradient: there is no buffer to take over yet
    train(uninterrupted, others, steps + 10)
    assert_close(params, others, rtol=1e-11, atol=1e-11)


@pytest.mark.parametrize("damping", [Damping((0, 0.9, 0.99)), Damping((0.5, 0.9), (1, 3))], ids=str)
@pytest.mark.parametrize("dampening", [0.0, 0.5])
def test_any_damping_takes_over_the_momentum(damping, dampening):
    """Oracle: lr' sum_i w_i v_i over velocities that went on from a constant buffer equals SGD's lr b.

    A constant gradient g for ever has b = g (1 - d) / (1 - m), and AggMo's v_i = g / (1 - beta_i).
    """
    p = torch.zeros(3, dtype=torch.float64, requires_grad=True)
    sgd = SGD([p], lr=0.5, momentum=0.9, dampening=dampening)
    p.grad = torch.tensor([1.0, -2.0, 3.0], dtype=torch.float64)
    for _ in range(1000):
        sgd.step()
    optimizer = AggMo.from_sgd(sgd, betas=damping)
    for i in optimizer.param_groups[0]["stored"]:
        assert_close([optimizer.state[p][f"velocity_{i}"]], [p.grad / (1 - damping.betas[i])])
    steps = []
    for stepping in (sgd, optimizer):
        before = p.detach().clone()
        stepping.step()
        steps.append(p.detach() - before)
    assert_close(steps[:1], steps[1:], rtol=1e-9)


def test_groups_options_and_names_come_along():
    named = list(zip("abc", parameters(), strict=True))
    sgd = SGD(
        [
            {"params": named[:1], "lr": 0.2, "momentum": 0.5, "name": "first"},
            {"params": named[1:], "weight_decay": torch.tensor(0.25), "maximize": True},
        ],
        lr=0.1,
        momentum=0.9,
    )
    first, second = AggMo.from_sgd(sgd, betas=(0.0,), foreach=False).param_groups
    assert (first["lr"], first["param_names"], first["name"], first["maximize"]) == (0.2 / 0.5, ["a"], "first", False)
    assert second["lr"] == pytest.approx(1.0)
    assert (second["weight_decay"], second["maximize"], second["foreach"]) == (0.25, True, False)
    assert not {"momentum", "nesterov", "dampening"} & first.keys()


def test_a_tensor_lr_stays_a_tensor_and_is_not_shared():
    lr = torch.tensor(0.5)
    sgd = SGD(parameters(), lr=lr, momentum=0.5)
    taken = AggMo.from_sgd(sgd, betas=(0.0,)).param_groups[0]["lr"]
    assert torch.equal(taken, torch.tensor(1.0))
    assert lr.item() == 0.5


def test_the_sgd_is_left_as_it_is():
    params = parameters()
    sgd = SGD(params, lr=0.01, momentum=0.9)
    train(sgd, params, 3)
    before = copy.deepcopy(sgd.state_dict())
    optimizer = AggMo.from_sgd(sgd)
    train(optimizer, params, 3)
    after = sgd.state_dict()
    assert after["param_groups"] == before["param_groups"]
    for index, state in before["state"].items():
        assert torch.equal(after["state"][index]["momentum_buffer"], state["momentum_buffer"])


def test_velocities_in_another_dtype():
    params = parameters(torch.bfloat16)
    sgd = SGD(params, lr=0.01, momentum=0.9)
    train(sgd, params, 3)
    optimizer = AggMo.from_sgd(sgd, betas=(0.9, 0.99), velocity_dtype=torch.float32)
    for p in params:
        buffer = sgd.state[p]["momentum_buffer"].float()
        assert optimizer.state[p]["velocity_0"].dtype == torch.float32
        torch.testing.assert_close(optimizer.state[p]["velocity_0"], buffer, rtol=1e-6, atol=0)
        torch.testing.assert_close(optimizer.state[p]["velocity_1"], buffer * 10, rtol=1e-6, atol=0)


def test_what_cannot_be_taken_over_is_refused():
    with pytest.raises(ValueError, match=r"Adam: must be a torch.optim.SGD"):
        AggMo.from_sgd(torch.optim.Adam(parameters()))
    for options in ({"momentum": 0.9, "dampening": 1.0}, {"momentum": 0.9, "dampening": 2.0}):
        with pytest.raises(ValueError, match=rf"^dampening={options['dampening']} of the SGD: must be < 1"):
            AggMo.from_sgd(SGD(parameters(), lr=0.1, **options))
    for momentum in (1.0, 1.5):
        with pytest.raises(ValueError, match=rf"^momentum={momentum} of the SGD: must be < 1"):
            AggMo.from_sgd(SGD(parameters(), lr=0.1, momentum=momentum))
    with pytest.raises(TypeError, match="weight_decay"):  # it comes from the SGD
        AggMo.from_sgd(SGD(parameters(), lr=0.1), weight_decay=0.1)


def test_a_group_added_later_has_the_sgds_defaults():
    """Oracle: a group of SGD's added later would have them."""
    params = parameters()
    sgd = SGD(params[:1], lr=0.5, momentum=0.5, weight_decay=0.25, maximize=True)
    optimizer = AggMo.from_sgd(sgd, betas=(0,))
    optimizer.add_param_group({"params": params[1:]})
    group = optimizer.param_groups[1]
    assert (group["lr"], group["weight_decay"], group["maximize"]) == (1.0, 0.25, True)


def test_differentiable_comes_along():
    p = torch.ones(2, requires_grad=True).clone()
    assert AggMo.from_sgd(SGD([p], lr=0.1, differentiable=True)).param_groups[0]["differentiable"]


def test_a_buffer_that_sgd_no_longer_looks_at_is_left(backend):
    """Oracle: AggMo without velocities. A group whose momentum was set to 0 keeps its old buffers in the state."""
    params = parameters()
    sgd = SGD(params, lr=0.01, momentum=0.9)
    train(sgd, params, 3)
    sgd.param_groups[0]["momentum"] = 0.0
    others = [p.detach().clone().requires_grad_() for p in params]
    optimizer = AggMo.from_sgd(sgd, betas=(0.5, 0.9), **backend)
    fresh = AggMo(others, lr=optimizer.param_groups[0]["lr"], betas=(0.5, 0.9), **backend)
    train(optimizer, params, 3)
    train(fresh, others, 3)
    assert_equal(params, others)


def test_a_sparse_buffer_is_taken_over():
    """Oracle: the run with dense gradients."""
    trained = []
    for sparse in (True, False):
        embedding = torch.nn.Embedding.from_pretrained(torch.ones(4, 2), freeze=False, sparse=sparse)
        sgd = SGD(embedding.parameters(), lr=0.1, momentum=0.9)
        embedding(torch.tensor([0, 2])).pow(2).sum().backward()
        sgd.step()
        optimizer = AggMo.from_sgd(sgd, betas=Damping.classical(0.9))
        optimizer.step()
        trained.append(embedding.weight)
    assert_close(trained[:1], trained[1:], rtol=1e-6)


SCHEDULERS = {
    "StepLR": lambda o: lr_scheduler.StepLR(o, 4, 0.5),
    "MultiStepLR": lambda o: lr_scheduler.MultiStepLR(o, [3, 9], 0.5),
    "ExponentialLR": lambda o: lr_scheduler.ExponentialLR(o, 0.9),
    "LambdaLR": lambda o: lr_scheduler.LambdaLR(o, lambda t: 1 / (1 + t)),
    "CosineAnnealingLR": lambda o: lr_scheduler.CosineAnnealingLR(o, 20),
    "LinearLR": lambda o: lr_scheduler.LinearLR(o, 0.1, total_iters=10),
}


@pytest.mark.parametrize("make", SCHEDULERS.values(), ids=SCHEDULERS)
def test_a_scheduler_goes_on_as_documented(make):
    params, others = parameters(), parameters()
    sgd, uninterrupted = SGD(params, lr=0.02, momentum=0.9), SGD(others, lr=0.02, momentum=0.9)
    scheduler, other = make(sgd), make(uninterrupted)

    def one_step(optimizer, params, scheduler):
        train(optimizer, params, 1)
        scheduler.step()

    for _ in range(6):
        one_step(sgd, params, scheduler)
    # the same algorithm with its weight in other hands: lr and initial_lr have to be a quarter
    optimizer = AggMo.from_sgd(sgd, betas=(0.9,), weights=(4.0,))
    scheduler.optimizer = optimizer
    scheduler.base_lrs = [group["initial_lr"] for group in optimizer.param_groups]
    assert scheduler.base_lrs == [pytest.approx(0.005)]
    for _ in range(8):
        one_step(optimizer, params, scheduler)
    for _ in range(14):
        one_step(uninterrupted, others, other)
    assert_close(params, others, rtol=1e-11, atol=1e-11)
    assert optimizer.param_groups[0]["lr"] == pytest.approx(uninterrupted.param_groups[0]["lr"] / 4, rel=1e-12)
