"""The paper's test functions, with their gradients and minima.

Each is called on points, an array whose last axis has the coordinates, and gives a value for each point; `gradient`
gives an array of the points' shape. `minimum` is the point where the function is least, `least` its value there.
"""

import math
from dataclasses import dataclass, field
from typing import Self

import numpy as np
import numpy.typing as npt

from aggmo.theory.arguments import Floats, array, number


@dataclass(frozen=True, slots=True)
class Quadratic:
    """The quadratic of appendix A, with A diagonal.

        f(x) = x^T A x = sum_j a_j x_j^2

    Its Hessian is 2 A: the curvatures are twice the eigenvalues. As default the paper's, 1 and 0.001.

    Args:
        eigenvalues: the a_j, > 0, one for each coordinate.

    Raises:
        ValueError: eigenvalues, or later points, that are not as described.

    >>> quadratic = Quadratic((1, 0.5))
    >>> quadratic([1, 2])  # 1 * 1 + 0.5 * 4
    np.float64(3.0)
    >>> quadratic.gradient([[1, 2], [0, 0]])
    array([[2., 2.],
           [0., 0.]])
    """

    eigenvalues: tuple[float, ...] = (1.0, 0.001)

    def __post_init__(self) -> None:
        checked = array("eigenvalues", self.eigenvalues, "> 0, at least one", lambda a: a.ndim == 1 and _positive(a))
        object.__setattr__(self, "eigenvalues", tuple(checked.tolist()))

    def __call__(self, points: npt.ArrayLike) -> Floats:
        """The value at each point."""
        values: Floats = _points(points, len(self.eigenvalues)) ** 2 @ np.asarray(self.eigenvalues)
        return values

    def gradient(self, points: npt.ArrayLike) -> Floats:
        """The gradient at each point: 2 a_j x_j.

        >>> Quadratic((1, 0.5)).gradient([3, 4])
        array([6., 4.])
        """
        return 2.0 * np.asarray(self.eigenvalues) * _points(points, len(self.eigenvalues))

    @property
    def minimum(self) -> tuple[float, ...]:
        """The origin.

        >>> Quadratic().minimum
        (0.0, 0.0)
        """
        return (0.0,) * len(self.eigenvalues)

    @property
    def least(self) -> float:
        """The value at the minimum, 0.

        >>> Quadratic().least
        0.0
        """
        return 0.0


@dataclass(frozen=True, slots=True)
class Rosenbrock:
    """Rosenbrock's function: a valley along the parabola y = x^2, in which the minimum (1, 1) lies.

        f(x, y) = parabola * (y - x^2)^2 + line * (x - 1)^2

    The standard function, which is the default, has 100 and 1. The paper prints them the other way round (appendix A),
    which makes the parabola the flat direction: see `printed`.

    Args:
        parabola, line: the coefficients of the two squares, > 0.

    Raises:
        ValueError: a coefficient, or later points, that are not as described.

    >>> Rosenbrock()([-1, 2])  # 100 * (2 - 1)^2 + (-2)^2
    np.float64(104.0)
    """

    parabola: float = 100.0
    line: float = 1.0
    minimum: tuple[float, float] = field(default=(1.0, 1.0), init=False)
    least: float = field(default=0.0, init=False)

    def __post_init__(self) -> None:
        for name in ("parabola", "line"):
            object.__setattr__(self, name, _positive_number(name, getattr(self, name)))

    @classmethod
    def printed(cls) -> Self:
        """The function as printed in appendix A, (y - x^2)^2 + 100 (x - 1)^2.

        >>> Rosenbrock.printed()([-1, 2])  # (2 - 1)^2 + 100 * (-2)^2
        np.float64(401.0)
        """
        return cls(parabola=1.0, line=100.0)

    def __call__(self, points: npt.ArrayLike) -> Floats:
        """The value at each point."""
        x, y = np.moveaxis(_points(points, 2), -1, 0)
        values: Floats = self.parabola * (y - x**2) ** 2 + self.line * (x - 1.0) ** 2
        return values

    def gradient(self, points: npt.ArrayLike) -> Floats:
        """The gradient at each point.

        >>> Rosenbrock().gradient([-1, 2])  # -400 x (y - x^2) + 2 (x - 1) and 200 (y - x^2)
        array([396., 200.])
        """
        x, y = np.moveaxis(_points(points, 2), -1, 0)
        across = 2.0 * self.parabola * (y - x**2)
        return np.stack([2.0 * self.line * (x - 1.0) - 2.0 * x * across, across], axis=-1)


