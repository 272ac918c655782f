"""A setting: the optimizer of a trial, its learning rate and damping, and what differs from the task's own settings."""

import json
import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Self, SupportsFloat

from aggmo.damping import Damping
from aggmo.lab.optimizers import BETAS
from aggmo.lab.schedule import Constant, Milestones, Plateau, as_plain, from_plain
from aggmo.lab.task import check_options
from aggmo.theory.arguments import number


@dataclass(frozen=True, init=False, slots=True)
class Setting:
    """An optimizer with its numbers: frozen, hashable, and the same after a way through JSON.

    Args:
        optimizer: "sgd", "nt-asgd", "cm", "nesterov", "adam" or "aggmo".
        lr: the learning rate, finite and > 0.
        betas: the dampings: one for "cm" and "nesterov", one or two for "adam" (the second is .999 by default), any
            number of them or a `Damping` for "aggmo", none for "sgd" and "nt-asgd". None takes the usual ones.
        weights: the weights of AggMo's velocities; 1/K each if None.
        overrides: what replaces the task's own value: `epochs`, `batch_size`, `schedule` (a `Constant`, `Milestones` or
            `Plateau`), `clip` (None turns clipping off), `weight_decay` or `patience`.

    Raises:
        ValueError: an unknown name, or a number out of range.

    >>> setting = Setting("aggmo", lr=0.1, epochs=3, clip=None)
    >>> setting.betas, dict(setting.overrides)
    ((0.0, 0.9, 0.99), {'clip': None, 'epochs': 3})
    >>> setting == Setting.from_json(setting.to_json())
    True
    >>> Setting("momentum", lr=0.1)
    Traceback (most recent call last):
        ...
    ValueError: optimizer='momentum': must be one of sgd, nt-asgd, cm, nesterov, adam, aggmo
    """

    optimizer: str
    lr: float
    betas: tuple[float, ...]
    weights: tuple[float, ...] | None
    overrides: tuple[tuple[str, Any], ...]

    def __init__(
        self,
        optimizer: str,
        lr: float,
        betas: Iterable[SupportsFloat] | Damping | None = None,
        weights: Iterable[SupportsFloat] | None = None,
        **overrides: Any,
    ) -> None:
        if not isinstance(optimizer, str) or optimizer not in BETAS:
            raise ValueError(f"optimizer={optimizer!r}: must be one of {', '.join(BETAS)}")
        checked = _betas(optimizer, betas, weights)
        object.__setattr__(self, "optimizer", optimizer)
        object.__setattr__(self, "lr", number("lr", lr, "> 0 and finite", lambda x: 0.0 < x < math.inf))
        object.__setattr__(self, "betas", checked[0])
        object.__setattr__(self, "weights", checked[1])
        object.__setattr__(self, "overrides", _overrides(overrides))

    def to_json(self) -> str:
        """The setting as JSON, the same text for equal settings.

        >>> Setting("cm", lr=0.1, betas=(0.5,)).to_json()
        '{"betas": [0.5], "lr": 0.1, "optimizer": "cm", "overrides": {}, "weights": null}'
        """
        overrides = dict(self.overrides)
        if "schedule" in overrides:
            overrides["schedule"] = as_plain(overrides["schedule"])
        plain = {
            "optimizer": self.optimizer,
            "lr": self.lr,
            "betas": self.betas,
            "weights": self.weights,
            "overrides": overrides,
        }
        return json.dumps(plain, sort_keys=True)

    @classmethod
    def from_json(cls, text: str) -> Self:
        """The setting that `to_json` wrote.

        Raises:
            ValueError: not such a text, or as `Setting`.

        >>> Setting.from_json('{"optimizer": "sgd", "lr": 0.5}')
        Setting(optimizer='sgd', lr=0.5, betas=(), weights=None, overrides=())
        """
        try:
            plain = dict(json.loads(text))
            overrides = dict(plain.pop("overrides", {}))
            if "schedule" in overrides:
                overrides["schedule"] = from_plain(overrides["schedule"])
            return cls(**plain, **overrides)
        except TypeError:
            raise ValueError(
                f"setting {text}: must be a JSON object with optimizer, lr, betas, weights, overrides"
            ) from None


def _overrides(options: dict[str, Any]) -> tuple[tuple[str, Any], ...]:
    """The options in their usual form, and in order; a schedule has to be one that JSON can hold."""
    checked = check_options(options)
    if not isinstance(checked.get("schedule", Constant()), Constant | Milestones | Plateau):
        raise ValueError(f"schedule={options['schedule']!r}: must be a Constant, Milestones or Plateau")
    return tuple(sorted(checked.items()))


def _betas(
    optimizer: str, betas: Iterable[SupportsFloat] | Damping | None, weights: Iterable[SupportsFloat] | None
) -> tuple[tuple[float, ...], tuple[float, ...] | None]:
    """Betas and weights in the form in which equal ones are equal."""
    usual = BETAS[optimizer]
    if optimizer == "aggmo":
        damping = Damping.of(usual if betas is None else betas, weights)
        equal = damping.weights == (1.0 / len(damping),) * len(damping)
        return damping.betas, None if equal else damping.weights
    if weights is not None:
        raise ValueError(f"weights={weights!r}: only aggmo has weights, not {optimizer}")
    if isinstance(betas, Damping):
        raise ValueError(f"betas={betas!r}: only aggmo takes a Damping, not {optimizer}")
    if betas is None:
        return usual, None
    if not usual:
        if isinstance(betas, tuple | list) and not betas:
            return (), None
        raise ValueError(f"betas={betas!r}: {optimizer} takes none")
    own = Damping(betas).betas
    if len(own) > len(usual):
        raise ValueError(f"betas={own}: {optimizer} takes at most {len(usual)}")
    return own + usual[len(own) :], None
