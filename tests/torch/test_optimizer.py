"""What users of torch.optim expect of an optimizer: groups, options, closures, hooks, copies, autograd."""

import copy
import math
import pickle
from fractions import Fraction

import numpy as np
import pytest
import torch
from problems import assert_close, assert_equal, loss, parameters, train, values

import aggmo
from aggmo import AggMo, Damping
from aggmo.torch import kernel_available


def one(**options):
    """An optimizer of one parameter of value 1 with gradient 1."""
    p = torch.ones(2, dtype=torch.float64, requires_grad=True)
    p.grad = torch.ones_like(p)
    return p, AggMo([p], **options)


def test_it_is_found_where_the_readme_says():
    assert aggmo.AggMo is aggmo.torch.AggMo is AggMo
    assert issubclass(AggMo, torch.optim.Optimizer)


def test_defaults():
    group = AggMo(parameters()).param_groups[0]
    del group["params"]
    assert group == {
        "lr": 0.1,
        "betas": (0.0, 0.9, 0.99),
        "weights": (1 / 3, 1 / 3, 1 / 3),
        "weight_decay": 0.0,
        "decoupled_weight_decay": False,
        "maximize": False,
        "foreach": None,
        "fused": None,
        "differentiable": False,
        "velocity_dtype": None,
        "stochastic_rounding": False,
        "stored": (1, 2),
    }


def test_unknown_arguments_fail():
    with pytest.raises(TypeError, match="momentum"):
        AggMo(parameters(), momentum=0.9)
    with pytest.raises(TypeError):
        AggMo(parameters(), 0.1, (0, 0.9), None, 0.01)  # options after weights by name only


BAD = [
    ({"lr": -1.0}, r"^lr=-1.0: .*finite number >= 0"),
    ({"lr": math.nan}, r"^lr=nan"),
    ({"lr": math.inf}, r"^lr=inf"),
    ({"lr": "0.1"}, r"^lr='0.1'"),
    ({"lr": None}, r"^lr=None"),
    ({"lr": True}, r"^lr=True"),
    ({"lr": 10**400}, r"^lr=1000"),
    ({"lr": np.array([0.1, 0.2])}, r"^lr=array"),
    ({"lr": np.complex64(0.1 + 1j)}, r"^lr=.*complex64"),
    ({"lr": torch.ones(2)}, r"^lr is a tensor of shape \(2,\)"),
    ({"lr": torch.tensor(1j)}, r"^lr is a tensor.*real"),
    ({"lr": torch.tensor(1)}, r"^lr is a tensor.*int64.*real"),
    ({"weight_decay": -0.1}, r"^weight_decay=-0.1: .*>= 0"),
    ({"weight_decay": math.nan}, r"^weight_decay=nan"),
    ({"weight_decay": "no"}, r"^weight_decay='no'"),
    ({"weight_decay": True}, r"^weight_decay=True"),
    ({"weight_decay": np.complex64(0.1)}, r"^weight_decay=.*complex64"),
    ({"weight_decay": torch.tensor(0.1j)}, r"^weight_decay=tensor"),
    ({"weight_decay": torch.tensor(0.1, device="meta")}, r"^weight_decay=tensor"),
    ({"betas": (0, 1)}, r"^betas\[1\] is 1.0"),
    ({"betas": ()}, r"^betas is empty"),
    ({"betas": 0.9}, r"^betas=0.9"),
    ({"betas": (0, [], 0.9)}, r"^betas\[1\] is \[\]"),
    ({"betas": (0, torch.tensor(0.5), torch.tensor(5.0))}, r"^betas\[2\] is 5.0"),
    ({"betas": (0, torch.tensor(0.5j), 0.9)}, r"^betas\[1\] is tensor.*must be one number"),
    ({"weights": (1, torch.tensor(1.0, device="meta"), 1)}, r"^weights\[1\] is tensor.*must be one number"),
    ({"weights": torch.tensor(1.0)}, r"^weights=tensor"),
    ({"weights": (1, 1)}, r"^2 weights for 3 betas"),
    ({"weights": (0, 0, 0)}, r"^all weights are 0"),
    ({"maximize": 1}, r"^maximize=1: must be True or False"),
    ({"decoupled_weight_decay": None}, r"^decoupled_weight_decay=None"),
    ({"differentiable": "yes"}, r"^differentiable='yes'"),
    ({"foreach": 0}, r"^foreach=0: must be True, False or None"),
    ({"fused": "auto"}, r"^fused='auto'"),
    ({"foreach": True, "differentiable": True}, r"^foreach=True with differentiable=True"),
    ({"velocity_dtype": torch.int32}, r"^velocity_dtype=torch.int32: .*floating-point"),
    ({"velocity_dtype": torch.float8_e5m2}, r"^velocity_dtype=torch.float8_e5m2"),
    ({"velocity_dtype": "bf16"}, r"^velocity_dtype='bf16'"),
    ({"velocity_dtype": 16}, r"^velocity_dtype=16"),
    ({"velocity_dtype": np.zeros(2)}, r"^velocity_dtype=array"),
    ({"stochastic_rounding": 1}, r"^stochastic_rounding=1: must be True or False"),
    ({"stochastic_rounding": True, "foreach": True}, r"^stochastic_rounding=True with foreach=True"),
]


