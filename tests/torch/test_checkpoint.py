"""State dicts in one process. Oracle: the run that was never stopped, bit for bit, or the optimizer that wrote it."""

import copy
import io

import pytest
import pytorch_optimizer
import torch
from problems import assert_close, assert_equal, loss, parameters, train, values

from aggmo import AggMo, Damping


def through_nothing(state_dict):
    return state_dict


def through_deepcopy(state_dict):
    return copy.deepcopy(state_dict)


def through_a_file(state_dict):
    file = io.BytesIO()
    torch.save(state_dict, file)
    file.seek(0)
    return torch.load(file, weights_only=True)


def through_lists(state_dict):
    """As a format without tuples returns it."""
    state_dict = copy.deepcopy(state_dict)
    for group in state_dict["param_groups"]:
        group.update({key: list(value) for key, value in group.items() if isinstance(value, tuple)})
    return state_dict


WAYS = [through_nothing, through_deepcopy, through_a_file, through_lists]
OPTIONS = [
    {},
    {"betas": (0.9, 0.9, 0.0, 0.5), "weights": (1, 2, 3, 0), "weight_decay": 0.1, "maximize": True},
    {"betas": (0,)},
]


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("options", OPTIONS, ids=str)
@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16], ids=str)
@pytest.mark.parametrize("velocity_dtype", [None, torch.float32], ids=str)
def test_a_round_trip_changes_no_bit(backend, way, options, dtype, velocity_dtype):
    params = parameters(dtype)
    optimizer = AggMo(params, lr=0.01, velocity_dtype=velocity_dtype, **options, **backend)
    train(optimizer, params, 3)
    twins = [p.detach().clone().requires_grad_() for p in params]
    twin = AggMo(twins)  # every option comes from the state dict
    twin.load_state_dict(way(optimizer.state_dict()))
    train(twin, twins, 4)
    middle = values(twins)
    train(optimizer, params, 4)
    assert_equal(params, middle)
    assert_equal(twins, middle)
    for p, q in zip(params, twins, strict=True):
        assert optimizer.state[p].keys() == twin.state[q].keys()
        assert_equal(optimizer.state[p].values(), twin.state[q].values())
        assert all(v.dtype == (velocity_dtype or dtype) for v in twin.state[q].values())


def test_a_state_dict_from_before_the_first_step(backend):
    params, others = parameters(), parameters()
    optimizer = AggMo(params, lr=0.01, betas=(0.5, 0.9))
    optimizer.load_state_dict(AggMo(parameters(), lr=0.02, **backend).state_dict())
    train(optimizer, params, 3)
    train(AggMo(others, lr=0.02, **backend), others, 3)
    assert_equal(params, others)


def test_a_schedulers_entries_in_the_groups_survive():
    optimizer, other = AggMo(parameters()), AggMo(parameters())
    torch.optim.lr_scheduler.StepLR(optimizer, 3)
    other.load_state_dict(optimizer.state_dict())
    assert other.param_groups[0]["initial_lr"] == 0.1


def test_load_hooks_see_the_state_dict_and_what_they_return_is_loaded():
    params = parameters()
    optimizer = AggMo(params, lr=0.01)
    train(optimizer, params, 1)
    saved = optimizer.state_dict()
    other = AggMo(parameters())
    seen = []

    def double(_, state_dict):
        tensors = [v for s in state_dict["state"].values() for v in s.values()]
        seen.append(all(isinstance(t, torch.Tensor) for t in tensors))
        state = {i: {k: 2 * v for k, v in s.items()} for i, s in state_dict["state"].items()}
        return {**state_dict, "state": state}

    def after(optimizer):
        seen.append(all(isinstance(t, torch.Tensor) for s in optimizer.state.values() for t in s.values()))

    other.register_load_state_dict_pre_hook(double)
    other.register_load_state_dict_post_hook(after)
    other.load_state_dict(saved)
    assert seen == [True, True]
    p = other.param_groups[0]["params"][0]
    assert_equal(other.state[p].values(), [2 * v for v in optimizer.state[params[0]].values()])


