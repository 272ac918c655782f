"""torch.compile with inductor. Oracle: the eager step."""

import shutil

import pytest
import torch
from problems import assert_close, assert_equal, loss, parameters, train
from torch._dynamo.testing import CompileCounterWithBackend

from aggmo import AggMo, Damping
from aggmo.torch import kernel_available
from aggmo.torch.schedule import DampingSchedule, warmup

pytestmark = [
    # Inductor's own imports use what torch itself deprecates.
    pytest.mark.filterwarnings("ignore:.torch.jit.script_method. is deprecated:DeprecationWarning"),
    pytest.mark.skipif(not any(map(shutil.which, ("g++", "clang++", "c++"))), reason="Inductor needs a C++ compiler"),
]

DAMPINGS = [Damping((0, 0.9, 0.99)), Damping((0.9, 0.9, 0.0), (1, 2, 3)), Damping.classical(0.9), Damping((0.0,))]


# What Inductor compiles: the loop, its foreach twin, or one operator, which is the kernel's step.
BACKENDS = {"loop": {"foreach": False, "fused": False}, "foreach": {"foreach": True}, "fused": {"fused": True}}
if not kernel_available():
    del BACKENDS["fused"]


@pytest.fixture(params=BACKENDS)
def backend(request):
    return BACKENDS[request.param]


@pytest.fixture(autouse=True)
def fresh_compiler():
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


def compiled(optimizer):
    """The optimizer's step as one graph, and the counter of graphs; a graph break is an error."""
    counter = CompileCounterWithBackend("inductor")
    return torch.compile(optimizer.step, fullgraph=True, backend=counter), counter


def run(optimizer, step, params, steps, schedule=None):
    for t in range(steps):
        if schedule:
            schedule(t)
        optimizer.zero_grad()
        loss(params).backward()
        step()


@pytest.mark.parametrize("damping", DAMPINGS, ids=["default", "free weights", "classical", "no momentum"])
@pytest.mark.parametrize("options", [{}, {"weight_decay": 0.1, "maximize": True}], ids=str)
def test_twenty_steps_from_empty_state(damping, backend, options):
    """State made inside the graph would be merged into one buffer: the velocities must come out apart."""
    params, others = parameters()[:2], parameters()[:2]
    a = AggMo(params, lr=0.02, betas=damping, **backend, **options)
    b = AggMo(others, lr=0.02, betas=damping, **backend, **options)
    step, counter = compiled(a)
    run(a, step, params, 20)
    train(b, others, 20)
    assert_close(params, others)
    for p, q in zip(params, others, strict=True):
        assert_close(a.state[p].values(), b.state[q].values())
    assert counter.frame_count == 1


@pytest.mark.parametrize(("tensor_lr", "graphs"), [(False, 2), (True, 1)], ids=["float", "tensor"])
@pytest.mark.parametrize(
    "options", [{"weight_decay": 0.1}, {"weight_decay": 0.1, "decoupled_weight_decay": True}], ids=str
)
def test_fifty_steps_with_a_changing_lr(tensor_lr, graphs, backend, options):
    """The step is compiled before the scheduler is attached, which wraps `optimizer.step`."""

    def made(params):
        lr = torch.tensor(0.02) if tensor_lr else 0.02
        return AggMo(params, lr=lr, **backend, **options)

    params, others = parameters()[:2], parameters()[:2]
    a, b = made(params), made(others)
    step, counter = compiled(a)
    schedulers = [torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 60) for optimizer in (a, b)]
    b.step()  # so that the scheduler sees a step of each; without gradients it does nothing
    a.step()
    run(a, step, params, 50, lambda _: schedulers[0].step())
    train(b, others, 50, lambda _: schedulers[1].step())
    assert_close(params, others)
    assert counter.frame_count <= graphs


@pytest.mark.parametrize("decoupled", [False, True])
def test_betas_and_weight_decay_that_change(backend, decoupled):
    """As under a schedule over damping: one graph, and one more at the first change."""

    def made(params):
        return AggMo(params, lr=0.02, weight_decay=0.5, decoupled_weight_decay=decoupled, **backend)

    params, others = parameters()[:2], parameters()[:2]
    a, b = made(params), made(others)
    step, counter = compiled(a)

    def schedule(optimizer):
        warm = DampingSchedule(optimizer, warmup(8))

        def write(t):
            optimizer.param_groups[0]["weight_decay"] = 1 / (2 + t)
            if t:
                warm.step()

        return write

    run(a, step, params, 12, schedule(a))
    train(b, others, 12, schedule(b))
    assert_close(params, others)
    assert counter.frame_count <= 2


