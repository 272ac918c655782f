"""Sharpness against the dense Hessian and closed forms, and the learning rates against the optimizers they are for."""

import math
import re

import numpy as np
import pytest
import strategies
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from torch import nn

from aggmo import AggMo, Damping
from aggmo.torch.sharpness import largest_lr, matching_lr, sharpness


def network(seed=0, dtype=torch.float64):
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return nn.Sequential(nn.Linear(4, 6), nn.Tanh(), nn.Linear(6, 3)).to(dtype)


def points(seed=0, n=20, dtype=torch.float64):
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(n, 4, generator=generator, dtype=torch.float64)
    return x.to(dtype), torch.randint(3, (n,), generator=generator)


def cross_entropy(model):
    return lambda batch: nn.functional.cross_entropy(model(batch[0]), batch[1])


def dense(model, loss_of, data):
    """All eigenvalues, rising, of the Hessian by torch.func."""
    names, shapes = zip(*((name, p.shape) for name, p in model.named_parameters()), strict=True)

    def loss(flat):
        pieces = flat.split([math.prod(shape) for shape in shapes])
        values = {name: piece.view(shape) for name, piece, shape in zip(names, pieces, shapes, strict=True)}
        return loss_of(torch.func.functional_call(model, values, data[0]), data[1])

    flat = torch.cat([p.detach().reshape(-1) for p in model.parameters()])
    return torch.linalg.eigvalsh(torch.func.hessian(loss)(flat))


@pytest.mark.filterwarnings("ignore:.torch.jit.script. is deprecated")  # torch.func.hessian uses it
@pytest.mark.parametrize("seed", range(3))
def test_a_network(seed):
    """Oracle: the dense Hessian."""
    model, data = network(seed), points(seed)
    largest = dense(model, nn.functional.cross_entropy, data)[-1].item()
    found = sharpness(cross_entropy(model), model.parameters(), [data], tolerance=1e-6)
    assert math.isclose(found, largest, rel_tol=1e-9)
    assert math.isclose(sharpness(cross_entropy(model), model.parameters(), [data]), largest, rel_tol=1e-3)
    assert all(p.grad is None for p in model.parameters())


def test_batches_of_different_sizes_are_one():
    """Oracle: all data in one batch; loaders that shuffle, iterators and dictionaries carry the same data."""
    model, (x, y) = network(), points()
    whole = sharpness(cross_entropy(model), model.parameters(), [(x, y)], tolerance=1e-8)
    parts = [(x[:3], y[:3]), (x[3:4], y[3:4]), (x[4:], y[4:])]
    loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(x, y), batch_size=7, shuffle=True)
    named = [{"inputs": a, "labels": b} for a, b in parts]
    by_name = sharpness(
        lambda batch: cross_entropy(model)((batch["inputs"], batch["labels"])),
        model.parameters(),
        named,
        tolerance=1e-8,
    )
    assert math.isclose(by_name, whole, rel_tol=1e-9)
    for batches in (parts, iter(parts), loader):
        found = sharpness(cross_entropy(model), model.parameters(), batches, tolerance=1e-8)
        assert math.isclose(found, whole, rel_tol=1e-9)


@settings(max_examples=40)
@given(st.lists(st.floats(-5, 5), min_size=1, max_size=8))
def test_a_quadratic(curvatures):
    """Oracle: its largest curvature, be it negative, multiple, or 0."""
    h = torch.tensor(curvatures, dtype=torch.float64)
    theta = torch.ones_like(h, requires_grad=True)
    found = sharpness(lambda batch: (h * theta.square()).sum() / 2 * batch.mean(), [theta], [torch.ones(3)])
    assert math.isclose(found, max(curvatures), rel_tol=1e-3, abs_tol=1e-3 * max(map(abs, curvatures)))