def refuses(optimizer, params, state_dict, message):
    """Loading fails with this message and leaves optimizer and state dict as they were."""
    before, given = copy.deepcopy(optimizer.state_dict()), copy.deepcopy(state_dict)
    with pytest.raises(ValueError, match=message):
        optimizer.load_state_dict(state_dict)
    after = optimizer.state_dict()
    for found, expected in ((after, before), (state_dict, given)):
        assert found["param_groups"] == expected["param_groups"]
        torch.testing.assert_close(found["state"], expected["state"], rtol=0, atol=0)
    train(optimizer, params, 1)  # and it still works


def trained(steps=2, **options):
    params = parameters()
    optimizer = AggMo(params, lr=0.01, **options)
    train(optimizer, params, steps)
    return optimizer, params


def test_velocities_that_do_not_fit_are_refused():
    optimizer, params = trained()
    state_dict = optimizer.state_dict()
    missing = copy.deepcopy(state_dict)
    del missing["state"][1]["velocity_2"]
    refuses(optimizer, params, missing, r"parameter 1 holds \['velocity_1'\].* needs \['velocity_1', 'velocity_2'\]")
    misshapen = copy.deepcopy(state_dict)
    misshapen["state"][0]["velocity_1"] = torch.zeros(1)
    refuses(optimizer, params, misshapen, r"velocity_1 of parameter 0 has shape \(1,\), the parameter itself \(4, 3\)")
    with pytest.raises(ValueError, match="not a state dict of an optimizer"):
        optimizer.load_state_dict({})
    wrong = copy.deepcopy(state_dict)
    wrong["state"][0]["velocity_1"] = 1.0
    refuses(optimizer, params, wrong, "velocity_1 of parameter 0 is no tensor, but a float")
    for option, value in {"lr": -1.0, "betas": (0, 2.0, 0.9), "velocity_dtype": "int8"}.items():
        wrong = copy.deepcopy(state_dict)
        wrong["param_groups"][0][option] = value
        refuses(optimizer, params, wrong, f"^{option}")
    fewer = copy.deepcopy(state_dict)
    fewer["param_groups"][0]["params"].pop()
    refuses(optimizer, params, fewer, "doesn't match the size")


@pytest.mark.parametrize(
    "make",
    [
        lambda p: torch.optim.SGD(p, lr=0.01, momentum=0.9),
        lambda p: torch.optim.Adam(p),
        lambda p: torch.optim.Adam(p, betas=(0.9, 0.99)),
        lambda p: torch.optim.RMSprop(p),
    ],
    ids=["SGD", "Adam", "Adam K=2", "RMSprop"],
)
@pytest.mark.parametrize("steps", [0, 2])
def test_other_algorithms_are_refused(make, steps):
    others = parameters()
    other = make(others)
    train(other, others, steps)
    optimizer, params = trained(betas=(0.9, 0.99))
    refuses(optimizer, params, other.state_dict(), "not a state dict of AggMo")


class AuthorsAggMo(torch.optim.Optimizer):
    """The update and the state of the authors' published code: buffers in a dict keyed by the float beta."""

    def __init__(self, params, lr, betas=(0.0, 0.9, 0.99), weight_decay=0):
        super().__init__(params, {"lr": lr, "betas": betas, "weight_decay": weight_decay})

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            for p in group["params"]:
                d = p.grad.add(p, alpha=group["weight_decay"])
                buffers = self.state[p].setdefault("momentum_buffer", {})
                for beta in group["betas"]:
                    buffer = buffers.setdefault(beta, torch.zeros_like(p))
                    buffer.mul_(beta).add_(d)
                    p.sub_(buffer, alpha=group["lr"] / len(group["betas"]))


def pytorch_optimizers(params, lr, **options):
    return pytorch_optimizer.AggMo(params, lr=lr, **options)


