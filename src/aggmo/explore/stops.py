"""Where the sliders stop: round numbers, at equal ratios where a quantity spans decades, and what is set now."""

import math
from collections.abc import Iterable

ROUND = (
    1.0,
    1.1,
    1.2,
    1.3,
    1.5,
    1.6,
    1.8,
    2.0,
    2.2,
    2.5,
    2.75,
    3.0,
    3.3,
    3.6,
    4.0,
    4.5,
    5.0,
    5.5,
    6.0,
    6.5,
    7.0,
    8.0,
    9.0,
)


def geometric(low: float, high: float, now: float) -> list[float]:
    """Round numbers from low to high, and the present value.

    >>> geometric(1, 2, now=1.25)
    [1.0, 1.1, 1.2, 1.25, 1.3, 1.5, 1.6, 1.8, 2.0]
    """
    exponents = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    found = (float(f"{m * 10.0**n:.4g}") for n in exponents for m in ROUND)
    return _with(now, (one for one in found if low <= one <= high))


def linear(low: float, high: float, parts: int, now: float) -> list[float]:
    """Equidistant numbers from low to high, and the present value.

    >>> linear(0, 1, parts=4, now=0.1)
    [0.0, 0.1, 0.25, 0.5, 0.75, 1.0]
    """
    return _with(now, (round(low + (high - low) * i / parts, 6) for i in range(parts + 1)))


def dampings(now: float) -> list[float]:
    """Dampings from 0 to 0.9999 whose 1 - beta are round, and the present one.

    >>> {0.0, 0.5, 0.9, 0.99, 0.9999, 0.123} <= set(dampings(now=0.123))
    True
    """
    return _with(now, (round(1.0 - one, 8) for one in geometric(1e-4, 1.0, 1.0)))


def _with(now: float, stops: Iterable[float]) -> list[float]:
    """The stops in order, the present value among them."""
    return sorted({*stops, float(now)})