@pytest.mark.parametrize(("options", "message"), BAD, ids=[str(options) for options, _ in BAD])
def test_bad_values_are_refused_by_name(options, message):
    """At construction, in a group, and where a scheduler or a user writes them into a group later."""
    with pytest.raises(ValueError, match=message):
        AggMo(parameters(), **options)
    optimizer = AggMo(parameters()[:1])
    with pytest.raises(ValueError, match=message):
        optimizer.add_param_group({"params": parameters()[1:], **options})
    assert len(optimizer.param_groups) == 1
    p, optimizer = one()
    optimizer.param_groups[0].update(options)
    before = values([p])
    with pytest.raises(ValueError, match=message):
        optimizer.step()
    assert_equal([p], before)


def test_velocity_dtype_of_complex_parameters():
    params = [torch.zeros(2, dtype=torch.complex64, requires_grad=True)]
    with pytest.raises(ValueError, match="complex"):
        AggMo(params, velocity_dtype=torch.bfloat16)
    optimizer = AggMo(parameters(), velocity_dtype=torch.float32)
    with pytest.raises(ValueError, match="complex"):
        optimizer.add_param_group({"params": params})
    assert len(optimizer.param_groups) == 1


@pytest.mark.parametrize("value", [-1.0, math.nan, math.inf])
def test_a_tensor_lr_out_of_range_is_refused(value):
    lr = torch.tensor(value)
    with pytest.raises(ValueError, match=r"^lr=.* in a tensor: .*>= 0"):
        AggMo(parameters(), lr=lr)
    optimizer = AggMo(parameters()[:1])
    with pytest.raises(ValueError, match=r"^lr="):
        optimizer.add_param_group({"params": parameters()[1:], "lr": lr})
    assert len(optimizer.param_groups) == 1


def test_a_bad_option_of_any_group_stops_the_step_before_it_begins(backend):
    params = parameters()
    optimizer = AggMo([{"params": [p]} for p in params], **backend)
    train(optimizer, params, 1)
    before = values([*params, *(v for p in params for v in optimizer.state[p].values())])
    optimizer.param_groups[2]["lr"] = -1.0
    with pytest.raises(ValueError, match=r"lr=-1.0"):
        train(optimizer, params, 1)
    assert_equal([*params, *(v for p in params for v in optimizer.state[p].values())], before)


def test_numbers_of_any_kind_become_floats():
    """So that checkpoints load with weights_only=True, and no operation meets a type that it does not know."""
    _, optimizer = one(lr=np.float32(0.5), betas=np.array([0.0, 0.5]), weight_decay=Fraction(1, 4))
    optimizer.step()
    optimizer.param_groups[0].update(lr=Fraction(1, 2), betas=(0, np.float64(0.5)), weights=[1, np.int64(2)])
    optimizer.step()
    group = optimizer.param_groups[0]
    numbers = [group["lr"], group["weight_decay"], *group["betas"], *group["weights"]]
    assert numbers == [0.5, 0.25, 0.0, 0.5, 1.0, 2.0]
    assert all(type(x) is float for x in numbers)


def test_a_state_with_a_velocity_missing_is_refused(backend):
    p, optimizer = one(**backend)
    optimizer.step()
    del optimizer.state[p]["velocity_2"]
    with pytest.raises(ValueError, match=r"has \['velocity_1'\], but needs \['velocity_1', 'velocity_2'\]"):
        optimizer.step()


def test_no_parameters_are_refused_as_by_torch():
    with pytest.raises(ValueError, match="empty parameter list"):
        AggMo([])


