"""The one function behind every eigenvalue of momentum on a quadratic, its poles, and its roots.

At curvature lambda a number z is an eigenvalue of the iteration exactly when c(z) = lr * lambda, with

    c(z) = (1 - z) / (z * sum_i w_i / (z - beta_i))

1/c has a pole at each positive beta, and between two neighbouring poles there is always a real root: at most two roots
are not held by a bracket, and Vieta gives them. All is computed in u = 1 - z and distances 1 - beta, so that rates keep
their digits where eigenvalues are close to 1.
"""

import math
from collections.abc import Iterable
from typing import NamedTuple, SupportsFloat

import numpy as np
import numpy.typing as npt
from scipy.optimize import brentq

from aggmo.damping import Damping
from aggmo.theory.arguments import Floats, array


class Poles(NamedTuple):
    """What theta feels of a damping vector: 1/c(z) has a pole at every positive beta that has weight.

        (1 - z) / c(z) = direct + z * sum_i weights_i / (z - beta_i),  beta_i = 1 - distances_i

    `direct` is the weight of beta = 0, the gradient itself; the distances rise. `idle` are betas that are eigenvalues
    at any step: one of weight 0, all but one of several equal ones, and 0.

    >>> Poles(0.0, np.array([0.5]), np.array([1.0]), idle=()).residues
    array([0.5])
    """

    direct: float
    distances: Floats
    weights: Floats
    idle: tuple[float, ...]

    @property
    def total(self) -> float:
        """The sum of the weights, direct included: what (1 - z) / c(z) is far from the poles.

        >>> poles((0, 0.5)).total
        1.0
        """
        return self.direct + math.fsum(self.weights)

    @property
    def residues(self) -> Floats:
        """The a_i = w_i beta_i with which (1 - z) / c(z) = total + sum_i a_i / (z - beta_i).

        >>> poles((0, 0.5)).residues
        array([0.25])
        """
        return self.weights * (1.0 - self.distances)


def poles(damping: Damping | Iterable[SupportsFloat]) -> Poles:
    """The poles of a damping vector: equal betas merged, their weights summed, those of weight 0 left out.

    Args:
        damping: the damping vector, or its betas.

    Raises:
        ValueError: betas that make no damping vector.

    >>> poles(Damping((0, 0.75, 0.5, 0.5, 0.9), weights=(1, 3, 1, 1, 0)))
    Poles(direct=1.0, distances=array([0.25, 0.5 ]), weights=array([3., 2.]), idle=(0.0, 0.5, 0.9))
    """
    damping = Damping.of(damping)
    merged: dict[float, float] = {}
    for beta, weight in zip(damping.betas, damping.weights, strict=True):
        merged[1.0 - beta] = merged.get(1.0 - beta, 0.0) + weight
    distances = sorted(d for d, weight in merged.items() if d < 1.0 and weight * (1.0 - d) > 0.0)
    left, idle = set(distances), []
    for beta in damping.betas:
        if 1.0 - beta in left:
            left.remove(1.0 - beta)
        else:
            idle.append(beta)
    return Poles(merged.get(1.0, 0.0), np.array(distances), np.array([merged[d] for d in distances]), tuple(idle))


def step_at(damping: Damping | Iterable[SupportsFloat], z: npt.ArrayLike) -> Floats:
    """The step lr * lambda at which z is an eigenvalue: the function c(z) from which everything else follows.

        c(z) = (1 - z) / (z * sum_i w_i / (z - beta_i))

    Args:
        damping: the damping vector, or its betas.
        z: real numbers.

    Returns:
        c(z), in the shape of z; 0 at the betas, infinite where the sum is 0.

    Raises:
        ValueError: z that is no finite real number.

    >>> float(step_at((0.5,), -1))  # the stability limit, 2 (1 + beta)
    3.0
    """
    points = array("z", z, "real", lambda _: True)
    p = poles(damping)
    slope = np.full(points.shape, p.direct)
    with np.errstate(divide="ignore"):
        for distance, weight in zip(p.distances, p.weights, strict=True):
            slope = slope + weight * points / ((points - 1.0) + distance)
        return np.asarray((1.0 - points) / slope)[()]


