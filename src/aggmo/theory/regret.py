"""Regret of AggMo in online convex optimization: simulation, Lemma 1 and the bound of theorem 1, printed and proved.

    R(T) = sum_t f_t(theta_t) - f_t(theta*)

The theorem concerns AggMo at learning rate lr / sqrt(t) with betas beta_i lambda^t in round t = 1 ... T; `decay` is
lambda. Every array over rounds has them first, so that `regret` and the bounds are curves: what is at index t - 1 is
meant for T = t. Problems are made in `aggmo.theory.online`.

The bound as printed does not hold, in two ways: see `printed_bound`. `proved_bound` is what the paper's proof gives,
for free weights too, on the whole space or projected onto a convex domain.
"""

import math
from collections.abc import Iterable, Sequence
from typing import NamedTuple, SupportsFloat

import numpy as np
import numpy.typing as npt

from aggmo.damping import Damping
from aggmo.theory.arguments import Floats, array, number
from aggmo.theory.online import Problem


class Run(NamedTuple):
    """What an optimizer did in T rounds: the points it chose and the gradients it was shown there, (T, ..., d) each.

    >>> Run(iterates=np.ones((2, 1)), gradients=np.zeros((2, 1))).iterates.shape
    (2, 1)
    """

    iterates: Floats
    gradients: Floats


class Bound(NamedTuple):
    """A bound on the regret for every T, in its three terms.

    >>> Bound(domain=np.array([1.0]), gradients=np.array([2.0]), momentum=np.array([0.5])).total
    array([3.5])
    """

    domain: Floats
    gradients: Floats
    momentum: Floats

    @property
    def total(self) -> Floats:
        """The bound, which is the sum of the terms.

        >>> Bound(*np.eye(3)).total
        array([1., 1., 1.])
        """
        return self.domain + self.gradients + self.momentum


def aggregated(
    problem: Problem,
    damping: Damping | Iterable[SupportsFloat],
    lr: npt.ArrayLike,
    decay: float,
    start: npt.ArrayLike,
) -> Run:
    """AggMo as in theorem 1, projected onto the problem's domain after every step.

        v_i   <- beta_i lambda^t v_i + g_t
        theta <- project(theta - lr / sqrt(t) * sum_i w_i v_i)

    Args:
        problem: the rounds.
        damping: the damping vector, or its betas.
        lr: the learning rate, > 0; an array for many runs at once.
        decay: the lambda of the betas, 0 < decay <= 1; at 1, which no bound covers, the betas are constant.
        start: theta_1, a point of the domain, or many for many runs, coordinates last.

    Raises:
        ValueError: an argument not as described.

    >>> from aggmo.theory.online import absolute
    >>> problem = absolute([[[1]]] * 3, [[0]] * 3, radius=4)  # |x| three times
    >>> run = aggregated(problem, Damping.classical(0.5), lr=1, decay=0.5, start=[4])
    >>> run.iterates[:2, 0]  # 4 - 1 / sqrt(1)
    array([4., 3.])
    """
    damping = Damping.of(damping)
    lrs, decay, theta = _lr(lr), _decay(decay), _start(problem, start)
    theta = np.broadcast_to(theta, (*np.broadcast_shapes(lrs.shape, theta.shape[:-1]), theta.shape[-1]))
    betas = np.reshape(damping.betas, (-1, *(1,) * theta.ndim))
    velocities = np.zeros((len(damping), *theta.shape))
    run = Run(np.empty((problem.rounds, *theta.shape)), np.empty((problem.rounds, *theta.shape)))
    for t in range(1, problem.rounds + 1):
        gradient = problem.gradient(t - 1, theta)
        run.iterates[t - 1], run.gradients[t - 1] = theta, gradient
        velocities = betas * decay**t * velocities + gradient
        total = np.tensordot(damping.weights, velocities, axes=1)
        theta = problem.project(theta - lrs[..., None] / math.sqrt(t) * total)
    return run


