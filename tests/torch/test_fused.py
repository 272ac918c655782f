"""The C kernel. Oracle: `aggmo.reference` in the same dtype, bit for bit."""

import os
import shutil
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest
import strategies
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from problems import assert_close, assert_equal, loss, parameters, reference_run, train, values

from aggmo import AggMo
from aggmo.torch import fused, kernel_available

SWITCHED_OFF = os.environ.get("AGGMO_NO_KERNEL", "0") not in ("", "0")
needs_kernel = pytest.mark.skipif(SWITCHED_OFF or not shutil.which("cc"), reason="installed without the kernel")


@needs_kernel
def test_a_build_with_a_compiler_has_the_kernel():
    assert kernel_available()


def test_the_environment_turns_it_off():
    code = "import aggmo.torch as a, torch; print(a.kernel_available()); a.AggMo([torch.zeros(1)], fused=True)"
    environment = os.environ | {"AGGMO_NO_KERNEL": "1"}
    result = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=False)
    assert result.stdout == "False\n"
    assert "ValueError: fused=True, but there is no kernel" in result.stderr


SIZES = [0, 1, 2, 7, 255, 256, 257, 511, 513, 1000]


def fused_run(shapes, dtype, damping, lrs, data, **options):
    """A run over parameters of these sizes, and the run of the reference over all of them in one array."""
    total = sum(shapes)
    theta = data.draw(strategies.arrays((total,), dtype))
    gradients = [data.draw(strategies.arrays((total,), dtype)) for _ in lrs]
    expected, velocities = reference_run(theta, gradients, damping, lrs, **options)
    params = [p.clone().requires_grad_() for p in torch.from_numpy(theta).split(shapes)]
    optimizer = AggMo(params, betas=damping, fused=True, **options)
    for lr, gradient in zip(lrs, gradients, strict=True):
        optimizer.param_groups[0]["lr"] = lr
        for p, g in zip(params, torch.from_numpy(gradient).split(shapes), strict=True):
            p.grad = g.clone()
        optimizer.step()
    return params, optimizer, expected[-1], velocities


def same_bits(tensors, expected):
    """All bits but the sign of zero: what the reference multiplies by a beta of 0 may be a negative zero."""
    np.testing.assert_array_equal(np.concatenate([t.detach().numpy().ravel() for t in tensors]), expected)