FOREIGN = [
    (AuthorsAggMo, {}),
    (AuthorsAggMo, {"betas": [1 - 0.1**i for i in range(4)], "weight_decay": 0.1}),
    (AuthorsAggMo, {"betas": (0.9,)}),
    (AuthorsAggMo, {"betas": (0.0, 0.0, 0.9)}),
    (pytorch_optimizers, {}),
    (pytorch_optimizers, {"betas": (0.5, 0.9), "weight_decay": 0.1}),
    (pytorch_optimizers, {"betas": (0.5, 0.9), "weight_decay": 0.1, "weight_decouple": True}),
]


@pytest.mark.parametrize(("make", "options"), FOREIGN, ids=[f"{make.__name__}-{o}" for make, o in FOREIGN])
@pytest.mark.parametrize("way", [through_nothing, through_a_file])
@pytest.mark.parametrize("steps", [0, 5])
def test_other_peoples_checkpoints_go_on_exactly(backend, make, options, way, steps):
    """Oracle: the optimizer that wrote the checkpoint, run on."""
    params = parameters()
    foreign = make(params, lr=0.01, **options)
    train(foreign, params, steps)
    twins = [p.detach().clone().requires_grad_() for p in params]
    ours = AggMo(twins, lr=7.0, betas=[0.3] * len(options.get("betas", (0, 0, 0))), **backend)
    ours.load_state_dict(way(foreign.state_dict()))
    assert ours.param_groups[0]["lr"] == 0.01
    assert ours.param_groups[0].keys() == AggMo(parameters()).param_groups[0].keys()
    train(ours, twins, 20)
    train(foreign, params, 20)
    assert_close(twins, params)
    again = AggMo(parameters())
    again.load_state_dict(ours.state_dict())  # from here on it is a state dict of our own
    assert again.state_dict()["state"].keys() == ours.state_dict()["state"].keys()


def test_what_a_foreign_checkpoint_does_not_say_stays():
    params = parameters()
    foreign = pytorch_optimizers(params, lr=0.01, maximize=True)  # this is not in its state dict
    train(foreign, params, 1)
    optimizer = AggMo(parameters(), maximize=True, foreach=False)
    optimizer.load_state_dict(foreign.state_dict())
    group = optimizer.param_groups[0]
    assert (group["maximize"], group["foreach"]) == (True, False)


def foreign_state(make=AuthorsAggMo, **options):
    params = parameters()
    foreign = make(params, lr=0.01, **options)
    train(foreign, params, 2)
    return foreign.state_dict()


def test_foreign_checkpoints_that_do_not_fit_are_refused():
    optimizer, params = trained()
    refuses(
        optimizer,
        params,
        foreign_state(betas=(0, 0.9)),
        r"has 2 velocities, betas=\(0.0, 0.9\), but this optimizer has 3.*make it with betas=\(0.0, 0.9\)",
    )
    refuses(optimizer, params, foreign_state(betas=(0.5, 0.9, 0.9)), "duplicates, which share one buffer")
    fixed = foreign_state(pytorch_optimizers, weight_decay=0.1, weight_decouple=True, fixed_decay=True)
    refuses(optimizer, params, fixed, "fixed_decay=True decays by weight_decay whatever the learning rate")
    renamed = foreign_state(betas=(0, 0.9, 0.99))
    renamed["param_groups"][0]["betas"] = (0, 0.9, 0.98)
    refuses(optimizer, params, renamed, r"has buffers for \[0, 0.9, 0.99\], its groups have betas=\(0.0, 0.9, 0.98\)")


def test_the_nesterov_weights_of_a_checkpoint_win():
    """As in all of torch.optim, the options of the state dict replace the group's."""
    optimizer, params = trained(betas=Damping.nesterov(0.9))
    other = AggMo([p.detach().clone().requires_grad_() for p in params])
    other.load_state_dict(optimizer.state_dict())
    assert other.param_groups[0]["weights"] == (1.0, 0.9)
    assert loss(params) == loss(other.param_groups[0]["params"])
