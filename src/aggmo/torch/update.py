"""The arithmetic of the step on PyTorch tensors: a for-loop, its foreach twin, and the choice of the C kernel.

The order of operations is that of `aggmo.reference.step`, for every stored velocity and then the parameter theta:

    v_i   <- beta_i v_i + g
    theta <- theta - lr * (w_1 v_1 + ... + w_K v_K)

A velocity that is not stored is the gradient itself. Half-precision parameters are updated in float32 and rounded once.
Gradients are never written to.
"""

from collections.abc import Iterable, Sequence
from itertools import groupby
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.optim.optimizer import _default_to_fused_or_foreach

from aggmo.torch import fused, rounding

# Blocks of this many elements stay in a core's cache while all velocities pass over them. On a core with 2 MB of it, a
# step over 2^26 elements took 213, 175, 155, 156 and 172 ms with 2^14, 2^15, ... 2^18; over 2^21.4 in small ones, 2^17
# was a little faster than 2^16.
BLOCK = 2**17


# A parameter, its gradient, its stored velocities, and the index of its first element among those of its group.
Row = tuple[Tensor, Tensor, list[Tensor], int]


class Options(NamedTuple):
    """What a step needs to know beside its tensors; one beta and one weight for each velocity, stored or not."""

    betas: Sequence[float]
    weights: Sequence[float]
    stored: Sequence[int]
    lr: float | Tensor
    weight_decay: float
    decoupled_weight_decay: bool
    maximize: bool
    differentiable: bool
    inverse_scale: float = 1.0  # of a GradScaler that leaves its scale in the gradients
    rounding_key: int | None = None  # of the random bits, if bfloat16 is rounded at random

    def terms(self) -> "Terms":
        """The velocities in the order in which the step takes them."""
        places: dict[int, int] = {i: place for place, i in enumerate(self.stored)}
        scale = max(self.weights)
        largest = next(i for i, weight in enumerate(self.weights) if weight == scale)
        others = [(w / scale, places.get(i)) for i, w in enumerate(self.weights) if w and i != largest]
        return Terms([(self.betas[i], place) for i, place in places.items()], places.get(largest), others, scale)


class Terms(NamedTuple):
    """Betas and weights with the places of their velocities among the stored ones; None is the gradient itself.

    The step's sum is taken in units of the largest weight, which so needs no multiplication, and begins with it.
    """

    stored: list[tuple[float, int]]  # the betas
    largest: int | None
    others: list[tuple[float, int | None]]  # the weights that are not 0, in units of the largest
    scale: float


def step(
    params: list[Tensor],
    grads: list[Tensor],
    velocities: list[Tensor],
    options: Options,
    *,
    foreach: bool | None,
    plan: fused.Plan | None,
) -> None:
    """Update parameters and velocities in place; `velocities` holds the stored ones, parameter by parameter.

    With a plan, the C kernel takes all tensors to which it applies; the rest is for the loop or foreach, by default
    what is faster on the parameters' devices.
    """
    if plan and fused.step(params, grads, velocities, options, plan):
        return
    if isinstance(options.lr, Tensor) and options.lr.dim() > 0:
        options = options._replace(lr=options.lr.reshape(()))
    left = rows(params, grads, velocities, len(options.stored))
    if plan:
        left = _step_fused(left, options)
    if foreach is None and options.rounding_key is None:
        _, foreach = _default_to_fused_or_foreach(params, options.differentiable, use_fused=False)
    if foreach and torch.compiler.is_compiling() and any(p.is_complex() for p in params):
        foreach = False  # lists of complex tensors are an error in Inductor (torch 2.13)
    terms = options.terms()
    if not foreach:
        for theta, g, row, start in left:
            _step_one(theta, g, row, terms, options, start)
        return
    for members in _alike(left):
        columns = [[row[place] for _, _, row, _ in members] for place in range(len(options.stored))]
        _step_many([theta for theta, *_ in members], [g for _, g, *_ in members], columns, terms, options)


def rows(params: list[Tensor], grads: list[Tensor], velocities: list[Tensor], stored: int) -> list[Row]:
    """Parameter by parameter, the tensors to calculate on; so many velocities are stored of each."""
    found: list[Row] = []
    start = 0
    for i, (p, g) in enumerate(zip(params, grads, strict=True)):
        theta, g, row = _local(p, g, velocities[i * stored : (i + 1) * stored])
        found.append((theta, g, row, start))
        start += theta.numel()
    return found