@needs_kernel
@settings(max_examples=150)
@given(
    damping=strategies.dampings(),
    shapes=st.lists(st.sampled_from(SIZES), min_size=1, max_size=4),
    lrs=st.lists(st.floats(0, 1), min_size=1, max_size=3),
    weight_decay=st.sampled_from([0.0, 0.3]),
    decoupled=st.booleans(),
    maximize=st.booleans(),
    threads=st.integers(1, 3),
    data=st.data(),
)
@pytest.mark.parametrize("dtype", [np.float32, np.float64], ids=["fp32", "fp64"])
def test_equals_the_reference_bit_for_bit(
    dtype, damping, shapes, lrs, weight_decay, decoupled, maximize, threads, data
):
    """Over damping vectors, split into tensors, decay, direction and threads."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(fused, "ELEMENTS_FOR_THREADS", 1)
        patch.setattr(torch, "get_num_threads", lambda: threads)
        params, optimizer, theta, velocities = fused_run(
            shapes,
            dtype,
            damping,
            lrs,
            data,
            weight_decay=weight_decay,
            decoupled_weight_decay=decoupled,
            maximize=maximize,
        )
    same_bits(params, theta)
    for i, beta in enumerate(damping):
        if beta:
            same_bits([optimizer.state[p][f"velocity_{i}"] for p in params], velocities[i])


@needs_kernel
@pytest.mark.parametrize("offset", range(1, 5))
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16], ids=str)
def test_any_alignment(dtype, offset):
    """Oracle: the same numbers, aligned. Offsets of single elements are aligned to nothing wider."""
    data, gradient = torch.randn(600 + offset), torch.randn(600 + offset)
    p = data.to(dtype)[offset:].requires_grad_()
    q = data.to(dtype)[offset:].clone().requires_grad_()
    optimizers = [AggMo([p], fused=True), AggMo([q], fused=True)]
    for _ in range(2):
        p.grad, q.grad = gradient.to(dtype)[offset:], gradient.to(dtype)[offset:].clone()
        for optimizer in optimizers:
            optimizer.step()
    assert_equal([p], [q])


@needs_kernel
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
def test_half_precision_is_rounded_as_torch_rounds(dtype):
    """Oracle: torch's conversion from float32, over every bit pattern of the half and its neighbours in float32.

    With lr 1 and one velocity of beta 0, theta - g is calculated in float32 and rounded once.
    """
    halves = torch.arange(-(2**15), 2**15, dtype=torch.int32).to(torch.int16).view(dtype)
    wide = halves.float()
    for other in (0.0, 1.0, -(2.0**-9), 3e-5, 0.33):
        p = halves.clone().requires_grad_()
        p.grad = torch.full_like(p, other)
        AggMo([p], lr=1.0, betas=(0,), fused=True).step()
        expected = (wide - p.grad.float()).to(dtype)
        nan = expected.isnan()
        assert torch.equal(p.detach().isnan(), nan)
        assert torch.equal(p.detach()[~nan].view(torch.int16), expected[~nan].view(torch.int16))


@needs_kernel
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("velocity", [torch.float32, torch.float64, torch.bfloat16, torch.float16], ids=str)
def test_every_pair_of_dtypes_agrees_with_the_loop(dtype, velocity):
    """Oracle: the for-loop, to rounding in the coarser dtype."""
    params, others = parameters(dtype), parameters(dtype)
    a = AggMo(params, lr=0.02, velocity_dtype=velocity, weight_decay=0.1, fused=True)
    b = AggMo(others, lr=0.02, velocity_dtype=velocity, weight_decay=0.1, foreach=False, fused=False)
    train(a, params, 5)
    train(b, others, 5)
    eps = max(torch.finfo(dtype).eps, torch.finfo(velocity).eps)
    assert_close(params, others, rtol=16 * eps, atol=16 * eps)
    assert a.state[params[0]]["velocity_1"].dtype == velocity


CHANGES = {
    "data": lambda p: setattr(p, "data", p.data.clone() + 1),
    "data at the same address": lambda p: setattr(p, "data", p.data.t()),
    "set_": lambda p: p.data.set_(torch.randn_like(p)),
    "strides": lambda p: p.data.t_(),
    "resize": lambda p: p.data.resize_(2**20),  # the elements move to a larger storage
}


@pytest.fixture(params=[True, False], ids=["guards", "no guards"])
def guards(request, monkeypatch):
    """With and without torch's guards, which ask many tensors in one call."""
    if not request.param:
        monkeypatch.setattr(fused, "_guards", None)


@needs_kernel
@pytest.mark.usefixtures("guards")
@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_no_stale_pointer_of_a_parameter(change):
    """Oracle: the for-loop through the same change, which reads its tensors anew."""
    results = []
    for back_end in ({"fused": True}, {"foreach": False, "fused": False}):
        torch.manual_seed(0)
        p = torch.randn(4, 4, requires_grad=True)
        old = p.data
        optimizer = AggMo([p], **back_end)
        for step in range(3):
            if step == 1:
                with torch.no_grad():
                    change(p)
                left = old.clone()
            p.grad = torch.cos(p.detach())
            optimizer.step()
        if old.data_ptr() != p.data_ptr():
            assert torch.equal(old, left)  # nothing is written where the parameter was
        results.append([p.detach(), *optimizer.state[p].values()])
    assert_close(*results, rtol=1e-6, atol=1e-6)