@dataclass(frozen=True, slots=True)
class Funnel:
    """The toy problem of appendix E: flat regions, and winding funnels whose walls grow steeper with x.

        f(x, y) = log(e^x + e^-x) + b log(e^u + e^-u),  u = e^x (y - sin(a x))

    It is least at (0, 0), with value (1 + b) log 2, not 0. As printed it overflows from u = 710 on; here it is computed
    as `|u| + log(1 + e^-2|u|)`, which is the same and overflows only with f itself.

    Args:
        a: how often the funnels wind, finite.
        b: how much the walls count, > 0.

    Raises:
        ValueError: a or b, or later points, that are not as described.

    >>> funnel = Funnel()
    >>> bool(funnel([0, 0]) == funnel.least == 11 * math.log(2))
    True
    >>> funnel([0, 1000])  # log 2 + 10 * 1000
    np.float64(10000.69314718056)
    """

    a: float = 8.0
    b: float = 10.0
    minimum: tuple[float, float] = field(default=(0.0, 0.0), init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "a", number("a", self.a, "that is finite", math.isfinite))
        object.__setattr__(self, "b", _positive_number("b", self.b))

    @property
    def least(self) -> float:
        """The value at the minimum, (1 + b) log 2.

        >>> round(Funnel(b=10).least, 6)
        7.624619
        """
        return (1.0 + self.b) * math.log(2.0)

    def __call__(self, points: npt.ArrayLike) -> Floats:
        """The value at each point."""
        x, y = np.moveaxis(_points(points, 2), -1, 0)
        with np.errstate(over="ignore"):  # where f itself overflows it is inf
            half = _half_exponential(x)
            u = (y - np.sin(self.a * x)) * half * half
            return _log_two_cosh(x) + self.b * _log_two_cosh(u)

    def gradient(self, points: npt.ArrayLike) -> Floats:
        """The gradient at each point.

            df/dx = tanh(x) + b tanh(u) e^x (y - sin(a x) - a cos(a x)),  df/dy = b tanh(u) e^x

        >>> Funnel().gradient([[0, 0], [0, 1000]])  # tanh(0) + 10 * (1000 - 8) and 10
        array([[   0.,    0.],
               [9920.,   10.]])
        """
        x, y = np.moveaxis(_points(points, 2), -1, 0)
        with np.errstate(over="ignore"):
            half = _half_exponential(x)
            height = y - np.sin(self.a * x)
            wall = self.b * np.tanh(height * half * half) * half
            return np.stack([np.tanh(x) + wall * (height - self.a * np.cos(self.a * x)) * half, wall * half], axis=-1)


def _half_exponential(x: Floats) -> Floats:
    """e^(x/2), to be multiplied in twice: 0 e^x is then 0 where e^x overflows. Exact up to x = 1418."""
    return np.exp(np.minimum(x / 2.0, 709.0))


def _log_two_cosh(u: Floats) -> Floats:
    """log(e^u + e^-u)."""
    return np.abs(u) + np.log1p(np.exp(-2.0 * np.abs(u)))


def _points(points: npt.ArrayLike, coordinates: int) -> Floats:
    """The points as an array, checked."""
    return array("points", points, f"of shape (..., {coordinates})", lambda p: p.shape[-1:] == (coordinates,))


def _positive_number(name: str, value: float) -> float:
    return number(name, value, "that is finite and > 0", lambda x: 0.0 < x < math.inf)


def _positive(values: Floats) -> bool:
    return values.size > 0 and bool((values > 0.0).all())