def _step_fused(rows: list[Row], options: Options) -> list[Row]:
    """Update by the kernel what it can, one dtype after the other; return the rest."""
    rest: list[Row] = []
    at_random = options.rounding_key is not None  # then elements need their own index, which a gap would change
    for members in (list(run) for _, run in groupby(rows, _kind)) if at_random else _alike(rows):
        thetas, gs, velocities, starts = zip(*members, strict=True)
        if fused.step(thetas, gs, [velocity for row in velocities for velocity in row], options, start=starts[0]):
            continue
        rest += [each for each in members if not fused.step([each[0]], [each[1]], each[2], options, start=each[3])]
    return rest


def _alike(rows: list[Row]) -> Iterable[list[Row]]:
    """The rows, together where devices and dtypes are the same."""
    groups: dict[tuple[Any, ...], list[Row]] = {}
    for row in rows:
        groups.setdefault(_kind(row), []).append(row)
    return groups.values()


def _kind(row: Row) -> tuple[Any, ...]:
    """What has to be the same of parameters that are calculated with together."""
    theta, g, velocities, _ = row
    return theta.device, theta.dtype, g.dtype, *(velocity.dtype for velocity in velocities)


def _local(theta: Tensor, g: Tensor, row: list[Tensor]) -> tuple[Tensor, Tensor, list[Tensor]]:
    """The tensors to calculate on: dense gradients, and this process's shard of distributed tensors."""
    if g.layout != torch.strided:
        g = g.to_dense()  # every velocity moves at every element, whichever rows the gradient has
    if theta.dim() == 0 and torch.compiler.is_compiling():
        # Inductor takes a float64 scalar of the CPU for a number, and loses what is written to it (torch 2.13).
        theta, g, row = theta.unsqueeze(0), g.unsqueeze(0), [velocity.unsqueeze(0) for velocity in row]
    if not hasattr(theta, "to_local"):
        return theta, g, row
    if g.placements != theta.placements:  # type: ignore[attr-defined]
        g = g.redistribute(placements=theta.placements)  # type: ignore[attr-defined]
    if not torch.compiler.is_compiling():
        torch.autograd.graph.increment_version([theta, *row])  # autograd watches the wrappers, not the shards
    return theta.to_local(), g.to_local(), [velocity.to_local() for velocity in row]  # type: ignore[attr-defined]


def _step_one(theta: Tensor, g: Tensor, row: list[Tensor], terms: Terms, options: Options, start: int) -> None:
    """One parameter, in blocks that stay in cache where the memory layout allows."""
    untraced = not (options.differentiable or torch.compiler.is_compiling())
    if untraced and theta.numel() > BLOCK and all(t.is_contiguous() for t in (theta, g, *row)):
        blocks = [torch.split(t.view(-1), BLOCK) for t in (theta, g, *row)]
        for i, (theta_block, g_block, *row_block) in enumerate(zip(*blocks, strict=True)):
            _step_block(theta_block, g_block, row_block, terms, options, untraced, start + i * BLOCK)
    else:
        _step_block(theta, g, row, terms, options, untraced, start)


def _step_block(
    theta: Tensor, g: Tensor, row: list[Tensor], terms: Terms, options: Options, untraced: bool, start: int
) -> None:
    """The update: fused multiply-adds in place or, for autograd and the compiler, plain products."""
    wide = _wide(theta, g, row)
    g = _as(wide, g)
    if options.inverse_scale != 1.0:
        g = g * options.inverse_scale
    if options.maximize:
        g = -g
    if options.weight_decay and not options.decoupled_weight_decay:
        g = g + _as(wide, theta) * options.weight_decay
    for beta, place in terms.stored:
        velocity = row[place]
        if options.rounding_key is not None and velocity.dtype == torch.bfloat16:
            new = g + velocity.to(wide) * beta
            velocity.copy_(rounding.to_bfloat16(new, options.rounding_key, place + 1, start))
        elif untraced:
            torch.add(g, velocity, alpha=beta, out=velocity)
        else:
            velocity.copy_(g + velocity.to(wide) * beta)
    total, scale = _sum(g, row, terms, wide), terms.scale
    if options.weight_decay and options.decoupled_weight_decay:
        total, scale = total * scale + _as(wide, theta) * options.weight_decay, 1.0
    if options.rounding_key is not None and theta.dtype == torch.bfloat16:
        moved = theta.to(wide) - total * scale * options.lr
        theta.copy_(rounding.to_bfloat16(moved, options.rounding_key, 0, start))
    elif untraced and not isinstance(options.lr, Tensor):
        theta.add_(total, alpha=-options.lr * scale)
    else:  # a tensor stays on its device, and a number given as `alpha` would be compiled anew at each change
        theta.sub_(total * scale * options.lr)