@needs_kernel
@pytest.mark.parametrize(
    "gradient",
    [
        lambda: torch.randn(16, 4)[::4],
        lambda: torch.randn(4, 4).t(),
        lambda: torch.randn(1, 4).expand(4, 4),
        lambda: torch.randn(4, 4).to_sparse(),
        lambda: torch._neg_view(torch.randn(4, 4)),
    ],
    ids=["strided", "transposed", "expanded", "sparse", "negative"],
)
def test_gradients_of_any_layout(gradient):
    """Oracle: the same gradient, contiguous."""
    p, q = torch.ones(4, 4, requires_grad=True), torch.ones(4, 4, requires_grad=True)
    a, b = AggMo([p], fused=True), AggMo([q], fused=True)
    for _ in range(2):
        p.grad = gradient()
        q.grad = p.grad.to_dense().resolve_neg().contiguous()
        a.step()
        b.step()
    assert_close([p], [q], rtol=1e-6, atol=1e-6)


GRADIENTS = {
    "the same": lambda g: g,
    "written to": lambda g: g.mul_(0.5),
    "another": torch.sin,
    "other strides": torch.t,
    "other strides at the same address": torch.Tensor.t_,
    "other dtype": torch.Tensor.double,
    "resized": lambda g: g.resize_(2**10, 2**10).resize_(4, 4),
    "none": lambda _: None,
    "sparse": torch.Tensor.to_sparse,
}


@needs_kernel
@pytest.mark.usefixtures("guards")
@pytest.mark.parametrize("second", GRADIENTS.values(), ids=GRADIENTS)
@pytest.mark.parametrize("third", GRADIENTS.values(), ids=GRADIENTS)
def test_no_stale_pointer_of_a_gradient(second, third):
    """Oracle: the for-loop with the same gradients. A second parameter stays as it is."""
    results = []
    for back_end in ({"fused": True}, {"foreach": False, "fused": False}):
        torch.manual_seed(0)
        p, q = torch.randn(4, 4, requires_grad=True), torch.randn(3, requires_grad=True)
        p.grad_dtype = None  # any
        optimizer = AggMo([p, q], lr=0.05, **back_end)
        g, q.grad = torch.cos(p.detach()), torch.ones(3)
        for change in (GRADIENTS["the same"], second, third, GRADIENTS["another"]):
            p.grad = change(g)
            optimizer.step()
        results.append([p.detach(), q.detach(), *optimizer.state[p].values(), *optimizer.state[q].values()])
    assert_close(*results, rtol=1e-6, atol=1e-6)


@needs_kernel
@pytest.mark.usefixtures("guards")
def test_no_stale_pointer_of_a_velocity():
    """Oracle: the for-loop with the same state, exchanged between two steps."""
    results = []
    for back_end in ({"fused": True}, {"foreach": False, "fused": False}):
        p = torch.ones(5, requires_grad=True)
        optimizer = AggMo([p], lr=0.05, **back_end)
        for step in range(4):
            if step == 1:
                optimizer.state[p]["velocity_1"] = torch.arange(5.0)
            if step == 2:
                optimizer.state[p]["velocity_2"].data = torch.arange(5, 0, -1, dtype=torch.float64)
            if step == 3:
                optimizer.state[p] = {"velocity_1": torch.zeros(5), "velocity_2": torch.ones(5)}
            p.grad = torch.cos(p.detach())
            optimizer.step()
        results.append([p.detach(), *optimizer.state[p].values()])
    assert_close(*results, rtol=1e-6, atol=1e-6)


def overlapping():
    """Parameters of one storage: two that share half their elements, and one whose own elements lie on each other."""
    base = torch.linspace(-1, 1, 2000)
    views = [base[:1500], base[500:], torch.linspace(0, 1, 6).as_strided((4, 3), (1, 1))]
    return [view.requires_grad_() for view in views]


