"""Online convex problems: a loss in every round, known only once the point is chosen.

    f_t(theta) = sum_r loss(a_tr . theta - b_tr),  t = 1 ... T,  over the box |theta_j| <= radius or the whole space

with features a_tr and targets b_tr. The losses of one number z are its square, its absolute value, the logistic and z
itself; they are made by `squares`, `absolute`, `logistic`, `linear`, and `periodic` is the linear problem on which Adam
fails.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from scipy import sparse
from scipy.optimize import linprog, lsq_linear
from scipy.special import expit

from aggmo.theory.arguments import Floats, array, number, whole

Scalar = Callable[[Floats], Floats]  # a function of one number, applied to each
Minimizer = Callable[[Floats, Floats, float], Floats]  # of features, targets and radius, all rounds in one


class Loss(NamedTuple):
    """A convex function of one number, a subgradient of it, and how to minimize a sum of it over a box.

    >>> float(SQUARE.value(np.array(3.0))), float(SQUARE.slope(np.array(3.0)))
    (4.5, 3.0)
    """

    value: Scalar
    slope: Scalar
    minimize: Minimizer


@dataclass(frozen=True, eq=False)
class Problem:
    """T rounds of losses; made by the functions of this module, which check what they are given.

    Attributes:
        features: the a_tr, of shape (T, rows, d).
        targets: the b_tr, of shape (T, rows).
        loss: of one number.
        radius: half the side of the box around 0, infinite for the whole space.

    >>> problem = squares([[[1, 0], [0, 2]]], [[0, 1]])  # f_1 = x^2/2 + (2y - 1)^2/2
    >>> problem.rounds, problem.losses([1, 1]), problem.gradient(0, [1, 1])
    (1, array([1.]), array([1., 2.]))
    """

    features: Floats
    targets: Floats
    loss: Loss
    radius: float

    @property
    def rounds(self) -> int:
        """T.

        >>> periodic(rounds=6).rounds
        6
        """
        return len(self.features)

    def losses(self, points: npt.ArrayLike) -> Floats:
        """What every round costs, of shape (T, ...), at points of shape (T, ..., d), or at one point for all rounds.

        >>> periodic(rounds=3).losses([[0.5], [-1], [1]])
        array([ 1.5,  1. , -1. ])
        >>> periodic(rounds=3).losses([-1])
        array([-3.,  1.,  1.])
        """
        chosen = np.asarray(points, np.float64)
        if chosen.ndim == 1:
            chosen = np.broadcast_to(chosen, (self.rounds, len(chosen)))
        margins = np.einsum("trd,t...d->tr...", self.features, chosen)
        targets = self.targets.reshape(*self.targets.shape, *(1,) * (chosen.ndim - 2))
        values: Floats = self.loss.value(margins - targets).sum(axis=1)
        return values

    def gradient(self, t: int, points: npt.ArrayLike) -> Floats:
        """A subgradient of the loss of round t, counted from 0, at each point.

        >>> periodic(rounds=3, c=4).gradient(0, [[0.5], [-1]])
        array([[4.],
               [4.]])
        """
        margins = np.asarray(points) @ self.features[t].T - self.targets[t]
        gradient: Floats = self.loss.slope(margins) @ self.features[t]
        return gradient

    def project(self, points: Floats) -> Floats:
        """The nearest point of the domain to each point.

        >>> periodic(rounds=3).project(np.array([-1.5, 0.5]))
        array([-1. ,  0.5])
        """
        return np.clip(points, -self.radius, self.radius)

    def best(self) -> Floats:
        """The theta* of the regret: where the sum of all rounds is least on the domain.

        Raises:
            ValueError: the solver did not find it.

        >>> periodic(rounds=3).best()
        array([-1.])
        """
        d = self.features.shape[-1]
        return self.loss.minimize(self.features.reshape(-1, d), self.targets.reshape(-1), self.radius)


def squares(features: npt.ArrayLike, targets: npt.ArrayLike, radius: float | None = None) -> Problem:
    """Quadratics: f_t = sum_r (a_tr . theta - b_tr)^2 / 2.

    Args:
        features: the a_tr, of shape (T, rows, d).
        targets: the b_tr, of shape (T, rows).
        radius: half the side of the box, > 0, or None for the whole space.

    Raises:
        ValueError: an argument not as described.

    >>> squares([[[1]], [[1]]], [[0], [1]]).best()  # the mean of 0 and 1
    array([0.5])
    """
    return _problem(features, targets, radius, SQUARE)


def absolute(features: npt.ArrayLike, targets: npt.ArrayLike, radius: float | None = None) -> Problem:
    """The absolute loss: `f_t = sum_r |a_tr . theta - b_tr|`.

    Args:
        features: the a_tr, of shape (T, rows, d).
        targets: the b_tr, of shape (T, rows).
        radius: half the side of the box, > 0, or None for the whole space.

    Raises:
        ValueError: an argument not as described.

    >>> absolute([[[1]], [[1]], [[1]]], [[0], [1], [5]]).best()  # the median
    array([1.])
    """
    return _problem(features, targets, radius, ABSOLUTE)


def logistic(features: npt.ArrayLike, labels: npt.ArrayLike, radius: float) -> Problem:
    """Logistic regression: f_t = sum_r log(1 + exp(-y_tr a_tr . theta)).

    Args:
        features: the a_tr, of shape (T, rows, d).
        labels: the y_tr, each 1 or -1, of shape (T, rows).
        radius: half the side of the box, > 0; without one there may be no minimum.

    Raises:
        ValueError: an argument not as described.

    >>> problem = logistic([[[2]], [[1]]], [[1], [-1]], radius=1)
    >>> problem.gradient(0, [0])  # -2 / (1 + exp(0))
    array([-1.])
    """
    a = _features(features)
    y = array(
        "labels", labels, "1 or -1, one for each row of the features", lambda y: y.shape == a.shape[:2] and _signs(y)
    )
    return Problem(-y[..., None] * a, np.zeros_like(y), LOGISTIC, _radius(radius))


def linear(features: npt.ArrayLike, radius: float) -> Problem:
    """Linear losses: f_t = sum_r a_tr . theta.

    Args:
        features: the a_tr, of shape (T, rows, d).
        radius: half the side of the box, > 0; without one there is no minimum.

    Raises:
        ValueError: an argument not as described.

    >>> linear([[[3, -1]], [[-2, -1]]], radius=2).best()  # the sum is x - 2y
    array([-2.,  2.])
    """
    a = _features(features)
    return Problem(a, np.zeros(a.shape[:2]), LINEAR, _radius(radius))


def periodic(rounds: int, c: float = 3.0, period: int = 3) -> Problem:
    """The problem on which Adam fails, on [-1, 1] (Reddi, Kale and Kumar, ICLR 2018, theorem 1).

        f_t(x) = c x if t mod period = 1, else -x

    With c > period - 1 the best point is -1, for every number of rounds. The large gradient is rare, so that an
    optimizer which divides by the size of the latest gradients belittles it.

    Args:
        rounds: T, >= 1.
        c: the rare gradient, > period - 1.
        period: >= 2.

    Raises:
        ValueError: an argument out of range.

    >>> [periodic(rounds=4).gradient(t, [0]).item() for t in range(4)]
    [3.0, -1.0, -1.0, 3.0]
    """
    period = whole("period", period, least=2)
    c = number("c", c, f"that is finite and > period - 1 = {period - 1}", lambda x: period - 1 < x < math.inf)
    slopes = np.where(np.arange(whole("rounds", rounds, least=1)) % period == 0, c, -1.0)
    return linear(slopes[:, None, None], radius=1.0)


def _least_absolute(a: Floats, b: Floats, radius: float) -> Floats:
    """A linear programme: the least sum of s with -s <= a theta - b <= s."""
    rows, d = a.shape
    cost = np.concatenate([np.zeros(d), np.ones(rows)])
    slack = -sparse.eye_array(rows)
    table = sparse.vstack([sparse.hstack([a, slack]), sparse.hstack([-a, slack])])
    bounds = [(-radius, radius)] * d + [(0.0, math.inf)] * rows
    found = linprog(cost, A_ub=table, b_ub=np.concatenate([b, -b]), bounds=bounds, method="highs-ipm")
    return _solution(None if found.x is None else found.x[:d], found.success, found.message)


def _least_smooth(loss: Scalar, slope: Scalar, curvature: Scalar) -> Minimizer:
    """For a loss with two derivatives: Newton's method, the quadratic model minimized over the box in every step."""

    def minimizer(a: Floats, b: Floats, radius: float) -> Floats:
        theta, d = np.zeros(a.shape[1]), a.shape[1]
        first = now = loss(-b).sum()
        for _ in range(200):
            margins = a @ theta - b
            gradient, hessian = slope(margins) @ a, (a.T * curvature(margins)) @ a
            ridge = 1e-12 * np.trace(hessian) + np.finfo(float).tiny  # where there is no curvature
            root = np.linalg.cholesky(hessian + ridge * np.eye(d))
            model = np.linalg.solve(root, -gradient)
            step = lsq_linear(root.T, model, (-radius - theta, radius - theta), method="bvls", tol=1e-15).x
            length, fall = 1.0, -gradient @ step
            while length > 1e-9 and loss(a @ (theta + length * step) - b).sum() > now - 1e-4 * length * fall:
                length /= 2.0
            if length > 1e-9:
                theta = np.clip(theta + length * step, -radius, radius)
                now = loss(a @ theta - b).sum()
            if length <= 1e-9 or fall <= 1e-14 * now:  # as far as rounding lets it see
                return _solution(theta, fall <= 1e-9 * now + 1e-18 * first, "Newton's method stopped short")
        return _solution(None, False, "200 steps of Newton's method did not reach it")

    return minimizer


