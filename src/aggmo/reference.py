"""The paper's update in NumPy, written to be read. Every implementation is tested against it.

Stored velocities accumulate +gradient and the step subtracts, as in `torch.optim.SGD`; the paper has both signs turned.
The order of operations is part of the contract: the C kernel of `aggmo.torch` repeats it bit for bit.
"""

from collections.abc import Sequence

import numpy as np

from aggmo.damping import Damping


def step(
    theta: np.ndarray,
    velocities: Sequence[np.ndarray],
    gradient: np.ndarray,
    damping: Damping,
    lr: float,
    *,
    weight_decay: float = 0.0,
    decoupled_weight_decay: bool = False,
    maximize: bool = False,
) -> tuple[np.ndarray, list[np.ndarray]]:
    """One step of aggregated momentum, equation (3), or with unequal weights equation (4).

        v_i   <- beta_i v_i + g
        theta <- theta - lr * (w_1 v_1 + ... + w_K v_K)

    with g the gradient (its negative under `maximize`), plus weight_decay * theta when weight decay is coupled; when it
    is decoupled, weight_decay * theta stands in the second bracket as a last term.

    Args:
        theta: the parameters.
        velocities: one array for each beta, zeros before the first step.
        gradient: the gradient at theta.
        damping: betas and weights.
        lr: the learning rate.
        weight_decay: the coefficient of theta, in the gradient or, decoupled, in the step.
        decoupled_weight_decay: whether the decay bypasses the velocities.
        maximize: step up the gradient instead of down.

    Returns:
        The new parameters and the new velocities; the arguments are left as they were.

    Raises:
        ValueError: not as many velocities as betas.

    >>> theta, velocities = step(np.array([1.0]), [np.zeros(1), np.ones(1)], np.array([2.0]), Damping((0, 0.5)), lr=0.1)
    >>> velocities  # 0 * 0 + 2 and 0.5 * 1 + 2
    [array([2.]), array([2.5])]
    >>> theta  # 1 - 0.1 * (2 / 2 + 2.5 / 2)
    array([0.775])
    """
    g = -gradient if maximize else gradient
    if weight_decay and not decoupled_weight_decay:
        g = g + weight_decay * theta
    velocities = [beta * velocity + g for beta, velocity in zip(damping.betas, velocities, strict=True)]
    total = damping.weights[0] * velocities[0]
    for weight, velocity in zip(damping.weights[1:], velocities[1:], strict=True):
        total = total + weight * velocity
    if weight_decay and decoupled_weight_decay:
        total = total + weight_decay * theta
    return theta - lr * total, velocities
