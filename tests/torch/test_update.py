"""The arithmetic of every back end against the NumPy reference and against torch.optim.SGD."""

import numpy as np
import pytest
import strategies
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from problems import assert_close, assert_equal, parameters, reference_run, train
from torch.utils._python_dispatch import TorchDispatchMode

from aggmo import AggMo, Damping, reference
from aggmo.torch import update

LRS = st.lists(st.floats(0, 1), min_size=1, max_size=5)
OPTIONS = st.fixed_dictionaries(
    {
        "weight_decay": st.sampled_from([0.0, 0.01, 0.3]),
        "decoupled_weight_decay": st.booleans(),
        "maximize": st.booleans(),
    }
)


def torch_run(theta, gradients, damping, lrs, dtype=None, **options):
    """The same run as `reference_run`, by the optimizer; the last velocities are the stored ones."""
    p = torch.from_numpy(theta.copy()).to(dtype).requires_grad_()
    optimizer = AggMo([p], betas=damping, **options)
    iterates = []
    for gradient, lr in zip(gradients, lrs, strict=True):
        optimizer.param_groups[0]["lr"] = lr
        p.grad = torch.from_numpy(gradient.copy()).to(dtype)
        optimizer.step()
        iterates.append(p.detach().clone())
    return iterates, optimizer.state[p]


@settings(max_examples=200)
@given(damping=strategies.dampings(), shape=strategies.SHAPES, lrs=LRS, options=OPTIONS, data=st.data())
@pytest.mark.parametrize(("dtype", "tolerance"), [(np.float64, 1e-12), (np.float32, 3e-4)], ids=["fp64", "fp32"])
def test_equals_the_reference(backend, dtype, tolerance, damping, shape, lrs, options, data):
    """Oracle: `aggmo.reference` over damping vectors, weights, shapes, learning rates, decay and direction."""
    theta = data.draw(strategies.arrays(shape, dtype))
    gradients = [data.draw(strategies.arrays(shape, dtype)) for _ in lrs]
    expected, velocities = reference_run(theta, gradients, damping, lrs, **options)
    iterates, state = torch_run(theta, gradients, damping, lrs, **options, **backend)
    for ours, theirs in zip(iterates, expected, strict=True):
        np.testing.assert_allclose(ours.numpy(), theirs, rtol=tolerance, atol=tolerance)
    assert list(state) == [f"velocity_{i}" for i, beta in enumerate(damping) if beta]
    for i, beta in enumerate(damping):
        if beta:
            np.testing.assert_allclose(state[f"velocity_{i}"].numpy(), velocities[i], rtol=tolerance, atol=tolerance)


@given(damping=strategies.dampings(), lrs=LRS, options=OPTIONS, data=st.data())
def test_equals_the_reference_on_complex_parameters(backend, damping, lrs, options, data):
    """Oracle: the reference on the real and imaginary parts."""
    parts = strategies.arrays((2, 3))
    theta, *gradients = [data.draw(parts) for _ in range(len(lrs) + 1)]
    expected, _ = reference_run(theta, gradients, damping, lrs, **options)
    backend = {**backend, "fused": None} if backend.get("fused") else backend  # the kernel has no complex numbers
    iterates, _ = torch_run(
        theta[0] + 1j * theta[1], [g[0] + 1j * g[1] for g in gradients], damping, lrs, **options, **backend
    )
    ours = iterates[-1].numpy()
    np.testing.assert_allclose(np.stack([ours.real, ours.imag]), expected[-1], rtol=1e-12, atol=1e-12)


