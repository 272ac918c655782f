"""Learning rate schedules as functions of the past: from the validation scores so far to the next epoch's factor.

A schedule has no state of its own, so a checkpoint has none to keep. Scores are lower for better; a metric that is to
be large enters with its sign turned. Any function of that form is a schedule; those of the paper are here.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from aggmo.theory.arguments import number, whole

Schedule = Callable[[Sequence[float]], float]


@dataclass(frozen=True, slots=True)
class Constant:
    """The learning rate as it is.

    >>> Constant()([0.5, 0.4])
    1.0
    """

    def __call__(self, _scores: Sequence[float]) -> float:
        """The factor after these scores."""
        return 1.0


@dataclass(frozen=True, slots=True)
class Milestones:
    """The learning rate times `factor` for each milestone passed, a milestone being a number of epochs.

    Args:
        epochs: the milestones, >= 1, ascending.
        factor: > 0, finite.

    Raises:
        ValueError: an argument out of range.

    >>> [Milestones((1, 3), factor=0.5)([0.0] * epochs) for epochs in range(5)]
    [1.0, 0.5, 0.5, 0.25, 0.25]
    """

    epochs: tuple[int, ...]
    factor: float = 0.1

    def __post_init__(self) -> None:
        if isinstance(self.epochs, str) or not isinstance(self.epochs, Sequence) or not self.epochs:
            raise ValueError(f"epochs={self.epochs!r}: must be numbers of epochs, like (200, 400)")
        epochs = tuple(whole(f"epochs[{i}]", epoch, least=1) for i, epoch in enumerate(self.epochs))
        if list(epochs) != sorted(set(epochs)):
            raise ValueError(f"epochs={epochs}: must ascend")
        object.__setattr__(self, "epochs", epochs)
        object.__setattr__(self, "factor", number("factor", self.factor, "> 0", lambda x: 0 < x < math.inf))

    def __call__(self, scores: Sequence[float]) -> float:
        """The factor after these scores."""
        return self.factor ** sum(epoch <= len(scores) for epoch in self.epochs)


@dataclass(frozen=True, slots=True)
class Plateau:
    """The learning rate times `factor` whenever `patience` epochs have passed without a better score.

    The count begins anew with each better score and each reduction.

    Args:
        patience: the number of epochs, >= 1.
        factor: > 0, finite.

    Raises:
        ValueError: an argument out of range.

    >>> scores = [3.0, 2.0, 2.0, 2.5, 1.0, 1.0]
    >>> [Plateau(patience=2, factor=0.5)(scores[:epochs]) for epochs in range(7)]
    [1.0, 1.0, 1.0, 1.0, 0.5, 0.5, 0.5]
    """

    patience: int = 15
    factor: float = 0.5

    def __post_init__(self) -> None:
        object.__setattr__(self, "patience", whole("patience", self.patience, least=1))
        object.__setattr__(self, "factor", number("factor", self.factor, "> 0", lambda x: 0 < x < math.inf))

    def __call__(self, scores: Sequence[float]) -> float:
        """The factor after these scores."""
        best, waited, reductions = math.inf, 0, 0
        for score in scores:
            if score < best:
                best, waited = score, 0
            else:
                waited += 1
            if waited == self.patience:
                waited, reductions = 0, reductions + 1
        return self.factor**reductions


_KINDS: dict[str, type[Constant | Milestones | Plateau]] = {
    "constant": Constant,
    "milestones": Milestones,
    "plateau": Plateau,
}


def as_plain(schedule: Constant | Milestones | Plateau) -> dict[str, Any]:
    """The schedule as a dict that JSON can hold.

    >>> as_plain(Plateau(15, 0.5))
    {'kind': 'plateau', 'patience': 15, 'factor': 0.5}
    """
    kind = next(kind for kind, cls in _KINDS.items() if type(schedule) is cls)
    return {"kind": kind, **asdict(schedule)}


def from_plain(plain: Mapping[str, Any]) -> Constant | Milestones | Plateau:
    """The schedule that `as_plain` described.

    Raises:
        ValueError: not such a dict, or arguments out of range.

    >>> from_plain({"kind": "milestones", "epochs": [150, 250], "factor": 0.1})
    Milestones(epochs=(150, 250), factor=0.1)
    """
    if isinstance(plain, Mapping):
        options = {name: value for name, value in plain.items() if name != "kind"}
        try:
            return _KINDS[plain["kind"]](**options)
        except (KeyError, TypeError):  # no such kind, or arguments that it does not take
            pass
    raise ValueError(f"schedule={plain!r}: must be a dict with a kind out of {list(_KINDS)} and its arguments")
