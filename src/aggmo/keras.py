"""Aggregated momentum as a Keras 3 optimizer, on every back end of Keras.

The arithmetic is that of `aggmo.reference`, in Keras operations: the velocities accumulate +gradient, and the step
subtracts. Keras settles its back end as it is first imported: set the environment variable KERAS_BACKEND before.
"""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, SupportsFloat

import numpy as np

from aggmo.damping import Damping

try:
    import keras
    from keras import ops
except ModuleNotFoundError as error:
    missing = (error.name or "").partition(".")[0]
    if missing == "keras":
        message = "aggmo.keras needs Keras: pip install 'aggmo[keras]', and JAX, PyTorch or tensorflow beside it"
    elif missing in ("jax", "tensorflow", "torch"):
        message = (
            f"Keras would run on {missing}, which is not installed: set the environment variable KERAS_BACKEND to "
            "'jax', 'torch' or 'tensorflow', whichever is, before Keras is first imported"
        )
    else:
        raise
    raise ModuleNotFoundError(message, name=missing) from error

__all__ = ["AggMo"]


@keras.saving.register_keras_serializable(package="aggmo")
class AggMo(keras.optimizers.Optimizer):  # type: ignore[misc]  # Keras ships no types
    """Aggregated momentum for Keras: K velocities with dampings of their own, and a step along their weighted sum.

    With the gradient g of the loss at theta, equations (3) and (4) of the paper read

        v_i   <- beta_i v_i + g              i = 1 ... K
        theta <- theta - learning_rate * sum_i w_i v_i  w_i = 1/K unless weights are given

    The weight decay of Keras is decoupled: theta is first multiplied by 1 - learning_rate * weight_decay, and the
    velocities know nothing of it. What clips gradients comes before the velocities, the moving average (`use_ema`)
    after the step. A model loaded from a file finds this class if `aggmo.keras` is imported.

    Args:
        learning_rate: a number >= 0, a `keras.optimizers.schedules.LearningRateSchedule`, or a function of no
            arguments that returns the number.
        betas: the damping coefficients, 0 <= beta < 1, or a whole `Damping`. A beta of 0 costs no memory.
        weights: the weight of each velocity, >= 0; 1/K each if None.
        weight_decay: the decoupled weight decay, >= 0, or None; `exclude_from_weight_decay` leaves variables out.
        options: what all optimizers of Keras take: `clipnorm`, `clipvalue`, `global_clipnorm`, `use_ema`,
            `ema_momentum`, `ema_overwrite_frequency`, `loss_scale_factor`, `gradient_accumulation_steps`, `name`.

    Raises:
        ValueError: an argument out of range; the message names argument, value and range. Variables that are not
            floating-point numbers, as the optimizer is built.

    >>> theta = keras.Variable([1.0], name="theta")
    >>> optimizer = AggMo(learning_rate=0.25, betas=(0, 0.5))
    >>> for _ in range(2):
    ...     optimizer.apply([2 * theta.value], [theta])  # the gradient of theta^2
    >>> float(theta.numpy()[0])  # 1 - 0.25 * (2 + 2) / 2 = 0.5, then 0.5 - 0.25 * (1 + (0.5 * 2 + 1)) / 2
    0.125
    >>> [variable.name for variable in optimizer.variables]  # none for the beta of 0
    ['iteration', 'learning_rate', 'theta_velocity_1']
    """

    damping: Damping

    def __init__(
        self,
        learning_rate: float | Callable[..., Any] = 0.1,
        betas: Iterable[SupportsFloat] | Damping = (0.0, 0.9, 0.99),
        weights: Iterable[SupportsFloat] | None = None,
        *,
        weight_decay: float | None = None,
        **options: Any,
    ) -> None:
        damping = Damping.of(betas, weights)
        if not callable(learning_rate):
            learning_rate = _number("learning_rate", learning_rate)
        if weight_decay is not None:
            weight_decay = _number("weight_decay", weight_decay)
        super().__init__(learning_rate=learning_rate, weight_decay=weight_decay, **options)
        self.damping = damping

    def build(self, variables: Sequence[Any]) -> None:
        """Make the velocities of the variables, zero at first, one for each beta that is not 0.

        Raises:
            ValueError: a variable that does not hold floating-point numbers.

        >>> optimizer = AggMo(betas=(0, 0.9, 0.99))
        >>> optimizer.build([keras.Variable([1.0, 2.0])])
        >>> [tuple(variable.shape) for variable in optimizer.variables[2:]]
        [(2,), (2,)]
        """
        if self.built:
            return
        for variable in variables:
            if not keras.backend.is_float_dtype(variable.dtype):
                raise ValueError(
                    f"variable {variable.path!r} is {variable.dtype}: AggMo trains floating-point variables only; make "
                    "it one, or make it with trainable=False"
                )
        super().build(variables)
        stored = _stored(self.damping)
        lists = self.add_optimizer_variables(variables, [f"velocity_{i}" for i in stored])
        self._velocities = dict(zip(stored, lists, strict=True))

    def update_step(self, gradient: Any, variable: Any, learning_rate: Any) -> None:
        """Take the step of one variable; Keras calls it, after clipping and weight decay.

        >>> theta = keras.Variable([1.0])
        >>> optimizer = AggMo(betas=(0,))
        >>> optimizer.build([theta])
        >>> optimizer.update_step(ops.array([2.0]), theta, 0.25)
        >>> float(theta.numpy()[0])  # 1 - 0.25 * 2
        0.5
        """
        lr = ops.cast(learning_rate, variable.dtype)
        gradient = ops.cast(gradient, variable.dtype)
        index = self._get_variable_index(variable)
        total = None
        for i, (beta, weight) in enumerate(zip(self.damping.betas, self.damping.weights, strict=True)):
            velocity = gradient
            if i in self._velocities:
                held = self._velocities[i][index]
                velocity = ops.add(ops.multiply(held, ops.cast(beta, variable.dtype)), gradient)
                self.assign(held, velocity)
            term = ops.multiply(velocity, ops.cast(weight, variable.dtype))
            total = term if total is None else ops.add(total, term)
        self.assign_sub(variable, ops.multiply(lr, total))

    def finalize_variable_values(self, var_list: Sequence[Any]) -> None:
        """Put the moving averages, if there are any, in the place of the variables; `fit` calls it at its end.

        >>> theta = keras.Variable([1.0])
        >>> optimizer = AggMo(learning_rate=0.5, betas=(0,), use_ema=True, ema_momentum=0.5)
        >>> for _ in range(2):
        ...     optimizer.apply([ops.array([1.0])], [theta])  # to 0.5, then to 0
        >>> optimizer.finalize_variable_values([theta])
        >>> float(theta.numpy()[0])
        0.25
        """
        super().finalize_variable_values(var_list)
        if self.use_ema:
            for variable in var_list:  # which on JAX has one buffer with its average now, and both are donated next
                variable.assign(ops.copy(variable.value))

    def get_config(self) -> dict[str, Any]:
        """The arguments that make this optimizer anew, fit for JSON; `from_config` takes them.

        >>> config = AggMo(betas=(0, 0.5), weights=(1, 0.5)).get_config()
        >>> config["betas"], config["weights"]
        ([0.0, 0.5], [1.0, 0.5])
        >>> AggMo.from_config(config).damping
        Damping(betas=(0.0, 0.5), weights=(1.0, 0.5))
        """
        config: dict[str, Any] = super().get_config()
        return config | {"betas": list(self.damping.betas), "weights": list(self.damping.weights)}

    def set_weights(self, weights: Sequence[Any]) -> None:
        """Set all variables of the optimizer, in the order of `variables`.

        Raises:
            ValueError: not as many arrays as variables, as after a change of K, or of other shapes.

        >>> optimizer = AggMo(betas=(0.5,))
        >>> optimizer.build([keras.Variable([1.0])])
        >>> optimizer.set_weights([np.array(3), np.array(0.25), np.array([2.0])])
        >>> int(optimizer.iterations), float(optimizer.learning_rate)
        (3, 0.25)
        """
        if self.built and len(weights) != len(self.variables):
            raise ValueError(
                f"{len(weights)} arrays for the {len(self.variables)} variables of an optimizer with "
                f"betas={self.damping.betas}: the state is of an optimizer with other betas, other options or another "
                "model"
            )
        super().set_weights(weights)

    def save_own_variables(self, store: Any) -> None:
        """Write the state into a file of Keras, and the betas beside it; Keras calls it.

        >>> store = {}
        >>> AggMo(learning_rate=0.5, betas=(0, 0.5)).save_own_variables(store)
        >>> sorted(store), store["betas"]
        (['0', '1', 'betas'], array([0. , 0.5]))
        """
        super().save_own_variables(store)
        store["betas"] = np.array(self.damping.betas)

    def load_own_variables(self, store: Mapping[str, Any]) -> None:
        """Read the state from a file of Keras; Keras calls it. Another optimizer's state it skips with a warning.

        Raises:
            ValueError: the state is of an AggMo that has another number of velocities, or stores others of them.

        >>> store = {}
        >>> AggMo(betas=(0, 0.5)).save_own_variables(store)
        >>> optimizer = AggMo(betas=(0, 0.5, 0.75))
        >>> optimizer.build([keras.Variable([1.0])])
        >>> optimizer.load_own_variables(store)
        Traceback (most recent call last):
            ...
        ValueError: the saved state is of betas=(0.0, 0.5), this optimizer has betas=(0.0, 0.5, 0.75): ...
        """
        own = {key: store[key] for key in store.keys()}  # noqa: SIM118  # a store of Keras does not iterate
        saved = own.pop("betas", None)
        if saved is not None and self.built:
            damping = Damping(np.asarray(saved))
            if (len(damping), _stored(damping)) != (len(self.damping), _stored(self.damping)):
                raise ValueError(
                    f"the saved state is of betas={damping.betas}, this optimizer has betas={self.damping.betas}: both "
                    "must have the same length, and zeros in the same places"
                )
        super().load_own_variables(own)


def _stored(damping: Damping) -> list[int]:
    """The positions whose velocities are more than the gradient."""
    return [i for i, beta in enumerate(damping.betas) if beta]


def _number(name: str, value: Any) -> float:
    """The value as a float, if it is a finite number >= 0."""
    if isinstance(value, bool) or not isinstance(value, int | float | np.integer | np.floating):
        raise ValueError(f"{name}={value!r}: must be a finite number >= 0")
    if not 0.0 <= value < math.inf:
        raise ValueError(f"{name}={value!r}: must be a finite number >= 0")
    return float(value)
