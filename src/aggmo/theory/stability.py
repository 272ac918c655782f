"""Stability of momentum on quadratics: the limit, oscillation, the best learning rate, the best damping.

All of it follows from the function c(z) of `aggmo.theory.poles`: a root moves along the real line or leaves it where c
is steepest, flat or crosses a given step. Rates are 1 - rho, condition numbers kappa mean curvatures in [1/kappa, 1].
"""

import math
from collections.abc import Iterable
from functools import cache
from typing import NamedTuple, SupportsFloat, overload

import numpy as np
import numpy.typing as npt
from scipy.optimize import minimize

from aggmo.damping import MOST, Damping
from aggmo.theory.arguments import Floats, array, number, whole
from aggmo.theory.poles import Poles, meeting_steps, poles
from aggmo.theory.profile import Profile, zoom


def limit(damping: Damping | Iterable[SupportsFloat]) -> float:
    """The step lr * lambda below which momentum converges on a quadratic, and from which on it does not.

        0 < lr * lambda < 2 / sum_i w_i / (1 + beta_i)

    Proof. For a small step the eigenvalues are near the betas and below 1. An eigenvalue z = e^(i phi) of modulus 1 at
    the step c > 0 has sum_i w_i / (1 - beta_i / z) = (1 - z) / c, so this sum times 1 / (1 - z) is real. But

        Im 1 / ((1 - z) (1 - beta / z)) = cot(phi / 2) (1 - beta) / (2 |1 - beta / z|^2)

    has the sign of cot(phi / 2) for every beta, so that cot(phi / 2) = 0: the unit circle is crossed at z = -1 only (z
    = 1 needs c = 0), that is at the step c(-1), the limit. Beyond it nothing crosses back, and one eigenvalue goes to
    minus infinity.

    Args:
        damping: the damping vector, or its betas.

    Raises:
        ValueError: betas that make no damping vector.

    >>> limit((0.5,))  # 2 (1 + beta)
    3.0
    >>> limit(Damping.nesterov(0.5))  # 2 (1 + beta) / (1 + 2 beta)
    1.5
    """
    damping = Damping.of(damping)
    return 2.0 / math.fsum(w / (1.0 + beta) for beta, w in zip(damping.betas, damping.weights, strict=True))


def underdamped(damping: Damping | Iterable[SupportsFloat]) -> tuple[float, float] | None:
    """The steps between which eigenvalues are complex, `real_windows` excepted: appendix C's open question.

        c_low = max of c(z) for max beta < z < 1
        c_high = min of the positive c(z) for z < min positive beta

    over the betas with weight. At steps from c_low to c_high, both ends and the windows excluded, exactly one pair of
    eigenvalues is complex; at all others none is.

    Args:
        damping: the damping vector, or its betas.

    Returns:
        The pair c_low, c_high; None if no beta with weight is positive, as then nothing is ever complex.

    Raises:
        ValueError: betas that make no damping vector.

    >>> underdamped((0.25,))  # (1 - sqrt(beta))^2, (1 + sqrt(beta))^2
    (0.25, 2.25)
    >>> underdamped((0,)) is None
    True
    """
    meetings = meeting_steps(poles(damping))
    return (float(meetings[0]), float(meetings[-1])) if len(meetings) else None


def real_windows(damping: Damping | Iterable[SupportsFloat]) -> tuple[tuple[float, float], ...]:
    """The closed ranges of steps inside `underdamped` in which all eigenvalues are real for a while.

    There is at most one for each two neighbouring positive betas with weight, and the paper's default has none: in a
    window three eigenvalues lie between these two betas. It takes velocities that count little beside those of smaller
    beta, so that the eigenvalue that plain gradient descent would have gets past them.

    Args:
        damping: the damping vector, or its betas.

    Returns:
        The windows (low, high), rising.

    Raises:
        ValueError: betas that make no damping vector.

    >>> real_windows((0, 0.9, 0.99))
    ()
    >>> [(round(low, 4), round(high, 4)) for low, high in real_windows(Damping((0, 0.5, 0.9), (1, 0.01, 0.001)))]
    [(0.1178, 0.4064)]
    """
    inner = meeting_steps(poles(damping))[1:-1].tolist()
    return tuple(zip(inner[::2], inner[1::2], strict=True))