def adam(
    problem: Problem,
    lr: npt.ArrayLike,
    start: npt.ArrayLike,
    betas: Sequence[float] = (0.9, 0.999),
    eps: float = 1e-8,
) -> Run:
    """Adam with its corrections of bias, at learning rate lr / sqrt(t), projected onto the problem's domain.

        m <- beta_1 m + (1 - beta_1) g,  s <- beta_2 s + (1 - beta_2) g^2
        theta <- project(theta - lr / sqrt(t) * m / (1 - beta_1^t) / (sqrt(s / (1 - beta_2^t)) + eps))

    Args:
        problem: the rounds.
        lr: the learning rate, > 0; an array for many runs at once.
        start: theta_1, a point of the domain, or many for many runs, coordinates last.
        betas: beta_1 and beta_2, each in [0, 1).
        eps: > 0.

    Raises:
        ValueError: an argument not as described.

    >>> from aggmo.theory.online import periodic
    >>> adam(periodic(rounds=2), lr=0.5, start=[0]).iterates[:, 0].round(6)  # the first step is lr against the sign
    array([ 0. , -0.5])
    """
    lrs, theta = _lr(lr), _start(problem, start)
    pair = array("betas", list(betas), "two numbers in [0, 1)", lambda b: b.shape == (2,) and _betas(b))
    eps = number("eps", eps, "that is finite and > 0", lambda x: 0.0 < x < math.inf)
    theta = np.broadcast_to(theta, (*np.broadcast_shapes(lrs.shape, theta.shape[:-1]), theta.shape[-1]))
    m = s = np.zeros_like(theta)
    run = Run(np.empty((problem.rounds, *theta.shape)), np.empty((problem.rounds, *theta.shape)))
    for t in range(1, problem.rounds + 1):
        gradient = problem.gradient(t - 1, theta)
        run.iterates[t - 1], run.gradients[t - 1] = theta, gradient
        m = pair[0] * m + (1.0 - pair[0]) * gradient
        s = pair[1] * s + (1.0 - pair[1]) * gradient**2
        step = m / (1.0 - pair[0] ** t) / (np.sqrt(s / (1.0 - pair[1] ** t)) + eps)
        theta = problem.project(theta - lrs[..., None] / math.sqrt(t) * step)
    return run


def regret(problem: Problem, run: Run, best: npt.ArrayLike) -> Floats:
    """The regret against a fixed point, for every T, of shape (T, ...).

    Args:
        problem: the rounds.
        run: what an optimizer did in them.
        best: theta*, `problem.best()` for the regret proper, which then is the last of each curve.

    Raises:
        ValueError: best not a point of d finite coordinates.

    >>> from aggmo.theory.online import periodic
    >>> problem = periodic(rounds=3)
    >>> regret(problem, Run(np.ones((3, 1)), np.zeros((3, 1))), problem.best())  # 3 + 3, -1 - 1, -1 - 1
    array([6., 4., 2.])
    """
    star = problem.losses(_best(run, best))
    losses = problem.losses(run.iterates)
    return np.cumsum(losses - star.reshape(-1, *(1,) * (losses.ndim - 1)), axis=0)


def proved_bound(
    run: Run, best: npt.ArrayLike, damping: Damping | Iterable[SupportsFloat], lr: npt.ArrayLike, decay: float
) -> Bound:
    """The bound on the regret that the proof in appendix C gives, for every T.

        W R(T) <=   D^2 sqrt(T) / (2 lr)
                  + lr sqrt(1 + log T) / 2 * sum_j |g_1:T,j|_4^2 * sum_i w_i (W + beta_i) / (1 - beta_i)^2
                  + D^2 / (2 lr (1 - lambda)^2) * sum_i w_i beta_i

    with W = sum_i w_i, which is 1 for the paper's weights, and `D = max_t |theta_t - theta*|_2`. It holds for every
    fixed point theta* of the domain, and under projection as well.

    Args:
        run: what `aggregated` did.
        best: theta*, of shape (d,).
        damping, lr, decay: what `aggregated` was given, but decay < 1.

    Returns:
        Each term divided by W.

    Raises:
        ValueError: an argument not as described.

    >>> one = Run(np.ones((1, 3)), np.ones((1, 3)))  # |x| + |y| + |z| at (1, 1, 1), one round: R(1) = 3
    >>> proved_bound(one, np.zeros(3), Damping((0,)), lr=1, decay=0.5).total  # 3/2 + 3/2 + 0: attained
    array([3.])
    """
    damping, lrs, decay = Damping.of(damping), _lr(lr), _decay_of_bound(decay)
    star = _best(run, best)
    betas, weights = np.asarray(damping.betas), np.asarray(damping.weights)
    total = weights.sum()
    distance = np.maximum.accumulate(np.linalg.norm(run.iterates - star, axis=-1))
    t = _rounds(distance)
    fourth = np.sqrt(np.cumsum(run.gradients**4, axis=0)).sum(axis=-1)
    damped = float(np.sum(weights * (total + betas) / (1.0 - betas) ** 2))
    return Bound(
        domain=distance**2 * np.sqrt(t) / (2.0 * lrs * total),
        gradients=lrs * np.sqrt(1.0 + np.log(t)) / (2.0 * total) * fourth * damped,
        momentum=distance**2 / (2.0 * lrs * total * (1.0 - decay) ** 2) * float(weights @ betas),
    )


