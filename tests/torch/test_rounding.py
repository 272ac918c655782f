"""Rounding at random, by the loop and by the kernel. Oracles: arithmetic that is exact, and binomial statistics."""

import copy
import math

import pytest
import torch
from problems import assert_equal, parameters, train, values

from aggmo import AggMo
from aggmo.torch import fused, kernel_available, rounding

BACK_ENDS = {"loop": {"fused": False}, "kernel": {"fused": True}}
if not kernel_available():
    del BACK_ENDS["kernel"]


@pytest.fixture(params=BACK_ENDS)
def back_end(request):
    return {**BACK_ENDS[request.param], "stochastic_rounding": True}


def moved(start, by, elements, **options):
    """Parameters of one value after a step of lr 1 that moves each of them by the same."""
    p = torch.full((elements,), start, dtype=torch.bfloat16, requires_grad=True)
    p.grad = torch.full_like(p, -by)
    AggMo([p], lr=1.0, betas=(0,), weights=(1,), **options).step()
    return p.detach()


@pytest.mark.parametrize("sixteenths", [0, 1, 5, 8, 15])
@pytest.mark.parametrize("sign", [1, -1])
def test_up_with_the_probability_of_what_is_cut_off(back_end, sixteenths, sign):
    """Oracle: the binomial distribution, five standard deviations. Above 256 bf16 steps by 2."""
    n = 200_000
    p = moved(256.0 * sign, sixteenths / 8 * sign, n, **back_end)
    assert set(p.tolist()) <= {256.0 * sign, 258.0 * sign}
    probability = sixteenths / 16
    up = (p != 256.0 * sign).sum().item()
    assert abs(up - n * probability) <= 5 * math.sqrt(n * probability * (1 - probability))


def test_small_steps_are_not_lost(back_end):
    """Oracle: 1 + 100 * 2^-10, in the mean within five standard deviations; rounded to nearest, all stay at 1."""
    n, by, steps = 20_000, 2.0**-10, 100
    p = torch.ones(n, dtype=torch.bfloat16, requires_grad=True)
    q = torch.ones(n, dtype=torch.bfloat16, requires_grad=True)
    optimizers = [AggMo([p], lr=1.0, betas=(0,), **back_end), AggMo([q], lr=1.0, betas=(0,))]
    for _ in range(steps):
        for parameter, optimizer in zip((p, q), optimizers, strict=True):
            parameter.grad = torch.full_like(parameter, -by)
            optimizer.step()
    assert torch.equal(q.detach(), torch.ones_like(q))
    ulp = 2.0**-7
    deviation = math.sqrt(steps * by * (ulp - by) / n)  # of a sum of independent roundings, of their mean over n
    assert abs(p.detach().double().mean().item() - (1 + steps * by)) <= 5 * deviation


@pytest.mark.parametrize("value", [math.inf, -math.inf, math.nan, 0.0, -0.0, 1.5, 2.0**-133])
def test_what_bfloat16_holds_is_kept(back_end, value):
    """Oracle: the value itself, infinities and NaN among them, at every place of a run."""
    p = moved(value, 0.0, 1000, **back_end)
    expected = torch.full((1000,), value, dtype=torch.bfloat16)
    torch.testing.assert_close(p, expected, rtol=0, atol=0, equal_nan=True)


@pytest.mark.skipif(not kernel_available(), reason="installed without the kernel")
@pytest.mark.parametrize("blocks", [False, True])
def test_the_kernel_and_the_loop_draw_the_same_bits(blocks, monkeypatch):
    """Oracle: each other, where the arithmetic is exact; over tensors, runs, roles, seeds and steps."""
    if blocks:
        monkeypatch.setattr("aggmo.torch.update.BLOCK", 100)
    sizes = [1, 255, 256, 257, 1000, 0, 3]

    def run(**options):
        params = [torch.full((n,), 256.0, dtype=torch.bfloat16, requires_grad=True) for n in sizes]
        group = {"params": params, "rounding_seed": 7}
        optimizer = AggMo([group], lr=1.0, betas=(0.5, 0, 0.5), weights=(0, 1, 0), stochastic_rounding=True, **options)
        for p in params:
            for place in (0, 2):
                optimizer.state[p][f"velocity_{place}"] = torch.full_like(p, 512.0).detach()
        for _ in range(3):
            for p in params:
                p.grad = torch.full_like(p, -0.375)
            optimizer.step()
        return [*params, *(v for p in params for v in optimizer.state[p].values())]

    by_kernel, by_loop = run(fused=True), run(fused=False)
    assert_equal(by_kernel, by_loop)
    assert len({tuple(t.tolist()) for t in by_kernel if t.numel() == 1000}) == 3  # each role draws its own


def test_what_else_is_in_the_group_changes_no_bit(back_end):
    """Oracle: contiguous bfloat16 throughout. The kernel leaves layouts and dtypes among its own to others."""
    shapes = [(300,), (7, 10), (20, 30), (50,), (1,), (20, 30)]

    def run(mixed):
        params = [torch.full(shape, 256.0, dtype=torch.bfloat16) for shape in shapes]
        if mixed:
            params[1] = params[1].float()
            params[2], params[5] = params[2].t().contiguous().t(), params[5].t().contiguous().t()
        optimizer = AggMo([p.requires_grad_() for p in params], lr=1.0, betas=(0,), **back_end)
        for p in params:
            p.grad = torch.full_like(p, -0.75)
        optimizer.step()
        return params[:1] + params[2:]  # without the one of another dtype

    assert_equal(run(mixed=True), run(mixed=False))