def felt_rate(p: Poles, c: Floats) -> Floats:
    """The rate of what theta feels, for a row of steps: `rate` without the idle eigenvalues, and unchecked.

    >>> felt_rate(poles((0.25, 0.25)), np.array([1.0]))
    array([0.5])
    """
    if not len(p.distances):
        return np.minimum(c * p.total, 2.0 - c * p.total)
    between = _between(p, c)
    total, product = _pair(p, c, between)
    root = 2.0 * np.sqrt(product)
    large = (total + np.sqrt(np.maximum(total - root, 0.0) * (total + root))) / 2.0
    # A complex pair has |z|^2 = 1 - total + product, and 1 - |z| = (1 - |z|^2) / (1 + |z|).
    oscillating = (total - product) / (1.0 + np.sqrt(np.maximum(1.0 - total + product, 0.0)))
    found = np.where(total < root, oscillating, np.minimum(product / large, 2.0 - large))
    return np.minimum(found, between[0]) if len(between) else found


def roots(p: Poles, c: Floats) -> npt.NDArray[np.complex128]:
    """The roots u = 1 - z that theta feels, one column for each of a row of steps, the pair first.

    >>> roots(poles((0.25,)), np.array([2.25]))  # twice z = -1/2
    array([[1.5+0.j],
           [1.5+0.j]])
    """
    if not len(p.distances):
        return (c * p.total).astype(np.complex128)[None]
    between = _between(p, c)
    total, product = _pair(p, c, between)
    root = 2.0 * np.sqrt(product)
    width = np.sqrt(np.abs(total - root) * (total + root))
    large = (total + width) / 2.0
    first = np.where(total < root, (total - 1j * width) / 2.0, product / large)
    return np.concatenate([first[None], np.where(total < root, first.conj(), large)[None], between])


def meeting_steps(p: Poles) -> Floats:
    """The steps at which two roots meet, rising: a pair is complex between the first and second, third and fourth, ...

    These are the values of c at its turning points on the real line where c > 0. With E = W + sum_i a_i (d_i - 2u) /
    (d_i - u)^2, dc/dz = -c^2 E / (1 - z)^2; E tends to minus infinity at every pole, is W > 0 far out and positive at
    z = 1, and monotone outside the poles, so that c turns once on either side. Between two neighbouring poles E has one
    maximum: where it is positive, c turns twice.

    >>> meeting_steps(poles((0.25,)))
    array([0.25, 2.25])
    """
    d = p.distances
    if not len(d):
        return np.empty(0)
    far = 2.0 * d[-1]
    while _turning(p, len(d) - 1, far) < 0.0:
        far *= 2.0
    found = [_turning_point(p, 0, -d[0]), _turning_point(p, len(d) - 1, far)]
    for j in range(len(d) - 1):
        top = _top_of_turning(p, j)
        if top is not None:
            found += [_turning_point(p, j, top - d[j]), _turning_point(p, j + 1, top - d[j + 1])]
    return np.sort(found)


def _turning(p: Poles, j: int, t: float) -> float:
    """E at u = d_j + t, times t^2, which is finite at the pole."""
    d, a = p.distances, p.residues
    others = np.arange(len(d)) != j
    away = (d - d[j])[others] - t
    rest = p.total + float((a[others] * (away - d[j] - t) / away**2).sum())
    return float(t * t * rest - a[j] * (d[j] + 2.0 * t))


def _turning_point(p: Poles, j: int, t: float) -> float:
    """The c at which two eigenvalues meet, on the real line between the j-th pole and d_j + t."""
    root = brentq(lambda x: _turning(p, j, x), 0.0, t, xtol=1e-300, rtol=1e-15)
    away = (p.distances - p.distances[j]) - root
    return float((p.distances[j] + root) / (p.total + (p.residues / away).sum()))