@pytest.mark.parametrize("betas", [(0.5, 0.5), (0, 0.9, 0.9, 0), (0.9,), (0,)], ids=str)
def test_state_is_flat_and_a_beta_of_0_costs_nothing(betas, backend):
    """One tensor for each nonzero beta, keyed by position; equal betas have tensors of their own."""
    params = parameters()
    optimizer = AggMo(params, betas=betas, **backend)
    train(optimizer, params, 2)
    expected = [f"velocity_{i}" for i, beta in enumerate(betas) if beta]
    for p in params:
        assert list(optimizer.state.get(p, {})) == expected
        tensors = [optimizer.state[p][key] for key in expected]
        assert all(t.shape == p.shape and t.dtype == p.dtype for t in tensors)
        assert len({t.data_ptr() for t in tensors}) == len(tensors)


def test_options_are_read_from_the_group_at_each_step(backend):
    """Oracle: the reference with the options of each step."""
    from aggmo import reference

    p, optimizer = one(betas=(0.5, 0.9), **backend)
    theta, velocities = p.detach().numpy().copy(), [0.0, 0.0]
    for lr, betas, weights, weight_decay, decoupled, maximize in [
        (0.1, (0.5, 0.9), (1, 2), 0.0, False, False),
        (0.2, [0.0, 0.99], [3, 0], 0.1, False, True),
        (0.0, (0.25, 0.9), (1, 1), 0.1, True, False),
        (0.3, (0.25, 0.9), (1, 1), 0.1, True, False),
    ]:
        optimizer.param_groups[0].update(
            lr=lr, betas=betas, weights=weights, weight_decay=weight_decay, maximize=maximize
        )
        optimizer.param_groups[0]["decoupled_weight_decay"] = decoupled
        optimizer.step()
        theta, velocities = reference.step(
            theta,
            velocities,
            p.grad.numpy(),
            Damping(betas, weights),
            lr,
            weight_decay=weight_decay,
            decoupled_weight_decay=decoupled,
            maximize=maximize,
        )
        assert_close([p], [torch.from_numpy(theta)])


def test_a_damping_written_into_a_group_brings_its_weights(backend):
    """Oracle: an optimizer made with it."""
    p, optimizer = one(betas=(0, 0.5), **backend)
    q, made = one(betas=Damping.nesterov(0.9), **backend)
    optimizer.param_groups[0]["betas"] = Damping.nesterov(0.9)
    optimizer.step()
    made.step()
    assert_equal([p], [q])


def test_a_velocity_that_is_not_stored_cannot_wake_up(backend):
    p, optimizer = one(**backend)
    optimizer.step()
    optimizer.param_groups[0]["betas"] = (0.5, 0.9, 0.99)
    with pytest.raises(ValueError, match=r"betas\[0\] is 0.5, but was 0 .*cycle_momentum=False"):
        optimizer.step()
    optimizer.param_groups[0].update(betas=(0, 0.9), weights=(1, 1))
    with pytest.raises(ValueError, match=r"2 entries, but velocities are stored at positions \(1, 2\)"):
        optimizer.step()
    optimizer.param_groups[0].update(betas=(0, 0.9, 0), weights=(1, 1, 1))
    optimizer.step()  # a stored velocity may sleep
    assert torch.equal(optimizer.state[p]["velocity_2"], p.grad)


def test_groups_have_options_of_their_own(backend):
    """Oracle: an optimizer for each group."""
    together, apart = parameters(), parameters()
    options = [
        {"lr": 0.02, "maximize": True, "weight_decay": 0.1},
        {"betas": Damping.nesterov(0.9), "decoupled_weight_decay": True, "weight_decay": 0.1},
        {"betas": (0.5, 0.5, 0.5, 0.5), "velocity_dtype": torch.float64},
    ]
    joint = AggMo([{"params": [p], **o} for p, o in zip(together, options, strict=True)], lr=0.05, **backend)
    train(joint, together, 10)
    for i, o in enumerate(options):
        fresh = parameters()
        train(AggMo([fresh[i]], **{"lr": 0.05, **o}, **backend), fresh, 10)
        apart[i] = fresh[i]
    assert_close(together, apart)


def test_betas_without_weights_in_a_group():
    params = parameters()
    optimizer = AggMo(params[:1])
    optimizer.add_param_group({"params": params[1:2], "betas": (0, 0.5)})
    assert optimizer.param_groups[1]["weights"] == (0.5, 0.5)
    optimizer = AggMo(params[:1], betas=Damping.nesterov(0.9))
    with pytest.raises(ValueError, match="give the group its weights"):
        optimizer.add_param_group({"params": params[1:2], "betas": (0, 0.5)})
    optimizer.add_param_group({"params": params[1:2], "betas": (0, 0.5), "weights": (1, 2)})
    optimizer.add_param_group({"params": params[2:]})
    assert [group["weights"] for group in optimizer.param_groups] == [(1.0, 0.9), (1.0, 2.0), (1.0, 0.9)]


