"""Schedules over damping: every beta as a function of the step, beside any learning rate scheduler.

A rule takes the step t, counted from 1, and a beta as it was when the schedule began, and returns that beta at step t.
"""

from collections.abc import Callable
from numbers import Integral, Real
from typing import Any

from aggmo.damping import Damping
from aggmo.torch.optimizer import AggMo
from aggmo.torch.options import normalize

Rule = Callable[[int, float], float]


class DampingSchedule:
    """Set the betas of every parameter group to beta_i(t) = rule(t, beta_i), to be stepped after the optimizer.

    Velocities of beta 0 take no memory and stay as they are: the rule is for the stored ones. The betas it starts from
    are kept in the groups as `initial_betas`, so that checkpoints of the optimizer carry them; the schedule's own state
    dict carries t. Load the optimizer first, then its schedule.

    Args:
        optimizer: the optimizer.
        rule: the rule, such as `decay(0.999)` or `warmup(1000)`.

    Raises:
        ValueError: not an AggMo, or a rule that leaves [0, 1); the betas stay as they were then.

    >>> import torch
    >>> theta = torch.zeros(1, requires_grad=True)
    >>> optimizer = AggMo([theta], lr=0.1, betas=(0, 0.5))
    >>> schedule = DampingSchedule(optimizer, decay(0.5))
    >>> for _ in range(3):
    ...     print(optimizer.param_groups[0]["betas"])
    ...     theta.square().sum().backward()
    ...     optimizer.step()
    ...     schedule.step()
    (0.0, 0.25)
    (0.0, 0.125)
    (0.0, 0.0625)
    """

    def __init__(self, optimizer: AggMo, rule: Rule) -> None:
        if not isinstance(optimizer, AggMo):
            raise ValueError(f"optimizer is a {type(optimizer).__name__}: must be an AggMo")
        if not callable(rule):
            raise ValueError(f"rule={rule!r}: must be a function of t and beta, such as decay(0.999)")
        self.optimizer = optimizer
        self.rule = rule
        self.t = 1
        self._write(self.t)

    def step(self) -> None:
        """Go to the next step, for parameter groups added since as well.

        Raises:
            ValueError: the rule leaves [0, 1); the betas stay as they were then.

        >>> import torch
        >>> schedule = DampingSchedule(AggMo([torch.zeros(1)], betas=(0.5,)), decay(0.5))
        >>> schedule.step()
        >>> schedule.optimizer.param_groups[0]["betas"]  # 0.5 * 0.5^2
        (0.125,)
        """
        self._write(self.t + 1)
        self.t += 1

    def state_dict(self) -> dict[str, Any]:
        """The step; the rule is made anew, as the optimizer itself is.

        >>> import torch
        >>> DampingSchedule(AggMo([torch.zeros(1)]), decay(0.5)).state_dict()
        {'t': 1}
        """
        return {"t": self.t}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Go on from the step of a state dict.

        Raises:
            ValueError: not the state dict of a schedule.

        >>> import torch
        >>> schedule = DampingSchedule(AggMo([torch.zeros(1)], betas=(0.5,)), decay(0.5))
        >>> schedule.load_state_dict({"t": 3})
        >>> schedule.optimizer.param_groups[0]["betas"]
        (0.0625,)
        """
        t = state_dict.get("t")
        if isinstance(t, bool) or not isinstance(t, int) or t < 1:
            raise ValueError(f"t={t!r} in the state dict: must be a whole number >= 1")
        self._write(t)
        self.t = t

    def _write(self, t: int) -> None:
        """Write the betas of step t into all groups, or into none if one is out of range."""
        betas = []
        for group in self.optimizer.param_groups:
            normalize(group)
            initial = group.get("initial_betas", group["betas"])
            new = [self.rule(t, beta) if i in group["stored"] else beta for i, beta in enumerate(initial)]
            betas.append(Damping(new, group["weights"]).betas)
        for group, now in zip(self.optimizer.param_groups, betas, strict=True):
            group.setdefault("initial_betas", group["betas"])
            group["betas"] = now


def decay(factor: float) -> Rule:
    """The rule of the paper's regret bound (theorem 1): beta_i(t) = beta_i factor^t.

    Raises:
        ValueError: factor outside (0, 1].

    >>> decay(0.5)(3, 0.8)
    0.1
    """
    if not (isinstance(factor, Real) and 0.0 < factor <= 1.0):
        raise ValueError(f"factor={factor!r}: must be in (0, 1]")
    return lambda t, beta: beta * factor**t


def warmup(steps: int) -> Rule:
    """Warm up towards large betas: the terminal velocity 1 / (1 - beta_i) grows linearly from 1, over so many steps.

        1 / (1 - beta_i(t)) = 1 + (1 / (1 - beta_i) - 1) min(1, t / steps)

    Raises:
        ValueError: steps is no whole number >= 1.

    >>> rule = warmup(10)
    >>> rule(3, 0.875), rule(5, 0.75), rule(10, 0.99)  # 1 - 1/3.1, 1 - 1/2.5, and from here on the beta itself
    (0.6774193548387097, 0.6, 0.99)
    """
    if isinstance(steps, bool) or not isinstance(steps, Integral) or steps < 1:
        raise ValueError(f"steps={steps!r}: must be a whole number >= 1")

    def rule(t: int, beta: float) -> float:
        return beta if t >= steps else 1.0 - 1.0 / (1.0 + beta / (1.0 - beta) * t / steps)

    return rule