def printed_bound(
    run: Run,
    damping: Damping | Iterable[SupportsFloat],
    lr: npt.ArrayLike,
    decay: float,
    best: npt.ArrayLike | None = None,
) -> Bound:
    """The bound of theorem 1 as printed, for every T. It does not hold.

        R(T) <=   D_inf^2 sqrt(T) / lr
                + lr sqrt(1 + log T) / (2K) * sum_j |g_1:T,j|_4^2 * sum_i (1 + beta_i) / (1 - beta_i)^2
                + D^2 / (2 K lr (1 - lambda)^2) * sum_i beta_i

    D and D_inf are the largest distances between two iterates, in the 2-norm and in the maximum norm. They say nothing
    of how far theta* is, and the bound fails at T = 1 already. With `best`, they are the largest distances between
    iterates and from an iterate to theta*. Then the bound holds for d <= 2, where it is never below `proved_bound`, and
    fails from d = 3 on (see the example), because D_inf^2 was summed over d coordinates without the factor d.

    Args:
        run: what `aggregated` did.
        damping: the damping vector with the paper's weights, 1/K each, or its betas.
        lr, decay: what `aggregated` was given, but decay < 1.
        best: theta*, of shape (d,), or None for the theorem to the letter.

    Raises:
        ValueError: an argument not as described.

    >>> one = Run(np.ones((1, 3)), np.ones((1, 3)))  # |x| + |y| + |z| at (1, 1, 1), one round: R(1) = 3
    >>> printed_bound(one, Damping((0,)), lr=1, decay=0.5, best=np.zeros(3)).total  # 1 + 3/2 + 0
    array([2.5])
    >>> printed_bound(one, Damping((0,)), lr=1, decay=0.5).total  # 0 + 3/2 + 0
    array([1.5])
    """
    damping, lrs, decay = Damping.of(damping), _lr(lr), _decay_of_bound(decay)
    k = len(damping)
    if damping.weights != (1.0 / k,) * k:
        raise ValueError(f"damping={damping}: the theorem is for weights of 1/K each; `proved_bound` takes all")
    between, widest = _diameters(run.iterates)
    if best is not None:
        away = run.iterates - _best(run, best)
        between = np.maximum(between, np.maximum.accumulate(np.linalg.norm(away, axis=-1)))
        widest = np.maximum(widest, np.maximum.accumulate(np.abs(away).max(axis=-1)))
    t, betas = _rounds(between), np.asarray(damping.betas)
    fourth = np.sqrt(np.cumsum(run.gradients**4, axis=0)).sum(axis=-1)
    damped = float(np.sum((1.0 + betas) / (1.0 - betas) ** 2))
    return Bound(
        domain=widest**2 * np.sqrt(t) / lrs,
        gradients=lrs * np.sqrt(1.0 + np.log(t)) / (2.0 * k) * fourth * damped,
        momentum=between**2 / (2.0 * k * lrs * (1.0 - decay) ** 2) * float(betas.sum()),
    )