@given(damping=strategies.dampings(), lrs=LRS, options=OPTIONS, data=st.data())
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("velocity_dtype", [None, torch.float32], ids=str)
def test_half_precision_parameters_are_rounded_once_a_step(backend, dtype, velocity_dtype, damping, lrs, options, data):
    """Oracle: the reference in float32, started anew from the rounded state at each step, then rounded once."""
    draw = strategies.arrays((7,), np.float32)
    p = torch.from_numpy(data.draw(draw)).to(dtype).requires_grad_()
    optimizer = AggMo([p], betas=damping, velocity_dtype=velocity_dtype, **options, **backend)
    stored = torch.float32 if velocity_dtype else dtype
    expected_velocities = [np.zeros(7, np.float32) for _ in damping]
    for lr in lrs:
        optimizer.param_groups[0]["lr"] = lr
        p.grad = torch.from_numpy(data.draw(draw)).to(dtype)
        g, theta = p.grad.float().numpy(), p.detach().float().numpy()
        # the step sums the velocities as they are stored, hence the sum written out once more
        _, velocities = reference.step(theta, expected_velocities, g, damping, lr, **options)
        expected_velocities = [
            torch.from_numpy(v).to(stored).float().numpy() if beta else v
            for beta, v in zip(damping, velocities, strict=True)
        ]
        total = sum(w * v for w, v in zip(damping.weights, expected_velocities, strict=True))
        if options["decoupled_weight_decay"]:
            total = total + options["weight_decay"] * theta
        expected = torch.from_numpy(theta - lr * total).to(dtype)
        optimizer.step()
        # a stored velocity may be rounded to the other side, by which the step is then off
        off = lr * sum(w * np.abs(v) for w, v in zip(damping.weights, expected_velocities, strict=True))
        found, expected = p.detach().double().numpy(), expected.double().numpy()
        allowed = 2 * torch.finfo(dtype).eps * np.abs(expected) + 4 * torch.finfo(stored).eps * off + 1e-6
        assert (np.abs(found - expected) <= allowed).all()
        for i, beta in enumerate(damping):
            if beta:
                velocity = optimizer.state[p][f"velocity_{i}"]
                assert velocity.dtype == stored
                eps = torch.finfo(stored).eps
                torch.testing.assert_close(
                    velocity.float(), torch.from_numpy(expected_velocities[i]), rtol=4 * eps, atol=4 * eps
                )
                expected_velocities[i] = velocity.float().numpy().copy()


SGD_OPTIONS = [{}, {"weight_decay": 0.05}, {"maximize": True}, {"weight_decay": 0.05, "maximize": True}]


def changing_lr(*optimizers):
    """A learning rate that changes at every step, the same for all optimizers."""

    def schedule(t):
        for optimizer in optimizers:
            for group in optimizer.param_groups:
                group["lr"] = 0.02 / (1 + t % 7)

    return schedule


@pytest.mark.parametrize("options", SGD_OPTIONS, ids=str)
@pytest.mark.parametrize(
    ("family", "beta", "nesterov"),
    [(Damping.classical, beta, False) for beta in (0.0, 0.5, 0.9, 0.999)]
    + [(Damping.nesterov, beta, True) for beta in (0.5, 0.9, 0.999)],
)
def test_classical_and_nesterov_momentum_are_sgds(backend, family, beta, nesterov, options):
    """Oracle: torch.optim.SGD on a function that is not quadratic, at a changing learning rate."""
    ours, theirs = parameters(), parameters()
    a = AggMo(ours, betas=family(beta), **options, **backend)
    b = torch.optim.SGD(theirs, momentum=beta, nesterov=nesterov, **options)
    train(a, ours, 40, changing_lr(a))
    train(b, theirs, 40, changing_lr(b))
    assert_close(ours, theirs)


