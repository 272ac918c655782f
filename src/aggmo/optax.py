"""AggMo for JAX, as gradient transformations of Optax.

For each leaf of the parameters, with g its gradient,

    v_i    <- beta_i v_i + g
    update <- w_1 v_1 + ... + w_K v_K

`scale_by_aggmo` returns this update, to be chained with other transformations; `aggmo` goes on to -lr * (update +
weight_decay * theta), which `optax.apply_updates` adds to the parameters. Betas and weights are numbers or, where a
program is to be traced for many of them, JAX arrays.
"""

import math
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, NamedTuple, SupportsFloat, TypeAlias

try:
    import jax
    import jax.numpy as jnp
    import optax
except ModuleNotFoundError as error:
    if error.name not in ("jax", "jaxlib", "optax"):
        raise
    raise ModuleNotFoundError("aggmo.optax needs JAX and Optax: pip install 'aggmo[jax]'", name=error.name) from error
import numpy as np
from jax.core import Tracer

from aggmo.damping import Damping

__all__ = ["ScaleByAggMoState", "aggmo", "scale_by_aggmo"]

Numbers: TypeAlias = Iterable[SupportsFloat] | jax.Array
Scalar: TypeAlias = float | jax.Array
ScalarOrSchedule: TypeAlias = Scalar | Callable[[jax.Array], Scalar]
Mask: TypeAlias = Any  # a pytree of booleans, or a function that makes one of the parameters


class ScaleByAggMoState(NamedTuple):
    """The state of `scale_by_aggmo`: for each beta a pytree like the parameters, None for one that is 0.

        velocities = (v_1, ..., v_K)

    >>> scale_by_aggmo((0, 0.5)).init(jnp.zeros(2))
    ScaleByAggMoState(velocities=(None, Array([0., 0.], dtype=float32)))
    """

    velocities: tuple[Any, ...]


class _Terms(NamedTuple):
    """Betas and weights of the sum; an array among them may be traced, and is not looked at then."""

    betas: tuple[Scalar, ...]
    weights: tuple[Scalar, ...]


def aggmo(
    learning_rate: ScalarOrSchedule,
    betas: Numbers | Damping = (0.0, 0.9, 0.99),
    weights: Numbers | None = None,
    weight_decay: ScalarOrSchedule = 0.0,
    mask: Mask | None = None,
    accumulator_dtype: Any = None,
) -> optax.GradientTransformation:
    """The optimizer: aggregated momentum, weight decay beside the velocities, and a learning rate.

        theta <- theta - lr * (w_1 v_1 + ... + w_K v_K + weight_decay * theta)

    Weight decay is decoupled, as in `optax.adamw` and all of Optax; `aggmo.torch.AggMo` computes the same with
    decoupled_weight_decay=True. For the coupled one, chain `optax.add_decayed_weights(weight_decay, mask)` before.

    Args:
        learning_rate: lr >= 0, or a schedule, a function of the step's number.
        betas, weights: as for `scale_by_aggmo`.
        weight_decay: the coefficient of theta, >= 0, or a schedule. Unless it is 0, `update` needs the parameters.
        mask: where weights decay, a pytree of booleans with the structure of the parameters or a prefix of it, or a
            function that makes such a tree from the parameters; None for all.
        accumulator_dtype: as for `scale_by_aggmo`.

    Raises:
        ValueError: an argument out of range; from `init`, a mask that does not fit the parameters.

    >>> optimizer = aggmo(0.25, betas=(0, 0.5))
    >>> theta = jnp.array(1.0)
    >>> state = optimizer.init(theta)
    >>> for _ in range(2):
    ...     updates, state = optimizer.update(2 * theta, state)  # the gradient of theta^2
    ...     theta = optax.apply_updates(theta, updates)
    >>> theta.item()  # 1 - 0.25 * (2 + 2) / 2 = 0.5, then 0.5 - 0.25 * (1 + (0.5 * 2 + 1)) / 2
    0.125
    """
    _check("learning_rate", learning_rate)
    _check("weight_decay", weight_decay)
    decays = not (isinstance(weight_decay, int | float) and weight_decay == 0)
    return optax.chain(
        scale_by_aggmo(betas, weights, accumulator_dtype),
        _decay(weight_decay, mask) if decays else optax.identity(),
        optax.scale_by_learning_rate(learning_rate),
    )