@needs_kernel
@pytest.mark.usefixtures("guards")
def test_parameters_that_share_memory(monkeypatch):
    """Oracle: the for-loop, which updates one after the other. The threads of the kernel would race."""
    monkeypatch.setattr(fused, "ELEMENTS_FOR_THREADS", 1)
    monkeypatch.setattr(torch, "get_num_threads", lambda: 3)
    params, others = overlapping(), overlapping()
    a, b = AggMo(params, fused=True), AggMo(others, fused=False)
    for _ in range(3):
        for p in (*params, *others):
            p.grad = torch.cos(p.detach())
        a.step()
        b.step()
    assert_close(params, others, rtol=1e-5, atol=1e-6)


@needs_kernel
@pytest.mark.usefixtures("guards")
@pytest.mark.parametrize("shift", [0, 1, 8])
def test_a_gradient_in_the_memory_of_its_parameter(shift):
    """Oracle: the for-loop, bit for bit, because the kernel's loops count on memory that is not shared."""
    results = []
    for back_end in ({"fused": True}, {"foreach": False, "fused": False}):
        base = torch.linspace(-1, 1, 500)
        p = base[shift:].requires_grad_()
        p.grad = base[: 500 - shift]
        AggMo([p], **back_end).step()
        results.append(p)
    assert_equal(results[:1], results[1:])


@needs_kernel
def test_a_parameter_that_grew_is_refused_and_not_overrun():
    """Its velocities are too short then: torch's own error, and no memory written."""
    p = torch.zeros(4, requires_grad=True)
    optimizer = AggMo([p], fused=True)
    p.grad = torch.ones(4)
    optimizer.step()
    p.data = torch.zeros(400)
    p.grad = torch.ones(400)
    with pytest.raises(RuntimeError, match="size"):
        optimizer.step()


@needs_kernel
@pytest.mark.usefixtures("guards")
def test_a_gradient_that_grew_in_place_is_refused():
    """By torch's own error, and no memory is read that is not the parameter's."""
    p = torch.zeros(4, requires_grad=True)
    p.grad = torch.ones(4)
    optimizer = AggMo([p], fused=True)
    optimizer.step()
    p.grad.resize_(400)
    with pytest.raises(RuntimeError, match="size"):
        optimizer.step()


@needs_kernel
@pytest.mark.usefixtures("guards")
def test_a_storage_that_shrank_is_not_written_to():
    """FSDP frees memory so. Its address is null then, and the velocities' is not what it was after it grew again."""
    p = torch.ones(100, requires_grad=True)
    optimizer = AggMo([p], lr=1.0, betas=(0,), fused=True)
    for _ in range(2):
        p.grad = torch.ones(100)
        optimizer.step()
        p.untyped_storage().resize_(0)
        p.grad = torch.ones(100)
        with pytest.raises(RuntimeError, match="storage"):
            optimizer.step()
        p.untyped_storage().resize_(400)
        p.data.fill_(1.0)
        optimizer.step()
        assert torch.equal(p.detach(), torch.zeros(100))
        p.data.fill_(2.0)


@needs_kernel
@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16], ids=str)
def test_a_model_that_changes_dtype_goes_on(dtype):
    """Oracle: the for-loop through the same change; the velocities stay as they were made."""
    results = []
    for back_end in ({"fused": True}, {"foreach": False, "fused": False}):
        torch.manual_seed(0)
        model = torch.nn.Linear(3, 3)
        optimizer = AggMo(model.parameters(), **back_end)
        for step in range(4):
            if step == 2:
                model.to(dtype)
            optimizer.zero_grad()
            model(torch.ones(2, 3, dtype=model.weight.dtype)).square().sum().backward()
            optimizer.step()
        results.append(values(model.parameters()))
    assert_close(*results, rtol=1e-2, atol=1e-2)


