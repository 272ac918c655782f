"""Arguments checked at the boundary of `aggmo.theory`: an error names the argument, its value and what is allowed."""

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]


def number(name: str, value: Any, allowed: str, inside: Callable[[float], bool]) -> float:
    """The value as a float, if it is a number and inside; `inside` has to refuse NaN and, where it must, infinity.

    Raises:
        ValueError: it is not; True and "0.1" are no numbers.

    >>> number("alpha", 2, "> 0", lambda x: x > 0)
    2.0
    >>> number("alpha", -2, "> 0", lambda x: x > 0)
    Traceback (most recent call last):
        ...
    ValueError: alpha=-2: must be a number > 0
    """
    if isinstance(value, int | float | np.integer | np.floating) and not isinstance(value, bool):
        try:
            if inside(float(value)):
                return float(value)
        except OverflowError:  # a whole number beyond all floats
            pass
    raise ValueError(f"{name}={value!r}: must be a number {allowed}")


def whole(name: str, value: Any, least: int) -> int:
    """The value as an int, if it is a whole number and at least that.

    Raises:
        ValueError: it is not; True and 3.0 are no whole numbers.

    >>> whole("rounds", 3, least=1)
    3
    >>> whole("rounds", 0, least=1)
    Traceback (most recent call last):
        ...
    ValueError: rounds=0: must be a whole number >= 1
    """
    if isinstance(value, int | np.integer) and not isinstance(value, bool) and value >= least:
        return int(value)
    raise ValueError(f"{name}={value!r}: must be a whole number >= {least}")


def array(name: str, values: npt.ArrayLike, allowed: str, inside: Callable[[Floats], bool]) -> Floats:
    """The values as an array of floats, if they are finite numbers and inside, which is asked about the whole array.

    Raises:
        ValueError: they are not.

    >>> array("lr", [1, 2], "> 0", lambda lr: (lr > 0).all())
    array([1., 2.])
    >>> array("lr", [1, np.nan], "> 0", lambda lr: (lr > 0).all())
    Traceback (most recent call last):
        ...
    ValueError: lr=[1, nan]: must be finite and > 0
    """
    try:
        found = np.asarray(values)
    except ValueError:  # lists of different lengths
        found = np.empty(0, object)
    if found.dtype.kind in "iuf":
        floats = found.astype(np.float64)
        if np.isfinite(floats).all() and inside(floats):
            return floats
    shown = repr(values)
    raise ValueError(f"{name}={shown if len(shown) < 200 else shown[:200] + ' ...'}: must be finite and {allowed}")