def scale_by_aggmo(
    betas: Numbers | Damping = (0.0, 0.9, 0.99),
    weights: Numbers | None = None,
    accumulator_dtype: Any = None,
) -> optax.GradientTransformation:
    """Turn gradients into the weighted sum of K velocities, equations (3) and (4) without the learning rate.

        v_i <- beta_i v_i + g,  update = sum_i w_i v_i

    A velocity whose beta is the number 0 is the gradient itself and is not stored. Sums are calculated in float32 at
    least, and the update has the widest dtype of gradient and stored velocities.

    Args:
        betas: the damping coefficients, 0 <= beta < 1, or a whole `Damping`. A JAX array, or one among the numbers, may
            be traced, for `jax.vmap` over dampings and for schedules by `optax.inject_hyperparams`; its velocities are
            always stored, and its values are checked only when they are known.
        weights: the weight of each velocity, >= 0, numbers or a JAX array; 1/K each if None.
        accumulator_dtype: the floating-point dtype in which velocities are stored, None for their parameter's.

    Raises:
        ValueError: betas or weights out of range, or no floating-point dtype; from `init` and `update`, a leaf that is
            not real or complex floating-point; from `update`, a state made for other betas.

    >>> transformation = scale_by_aggmo((0, 0.5), weights=(1, 2))
    >>> state = transformation.init(jnp.zeros(()))
    >>> for _ in range(2):
    ...     update, state = transformation.update(jnp.ones(()), state)
    >>> update, state.velocities  # 1 * 1 + 2 * (0.5 * 1 + 1)
    (Array(4., dtype=float32), (None, Array(1.5, dtype=float32)))
    """
    terms = _terms(betas, weights)
    dtype = None if accumulator_dtype is None else jnp.dtype(accumulator_dtype)
    if dtype is not None and not jnp.issubdtype(dtype, jnp.floating):
        raise ValueError(f"accumulator_dtype={accumulator_dtype!r}: must be a floating-point dtype or None")

    def init(params: Any) -> ScaleByAggMoState:
        _check_leaves("params", params, dtype)
        zeros = partial(jnp.zeros_like, dtype=dtype)
        return ScaleByAggMoState(tuple(None if _is_zero(beta) else jax.tree.map(zeros, params) for beta in terms.betas))

    def update(updates: Any, state: ScaleByAggMoState, params: Any = None) -> tuple[Any, ScaleByAggMoState]:
        del params
        _check_leaves("updates", updates)
        _check_state(state, terms)
        structure: Any = jax.tree.structure(updates)
        gradients = jax.tree.leaves(updates)
        # A tree of None has no leaves; that of a stored velocity must be like the gradients'.
        columns = [
            [None] * len(gradients) if velocity is None else structure.flatten_up_to(velocity)
            for velocity in state.velocities
        ]
        sums, rows = [], []
        for g, *row in zip(gradients, *columns, strict=True):
            total, new = _aggregate(g, row, terms)
            sums.append(total)
            rows.append(new)
        velocities = tuple(
            None if velocity is None else structure.unflatten([row[i] for row in rows])
            for i, velocity in enumerate(state.velocities)
        )
        return structure.unflatten(sums), ScaleByAggMoState(velocities)

    return optax.GradientTransformation(init, update)


def _terms(betas: Numbers | Damping, weights: Numbers | None) -> _Terms:
    """Betas and weights, checked by `Damping` with any allowed number in the place of a traced one."""
    arrays = [_entries(betas), _entries(weights)]
    known = Damping.of(
        betas if arrays[0] is None else [0.5 if isinstance(x, Tracer) else x for x in arrays[0]],
        weights if arrays[1] is None else [1.0 if isinstance(x, Tracer) else x for x in arrays[1]],
    )
    kept = [
        numbers
        if entries is None
        else tuple(x if isinstance(x, jax.Array) else n for x, n in zip(entries, numbers, strict=True))
        for entries, numbers in zip(arrays, (known.betas, known.weights), strict=True)
    ]
    return _Terms(*kept)


def _entries(values: Any) -> list[Any] | None:
    """The entries of a JAX array, or of a list or tuple with JAX arrays in it; None for anything else."""
    if isinstance(values, jax.Array) and values.ndim == 1:
        return list(values)
    if isinstance(values, list | tuple) and any(isinstance(x, jax.Array) for x in values):
        return list(values)
    return None


