"""What the controls of the explorer are set to, and the link that carries it.

A link is the page's address with a query such as `?k=3&a=0.1&lr=0.33`. What it leaves out is as by default; what it has
is checked here, as anybody may have written it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any
from urllib.parse import urlencode

from aggmo.damping import Damping

MOST = 8  # velocities
RANGES = {
    "a": (0.05, 0.95),
    "lr": (1e-5, 10.0),
    "beta": (0.0, 0.9999),
    "curvature": (1e-4, 1.0),
    "kappa": (1.0, 1e7),
    "x": (-3.0, 3.0),
    "y": (-3.0, 3.0),
    "alpha": (0.1, 1000.0),
    "spread": (0.1, 1000.0),
}
WHOLE = {"k": (1, MOST), "steps": (10, 3000)}
ROWS = {"betas": (0.0, 0.9999), "weights": (0.0, 10.0)}
LEAST = 1e-6  # what counts beside 0: of a beta or a weight below, eigenvalues tell nothing
CHOICES = {
    "versus": ("classical", "nesterov"),
    "landscape": ("quadratic", "rosenbrock", "printed", "funnel"),
}


@dataclass(frozen=True)
class Settings:
    """One setting of all controls.

    Args:
        k, a: the damping vector in exponential form.
        betas: the damping vector by hand, instead of k and a.
        weights: one for each velocity; 1/K each if None.
        lr: the learning rate, of every optimizer.
        versus, beta: the comparison, "classical" or "nesterov", and its damping.
        curvature: lambda, of the eigen-direction that is shown large and of the poles.
        kappa: the condition number at which rates are read.
        steps: how long trajectories and paths are.
        landscape, x, y: the 2-D function and the start on it.
        alpha, spread: the Beta distribution of the continuum.

    Raises:
        ValueError: a value out of its range, naming it.

    >>> Settings(k=2).damping.betas
    (0.0, 0.9)
    >>> Settings(lr=-1)
    Traceback (most recent call last):
        ...
    ValueError: lr=-1: must be a number from 1e-05 to 10
    """

    k: int = 3
    a: float = 0.1
    betas: tuple[float, ...] | None = None
    weights: tuple[float, ...] | None = None
    lr: float = 0.33
    versus: str = "classical"
    beta: float = 0.9
    curvature: float = 0.1
    kappa: float = 100.0
    steps: int = 300
    landscape: str = "quadratic"
    x: float = -1.0
    y: float = 1.0
    alpha: float = 100.0
    spread: float = 1.0

    def __post_init__(self) -> None:
        for name, (low, high) in {**RANGES, **WHOLE}.items():
            value = getattr(self, name)
            if not low <= value <= high or (name in WHOLE and value != int(value)):
                kind = "whole number" if name in WHOLE else "number"
                raise ValueError(f"{name}={value!r}: must be a {kind} from {low:g} to {high:g}")
        for name, allowed in CHOICES.items():
            if getattr(self, name) not in allowed:
                raise ValueError(f"{name}={_shown(getattr(self, name))}: must be one of {', '.join(allowed)}")
        for name, (low, high) in ROWS.items():
            row = getattr(self, name)
            if row is not None and not (0 < len(row) <= MOST and all(low <= value <= high for value in row)):
                raise ValueError(f"{name}={_shown(row)}: must be 1 to {MOST} numbers from {low:g} to {high:g}")
            if row is not None and any(0.0 < value < LEAST for value in row):
                raise ValueError(f"{name}={_shown(row)}: must be numbers of at least {LEAST:g}, or 0")
        if 0.0 < self.beta < LEAST:
            raise ValueError(f"beta={self.beta!r}: must be at least {LEAST:g}, or 0")
        _ = self.damping  # which has rules of its own, as for weights

    @property
    def damping(self) -> Damping:
        """The damping vector.

        >>> Settings(betas=(0, 0.5), weights=(1, 0.5)).damping
        Damping(betas=(0.0, 0.5), weights=(1.0, 0.5))
        """
        betas = Damping.exponential(self.k, self.a).betas if self.betas is None else self.betas
        return Damping(betas, self.weights)

    @property
    def rival(self) -> Damping:
        """The comparison as a damping vector.

        >>> Settings(versus="nesterov", beta=0.5).rival
        Damping(betas=(0.0, 0.5), weights=(1.0, 0.5))
        """
        return rival(self.versus, self.beta)


def rival(versus: str, beta: float) -> Damping:
    """The comparison of this kind and damping.

    >>> rival("classical", 0.5)
    Damping(betas=(0.5,), weights=(1.0,))
    """
    return {"classical": Damping.classical, "nesterov": Damping.nesterov}[versus](beta)


def query(settings: Settings) -> str:
    """The query of the link that carries these settings: what is not as by default.

    >>> query(Settings())
    ''
    >>> query(Settings(betas=(0, 0.9), lr=0.1))
    '?betas=0,0.9&lr=0.1'
    """
    found = {}
    for field in fields(settings):
        value = getattr(settings, field.name)
        if value != field.default and not (field.name in ("k", "a") and settings.betas is not None):
            found[field.name] = ",".join(f"{one!r}" for one in value) if isinstance(value, tuple) else str(value)
    return "?" + urlencode(found, safe=",") if found else ""


def read(link: Mapping[str, str | Sequence[str]]) -> Settings:
    """The settings that a link carries.

    Args:
        link: the query by name.

    Raises:
        ValueError: a name that is no setting, or a value that is none for it.

    >>> read({"betas": "0,0.9", "lr": "0.1"}).damping.betas
    (0.0, 0.9)
    >>> read({"lr": "NaN"})
    Traceback (most recent call last):
        ...
    ValueError: lr=nan: must be a number from 1e-05 to 10
    """
    given = {name: _value(name, text) for name, text in link.items()}
    if "betas" in given and given.keys() & {"k", "a"}:
        raise ValueError("betas are given beside k or a: give one of the two forms")
    return replace(Settings(), **given)


def code(settings: Settings) -> str:
    """The line of Python that makes the optimizer for PyTorch.

    >>> code(Settings(lr=0.1))
    'optimizer = AggMo.from_exp_form(model.parameters(), lr=0.1, a=0.1, k=3)'
    >>> code(Settings(lr=0.1, betas=(0, 0.5), weights=(1, 0.5)))
    'optimizer = AggMo(model.parameters(), lr=0.1, betas=(0.0, 0.5), weights=(1.0, 0.5))'
    """
    if settings.betas is None and settings.weights is None:
        return f"optimizer = AggMo.from_exp_form(model.parameters(), lr={settings.lr}, a={settings.a}, k={settings.k})"
    damping = settings.damping
    weights = "" if settings.weights is None else f", weights={damping.weights}"
    return f"optimizer = AggMo(model.parameters(), lr={settings.lr}, betas={damping.betas}{weights})"


def _value(name: str, text: str | Sequence[str]) -> Any:
    """One setting as written in a link."""
    if not isinstance(text, str):
        raise ValueError(f"{_shown(name)} is given {len(text)} times: give it once")
    if name in CHOICES:
        return text
    if name in ROWS:
        return tuple(_number(name, one) for one in text.split(","))
    if name in RANGES:
        return _number(name, text)
    if name in WHOLE:
        value = _number(name, text)
        return int(value) if value.is_integer() else value
    raise ValueError(f"{_shown(name)} is no setting: must be one of {', '.join(f.name for f in fields(Settings))}")


def _number(name: str, text: str) -> float:
    """The number; whether it is in its range is asked by `Settings`."""
    try:
        return float(text)
    except ValueError:
        raise ValueError(f"{name}={_shown(text)}: must be a number") from None


def _shown(value: object) -> str:
    """What was given, not too long for a message."""
    shown = repr(value)
    return shown if len(shown) <= 80 else shown[:80] + "…"