@needs_kernel
def test_what_it_cannot_take_beside_what_it_can():
    """Oracle: the for-loop. Layouts and dtypes mixed in one group; the kernel takes its part of them."""

    def mixed():
        torch.manual_seed(0)
        conv = torch.randn(2, 3, 4, 4).contiguous(memory_format=torch.channels_last)
        tensors = [torch.randn(5), conv, torch.randn(3, 3).t(), torch.randn(4, dtype=torch.float64), torch.randn(0)]
        return [t.requires_grad_() for t in tensors]

    params, others = mixed(), mixed()
    a, b = AggMo(params, lr=0.01, fused=True), AggMo(others, lr=0.01, foreach=False, fused=False)
    train(a, params, 4)
    train(b, others, 4)
    assert_close(params, others, rtol=1e-5, atol=1e-6)


@needs_kernel
@pytest.mark.parametrize(
    ("tensor", "found"),
    [
        (lambda: torch.zeros(2, dtype=torch.complex64), "torch.complex64 on cpu"),
        (lambda: torch.zeros(2, device="meta"), "torch.float32 on meta"),
    ],
    ids=["complex", "meta"],
)
def test_insisting_where_it_cannot_apply_is_refused(tensor, found):
    with pytest.raises(ValueError, match=r"`fused=True` requires all the params to be floating point Tensors") as error:
        AggMo([tensor()], fused=True)
    assert found in str(error.value)
    optimizer = AggMo([torch.zeros(1)], fused=True)
    with pytest.raises(ValueError, match="fused=True"):
        optimizer.add_param_group({"params": [tensor()]})
    assert len(optimizer.param_groups) == 1


@needs_kernel
@pytest.mark.parametrize("options", [{"foreach": True}, {"differentiable": True}], ids=str)
def test_two_ways_at_once_are_refused(options):
    with pytest.raises(ValueError, match=r"fused=True with \w+=True: choose one"):
        AggMo(parameters(), fused=True, **options)


@needs_kernel
def test_the_default_takes_the_kernel(monkeypatch):
    calls = []
    monkeypatch.setattr(fused, "_run", lambda *arguments: calls.append(arguments))
    params = parameters()
    train(AggMo(params), params, 2)
    assert len(calls) == 2
    train(AggMo(params, fused=False), params, 2)
    train(AggMo(params, foreach=True), params, 2)
    assert len(calls) == 2


@needs_kernel
def test_a_scaler_leaves_unscaling_to_the_one_pass():
    """Oracle: the same steps without scaling, the one with inf left out. The gradients keep their scale."""
    params, others = parameters(torch.float32), parameters(torch.float32)
    a, b = AggMo(params, lr=0.01, fused=True), AggMo(others, lr=0.01, fused=True)
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**10, growth_interval=1000)
    for t in range(4):
        a.zero_grad()
        scaler.scale(loss(params)).backward()
        gradient = params[0].grad.clone()
        if t == 1:
            params[0].grad[0, 0] = gradient[0, 0] = torch.inf
        scaler.step(a)
        assert torch.equal(params[0].grad, gradient)
        scaler.update()
        if t != 1:
            train(b, others, 1)
    assert scaler.get_scale() == 2.0**9
    assert_close(params, others, rtol=1e-6, atol=1e-7)


def large(seed, elements=3_000_000):
    p = torch.randn(elements, generator=torch.Generator().manual_seed(seed)).requires_grad_()
    p.grad = torch.cos(p.detach())
    return p


@needs_kernel
def test_threads_change_no_bit(monkeypatch):
    """Oracle: one thread."""
    results = []
    for threads in (1, 2, 5):
        monkeypatch.setattr(torch, "get_num_threads", lambda threads=threads: threads)
        p = large(0)
        optimizer = AggMo([p], fused=True)
        optimizer.step()
        optimizer.step()
        results.append(p)
    assert_equal(results[:1] * 2, results[1:])