@pytest.mark.filterwarnings("ignore:Torchinductor does not support code generation for complex:UserWarning")
@pytest.mark.parametrize("options", [{}, {"foreach": True}], ids=str)
def test_complex_parameters(options):
    """They are not for the kernel, which the step would call by default, nor is a group that has one."""

    def made():
        real, *_ = parameters()
        return [torch.complex(real, real.flip(0)).detach().requires_grad_(), *parameters()[1:]]

    params, others = made(), made()
    a, b = AggMo(params, lr=0.02, **options), AggMo(others, lr=0.02, **options)
    step, _ = compiled(a)
    for stepping, stepped in ((step, params), (b.step, others)):
        for _ in range(5):
            for p in stepped:
                p.grad = p.detach() / 2
            stepping()
    assert_close(params, others)


def test_a_compiled_training_step():
    """Model, loss and step in one compiled function, as a training loop would have it."""
    params, others = parameters(), parameters()
    a, b = AggMo(params, lr=torch.tensor(0.02)), AggMo(others, lr=torch.tensor(0.02))

    def one(optimizer, params):
        optimizer.zero_grad()
        loss(params).backward()
        optimizer.step()

    whole = torch.compile(lambda: one(a, params))
    for _ in range(5):
        whole()
        one(b, others)
    assert_close(params, others)


def test_scalar_parameters(backend):
    """Inductor (torch 2.13) loses what torch.optim.SGD and Adam write to a float64 scalar; AggMo's step arrives."""
    params, others = parameters()[2:], parameters()[2:]
    a, b = AggMo(params, lr=0.02, **backend), AggMo(others, lr=0.02, **backend)
    step, _ = compiled(a)
    run(a, step, params, 5)
    train(b, others, 5)
    assert_close(params, others)


def test_half_precision_agrees_with_eager(backend):
    params, others = parameters(torch.bfloat16), parameters(torch.bfloat16)
    a = AggMo(params, lr=0.02, velocity_dtype=torch.float32, **backend)
    b = AggMo(others, lr=0.02, velocity_dtype=torch.float32, **backend)
    step, _ = compiled(a)
    run(a, step, params, 5)
    train(b, others, 5)
    assert_close(params, others, rtol=0.02, atol=0.02)
    assert a.state[params[0]]["velocity_1"].dtype == torch.float32


@pytest.mark.skipif(not kernel_available(), reason="installed without the kernel")
def test_the_kernel_is_in_the_graph_bit_for_bit():
    """Oracle: the kernel's eager step. A channels-last parameter is not for the kernel."""

    def made():
        conv = torch.randn(2, 3, 4, 4, generator=torch.Generator().manual_seed(1))
        return [*parameters(torch.float32), conv.contiguous(memory_format=torch.channels_last).requires_grad_()]

    params, others = made(), made()
    a, b = AggMo(params, lr=0.02, weight_decay=0.1), AggMo(others, lr=0.02, weight_decay=0.1)
    step, counter = compiled(a)
    run(a, step, params, 5)
    train(b, others, 5)
    assert_equal(params, others)
    assert [node.target for node in counter.graphs[0].graph.nodes if "aggmo" in str(node.target)]


@pytest.mark.filterwarnings("ignore:Profiler record function")
def test_a_scaler_over_a_compiled_step(backend):
    """Oracle: the eager step under another scaler, which leaves its scale to the kernel."""

    def trained(wrap):
        params = parameters(torch.float32)
        optimizer = AggMo(params, lr=0.01, **backend)
        optimizer.step = wrap(optimizer.step)
        train(optimizer, params, 1)  # compiled without a scale
        scaler = torch.amp.GradScaler("cpu", init_scale=2.0**10, growth_interval=2)
        for t in range(5):
            optimizer.zero_grad()
            scaler.scale(loss(params)).backward()
            if t == 1:
                params[0].grad[0, 0] = torch.inf
            scaler.step(optimizer)
            scaler.update()
        assert scaler.get_scale() == 2.0**10  # halved by the infinity, doubled by two steps without one
        return params

    ours = trained(lambda step: torch.compile(step, backend="eager"))
    assert_close(ours, trained(lambda step: step), rtol=1e-6, atol=1e-6)


def test_a_bad_option_is_refused_while_compiling():
    params = parameters()
    optimizer = AggMo(params)
    step, _ = compiled(optimizer)
    optimizer.param_groups[0]["betas"] = (0.5, 0.9, 0.99)
    loss(params).backward()
    with pytest.raises(Exception, match="was 0 when the parameter group was made"):
        step()