def test_many_parameters_in_few_iterations():
    """Oracle: the curvatures put in, 1000 of them near each other below the largest."""
    h = torch.cat([torch.linspace(0, 1, 1000, dtype=torch.float64), torch.tensor([1.5, 3.0])])
    passes = []
    theta = torch.zeros_like(h, requires_grad=True)

    def loss(batch):
        passes.append(batch)
        return (h * theta.square()).sum() / 2

    found = sharpness(loss, [theta], [torch.ones(1)])
    assert math.isclose(found, 3.0, rel_tol=1e-5)
    assert len(passes) < 30


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_narrow_dtypes(dtype):
    """Oracle: the same numbers in float64; bfloat16 has 8 bits."""
    model, (x, y) = network(dtype=dtype), points(dtype=dtype)
    wide = network(dtype=dtype).double()
    expected = sharpness(cross_entropy(wide), wide.parameters(), [(x.double(), y)])
    tolerance = 1e-3 if dtype == torch.float32 else 0.05
    found = sharpness(cross_entropy(model), model.parameters(), [(x, y)], tolerance=tolerance)
    assert math.isclose(found, expected, rel_tol=2 * tolerance)


def test_frozen_and_unused_parameters():
    """Oracle: the dense Hessian of the rest; an unused parameter has curvature 0."""
    h, theta = torch.tensor([2.0, 7.0]), torch.ones(2, requires_grad=True)
    frozen, unused = torch.ones(2), torch.ones(2, requires_grad=True)
    found = sharpness(lambda _: (h * theta.square()).sum() / 2 + frozen.sum(), [theta, frozen, unused], [torch.ones(1)])
    assert math.isclose(found, 7.0, rel_tol=1e-3)
    assert sharpness(lambda _: theta.sum() + unused.square().sum(), [theta], [torch.ones(1)]) == 0.0  # no curvature


def test_dropout_is_one_mask_and_the_callers_random_state_is_left():
    model, data = nn.Sequential(nn.Linear(4, 50), nn.Tanh(), nn.Dropout(0.5), nn.Linear(50, 3)).double(), points()
    first = sharpness(cross_entropy(model), model.parameters(), [data], seed=3)
    torch.manual_seed(5)
    before = torch.get_rng_state()
    assert sharpness(cross_entropy(model), model.parameters(), [data], seed=3) == first
    assert torch.equal(torch.get_rng_state(), before)


def test_what_makes_no_sense():
    theta, one = torch.ones(2, requires_grad=True), [torch.ones(1)]
    for params in ([], [torch.ones(2)]):
        with pytest.raises(ValueError, match="params has no parameter that requires gradients"):
            sharpness(lambda _: theta.sum(), params, one)
    with pytest.raises(ValueError, match="params has a complex parameter"):
        sharpness(lambda _: theta.sum(), [torch.ones(2, dtype=torch.complex64, requires_grad=True)], one)
    with pytest.raises(ValueError, match="batches has no examples"):
        sharpness(lambda _: theta.square().sum(), [theta], [])
    with pytest.raises(ValueError, match="batches has a dict with no tensor in it"):
        sharpness(lambda _: theta.square().sum(), [theta], [{}])
    with pytest.raises(ValueError, match="second derivatives of the loss are not finite"):
        sharpness(lambda _: (theta - 1).square().sum().sqrt(), [theta], one)
    for name, values in (("tolerance", (0.0, -1e-3, 1.0, math.nan, math.inf)), ("iterations", (0, -1))):
        for value in values:
            with pytest.raises(ValueError, match=f"^{name}="):
                sharpness(lambda _: theta.square().sum(), [theta], one, **{name: value})
    h = torch.linspace(0, 1, 500, dtype=torch.float64)
    many = torch.ones_like(h, requires_grad=True)
    with pytest.raises(RuntimeError, match=re.escape("not converged to tolerance=1e-09 in iterations=3")):
        sharpness(lambda _: (h * many.square()).sum(), [many], one, tolerance=1e-9, iterations=3)