@needs_kernel
def test_no_part_of_a_step_is_done_twice_where_threads_cannot_be_started(monkeypatch):
    """Oracle: one thread. What the pool has queued by then may begin much later, in another step."""
    monkeypatch.setattr(fused, "ELEMENTS_FOR_THREADS", 1)
    monkeypatch.setattr(fused, "_pool", None)
    results = []
    for threads in (1, 3):
        monkeypatch.setattr(torch, "get_num_threads", lambda threads=threads: threads)
        p = large(3, 10_000)
        optimizer = AggMo([p], fused=True)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(threading.Thread, "start", no_thread)
            optimizer.step()
        for _ in range(5):
            optimizer.step()
        results.append(p)
    assert_equal(results[:1], results[1:])


def no_thread(_):
    raise RuntimeError("can't start new thread")


@needs_kernel
def test_two_optimizers_in_two_threads(monkeypatch):
    """Oracle: the same two, one after the other; the pool of threads is common."""
    monkeypatch.setattr(torch, "get_num_threads", lambda: 2)
    apart, together = [large(1), large(2)], [large(1), large(2)]

    def steps(p):
        optimizer = AggMo([p], fused=True)
        for _ in range(5):
            optimizer.step()

    for p in apart:
        steps(p)
    workers = [threading.Thread(target=steps, args=(p,)) for p in together]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert_equal(apart, together)


IN_A_PROCESS = """
import atexit, os, sys, torch
from aggmo import AggMo
torch.set_num_threads(2)
p = torch.zeros(3_000_000, requires_grad=True)
p.grad = torch.ones_like(p)
optimizer = AggMo([p], lr=1.0, betas=(0,), fused=True)
optimizer.step()
{}
"""
FORK = """
child = os.fork()
optimizer.step()
if child == 0:
    os._exit(0 if p[0].item() == p[-1].item() == -2.0 else 1)
_, status = os.waitpid(child, 0)
print(os.waitstatus_to_exitcode(status), p[-1].item())
"""
SHUTDOWN = """
def late():
    optimizer.step()
    print(p.min().item(), p.max().item())
atexit.register(late)
"""


@needs_kernel
@pytest.mark.parametrize(
    ("code", "printed"), [(FORK, "0 -2.0\n"), (SHUTDOWN, "-2.0 -2.0\n")], ids=["after fork", "at exit"]
)
def test_the_threads_survive(code, printed):
    """A fork leaves the child without the pool's threads; at exit there are no new ones. Neither may hang."""
    result = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", IN_A_PROCESS.format(code)],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert (result.returncode, result.stdout) == (0, printed), result.stderr


COMPILERS = {
    "gcc": ["-O1", "-g", "-fsanitize=address,undefined", "-fno-sanitize-recover=all", "-DAGGMO_NO_CLONES"],
    "clang": ["-O3", "-Wno-unknown-warning-option"],
}


@needs_kernel
@pytest.mark.parametrize("compiler", [name for name in COMPILERS if shutil.which(name)])
def test_random_steps_of_every_compiler(compiler, tmp_path):
    """Oracles: AddressSanitizer and UBSan, the same step cut into ranges, and the bits of gcc 12 and clang 14."""
    kernel = Path(fused.__file__).with_name("kernel.c")
    source, program = Path(__file__).with_name("fuzz_kernel.c"), tmp_path / "fuzz"
    warnings = ["-Wall", "-Wextra", "-Wpedantic", "-Werror"]
    flags = [
        "-std=c99",
        "-ffp-contract=off",
        "-fno-trapping-math",
        "-fno-math-errno",
        f'-DKERNEL="{kernel}"',
        *warnings,
    ]
    subprocess.run([compiler, *flags, *COMPILERS[compiler], source, "-o", program], check=True)
    result = subprocess.run([program], capture_output=True, text=True, check=False)
    assert (result.returncode, result.stdout) == (0, "2000 steps, checksum 3d70d8e90c41e903\n"), result.stderr[-3000:]