@overload
def best_lr(damping: Damping | Iterable[SupportsFloat], condition_number: float) -> tuple[float, float]: ...
@overload
def best_lr(damping: Damping | Iterable[SupportsFloat], condition_number: npt.ArrayLike) -> tuple[Floats, Floats]: ...
def best_lr(
    damping: Damping | Iterable[SupportsFloat], condition_number: npt.ArrayLike
) -> tuple[float, float] | tuple[Floats, Floats]:
    """The learning rate with the best worst-case rate over all curvatures in [1/kappa, 1], and this rate.

        rate = max over lr of min over 1/kappa <= lambda <= 1 of 1 - rho(lr lambda)

    The least rate is that of an end of [lr/kappa, lr] (`aggmo.theory.profile.Profile` has the proof), so that it rises
    to one maximum and falls. It is scanned over lr, which need not be less than c_low (below, the rate rises), and
    maximised in a bracket around the highest. Where a range of lr does equally well it is one in the middle.

    Args:
        damping: the damping vector, or its betas.
        condition_number: kappa >= 1, a number or an array.

    Returns:
        (lr, rate), of two arrays if condition_number is one. For curvatures up to L, divide lr by L.

    Raises:
        ValueError: a condition number below 1 or not finite.

    >>> lr, rate = best_lr((0.25,), 49)  # overdamped: lr = 2 (1 + beta) / (1 + 1/kappa)
    >>> round(lr, 6), round(rate, 6)  # rho + beta/rho = (1 + beta) (kappa - 1) / (kappa + 1) = 6/5
    (2.45, 0.068338)
    """
    kappa = array("condition_number", condition_number, ">= 1", lambda k: k.size > 0 and bool((k >= 1.0).all()))
    p = poles(damping)
    lr, rate = Profile(p, kappa.max()).best(kappa.ravel())
    rate = np.minimum(rate, _idle_rate(p))
    return (lr.reshape(kappa.shape), rate.reshape(kappa.shape)) if kappa.ndim else (float(lr[0]), float(rate[0]))


def critical_beta(condition_number: float) -> float:
    """The damping with which classical momentum does best at a condition number (appendix B).

        beta* = ((sqrt(kappa) - 1) / (sqrt(kappa) + 1))^2

    Raises:
        ValueError: a condition number below 1 or not finite.

    >>> critical_beta(9)
    0.25
    """
    root = math.sqrt(_condition_number("condition_number", condition_number))
    return ((root - 1.0) / (root + 1.0)) ** 2


class Optimum(NamedTuple):
    """The best of a family at one condition number: its damping, learning rate and rate.

    >>> Optimum(beta=0.25, lr=2.25, rate=0.5).rate
    0.5
    """

    beta: float
    lr: float
    rate: float


def classical_optimum(condition_number: float) -> Optimum:
    """The best that classical momentum can do for curvatures in [1/kappa, 1], in closed form.

        beta = critical_beta(kappa),  lr = 4 / (1 + 1/sqrt(kappa))^2,  rate = 2 / (sqrt(kappa) + 1)

    Raises:
        ValueError: a condition number below 1 or not finite.

    >>> classical_optimum(9)
    Optimum(beta=0.25, lr=2.25, rate=0.5)
    """
    root = math.sqrt(_condition_number("condition_number", condition_number))
    return Optimum(critical_beta(condition_number), 4.0 / (1.0 + 1.0 / root) ** 2, 2.0 / (root + 1.0))


