"""The largest eigenvalue of a loss's Hessian, and the learning rates that follow from it.

Near its parameters theta a loss is quadratic, with the curvatures that are the eigenvalues of its Hessian there. The
largest of them, its sharpness, limits the learning rate; see the page 'Sharpness' for what becomes of it in training.
"""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, SupportsFloat, TypeVar

import numpy as np
import torch
from torch import Tensor

from aggmo.damping import Damping

Batch = TypeVar("Batch")


def sharpness(
    loss: Callable[[Batch], Tensor],
    params: Iterable[Tensor],
    batches: Iterable[Batch],
    *,
    tolerance: float = 1e-3,
    iterations: int = 200,
    seed: int = 0,
) -> float:
    """The largest eigenvalue of the Hessian of a loss over all data, by the Lanczos method.

        lambda_max of (1/N) sum over batches of n Hessian(loss(batch)),  n examples in the batch, N in all

    An iteration is one Hessian-vector product, which is two passes of gradients over all batches, and the whole takes
    the memory of four vectors of the parameters' size and the graph of one batch. Gradients in `grad` are left alone.
    Every pass begins with the same random state, so that dropout is one fixed mask and not noise; batch normalisation
    in training mode counts the passes in its running statistics.

    Args:
        loss: the mean loss of a batch, a tensor with one element, of the parameters as they are.
        params: the parameters, real; those that do not require gradients are left out.
        batches: the data, to be gone over again and again: a list or a DataLoader. The number of examples of a batch is
            the length of its first tensor.
        tolerance: what the residual of the eigenvalue may be, relative to it, 0 < tolerance < 1; the eigenvalue's own
            error is smaller.
        iterations: when to give up, >= 1.
        seed: of the first vector and of the random state.

    Raises:
        ValueError: no parameters or batches, an option out of range, or second derivatives that are not finite.
        RuntimeError: not converged after so many iterations.

    >>> theta = torch.tensor([1.0, 2.0], dtype=torch.float64, requires_grad=True)
    >>> data = [torch.tensor([[1.0, 0.0], [0.0, 3.0]], dtype=torch.float64)]
    >>> value = sharpness(lambda x: (x @ theta).square().mean(), [theta], data)  # the Hessian is diag(1, 9)
    >>> round(value, 6)
    9.0
    """
    if not 0.0 < tolerance < 1.0:
        raise ValueError(f"tolerance={tolerance!r}: must be in (0, 1)")
    if iterations < 1:
        raise ValueError(f"iterations={iterations!r}: must be at least 1")
    wanted = [p for p in params if p.requires_grad]
    if not wanted:
        raise ValueError("params has no parameter that requires gradients: give at least one")
    if any(p.is_complex() for p in wanted):
        raise ValueError("params has a complex parameter: all must be real")
    data = list(batches) if isinstance(batches, Iterator) else batches
    dtype = max((p.dtype for p in wanted), key=lambda dtype: torch.finfo(dtype).bits)
    generator = torch.Generator().manual_seed(seed)
    size = sum(p.numel() for p in wanted)
    first = torch.randn(size, generator=generator, dtype=torch.float64)
    first = first.to(wanted[0].device, torch.promote_types(dtype, torch.float32))

    def product(vector: Tensor) -> Tensor:
        with _fixed_randomness(wanted, seed):
            return _hessian_vector(loss, wanted, data, vector)

    return _lanczos(product, first, tolerance, iterations)


def largest_lr(betas: Iterable[SupportsFloat] | Damping, sharpness: float) -> float:
    """The learning rate from which on AggMo diverges along the direction of this sharpness.

        lr < stability limit / sharpness = 2 / (sharpness * sum_i w_i / (1 + beta_i))

    For SGD with momentum beta it is the known 2 (1 + beta) / sharpness.

    Args:
        betas: the betas, or a whole `Damping`.
        sharpness: the largest eigenvalue of the Hessian, > 0.

    Raises:
        ValueError: a sharpness that is not positive, or as `Damping`.

    >>> largest_lr(Damping.classical(0.5), sharpness=12)
    0.25
    """
    if not 0.0 < sharpness < math.inf:
        raise ValueError(f"sharpness={sharpness!r}: must be finite and > 0; where no curvature is, no lr is too large")
    damping = Damping.of(betas)
    slowed = math.fsum(w / (1.0 + beta) for beta, w in zip(damping.betas, damping.weights, strict=True))
    return 2.0 / slowed / sharpness  # the product of small ones may be 0