def lemma(gradients: npt.ArrayLike, damping: Damping | Iterable[SupportsFloat], decay: float) -> tuple[Floats, Floats]:
    """Both sides of Lemma 1 (appendix C), for every T and for every coordinate by itself.

        sum_{t<=T} sum_i v_{i,t}^2 / sqrt(t)  <=  |g_1:T|_4^2 sqrt(1 + log T) sum_i 1 / (1 - beta_i)^2

    Args:
        gradients: of T rounds, of shape (T, ...).
        damping: the damping vector, of which the lemma uses the betas alone, or just these.
        decay: the lambda of the betas beta_i lambda^t, 0 < decay <= 1: the lemma holds for constant betas too.

    Returns:
        The left side and the right side, arrays of the shape of the gradients.

    Raises:
        ValueError: an argument not as described.

    >>> left, right = lemma([3.0, 4.0], Damping((0.5,)), decay=1)  # v = 3, then 0.5 * 3 + 4
    >>> left  # 9, 9 + 5.5^2 / sqrt(2)
    array([ 9.        , 30.38998013])
    >>> right[0]  # 9 / 0.5^2
    np.float64(36.0)
    """
    g = array("gradients", gradients, "of shape (T, ...), not empty", lambda g: g.ndim > 0 and g.size > 0)
    damping, decay = Damping.of(damping), _decay(decay)
    betas = np.reshape(damping.betas, (-1, *(1,) * (g.ndim - 1)))
    velocities, left = np.zeros((len(damping), *g.shape[1:])), np.empty_like(g)
    for t in range(1, len(g) + 1):
        velocities = betas * decay**t * velocities + g[t - 1]
        left[t - 1] = (velocities**2).sum(axis=0) / math.sqrt(t)
    right = np.sqrt(np.cumsum(g**4, axis=0) * (1.0 + np.log(_rounds(g)))) * float(np.sum(1.0 / (1.0 - betas) ** 2))
    return np.cumsum(left, axis=0), right


def _diameters(iterates: Floats) -> tuple[Floats, Floats]:
    """The largest distance between two iterates so far, in the 2-norm and in the maximum norm."""
    latest = np.empty(iterates.shape[:-1])
    for t in range(len(iterates)):
        latest[t] = np.linalg.norm(iterates[: t + 1] - iterates[t], axis=-1).max(axis=0)
    spread = np.maximum.accumulate(iterates) - np.minimum.accumulate(iterates)
    return np.maximum.accumulate(latest), spread.max(axis=-1)


def _rounds(curves: Floats) -> Floats:
    """The numbers 1 ... T along the first axis, to go with arrays of this shape."""
    return np.arange(1.0, len(curves) + 1.0).reshape(-1, *(1,) * (curves.ndim - 1))


def _lr(lr: npt.ArrayLike) -> Floats:
    """The learning rates, checked."""
    return array("lr", lr, "> 0", lambda x: x.size > 0 and bool((x > 0.0).all()))


def _decay(decay: float) -> float:
    """The decay of the betas in a simulation, checked."""
    return number("decay", decay, "in (0, 1]", lambda x: 0.0 < x <= 1.0)


def _decay_of_bound(decay: float) -> float:
    """The decay of the betas in a bound, which divides by 1 - decay, checked."""
    return number("decay", decay, "in (0, 1)", lambda x: 0.0 < x < 1.0)


def _betas(betas: Floats) -> bool:
    """Whether all are dampings."""
    return bool(((betas >= 0.0) & (betas < 1.0)).all())


def _start(problem: Problem, start: npt.ArrayLike) -> Floats:
    """The first point, or several, checked."""
    d = problem.features.shape[-1]
    allowed = f"of shape (..., {d}), no coordinate beyond the radius {problem.radius}"
    return array("start", start, allowed, lambda p: p.shape[-1:] == (d,) and bool((abs(p) <= problem.radius).all()))


def _best(run: Run, best: npt.ArrayLike) -> Floats:
    """The point to compare with, checked."""
    d = run.iterates.shape[-1]
    return array("best", best, f"of shape ({d},)", lambda p: p.shape == (d,))