def _is_zero(beta: Scalar) -> bool:
    """Whether a velocity of this beta is the gradient itself, known without looking into arrays."""
    return not isinstance(beta, jax.Array) and beta == 0.0


def _aggregate(g: Any, row: list[Any], terms: _Terms) -> tuple[Any, list[Any]]:
    """One leaf: its update and its velocities, None for those that are not stored."""
    stored = [velocity for velocity in row if velocity is not None]
    narrow = jnp.result_type(g, *stored)
    wide = jnp.promote_types(narrow, jnp.float32)
    g = g.astype(wide)
    new: list[Any] = []
    total = None
    for beta, weight, velocity in zip(*terms, row, strict=True):
        if velocity is None:
            new.append(None)
            moved = g
        else:
            new.append((beta * velocity.astype(wide) + g).astype(velocity.dtype))
            moved = new[-1].astype(wide)
        if isinstance(weight, jax.Array) or weight:
            total = weight * moved if total is None else total + weight * moved
    assert total is not None, "a Damping has a weight > 0"
    return total.astype(narrow), new


def _decay(weight_decay: ScalarOrSchedule, mask: Mask | None) -> optax.GradientTransformation:
    """`optax.add_decayed_weights`, which would take a mask that does not fit as far as it goes."""
    inner = optax.add_decayed_weights(weight_decay, mask)

    def init(params: Any) -> Any:
        if mask is not None and jax.tree.leaves(params):  # optax.tree.map_params asks with a placeholder for them all
            _check_mask(mask(params) if callable(mask) else mask, params)
        return inner.init(params)

    return optax.GradientTransformation(init, inner.update)


def _check_mask(mask: Mask, params: Any) -> None:
    """Raise ValueError unless the mask is of booleans, in the structure of the parameters or a prefix of it."""
    structure: Any = jax.tree.structure(mask)
    try:
        structure.flatten_up_to(params)
    except (TypeError, ValueError) as error:
        raise ValueError(f"mask has not the structure of the parameters nor of a prefix of it: {error}") from error
    for leaf in jax.tree.leaves(mask):
        if not isinstance(leaf, bool | np.bool_):
            raise ValueError(f"mask has the leaf {leaf!r}: every leaf must be True or False")


def _check_leaves(name: str, tree: Any, dtype: Any = None) -> None:
    """Raise ValueError for leaves that have no gradient, or whose velocities do not fit into the dtype."""
    for path, leaf in jax.tree_util.tree_leaves_with_path(tree):
        own = jnp.result_type(leaf)
        place = f"{name}{jax.tree_util.keystr(path)}"
        if not jnp.issubdtype(own, jnp.inexact):
            raise ValueError(
                f"{place} is of {own}: every leaf must be real or complex floating-point; leave others out by "
                "optax.masked or optax.multi_transform"
            )
        if dtype is not None and jnp.issubdtype(own, jnp.complexfloating):
            raise ValueError(
                f"{place} is of {own}, and accumulator_dtype={dtype} cannot hold its velocities: leave it None"
            )


def _check_state(state: Any, terms: _Terms) -> None:
    """Raise ValueError for a state that was made for other betas."""
    if not isinstance(state, ScaleByAggMoState):
        raise ValueError(
            f"state is a {type(state).__name__}: must be the ScaleByAggMoState that init or update returned"
        )
    stored = [velocity is not None for velocity in state.velocities]
    if len(stored) != len(terms.betas):
        raise ValueError(
            f"the state has {len(stored)} velocities for {len(terms.betas)} betas: it was made for another number of "
            "them; begin with the init of this transformation"
        )
    for i, (beta, is_stored) in enumerate(zip(terms.betas, stored, strict=True)):
        if not is_stored and not _is_zero(beta):
            raise ValueError(
                f"betas[{i}] is {beta}, but was 0 when the state was made, so its velocity is not stored: begin with "
                "the init of this transformation"
            )


def _check(name: str, value: Any) -> None:
    """Raise ValueError unless the value is a finite number >= 0, a schedule, or traced."""
    if callable(value) or isinstance(value, Tracer):
        return
    try:
        if isinstance(value, str | bytes | bool):
            raise TypeError
        number = float(value)
    except (TypeError, ValueError, OverflowError):
        raise ValueError(f"{name}={value!r}: must be a finite number >= 0 or a schedule") from None
    if not 0.0 <= number < math.inf:
        raise ValueError(f"{name}={value!r}: must be a finite number >= 0 or a schedule")