def test_the_callers_groups_are_left_alone():
    group = {"params": parameters(), "lr": 0.5}
    optimizer = AggMo([group])
    assert set(group) == {"params", "lr"}
    assert AggMo(optimizer.param_groups, lr=0.1).param_groups[0]["lr"] == 0.5


def test_add_param_group_in_the_middle_of_a_run(backend):
    """Oracle: the late parameter trained alone for the steps that were left."""
    params, late = parameters(), parameters()
    optimizer = AggMo(params[:2], lr=0.01, **backend)
    train(optimizer, params, 3)
    assert_equal(params[2:], parameters()[2:])
    optimizer.add_param_group({"params": params[2]})
    train(optimizer, params, 4)
    train(AggMo(late[2:], lr=0.01, **backend), late, 4)
    assert_close(params[2:], late[2:])


def test_named_parameters():
    named = list(zip("abc", parameters(), strict=True))
    optimizer = AggMo(named)
    assert optimizer.param_groups[0]["param_names"] == ["a", "b", "c"]
    assert optimizer.state_dict()["param_groups"][0]["param_names"] == ["a", "b", "c"]


def test_parameters_without_gradients_and_without_elements(backend):
    params = [*parameters(), torch.zeros(0, 3, requires_grad=True), torch.zeros(2, requires_grad=True)]
    for p in params[2:4]:
        p.grad = torch.ones_like(p)
    optimizer = AggMo(params, lr=0.25, betas=(0, 0.5), **backend)
    before = values(params)
    optimizer.step()
    assert_equal([params[i] for i in (0, 1, 4)], [before[i] for i in (0, 1, 4)])
    assert_close([params[2]], [before[2] - 0.25])
    assert set(optimizer.state) == {params[2], params[3]}
    AggMo(params, **backend).zero_grad()
    optimizer.step()  # no gradient at all


def test_a_closure_is_evaluated_with_gradients_and_its_loss_returned(backend):
    params, others = parameters(), parameters()
    optimizer = AggMo(params, lr=0.01, **backend)

    def closure():
        optimizer.zero_grad()
        value = loss(params)
        value.backward()
        return value

    with torch.no_grad():
        returned = [optimizer.step(closure) for _ in range(3)]
    assert returned[0].item() == loss(parameters()).item()
    train(AggMo(others, lr=0.01, **backend), others, 3)
    assert_equal(params, others)
    assert optimizer.step() is None


def test_hooks_run_around_the_step(backend):
    p, optimizer = one(**backend)
    seen = []
    optimizer.register_step_pre_hook(lambda *_: seen.append(("before", p[0].item())))
    optimizer.register_step_post_hook(lambda *_: seen.append(("after", p[0].item())))
    optimizer.step()
    assert seen == [("before", 1.0), ("after", p[0].item())]
    assert p[0].item() < 1.0


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda x: pickle.loads(pickle.dumps(x))], ids=["deepcopy", "pickle"])
def test_copies_go_on_alike_and_apart(backend, copied):
    """Oracle: the original, bit for bit."""
    params = parameters()
    optimizer = AggMo(params, lr=0.01, weight_decay=0.1, **backend)
    train(optimizer, params, 3)
    twin = copied(optimizer)
    twins = twin.param_groups[0]["params"]
    train(twin, twins, 3)
    middle = values(twins)
    train(optimizer, params, 3)
    assert_equal(params, middle)
    assert_equal(twins, middle)


def test_autograd_notices_the_step(backend):
    p, optimizer = one(**backend)
    y = (p * p).sum()
    optimizer.step()
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y.backward()


def test_default_runs_without_autograd(backend):
    p, optimizer = one(**backend)
    p.grad = torch.ones_like(p).requires_grad_()
    optimizer.step()
    assert p.is_leaf
    assert not optimizer.state[p]["velocity_1"].requires_grad


DIFFERENTIABLE = [
    {},
    {"betas": (0.9,)},
    {"betas": Damping.nesterov(0.9), "maximize": True},
    {"weight_decay": 0.1},
    {"weight_decay": 0.1, "decoupled_weight_decay": True},
]