@given(strategies.dampings(), st.floats(0.1, 10))
def test_the_largest_lr_is_the_edge(damping, curvature):
    """Oracle: the optimizer on a quadratic of this curvature, and the known 2 (1 + beta) / curvature for K = 1.

    At z = -1 exactly, theta = 1, -1, 1, ... with v_i = -/+ curvature / (1 + beta_i) goes on for ever.
    """
    lr = largest_lr(damping, curvature)
    assume(lr < 1e300)  # with weights so small that their products have fewer digits
    theta = torch.tensor([1.0], dtype=torch.float64, requires_grad=True)
    optimizer = AggMo([theta], lr=lr, betas=damping)
    theta.grad = torch.zeros(1, dtype=torch.float64)
    optimizer.step()  # makes the state
    for i, beta in enumerate(damping):
        if beta:
            optimizer.state[theta][f"velocity_{i}"].fill_(-curvature / (1 + beta))
    for t in range(4):
        assert math.isclose(theta.item(), (-1) ** t, rel_tol=1e-9)
        theta.grad = curvature * theta.detach()
        optimizer.step()
    assert math.isclose(largest_lr(Damping.classical(0.9), curvature), 2 * 1.9 / curvature)


def test_the_least_weight_that_there_is():
    """Oracle: by hand. A limit beyond the largest number is infinite."""
    assert largest_lr(Damping((0.0,), (5e-324,)), 0.5) == math.inf
    assert largest_lr(Damping((0.0,), (1e-300,)), 0.5) == pytest.approx(4e300)


@pytest.mark.parametrize("damping", [Damping((0, 0.9, 0.99)), Damping.nesterov(0.9), Damping((0.5, 0.8), (2, 1))])
@pytest.mark.parametrize(("factor", "kept"), [(0.99, True), (1.01, False)])
def test_training_just_inside_and_outside(damping, factor, kept):
    """Oracle: what becomes of a least-squares problem at learning rates beside the edge."""
    generator = torch.Generator().manual_seed(0)
    x, y = (torch.randn(30, k, generator=generator, dtype=torch.float64) for k in (4, 1))
    model = nn.Linear(4, 1).double()

    def loss(batch):
        return nn.functional.mse_loss(model(batch[0]), batch[1])

    lr = factor * largest_lr(damping, sharpness(loss, model.parameters(), [(x, y)], tolerance=1e-8))
    optimizer = AggMo(model.parameters(), lr=lr, betas=damping)
    for _ in range(1500):
        optimizer.zero_grad()
        value = loss((x, y))
        value.backward()
        optimizer.step()
    assert (value.item() < 2) == kept


@given(strategies.dampings(), st.floats(0.001, 1), st.sampled_from([0.0, 0.5, 0.9]), st.sampled_from([0.0, 0.5]))
def test_the_matching_lr_is_that_of_from_sgd(damping, lr, momentum, dampening):
    """Oracle: `AggMo.from_sgd`, which the tests of the take-over cover."""
    sgd = torch.optim.SGD([torch.zeros(1)], lr=lr, momentum=momentum, dampening=dampening)
    expected = AggMo.from_sgd(sgd, betas=damping).param_groups[0]["lr"]
    assert math.isclose(matching_lr(damping, lr, momentum, dampening), expected, rel_tol=1e-12)


@pytest.mark.parametrize("bad", [0.0, -1.0, math.nan, math.inf])
def test_a_sharpness_that_limits_nothing(bad):
    with pytest.raises(ValueError, match=r"sharpness=.*must be finite and > 0"):
        largest_lr((0, 0.9), bad)


@pytest.mark.parametrize(
    ("name", "value"), [("lr", -0.1), ("lr", math.nan), ("momentum", 1.0), ("momentum", -0.1), ("dampening", 1.0)]
)
def test_bad_options_of_sgd(name, value):
    with pytest.raises(ValueError, match=f"{name}="):
        matching_lr((0, 0.9), **{"lr": 0.1, "momentum": 0.5, name: value})


def test_bad_betas():
    for call in (lambda betas: largest_lr(betas, 1.0), lambda betas: matching_lr(betas, 0.1)):
        with pytest.raises(ValueError, match=re.escape("betas[0] is 1.0")):
            call(np.array([1.0]))