def nesterov_optimum(condition_number: float) -> Optimum:
    """The best that Nesterov momentum can do for curvatures in [1/kappa, 1] (Lessard, Recht and Packard, 2016).

        beta = (s - 2) / (s + 2),  lr = 4 / (3 + 1/kappa),  rate = 2 / s,  s = sqrt(3 kappa + 1)

    Raises:
        ValueError: a condition number below 1 or not finite.

    >>> nesterov_optimum(5)
    Optimum(beta=0.3333333333333333, lr=1.25, rate=0.5)
    """
    kappa = _condition_number("condition_number", condition_number)
    s = math.sqrt(3.0 * kappa + 1.0)
    return Optimum((s - 2.0) / (s + 2.0), 4.0 / (3.0 + 1.0 / kappa), 2.0 / s)


def slowdown(damping: Damping | Iterable[SupportsFloat], low: float, high: float) -> float:
    """By what factor the rate falls behind the optimum of classical momentum, at the worst of a range of kappa.

        max over low <= kappa <= high of classical_optimum(kappa).rate / best_lr(damping, kappa) rate

    Each condition number has its best learning rate, the damping is the same for all.

    Args:
        damping: the damping vector, or its betas.
        low, high: the range of condition numbers, 1 <= low <= high.

    Raises:
        ValueError: a range that is none.

    >>> round(slowdown((0, 0.9, 0.99), 10, 1e4), 2)
    8.89
    """
    low, high = _range(low, high)
    p = poles(damping)
    profile = Profile(p, high)

    def behind(log_kappa: Floats) -> Floats:
        kappa = np.exp(log_kappa)
        rate = np.minimum(profile.best(kappa.ravel())[1], _idle_rate(p)).reshape(kappa.shape)
        return 2.0 / (np.sqrt(kappa) + 1.0) / rate

    grid = _log_range(low, high, 32)
    found = behind(grid)
    at = np.flatnonzero(found >= 0.98 * found.max())
    around = grid[np.maximum(at - 1, 0)], grid[np.minimum(at + 1, len(grid) - 1)]
    return float(zoom(behind, *around, rounds=6)[1].max())


def design(low: float, high: float, k: int) -> Damping:
    """The damping vector of k velocities with the least `slowdown` over a range of condition numbers.

    A minimax problem in the logarithms of 1 - beta and in the weights, solved by sequential quadratic programming from
    a start made of the design for k - 1 and one more velocity, in turn beyond and between the others. It is a local
    optimum, the same in every run, and never worse than that for k - 1. A velocity that does not help has weight 0, and
    after it no other is tried. It takes a few seconds for k = 3, and is kept for a second call.

    Args:
        low, high: the range of condition numbers, 1 <= low <= high.
        k: the number of velocities, from 1 to 1000.

    Returns:
        The damping vector, betas rising, weights of sum 1.

    Raises:
        ValueError: a range that is none, or k out of range.

    >>> damping = design(10, 1e4, k=1)
    >>> round(damping.betas[0], 3), round(slowdown(damping, 10, 1e4), 3)
    (0.867, 6.95)
    """
    low, high = _range(low, high)
    if whole("k", k, least=1) > MOST:
        raise ValueError(f"k={k!r}: must be at most {MOST}")
    for velocities in range(1, k):  # each finds the one before it kept
        _design(low, high, velocities)
    return _design(low, high, k)


@cache
def _design(low: float, high: float, k: int) -> Damping:
    """The design for k velocities, from that for one less."""
    kappas = np.exp(_log_range(low, high, 16))
    if k == 1:
        less = padded = Damping((critical_beta(math.sqrt(low * high)),))
        starts = [(1.0 - np.array(less.betas), np.ones(1))]
    else:
        less = _design(low, high, k - 1)
        padded = Damping((0.0, *less.betas), (0.0, *less.weights))
        if 0.0 in less.weights:
            return padded
        d, w = 1.0 - np.array(less.betas[::-1]), np.array(less.weights[::-1])  # distances rise
        places = d[0] / math.e, *np.sqrt(d[1:] * d[:-1]), math.sqrt(d[-1])
        starts = [(np.append(d, place), np.append(0.8 * w, 0.2)) for place in places]
    found = min((_minimax(*start, kappas, tolerance=1e-5) for start in starts), key=lambda one: one[1])[0]
    # From the best once more, for the approximate Hessian of a first run may end it early.
    again = _minimax(1.0 - np.array(found.betas), np.array(found.weights), kappas, tolerance=1e-7)[0]
    return min(padded, found, again, key=lambda damping: slowdown(damping, low, high))