@pytest.mark.parametrize("options", SGD_OPTIONS, ids=str)
@pytest.mark.parametrize("nu", [0.0, 0.7, 1.0])
def test_quasi_hyperbolic_is_the_published_update(backend, nu, options):
    """Oracle: QHM, written out: m = beta m + (1 - beta) g, theta = theta - lr ((1 - nu) g + nu m)."""
    beta, ours, theirs = 0.9, parameters(), parameters()
    optimizer = AggMo(ours, betas=Damping.quasi_hyperbolic(beta, nu), **options, **backend)
    train(optimizer, ours, 40, changing_lr(optimizer))
    buffers = [torch.zeros_like(p) for p in theirs]
    qhm = torch.optim.SGD(theirs)  # only for zero_grad and its groups

    def step():
        lr = qhm.param_groups[0]["lr"]
        for p, m in zip(theirs, buffers, strict=True):
            g = (-p.grad if options.get("maximize") else p.grad) + options.get("weight_decay", 0) * p.detach()
            m.mul_(beta).add_((1 - beta) * g)
            p.data -= lr * ((1 - nu) * g + nu * m)

    qhm.step = step
    train(qhm, theirs, 40, changing_lr(qhm))
    assert_close(ours, theirs)


@pytest.mark.parametrize("shape", [(), (1,)], ids=str)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64], ids=str)
def test_a_tensor_lr_is_the_number_in_it(backend, shape, dtype):
    """Oracle: the same run with a float; the tensor is changed in place, as for a CUDA graph."""
    ours, theirs = parameters(), parameters()
    lr = torch.full(shape, 0.125, dtype=dtype)
    a = AggMo(ours, lr=lr, weight_decay=0.1, **backend)
    b = AggMo(theirs, weight_decay=0.1, **backend)
    train(a, ours, 10, lambda t: lr.fill_(2.0 ** -(3 + t)))
    train(b, theirs, 10, lambda t: b.param_groups[0].update(lr=2.0 ** -(3 + t)))
    assert_close(ours, theirs)


@pytest.mark.parametrize("options", [*SGD_OPTIONS, {"weight_decay": 0.05, "decoupled_weight_decay": True}], ids=str)
@pytest.mark.parametrize("betas", [(0, 0.9, 0.99), (0,)], ids=str)
def test_sparse_gradients_are_dense_ones(backend, options, betas):
    """Oracle: the same embedding with dense gradients; indices repeat, so the gradients are not coalesced."""
    weights = torch.randn(6, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    trained = []
    for sparse in (True, False):
        embedding = torch.nn.Embedding.from_pretrained(weights.clone(), freeze=False, sparse=sparse)
        optimizer = AggMo(embedding.parameters(), lr=0.1, betas=betas, **options, **backend)
        for index in ([0, 1, 1], [2, 1, 0], [5, 5, 5]):
            optimizer.zero_grad()
            embedding(torch.tensor(index)).pow(3).sum().backward()
            assert embedding.weight.grad.is_sparse == sparse
            optimizer.step()
        trained.append(embedding.weight)
    assert_close(trained[:1], trained[1:])


@pytest.mark.parametrize("layout", ["contiguous", "transposed", "expanded gradient", "channels_last", "offset"])
def test_any_memory_layout(backend, layout):
    """Oracle: the same numbers, contiguous."""
    data = torch.arange(2 * 3 * 4 * 5, dtype=torch.float64).reshape(2, 3, 4, 5) / 60
    grad = torch.cos(data)
    plain, g = data.clone().requires_grad_(), grad.clone()
    if layout == "transposed":
        p = data.clone().permute(3, 1, 0, 2).contiguous().permute(2, 1, 3, 0).requires_grad_()
    elif layout == "channels_last":
        p = data.clone().contiguous(memory_format=torch.channels_last).requires_grad_()
    elif layout == "offset":
        p = torch.cat([torch.zeros(1, dtype=torch.float64), data.flatten()])[1:].view(data.shape).requires_grad_()
    else:
        p = data.clone().requires_grad_()
    if layout == "expanded gradient":
        grad = g = torch.tensor(0.5, dtype=torch.float64).expand_as(data)
    a, b = AggMo([p], **backend), AggMo([plain], foreach=False)
    for _ in range(3):
        p.grad, plain.grad = grad, g.contiguous()
        a.step()
        b.step()
    assert_close([p], [plain])
    assert p.stride() == a.state[p]["velocity_1"].stride()


@pytest.mark.parametrize("maximize", [False, True])
@pytest.mark.parametrize("weight_decay", [0.0, 0.1])
@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16], ids=str)
def test_gradients_are_never_written_to(backend, maximize, weight_decay, dtype):
    params = parameters(dtype)
    optimizer = AggMo(params, maximize=maximize, weight_decay=weight_decay, **backend)
    for p in params:
        p.grad = torch.ones_like(p)
    before = [(p.grad, p.grad._version) for p in params]
    optimizer.step()
    for p, (grad, version) in zip(params, before, strict=True):
        assert p.grad is grad
        assert grad._version == version
        assert torch.equal(grad, torch.ones_like(p))