@pytest.mark.parametrize("options", DIFFERENTIABLE, ids=str)
@pytest.mark.parametrize("tensor_lr", [False, True])
def test_autograd_passes_through_two_steps(options, tensor_lr):
    """Oracle: finite differences, through parameter, gradients, velocities and a tensor learning rate."""
    lr = torch.tensor(0.3, dtype=torch.float64, requires_grad=tensor_lr)
    k = len(AggMo([torch.zeros(1)], **{"lr": 0.1, **options}).param_groups[0]["stored"])
    random = torch.Generator().manual_seed(0)
    inputs = [torch.randn(3, generator=random, dtype=torch.float64, requires_grad=True) for _ in range(3 + k)]

    def two_steps(lr, theta, *rest):
        p, velocities, grads = theta.clone(), rest[:k], rest[k:]
        optimizer = AggMo([p], **options, lr=lr if tensor_lr else 0.3, differentiable=True)
        for i, velocity in zip(optimizer.param_groups[0]["stored"], velocities, strict=True):
            optimizer.state[p][f"velocity_{i}"] = velocity.clone()
        for grad in grads:
            p.grad = grad
            optimizer.step()
        return p, *optimizer.state[p].values()

    assert torch.autograd.gradcheck(two_steps, [lr, *inputs])


def test_from_exp_form_is_the_authors():
    """Oracle: the published construction, 1 - a^i for i = 0 ... k - 1."""
    optimizer = AggMo.from_exp_form(parameters(), 0.3, a=0.2, k=4, weight_decay=0.01)
    group = optimizer.param_groups[0]
    assert group["betas"] == pytest.approx([1 - 0.2**i for i in range(4)], abs=1e-15)
    assert (group["lr"], group["weight_decay"]) == (0.3, 0.01)
    with pytest.raises(ValueError, match="k=0"):
        AggMo.from_exp_form(parameters(), k=0)


def test_grad_scaler_skips_on_inf_and_shows_unscaled_gradients(backend):
    """Oracle: the same steps without scaling, the one with inf left out; to the rounding of tiny scaled gradients."""
    params, others = [p.float().detach().requires_grad_() for p in parameters()], parameters(torch.float32)
    a, b = AggMo(params, lr=0.01, **backend), AggMo(others, lr=0.01, **backend)
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**10, growth_interval=1000)
    for t in range(4):
        a.zero_grad()
        scaler.scale(loss(params)).backward()
        if t == 1:
            params[0].grad[0, 0] = torch.inf
        scaler.step(a)
        scaler.update()
        if t != 1:
            train(b, others, 1)
    assert scaler.get_scale() == 2.0**9
    assert_close(params, others, rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize("fused", [None, True])
def test_gradients_clipped_between_unscaling_and_the_step(fused):
    """Oracle: the same steps without a scaler. With fused=True the scale is the step's, but not when it is undone."""
    if fused and not kernel_available():
        fused = None
    params, others = parameters(torch.float32), parameters(torch.float32)
    a, b = AggMo(params, lr=0.01, fused=fused), AggMo(others, lr=0.01, fused=fused)
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**10, growth_interval=2)
    for t in range(5):
        for optimizer, trained, scaled in ((a, params, scaler.scale), (b, others, lambda value: value)):
            optimizer.zero_grad()
            scaled(loss(trained)).backward()
        if t == 1:
            params[0].grad[0, 0] = torch.inf
        scaler.unscale_(a)
        for trained in (params, others):
            torch.nn.utils.clip_grad_norm_(trained, 1.0)
        scaler.step(a)
        scaler.update()
        if t != 1:
            b.step()
    assert_close(params, others, rtol=1e-6, atol=1e-7)


def test_under_autocast(backend):
    """Oracle: Nesterov by torch.optim.SGD in the same autocast training."""

    def trained(make):
        torch.manual_seed(0)
        model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Tanh(), torch.nn.Linear(8, 1))
        optimizer = make(model.parameters())
        x = torch.linspace(-1, 1, 32).reshape(8, 4)
        for _ in range(5):
            optimizer.zero_grad()
            with torch.autocast("cpu", dtype=torch.bfloat16):
                value = model(x).square().mean()
            value.backward()
            optimizer.step()
        return list(model.parameters())

    ours = trained(lambda params: AggMo(params, lr=0.1, betas=Damping.nesterov(0.9), **backend))
    theirs = trained(lambda params: torch.optim.SGD(params, lr=0.1, momentum=0.9, nesterov=True))
    assert all(p.dtype == torch.float32 for p in ours)
    assert_close(ours, theirs, rtol=1e-3, atol=1e-4)