def _sum(g: Tensor, row: list[Tensor], terms: Terms, wide: torch.dtype) -> Tensor:
    """The weighted sum of all velocities in units of the largest weight; perhaps that velocity itself."""
    total = own = g if terms.largest is None else row[terms.largest]
    total = _as(wide, total)
    for weight, place in terms.others:
        velocity = g if place is None else row[place]
        if total is own:
            total = torch.add(total, velocity, alpha=weight)
        else:
            total.add_(velocity, alpha=weight)
    return total


def _step_many(
    thetas: list[Tensor], gs: list[Tensor], columns: list[list[Tensor]], terms: Terms, options: Options
) -> None:
    """The same for parameters of one device and dtype together; a column is one stored velocity of all of them."""
    wide = _wide(thetas[0], gs[0], [column[0] for column in columns])
    compiling = torch.compiler.is_compiling()  # a number in a foreach operation is compiled anew at each change
    gs = [g.to(wide) for g in gs]
    if options.inverse_scale != 1.0:
        gs = list(torch._foreach_mul(gs, options.inverse_scale))
    if options.maximize:
        gs = list(torch._foreach_neg(gs))
    if options.weight_decay and not options.decoupled_weight_decay:
        if compiling:
            gs = [g + theta.to(wide) * options.weight_decay for g, theta in zip(gs, thetas, strict=True)]
        else:
            gs = list(torch._foreach_add(gs, thetas, alpha=options.weight_decay))
    for beta, place in terms.stored:
        column = columns[place]
        new = [velocity.to(wide) for velocity in column]  # the column itself where this is its dtype
        if compiling:
            new = [velocity * beta for velocity in new]
        else:
            torch._foreach_mul_(new, beta)
        torch._foreach_add_(new, gs)
        if new[0] is not column[0]:
            torch._foreach_copy_(column, new)
    begun, scale = gs if terms.largest is None else columns[terms.largest], terms.scale
    totals = [velocity.to(wide) for velocity in begun]
    for weight, at in terms.others:
        column = gs if at is None else columns[at]
        if totals[0] is begun[0]:
            totals = list(torch._foreach_add(totals, column, alpha=weight))
        else:
            torch._foreach_add_(totals, column, alpha=weight)
    if options.weight_decay and options.decoupled_weight_decay:
        totals, scale = _scaled(totals, begun, scale), 1.0
        if compiling:
            totals = [t + theta.to(wide) * options.weight_decay for t, theta in zip(totals, thetas, strict=True)]
        else:
            torch._foreach_add_(totals, thetas, alpha=options.weight_decay)
    if compiling:
        torch._foreach_sub_(thetas, [total * scale * options.lr for total in totals])
    elif isinstance(options.lr, Tensor):
        totals = _scaled(totals, begun, scale)
        torch._foreach_mul_(totals, options.lr)
        torch._foreach_sub_(thetas, totals)
    else:
        torch._foreach_add_(thetas, totals, alpha=-options.lr * scale)


def _scaled(totals: list[Tensor], velocities: list[Tensor], scale: float) -> list[Tensor]:
    """The sums times a number, in place where they are not the velocities themselves."""
    if totals[0] is velocities[0]:
        return list(torch._foreach_mul(totals, scale))
    torch._foreach_mul_(totals, scale)
    return totals


def _as(dtype: torch.dtype, tensor: Tensor) -> Tensor:
    """The tensor in a dtype; asking first is faster than a conversion that does nothing."""
    return tensor if tensor.dtype == dtype else tensor.to(dtype)


def _wide(theta: Tensor, g: Tensor, row: Sequence[Tensor]) -> torch.dtype:
    """The dtype to calculate in: the widest of the tensors', at least float32."""
    dtype = theta.dtype
    for tensor in (g, *row):
        if tensor.dtype != dtype:
            dtype = torch.promote_types(dtype, tensor.dtype)
    return torch.float32 if dtype in (torch.bfloat16, torch.float16) else dtype