def test_mixed_dtypes_and_devices_in_one_group(backend):
    """Oracle: each parameter trained alone."""
    dtypes = [torch.float32, torch.float64, torch.bfloat16, torch.float32, torch.complex64]
    together = [torch.linspace(-1, 1, 5).to(dtype).requires_grad_() for dtype in dtypes]
    apart = [p.detach().clone().requires_grad_() for p in together]
    meta = torch.zeros(3, device="meta", requires_grad=True)
    backend = {**backend, "fused": None} if backend.get("fused") else backend  # it cannot take all of these
    joint = AggMo([*together, meta], **backend)
    singles = [AggMo([p], **backend) for p in apart]
    for _ in range(3):
        for p in (*together, *apart, meta):
            p.grad = torch.ones_like(p)
        for optimizer in (joint, *singles):
            optimizer.step()
    assert_close(together, apart, rtol=1e-7)
    assert joint.state[meta]["velocity_1"].device.type == "meta"


def test_half_precision_is_rounded_only_once(backend):
    """Oracle: by hand. bf16 steps by 2 above 256: two additions of 0.75 would each be lost, their sum 1.5 is not."""
    p = torch.full((4,), 256.0, dtype=torch.bfloat16, requires_grad=True)
    p.grad = torch.full_like(p, 0.75)
    AggMo([p], lr=1.0, betas=(0, 0), weights=(1, 1), maximize=True, **backend).step()
    assert torch.equal(p.detach(), torch.full_like(p, 258.0))


def test_dtypes_of_gradients_and_velocities_mixed_in_one_group(backend):
    """Oracle: each parameter alone, by the for-loop."""

    def made():
        params = [torch.ones(3, dtype=torch.bfloat16, requires_grad=True) for _ in range(3)]
        params[1].grad_dtype = torch.float32
        return params

    together, apart = made(), made()
    joint, singles = AggMo(together, **backend), [AggMo([p], foreach=False, fused=False) for p in apart]
    for t in range(3):
        for p in (*together, *apart):
            p.grad = torch.full((3,), 0.3, dtype=p.grad_dtype)
        if t == 1:
            for p, optimizer in zip((together[2], apart[2]), (joint, singles[2]), strict=True):
                optimizer.state[p]["velocity_2"] = optimizer.state[p]["velocity_2"].float()
        for optimizer in (joint, *singles):
            optimizer.step()
    assert_close(together, apart, rtol=1e-2)
    for p, q, single in zip(together, apart, singles, strict=True):
        assert_close(joint.state[p].values(), single.state[q].values(), rtol=1e-2)


def test_velocities_that_lie_otherwise_than_their_parameter(backend):
    """Oracle: contiguous ones. A loaded velocity may have any strides."""
    p, q = torch.ones(3, 4, requires_grad=True), torch.ones(3, 4, requires_grad=True)
    velocity = torch.arange(12.0).reshape(3, 4)
    a, b = AggMo([p], betas=(0.5,), **backend), AggMo([q], betas=(0.5,), **backend)
    a.state[p]["velocity_0"] = velocity.t().contiguous().t()
    b.state[q]["velocity_0"] = velocity.clone()
    p.grad, q.grad = torch.ones(3, 4), torch.ones(3, 4)
    a.step()
    b.step()
    assert_close([p], [q], rtol=1e-6)