def _least_linear(a: Floats, _: Floats, radius: float) -> Floats:
    """A corner of the box."""
    corner: Floats = -radius * np.sign(a.sum(axis=0))
    return corner


def _solution(theta: Floats | None, found: bool, message: str) -> Floats:
    """The minimum, if the solver says that it is one."""
    if theta is None or not found:
        raise ValueError(f"features: the best point of this problem was not found: {message}")
    return np.asarray(theta, np.float64)


def _half_square(z: Floats) -> Floats:
    """z^2 / 2."""
    return z * z / 2.0


def _softplus(z: Floats) -> Floats:
    """log(1 + e^z)."""
    return np.logaddexp(0.0, z)


def _logistic_curvature(z: Floats) -> Floats:
    """The second derivative of log(1 + e^z)."""
    curvature: Floats = expit(z) * expit(-z)
    return curvature


SQUARE = Loss(_half_square, np.positive, _least_smooth(_half_square, np.positive, np.ones_like))
ABSOLUTE = Loss(np.abs, np.sign, _least_absolute)
LOGISTIC = Loss(_softplus, expit, _least_smooth(_softplus, expit, _logistic_curvature))
LINEAR = Loss(np.positive, np.ones_like, _least_linear)


def _problem(features: npt.ArrayLike, targets: npt.ArrayLike, radius: float | None, loss: Loss) -> Problem:
    """The problem, its arguments checked."""
    a = _features(features)
    b = array("targets", targets, "one for each row of the features", lambda b: b.shape == a.shape[:2])
    return Problem(a, b, loss, math.inf if radius is None else _radius(radius))


def _features(features: npt.ArrayLike) -> Floats:
    """The features, checked."""
    return array("features", features, "of shape (T, rows, d), not empty", lambda a: a.ndim == 3 and a.size > 0)


def _radius(radius: float) -> float:
    """The radius, checked."""
    return number("radius", radius, "that is finite and > 0", lambda x: 0.0 < x < math.inf)


def _signs(labels: Floats) -> bool:
    """Whether every label is 1 or -1."""
    return bool((np.abs(labels) == 1.0).all())