def matching_lr(
    betas: Iterable[SupportsFloat] | Damping, lr: float, momentum: float = 0.0, dampening: float = 0.0
) -> float:
    """The learning rate with which AggMo moves as fast along a constant slope as SGD with its own.

        lr' = lr (1 - dampening) / (1 - momentum) / sum_i w_i / (1 - beta_i)

    It keeps the terminal velocity, as `AggMo.from_sgd` does, with Nesterov's momentum too.

    Args:
        betas: the betas, or a whole `Damping`.
        lr, momentum, dampening: those of `torch.optim.SGD`.

    Raises:
        ValueError: lr negative or not finite, momentum or dampening outside [0, 1), or as `Damping`.

    >>> matching_lr((0, 0.5), lr=0.75, momentum=0.5)  # 1.5 / ((1 + 2) / 2)
    1.0
    """
    if not 0.0 <= lr < math.inf:
        raise ValueError(f"lr={lr!r}: must be finite and >= 0")
    for name, value in (("momentum", momentum), ("dampening", dampening)):
        if not 0.0 <= value < 1.0:
            raise ValueError(f"{name}={value!r}: must be in [0, 1)")
    built_up = (1.0 - dampening) / (1.0 - momentum) if momentum else 1.0
    return lr * built_up / Damping.of(betas).terminal_velocity


def _lanczos(product: Callable[[Tensor], Tensor], start: Tensor, tolerance: float, iterations: int) -> float:
    """The largest eigenvalue of a symmetric operator.

    Vectors are not orthogonalised anew: what is lost then are multiplicities, and none of the largest eigenvalue
    (Paige, 1980). |beta_j s_j| is the residual of the Ritz pair, a bound on the distance to an eigenvalue.
    """
    v, previous = start / start.norm(), torch.zeros_like(start)
    alphas: list[float] = []
    betas: list[float] = []
    for _ in range(iterations):
        w = product(v)
        alphas.append(torch.dot(w, v).item())
        w.sub_(v, alpha=alphas[-1])
        if betas:
            w.sub_(previous, alpha=betas[-1])
        betas.append(w.norm().item())
        if not (math.isfinite(alphas[-1]) and math.isfinite(betas[-1])):
            raise ValueError("the second derivatives of the loss are not finite at these parameters")
        off = betas[:-1]
        values, vectors = np.linalg.eigh(np.diag(alphas) + np.diag(off, 1) + np.diag(off, -1))
        if betas[-1] * abs(vectors[-1, -1]) <= tolerance * abs(values[-1]):
            return float(values[-1])
        previous, v = v, w / betas[-1]
    raise RuntimeError(f"not converged to tolerance={tolerance!r} in iterations={iterations!r}: allow more of either")


def _hessian_vector(
    loss: Callable[[Batch], Tensor], params: Sequence[Tensor], batches: Iterable[Batch], vector: Tensor
) -> Tensor:
    """The Hessian of the mean loss times a vector: the gradient of the gradient along it, batch by batch."""
    pieces = torch.split(vector, [p.numel() for p in params])
    along = [piece.view_as(p).to(p) for piece, p in zip(pieces, params, strict=True)]
    total, examples = torch.zeros_like(vector), 0
    for batch in batches:
        n = _examples(batch)
        with torch.enable_grad():
            slopes = torch.autograd.grad(loss(batch), params, create_graph=True, materialize_grads=True)
            curved = [(slope, v) for slope, v in zip(slopes, along, strict=True) if slope.requires_grad]
        if curved:
            outputs, directions = zip(*curved, strict=True)
            products = torch.autograd.grad(outputs, params, directions, materialize_grads=True)
            total += n * torch.cat([one.detach().reshape(-1).to(vector) for one in products])
        examples += n
    if not examples:
        raise ValueError("batches has no examples: give at least one batch")
    return total / examples


def _examples(batch: Any) -> int:
    """The length of the first tensor in a batch, or in the first of its values."""
    while not isinstance(batch, Tensor):
        if not isinstance(batch, Mapping | Sequence) or isinstance(batch, str) or not batch:
            raise ValueError(f"batches has a {type(batch).__name__} with no tensor in it, so its size is not known")
        batch = next(iter(batch.values())) if isinstance(batch, Mapping) else batch[0]
    return len(batch)


@contextmanager
def _fixed_randomness(params: Sequence[Tensor], seed: int) -> Iterator[None]:
    """The same random numbers in every pass, and those of the caller afterwards."""
    devices = sorted({p.device.index for p in params if p.is_cuda})
    with torch.random.fork_rng(devices=devices):
        torch.manual_seed(seed)
        yield