def test_bits_look_independent():
    """Oracle: the chi-square distribution of counts, five standard deviations; over roles, keys and neighbours."""
    index = torch.arange(2**17)
    first, others = rounding._random16(1, 0, index), []
    others += [rounding._random16(1, 1, index), rounding._random16(2, 0, index), rounding._random16(1, 0, index + 1)]
    others += [rounding._random16(rounding.step_key(0, 1), 0, index), rounding._random16(1, 0, index + 2**32)]
    for bins, drawn in [
        (256, first >> 8),
        (256, first & 255),
        *((256, (first >> 12) * 16 + (o >> 12)) for o in others),
    ]:
        counts = torch.bincount(drawn, minlength=bins).double()
        expected = len(index) / bins
        chi_square = ((counts - expected) ** 2 / expected).sum().item()
        assert abs(chi_square - (bins - 1)) < 5 * math.sqrt(2 * (bins - 1))


def test_the_bits_depend_on_seed_and_step_and_on_nothing_else(back_end, monkeypatch):
    """Oracle: the same run again; with another seed, after another number of steps, with other threads."""

    def run(seed, steps, threads=1):
        monkeypatch.setattr(fused, "ELEMENTS_FOR_THREADS", 1)
        monkeypatch.setattr(torch, "get_num_threads", lambda: threads)
        p = torch.full((5000,), 256.0, dtype=torch.bfloat16, requires_grad=True)
        optimizer = AggMo([{"params": [p], "rounding_seed": seed}], lr=1.0, betas=(0,), **back_end)
        for _ in range(steps):
            p.data.fill_(256.0)
            p.grad = torch.full_like(p, -1.0)
            optimizer.step()
        return p.detach()

    once = run(0, 1)
    assert torch.equal(once, run(0, 1))
    assert torch.equal(once, run(0, 1, threads=3))
    for other in (run(1, 1), run(0, 2), run(2**40, 1)):
        assert 0.4 < (once != other).double().mean() < 0.6


def test_a_checkpoint_carries_two_integers_and_goes_on_bit_for_bit(back_end):
    """Oracle: the run that was never stopped."""
    params = parameters(torch.bfloat16)
    optimizer = AggMo(params, lr=0.02, **back_end)
    train(optimizer, params, 3)
    saved, twins = copy.deepcopy(optimizer.state_dict()), [p.detach().clone().requires_grad_() for p in params]
    group = saved["param_groups"][0]
    assert (group["rounding_seed"], group["rounding_step"]) == (0, 3)
    twin = AggMo(twins)
    twin.load_state_dict(saved)
    train(twin, twins, 4)
    middle = values(twins)
    train(optimizer, params, 4)
    assert_equal(params, middle)
    for p, q in zip(params, twins, strict=True):
        assert_equal(optimizer.state[p].values(), twin.state[q].values())


@pytest.mark.parametrize(
    ("dtype", "velocity_dtype", "expected"), [("float32", None, 8), ("bfloat16", None, 4), ("float32", "bfloat16", 4)]
)
def test_state_bytes_of_a_parameter(back_end, dtype, velocity_dtype, expected):
    """Oracle: two stored velocities of K = 3, of 4 or 2 bytes each."""
    p = torch.ones(1000, dtype=getattr(torch, dtype), requires_grad=True)
    p.grad = torch.ones_like(p)
    optimizer = AggMo([p], velocity_dtype=velocity_dtype and getattr(torch, velocity_dtype), **back_end)
    optimizer.step()
    assert sum(t.nbytes for t in optimizer.state[p].values()) == expected * 1000


def test_float32_is_left_alone(back_end):
    """Oracle: the same run without it. Only bfloat16 is rounded at random."""
    params, others = parameters(torch.float32), parameters(torch.float32)
    train(AggMo(params, **back_end), params, 4)
    train(AggMo(others, fused=back_end["fused"]), others, 4)
    assert_equal(params, others)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"foreach": True}, "stochastic_rounding=True with foreach=True"),
        ({"differentiable": True}, "stochastic_rounding=True with differentiable=True"),
        ({"rounding_seed": -1}, "rounding_seed=-1"),
        ({"rounding_step": 0.5}, "rounding_step=0.5"),
    ],
    ids=["foreach", "differentiable", "seed", "step"],
)
def test_bad_options_are_refused_by_name(options, message):
    with pytest.raises(ValueError, match=message):
        AggMo([{"params": parameters(), "stochastic_rounding": True, **options}])


@pytest.mark.filterwarnings("ignore:.torch.jit.script_method. is deprecated:DeprecationWarning")
def test_compiling_it_is_refused():
    params = parameters(torch.bfloat16)
    optimizer = AggMo(params, stochastic_rounding=True)
    train(optimizer, params, 1)
    with pytest.raises(Exception, match=r"stochastic_rounding=True: each step has other random bits"):
        torch.compile(optimizer.step, fullgraph=True, backend="eager")()
