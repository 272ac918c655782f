"""The rate as a function of the step, and what follows for ranges of curvature: the best learning rate."""

import itertools
from collections.abc import Callable

import numpy as np
import numpy.typing as npt
from scipy.interpolate import PchipInterpolator

from aggmo.theory.arguments import Floats
from aggmo.theory.poles import Poles, felt_rate, meeting_steps


class Profile:
    """The rate of what theta feels over all stable steps, in a table made once.

    The table is dense where roots meet, for the rate has the shape of a square root there, and it is interpolated in
    the logarithms of step and rate. The rate rises to one maximum, or a range of equal ones, and falls; so the least
    rate over a range of steps is at one of its ends.

    Proof. Let r < 1. The step at which an eigenvalue crosses the circle of radius r at r, or at -r, is c(r), or c(-r):
    one each. A complex pair with real part x crosses where Im c = 0, that is

        sum_i w_i (beta_i - r^2) / (r^2 + beta_i^2 - 2 beta_i x) = 0

    which has at most one solution x: as functions of x the terms have poles beyond r, those of beta > r^2 below
    (1 + r^2) / 2, the negative ones of beta < r^2 above, and a sum of a / (X - x) has no more zeros than its a, ordered
    by X, change their signs. Thus there are at most three crossings, while two separate ranges of steps with all
    eigenvalues inside would take four, for at 0 and far out they are not.

    Args:
        p: the poles of a damping vector.
        largest: the largest condition number that will be asked for.
        points: of the table, for each stretch between steps at which roots meet.
        exact: whether the best learning rate is refined with the rate itself, or with the table.

    >>> from aggmo.theory.poles import poles
    >>> profile = Profile(poles((0.25,)), largest=49.0)
    >>> lr, rate = profile.best(np.array([9.0, 49.0]))
    >>> np.round(rate, 6)
    array([0.5     , 0.068338])
    """

    def __init__(self, p: Poles, largest: float, points: int = 1000, exact: bool = True) -> None:
        self.p, self.exact = p, exact
        meetings = meeting_steps(p)
        if not len(meetings):
            return
        limit = 2.0 / (p.direct + float((p.weights / (2.0 - p.distances)).sum()))
        marks = np.log([meetings[0] / (2.0 * largest), *meetings, limit])
        nodes = (1.0 - np.cos(np.linspace(0.0, np.pi, points))) / 2.0
        logs = np.concatenate([low + (high - low) * nodes for low, high in itertools.pairwise(marks)])
        logs = logs[np.diff(logs, prepend=-np.inf) > 1e-13]
        table = np.exp(logs)
        # The rate is 0 at the limit but for rounding.
        self.spline = PchipInterpolator(logs, np.log(np.maximum(felt_rate(p, table), 1e-300)))
        self.scan = table[table >= meetings[0]]

    def best(self, kappa: Floats) -> tuple[Floats, Floats]:
        """The learning rate with the best worst rate over [lr/kappa, lr] for each condition number, and this rate.

        >>> from aggmo.theory.poles import poles
        >>> Profile(poles((0,)), largest=3.0).best(np.array([3.0]))  # gradient descent: 2 / (1 + 1/kappa)
        (array([1.5]), array([0.5]))
        """
        if not len(self.p.distances):
            return 2.0 / (self.p.total * (1.0 + 1.0 / kappa)), 2.0 / (kappa + 1.0)
        at = _middle_of_highest(_worst(self._tabulated, self.scan, kappa[:, None]))
        around = self.scan[np.maximum(at - 2, 0)], self.scan[np.minimum(at + 2, len(self.scan) - 1)]
        rate, rounds = (self._computed, 12) if self.exact else (self._tabulated, 6)
        return zoom(lambda lr: _worst(rate, lr, kappa), *around, rounds)

    def _computed(self, c: Floats) -> Floats:
        return felt_rate(self.p, c.ravel()).reshape(c.shape)

    def _tabulated(self, c: Floats) -> Floats:
        return np.asarray(np.exp(self.spline(np.log(c))))


def zoom(f: Callable[[Floats], Floats], low: Floats, high: Floats, rounds: int = 12) -> tuple[Floats, Floats]:
    """The maxima of f between low and high, one for each, and f there; each round is eight times narrower.

    >>> at, value = zoom(lambda x: -((x - 3) ** 2), np.array([0.0]), np.array([5.0]))
    >>> np.round(at, 6)
    array([3.])
    """
    parts, each = np.linspace(0.0, 1.0, 17)[:, None], np.arange(len(low))
    for _ in range(rounds):
        x = low + (high - low) * parts
        y = f(x)
        top = y.argmax(axis=0)
        low, high = x[np.maximum(top - 1, 0), each], x[np.minimum(top + 1, 16), each]
    return x[top, each], y[top, each]


def _worst(rate: Callable[[Floats], Floats], lr: Floats, kappa: Floats) -> Floats:
    """The least rate in [lr/kappa, lr], which is at one of the ends."""
    return np.minimum(rate(lr), rate(lr / kappa))


def _middle_of_highest(values: Floats) -> npt.NDArray[np.intp]:
    """The column of the highest value of each row, the one in the middle if there are many."""
    highest = values >= values.max(axis=1, keepdims=True) * (1.0 - 1e-10)
    return np.array([(columns := np.flatnonzero(row))[len(columns) // 2] for row in highest])