class Operations(TorchDispatchMode):
    """Counts what is called, and how many tensors each call goes over."""

    def __init__(self):
        super().__init__()
        self.counted = []

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        if function.namespace == "aten" and args and isinstance(args[0], torch.Tensor | list | tuple):
            self.counted.append(function.overloadpacket.__name__)
        return function(*args, **(kwargs or {}))


def test_passes_over_memory():
    """One fused multiply-add for each stored velocity, one to the sum of all, and one to the parameter.

    Foreach has no operation of three tensors, and takes two for a velocity. The sum's first term is none.
    """
    p = torch.ones(8, requires_grad=True)
    p.grad = torch.ones(8)
    for options, expected in [
        ({"foreach": False, "fused": False}, ["add", "add", "add", "add_", "add_"]),
        (
            {"foreach": True},
            [*["_foreach_mul_", "_foreach_add_"] * 2, "_foreach_add", "_foreach_add_", "_foreach_add_"],
        ),
    ]:
        optimizer = AggMo([p], **options)
        optimizer.step()
        with Operations() as operations:
            optimizer.step()
        assert operations.counted == expected


def test_the_default_on_a_cpu_is_not_foreach(monkeypatch):
    """Its operations are loops there, as torch.optim knows."""
    monkeypatch.setattr(update, "_step_many", None)
    p = torch.ones(8, requires_grad=True)
    p.grad = torch.ones(8)
    AggMo([p], fused=False).step()
    with pytest.raises(TypeError, match="NoneType"):
        AggMo([p], foreach=True).step()


@pytest.mark.parametrize("foreach", [False, True])
def test_a_scale_left_in_the_gradients(foreach):
    """Oracle: gradients without it. Foreach meets one when parameters of a fused optimizer have moved to a GPU."""
    results = []
    for scale in (1.0, 2.0**10):
        p, g, v = torch.ones(3), torch.arange(3.0) * scale, torch.ones(3)
        options = update.Options((0.5,), (1.0,), (0,), 0.25, 0.125, False, True, False, inverse_scale=1 / scale)
        update.step([p], [g], [v], options, foreach=foreach, plan=None)
        assert torch.equal(g, torch.arange(3.0) * scale)
        results.append([p, v])
    assert_equal(*results)


def test_a_gradient_wider_than_its_parameter(backend):
    """Oracle: by hand. The gradient 1 + 2^-12 is no bf16; in float32 velocities it is kept."""
    p = torch.ones(4, dtype=torch.bfloat16, requires_grad=True)
    p.grad_dtype = torch.float32
    optimizer = AggMo([p], lr=1.0, betas=(0.5,), velocity_dtype=torch.float32, **backend)
    for _ in range(2):
        p.grad = torch.full((4,), 1 + 2.0**-12)
        optimizer.step()
    assert torch.equal(optimizer.state[p]["velocity_0"], torch.full((4,), 1.5 * (1 + 2.0**-12)))


def test_zero_weights_count_nothing_and_their_velocities_move_on(backend):
    """Oracle: the velocities of a run in which the weights are not 0."""
    p, q = torch.ones(3, requires_grad=True), torch.ones(3, requires_grad=True)
    a = AggMo([p], lr=0.5, betas=(0, 0.5, 0.9), weights=(0, 2, 0), **backend)
    b = AggMo([q], lr=0.5, betas=(0, 0.5, 0.9), **backend)
    for g in (1.0, 2.0):
        p.grad, q.grad = torch.full((3,), g), torch.full((3,), g)
        a.step()
        b.step()
    assert torch.equal(p.detach(), torch.full((3,), 1 - 0.5 * 2 * 1.0 - 0.5 * 2 * 2.5))
    assert_equal_states(a.state[p], b.state[q])


def assert_equal_states(state, other):
    assert state.keys() == other.keys()
    for key, value in state.items():
        assert torch.equal(value, other[key])