def _minimax(distances: Floats, weights: Floats, kappas: Floats, tolerance: float) -> tuple[Damping, float]:
    """The best damping near a start, and the logarithm of its worst factor at the condition numbers."""
    k, optimum = len(distances), 2.0 / (np.sqrt(kappas) + 1.0)
    bounds = [(-math.log(kappas[-1]) - 3.0, 0.0)] * k + [(0.0, 1.0)] * k
    seen: dict[bytes, Floats] = {}

    def behind(x: Floats) -> Floats:
        """At x = (logarithms of distances, weights, bound)."""
        key = x[:-1].tobytes()
        if key not in seen:
            p = poles(_damping(x[:k], x[k:-1]))
            seen[key] = np.log(optimum / Profile(p, kappas[-1], points=60, exact=False).best(kappas)[1])
        return seen[key]

    def slopes(x: Floats) -> Floats:
        """Of the bound less `behind`, by differences, inwards at the upper end."""
        columns = []
        for i in range(2 * k):
            h = -1e-5 if x[i] + 1e-5 > bounds[i][1] else 1e-5
            moved = x + h * (np.arange(2 * k + 1) == i)
            columns.append((behind(x) - behind(moved)) / h)
        return np.stack([*columns, np.ones(len(kappas))], axis=1)

    start = np.concatenate([np.log(distances), weights, [0.0]])
    start[-1] = behind(start).max()
    one = np.concatenate([np.zeros(k), np.ones(k), [0.0]])
    minimize(
        lambda x: x[-1],
        start,
        jac=lambda _: np.eye(2 * k + 1)[-1],
        bounds=[*bounds, (None, None)],
        constraints=[
            {"type": "ineq", "fun": lambda x: x[-1] - behind(x), "jac": slopes},
            {"type": "eq", "fun": lambda x: one @ x - 1.0, "jac": lambda _: one},
        ],
        method="SLSQP",
        options={"maxiter": 60, "ftol": tolerance},
    )
    x = np.frombuffer(min(seen, key=lambda key: seen[key].max()))
    return _damping(x[:k], x[k:]), float(seen[x.tobytes()].max())


def _damping(logs: Floats, weights: Floats) -> Damping:
    """Betas rising, weights of sum 1; what counts for nothing has weight 0 and beta 0."""
    weights = np.where(weights < 1e-9, 0.0, weights)
    betas = np.where(weights > 0.0, 1.0 - np.exp(np.minimum(logs, 0.0)), 0.0)
    order = np.argsort(betas)
    return Damping(betas[order], (weights / weights.sum())[order])


def _idle_rate(p: Poles) -> float:
    """What the eigenvalues that theta does not feel leave of a rate."""
    return min((1.0 - beta for beta in p.idle), default=math.inf)


def _log_range(low: float, high: float, points: int) -> Floats:
    """Logarithms of numbers from low to high, so many a decade."""
    return np.unique(np.linspace(math.log(low), math.log(high), 2 + round(points * math.log10(high / low))))


def _condition_number(name: str, value: float) -> float:
    return number(name, value, "that is finite and >= 1", lambda kappa: 1.0 <= kappa < math.inf)


def _range(low: float, high: float) -> tuple[float, float]:
    low, high = _condition_number("low", low), _condition_number("high", high)
    if high < low:
        raise ValueError(f"high={high!r}: must be >= low={low!r}")
    return low, high