def _top_of_turning(p: Poles, j: int) -> float | None:
    """Where E is highest between the poles j and j + 1, if it is positive there.

    Its slope has the sign of sum_i a_i / (d_i - u)^3, which changes once.
    """
    d, a = p.distances, p.residues
    lower, upper = d[j], d[j + 1]
    others = (np.arange(len(d)) < j) | (np.arange(len(d)) > j + 1)

    def slope(u: float) -> float:
        rest = float((a[others] / (d[others] - u) ** 3).sum())
        return float(rest * ((u - lower) * (upper - u)) ** 3 + a[j + 1] * (u - lower) ** 3 - a[j] * (upper - u) ** 3)

    u = float(brentq(slope, lower, upper, xtol=1e-300, rtol=1e-15))
    return u if lower < u < upper and _turning(p, j, u - lower) > 0.0 else None


def _pair(p: Poles, c: Floats, between: Floats) -> tuple[Floats, Floats]:
    """Sum and product of the two roots that are left, by Vieta; every term is positive, so nothing cancels.

    In u the monic characteristic polynomial has the root sum c W + sum_i d_i and the root product c T prod_i d_i, with
    W the sum of the weights and T the terminal velocity.
    """
    low, above = p.distances[0], p.distances[1:, None]
    terminal = p.total + float((p.residues / p.distances).sum())
    return low + c * p.total + (above - between).sum(axis=0), c * terminal * low * (above / between).prod(axis=0)


def _between(p: Poles, c: Floats) -> Floats:
    """One root u between each two neighbouring distances, by Newton's method inside a bracket.

    The sign of g(u) = u - c (W + sum_i a_i / (d_i - u)) changes across the gap. Multiplied by both adjacent poles it is
    finite there, and with the other poles held fixed a quadratic, whose root is where to begin.
    """
    d, a = p.distances, p.residues
    lower, upper = d[:-1, None], d[1:, None]
    a_lower, a_upper = a[:-1, None], a[1:, None]
    # Divided by 1 + c, so that no step is too large.
    scale, c = 1.0 / (1.0 + c), c / (1.0 + c)
    shape = (len(lower), c.size)
    u = np.broadcast_to((lower + upper) / 2.0, shape)
    gap = upper - lower
    for _ in range(2):
        rest = _without_adjacent(p, u, scale, c)[0]
        half = (c * (a_lower + a_upper) - rest * gap) / 2.0
        root = np.sqrt(np.maximum(half * half + rest * c * a_lower * gap, 0.0))
        with np.errstate(divide="ignore", invalid="ignore"):
            x = np.where(half > 0.0, c * a_lower * gap / (half + root), (root - half) / rest)
        u = np.clip(lower + x, lower, upper)
    low, high = np.broadcast_to(lower, shape), np.broadcast_to(upper, shape)
    moved, done = high - low, np.zeros(shape, bool)
    while not done.all():
        rest, slope = _without_adjacent(p, u, scale, c)
        to_lower, to_upper = lower - u, upper - u
        value = rest * to_lower * to_upper - c * (a_lower * to_upper + a_upper * to_lower)
        derivative = slope * to_lower * to_upper - rest * (to_lower + to_upper) + c * (a_lower + a_upper)
        low, high = np.where(value < 0.0, u, low), np.where(value < 0.0, high, u)
        with np.errstate(divide="ignore", invalid="ignore"):
            newton = u - value / derivative
        distance = np.abs(newton - u)
        inside = (low <= newton) & (newton <= high)
        done |= (inside & (distance <= 1e-12 * u)) | (high - low <= 4e-16 * u) | (value == 0.0)
        middle = np.where(done, u, (low + high) / 2.0)
        following = np.where(inside & (done | (2.0 * distance <= moved)), newton, middle)
        u, moved = following, np.abs(following - u)
    return u


def _without_adjacent(p: Poles, u: Floats, scale: Floats, c: Floats) -> tuple[Floats, Floats]:
    """Value and slope of g, scaled, without the two poles beside each gap: row j lacks poles j and j + 1."""
    value, slope = scale * u - c * p.total, np.broadcast_to(scale, u.shape).copy()
    for i, (distance, residue) in enumerate(zip(p.distances, p.residues, strict=True)):
        for rows in (slice(0, max(i - 1, 0)), slice(i + 1, None)):
            away = distance - u[rows]
            term = c * residue / away
            value[rows] -= term
            slope[rows] -= term / away
    return value, slope
