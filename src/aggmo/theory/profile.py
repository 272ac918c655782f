"""The rate as a function of the step, and what follows for ranges of curvature: the best learning rate."""

import itertools
from collections.abc import Callable

import numpy as np
import numpy.typing as npt
from scipy.interpolate import PchipInterpolator

from aggmo.theory.arguments import Floats
from aggmo.theory.poles import Poles, felt_rate, meeting_steps


class Profile:
    """The rate of what theta feels over all stable steps, in a table made once, with its dips.

    The table is dense where roots meet, for the rate has the shape of a square root there, and it is interpolated in
    the logarithms of step and rate.

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
        self.dips = self.depths = np.empty(0)
        meetings = meeting_steps(p)
        if not len(meetings):
            return
        limit = 2.0 / (p.direct + float((p.weights / (2.0 - p.distances)).sum()))
        marks = np.log([meetings[0] / (2.0 * largest), *meetings, limit])
        nodes = (1.0 - np.cos(np.linspace(0.0, np.pi, points))) / 2.0
        logs = np.concatenate([low + (high - low) * nodes for low, high in itertools.pairwise(marks)])
        logs = logs[np.diff(logs, prepend=-np.inf) > 1e-13]
        self.table = np.exp(logs)
        rates = felt_rate(p, self.table)
        # The rate is 0 at the limit but for rounding.
        self.spline = PchipInterpolator(logs, np.log(np.maximum(rates, 1e-300)))
        self.scan = self.table[self.table >= meetings[0]]
        self._find_dips(rates)

    def best(self, kappa: Floats) -> tuple[Floats, Floats]:
        """The learning rate with the best worst rate over [lr/kappa, lr] for each condition number, and this rate.

        >>> from aggmo.theory.poles import poles
        >>> Profile(poles((0,)), largest=3.0).best(np.array([3.0]))  # gradient descent: 2 / (1 + 1/kappa)
        (array([1.5]), array([0.5]))
        """
        if not len(self.p.distances):
            return 2.0 / (self.p.total * (1.0 + 1.0 / kappa)), 2.0 / (kappa + 1.0)
        which, at = _candidates(self._worst(self._tabulated, self.scan, kappa[:, None]))
        around = self.scan[np.maximum(at - 1, 0)], self.scan[np.minimum(at + 1, len(self.scan) - 1)]
        rate, rounds = (self._computed, 12) if self.exact else (self._tabulated, 6)
        lr, worst = zoom(lambda lr: self._worst(rate, lr, kappa[which]), *around, rounds)
        order = np.lexsort((-worst, which))
        first = order[np.unique(which[order], return_index=True)[1]]
        return lr[first], worst[first]

    def _find_dips(self, rates: Floats) -> None:
        """Where the rate is lower than on both sides, by more than rounding."""
        sides = np.minimum(np.maximum.accumulate(rates), np.maximum.accumulate(rates[::-1])[::-1])
        least = (rates[1:-1] <= rates[:-2]) & (rates[1:-1] <= rates[2:])
        at = 1 + np.flatnonzero(least & (rates < sides * (1.0 - 1e-9))[1:-1])
        if len(at):
            self.dips, negative = zoom(lambda c: -self._computed(c), self.table[at - 1], self.table[at + 1])
            self.depths = -negative

    def _worst(self, rate: Callable[[Floats], Floats], lr: Floats, kappa: Floats) -> Floats:
        """The least rate in [lr/kappa, lr]: at one of the ends or in a dip between them."""
        lowest = lr / kappa
        worst = np.minimum(rate(lr), rate(lowest))
        for dip, depth in zip(self.dips, self.depths, strict=True):
            worst = np.where((lowest < dip) & (dip < lr), np.minimum(worst, depth), worst)
        return worst

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


def _candidates(values: Floats) -> tuple[npt.NDArray[np.intp], npt.NDArray[np.intp]]:
    """Row and column of what may hide the maximum of a row: the middle of its highest points, peaks not 2 % lower."""
    top = values.max(axis=1, keepdims=True)
    padded = np.pad(values, ((0, 0), (1, 1)), constant_values=-np.inf) * (1.0 + 1e-9)
    peak = (values > padded[:, :-2]) & (values > padded[:, 2:]) & (values >= 0.98 * top)
    for row, highest in zip(peak, values >= top * (1.0 - 1e-10), strict=True):
        ties = np.flatnonzero(highest)
        row[ties[len(ties) // 2]] = True
    rows, columns = np.nonzero(peak)
    return rows, columns
