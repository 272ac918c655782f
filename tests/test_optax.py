"""The arithmetic of `aggmo.optax` against the reference and against Optax's own transformations, and its errors."""

import subprocess
import sys
from importlib import metadata

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
import strategies
from hypothesis import given
from hypothesis import strategies as st
from packaging.requirements import Requirement

from aggmo import Damping, reference
from aggmo.optax import ScaleByAggMoState, aggmo, scale_by_aggmo

SHAPES = {"matrix": (2, 3), "list": [(4,), ()]}
NAMES = {"matrix": "matrix", "list": ["vector", "scalar"]}


def tree(seed, scale=1.0):
    """A pytree of NumPy arrays in float64."""
    rng = np.random.default_rng(seed)
    return jax.tree.map(
        lambda shape: np.asarray(scale * rng.normal(size=shape)), SHAPES, is_leaf=lambda x: isinstance(x, tuple)
    )


def gradients(steps):
    return [tree(seed) for seed in range(1, steps + 1)]


def run(optimizer, params, grads):
    """The parameters after every step, and the last state; in the dtype of the parameters."""
    params = jax.tree.map(jnp.asarray, params)
    state, iterates = optimizer.init(params), []
    for g in grads:
        updates, state = optimizer.update(jax.tree.map(jnp.asarray, g), state, params)
        params = optax.apply_updates(params, updates)
        iterates.append(params)
    return iterates, state


def reference_run(params, grads, dampings, lrs, **options):
    """The same by `aggmo.reference.step`, leaf by leaf; one damping and one learning rate a step."""
    leaves, structure = jax.tree.flatten(params)
    velocities = [[np.zeros_like(leaf) for _ in dampings[0]] for leaf in leaves]
    iterates = []
    for g, damping, lr in zip(grads, dampings, lrs, strict=True):
        for i, leaf in enumerate(jax.tree.leaves(g)):
            leaves[i], velocities[i] = reference.step(leaves[i], velocities[i], leaf, damping, lr, **options)
        iterates.append(structure.unflatten(leaves))
    return iterates


def assert_close(found, expected, rtol=1e-12):
    assert jax.tree.structure(found) == jax.tree.structure(expected)
    for a, b in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
        assert a.shape == b.shape
        np.testing.assert_allclose(a, b, rtol=rtol, atol=rtol)


@given(
    strategies.dampings(),
    st.lists(st.floats(0, 0.5), min_size=6, max_size=6),
    st.sampled_from([0.0, 0.01, 0.5]),
    st.sampled_from(["decoupled", "coupled", "chained"]),
)
def test_trajectories_are_the_references(damping, lrs, decay, kind):
    """Oracle: `aggmo.reference.step` in float64, weight decay decoupled in `aggmo` and coupled by chaining before it.

    `chained` is what `aggmo` is made of, put together by hand.
    """
    with jax.enable_x64(True):

        def schedule(count):
            return jnp.asarray(lrs)[count]

        optimizer = {
            "decoupled": lambda: aggmo(schedule, damping, weight_decay=decay),
            "coupled": lambda: optax.chain(optax.add_decayed_weights(decay), aggmo(schedule, damping)),
            "chained": lambda: optax.chain(
                scale_by_aggmo(damping.betas, damping.weights),
                optax.add_decayed_weights(decay),
                optax.scale_by_learning_rate(schedule),
            ),
        }[kind]()
        iterates, _ = run(optimizer, tree(0), gradients(6))
        options = {"weight_decay": decay, "decoupled_weight_decay": kind != "coupled"}
        expected = reference_run(tree(0), gradients(6), [damping] * 6, lrs, **options)
        assert jax.tree.leaves(iterates)[0].dtype == jnp.float64
        assert_close(iterates, expected)


def test_a_schedule_of_weight_decay():
    """Oracle: the reference, one step at a time with a decay of its own."""
    decays = [0.5, 0.0, 0.25]
    with jax.enable_x64(True):
        optimizer = aggmo(0.1, (0.0, 0.9), weight_decay=lambda count: jnp.asarray(decays)[count])
        iterates, _ = run(optimizer, tree(0), gradients(3))
    for i, (leaf, *grads) in enumerate(zip(*map(jax.tree.leaves, [tree(0), *gradients(3)]), strict=True)):
        velocities = [np.zeros_like(leaf)] * 2
        for t, g in enumerate(grads):
            leaf, velocities = reference.step(
                leaf, velocities, g, Damping((0, 0.9)), 0.1, weight_decay=decays[t], decoupled_weight_decay=True
            )
            np.testing.assert_allclose(jax.tree.leaves(iterates[t])[i], leaf, rtol=1e-12)


def test_a_schedule_of_damping():
    """Oracle: the reference under betas beta_i 0.9^t and changing weights, which Optax injects as arrays."""
    dampings = [Damping((0.5 * 0.9**t, 0.99 * 0.9**t), (1.0, t)) for t in range(5)]
    with jax.enable_x64(True):
        optimizer = optax.inject_hyperparams(aggmo)(
            learning_rate=0.1,
            betas=lambda count: jnp.asarray([0.5, 0.99]) * 0.9**count,
            weights=lambda count: jnp.stack([jnp.ones(()), count]),
        )
        iterates, state = run(optimizer, tree(0), gradients(5))
        assert_close(iterates, reference_run(tree(0), gradients(5), dampings, [0.1] * 5))
        np.testing.assert_allclose(state.hyperparams["betas"], dampings[-1].betas, rtol=1e-12)


def test_many_dampings_at_once():
    """Oracle: each of them alone. An array is not looked into, so a beta of 0 there has a velocity."""
    betas, weights = np.array([[0.0, 0.9], [0.3, 0.99]]), np.array([[1.0, 0.5, 0.0], [0.2, 0.3, 2.0]])
    with jax.enable_x64(True):

        def last(betas, weights):
            return run(aggmo(0.1, (0.25, *betas), weights), tree(0), gradients(4))[0][-1]

        together = jax.vmap(last)(jnp.asarray(betas), jnp.asarray(weights))
        for i in range(2):
            alone = last(betas[i], weights[i])
            assert_close(jax.tree.map(lambda leaf, i=i: leaf[i], together), alone)
    (velocity,) = scale_by_aggmo(jnp.zeros(1)).init(jnp.ones(3)).velocities
    assert velocity.shape == (3,)


@pytest.mark.parametrize(
    ("damping", "other"),
    [
        (Damping.classical(0.9), lambda: optax.sgd(0.1, momentum=0.9)),
        (Damping.nesterov(0.9), lambda: optax.sgd(0.1, momentum=0.9, nesterov=True)),
        (Damping((0,)), lambda: optax.sgd(0.1)),
        (Damping((0.9,), (0.1,)), lambda: optax.chain(optax.ema(0.9, debias=False), optax.scale(-0.1))),
    ],
    ids=["momentum", "nesterov", "gradient descent", "moving average"],
)
def test_special_cases_are_optaxs(damping, other):
    """Oracle: Optax's own momentum."""
    with jax.enable_x64(True):
        mine, theirs = (run(optimizer, tree(0), gradients(5))[0] for optimizer in (aggmo(0.1, damping), other()))
        assert_close(mine, theirs)


def test_complex_leaves_are_two_real_ones():
    """Oracle: the real and the imaginary part, each on its own."""
    z = [a + 1j * b for a, b in zip(jax.tree.leaves(tree(0)), jax.tree.leaves(tree(9)), strict=True)]
    grads = [
        [a + 1j * b for a, b in zip(jax.tree.leaves(tree(t)), jax.tree.leaves(tree(9 + t)), strict=True)]
        for t in (1, 2, 3)
    ]
    with jax.enable_x64(True):
        optimizer = aggmo(0.1, (0, 0.9, 0.99), weight_decay=0.01)
        iterates, state = run(optimizer, z, grads)
        assert {leaf.dtype for leaf in jax.tree.leaves((iterates, state))} == {jnp.dtype("complex128")}
        for part in (np.real, np.imag):
            parts, _ = run(optimizer, [part(leaf) for leaf in z], [[part(leaf) for leaf in g] for g in grads])
            assert_close(jax.tree.map(part, iterates), parts)


def test_a_beta_of_zero_stores_nothing():
    state = scale_by_aggmo((0, 0.9, 0, 0.99)).init(tree(0))
    assert [velocity is None for velocity in state.velocities] == [True, False, True, False]
    assert jax.tree.leaves(aggmo(0.1, (0,)).init(tree(0))) == []


@pytest.mark.parametrize(("dtype", "given"), [("bfloat16", None), ("bfloat16", "float32"), ("float16", jnp.float32)])
def test_half_precision_is_calculated_in_float32(dtype, given):
    """Oracle: the reference on the same numbers, its velocities rounded as they are stored and its sum once more."""
    dtype, stored = jnp.dtype(dtype), jnp.dtype(given or dtype)
    damping, rng = Damping((0, 0.9, 0.99)), np.random.default_rng(0)
    transformation = scale_by_aggmo(damping, accumulator_dtype=given)
    state = transformation.init(jnp.zeros(500, dtype))
    velocities = [np.zeros(500, np.float32)] * 3
    for _ in range(4):
        g = rng.normal(size=500).astype(dtype)
        update, state = transformation.update(jnp.asarray(g), state)
        wide = g.astype(np.float32)
        velocities = [
            (np.float32(beta) * v + wide).astype(stored if beta else np.float32).astype(np.float32)
            for beta, v in zip(damping, velocities, strict=True)
        ]
        expected = sum(np.float32(w) * v for w, v in zip(damping.weights, velocities, strict=True))
        assert update.dtype == jnp.promote_types(dtype, stored)
        assert state.velocities[1].dtype == stored
        assert_equal_but_for_ties(update, expected.astype(update.dtype))
        for i in (1, 2):
            assert_equal_but_for_ties(state.velocities[i], velocities[i].astype(stored))
            velocities[i] = np.asarray(state.velocities[i], np.float32)


def assert_equal_but_for_ties(found, expected):
    """XLA may contract a product and a sum, which moves a float32 by a bit, and a half now and then."""
    if found.dtype == jnp.float32:
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)
    else:
        assert np.mean(np.asarray(found) == expected) > 0.99


@pytest.mark.parametrize("betas", [(), (1.0,), (-0.1,), (float("nan"),), "0.5", 0.9, (None,), np.zeros((2, 2))])
def test_bad_betas(betas):
    """The message names the argument, as it does everywhere."""
    with pytest.raises(ValueError, match="betas"):
        aggmo(0.1, betas)


def test_bad_betas_in_arrays():
    with pytest.raises(ValueError, match=r"betas\[1\] is 1.0: every beta must be in \[0, 1\)"):
        scale_by_aggmo(jnp.array([0.0, 1.0]))
    with pytest.raises(ValueError, match=r"betas\[1\] is -0.5"):
        scale_by_aggmo((0.5, jnp.array(-0.5)))
    for betas in (jnp.zeros(()), jnp.zeros((2, 2))):
        with pytest.raises(ValueError, match="betas"):
            scale_by_aggmo(betas)
    with pytest.raises(ValueError, match="which has weights of its own"):
        scale_by_aggmo(Damping((0, 0.9)), jnp.ones(2))
    with pytest.raises(ValueError, match="all weights are 0"):
        scale_by_aggmo(jnp.zeros(2), jnp.zeros(2))
    with pytest.raises(ValueError, match="3 weights for 2 betas"):
        jax.vmap(lambda betas: scale_by_aggmo(betas, (1, 1, 1)).init(betas))(jnp.zeros((4, 2)))


@pytest.mark.parametrize("value", [-0.1, float("nan"), float("inf"), "0.1", None, True, 1j, np.zeros(2)])
@pytest.mark.parametrize("name", ["learning_rate", "weight_decay"])
def test_bad_rates(name, value):
    with pytest.raises(ValueError, match=f"{name}=.*must be a finite number >= 0 or a schedule"):
        aggmo(**{"learning_rate": 0.1, name: value})


def test_bad_rates_in_arrays():
    with pytest.raises(ValueError, match=r"learning_rate=.*must be a finite number >= 0"):
        optax.inject_hyperparams(aggmo)(learning_rate=-0.1).init(tree(0))


@pytest.mark.parametrize("dtype", ["int32", "complex64", bool, "floaty", 32, "float8_e4m3fn"])
def test_bad_accumulator_dtype(dtype):
    with pytest.raises(ValueError, match=r"accumulator_dtype=.*must be a floating-point dtype"):
        scale_by_aggmo(accumulator_dtype=dtype)


def test_an_accumulator_dtype_for_complex_leaves():
    with pytest.raises(ValueError, match=r"params\['z'\] is of complex64, and accumulator_dtype=float32"):
        scale_by_aggmo(accumulator_dtype="float32").init({"z": jnp.ones(1, "complex64")})


def test_integer_leaves():
    with pytest.raises(ValueError, match=r"params\['count'\] is of int32: .* optax.masked or optax.multi_transform"):
        aggmo(0.1).init({"count": jnp.zeros((), "int32"), "x": jnp.ones(1)})
    with pytest.raises(ValueError, match=r"updates is of int32"):
        aggmo(0.1).update(jnp.ones((), "int32"), aggmo(0.1).init(jnp.ones(())))


def test_k_changed_between_state_and_update():
    params = tree(0)
    state = scale_by_aggmo((0, 0.9)).init(params)
    with pytest.raises(ValueError, match="the state has 2 velocities for 3 betas"):
        scale_by_aggmo((0, 0.9, 0.99)).update(params, state)
    with pytest.raises(ValueError, match=r"betas\[0\] is 0.9, but was 0 when the state was made"):
        scale_by_aggmo((0.9, 0)).update(params, state)
    with pytest.raises(ValueError, match=r"betas.*was 0 when the state was made"):
        scale_by_aggmo(jnp.array([0.9, 0.0])).update(params, state)
    with pytest.raises(ValueError, match="state is a tuple: must be the ScaleByAggMoState"):
        scale_by_aggmo((0, 0.9)).update(params, aggmo(0.1, (0, 0.9)).init(params))


def test_a_beta_that_has_become_zero_keeps_its_velocity():
    """Whoever sets it back later finds the state in the same form."""
    params = tree(0)
    state = scale_by_aggmo((0.5, 0.9)).init(params)
    _, state = scale_by_aggmo((0, 0.9)).update(params, state)
    assert_close(state.velocities[0], params, rtol=1e-6)


@pytest.mark.parametrize(
    "mask",
    [
        {"matrix": True},
        {"matrix": True, "list": [True, False, True]},
        {"matrix": True, "list": (True, True)},
        [True, True],
        lambda _: {"matrix": True, "other": False},
    ],
    ids=["missing", "longer", "tuple for list", "list for dict", "function"],
)
def test_a_mask_of_the_wrong_structure(mask):
    with pytest.raises(ValueError, match="mask has not the structure of the parameters nor of a prefix of it"):
        aggmo(0.1, weight_decay=0.5, mask=mask).init(tree(0))
    with pytest.raises(ValueError, match="mask has not the structure"):  # whoever switches the decay off may err alike
        aggmo(0.1, mask=mask).init(tree(0))


@pytest.mark.parametrize("leaf", [1.0, "True", np.ones(2)])
def test_a_mask_of_other_leaves(leaf):
    with pytest.raises(ValueError, match=r"mask has the leaf .*: every leaf must be True or False"):
        aggmo(0.1, weight_decay=0.5, mask={"matrix": leaf, "list": False}).init(tree(0))


@pytest.mark.parametrize(
    "mask",
    [
        {"matrix": True, "list": [False, True]},
        {"matrix": np.True_, "list": False},
        lambda params: jax.tree.map(lambda leaf: leaf.ndim > 1, params),
        True,
    ],
    ids=["full", "prefix", "function", "everything"],
)
def test_where_weights_decay(mask):
    """Oracle: the reference with the decay of each leaf."""
    full = mask(tree(0)) if callable(mask) else mask
    decays = [0.5 * bool(m) for m in jax.tree.leaves(jax.tree.broadcast(full, tree(0)))]
    iterates, _ = run(aggmo(0.1, (0, 0.9), weight_decay=0.5, mask=mask), tree(0), gradients(3))
    for i, decay in enumerate(decays):
        one = [{"x": jax.tree.leaves(g)[i]} for g in (tree(0), *gradients(3))]
        expected = reference_run(
            one[0], one[1:], [Damping((0, 0.9))] * 3, [0.1] * 3, weight_decay=decay, decoupled_weight_decay=True
        )
        found = [{"x": jax.tree.leaves(iterate)[i]} for iterate in iterates]
        assert_close(found, expected, rtol=1e-5)


def test_a_masked_state_is_laid_out_as_its_parameters():
    """`optax.tree.map_params` finds the velocities by an `init` with a placeholder, which no mask can fit."""
    optimizer = aggmo(0.1, (0, 0.9), weight_decay=0.5, mask={"matrix": True, "list": [False, True]})
    state = optax.tree.map_params(optimizer, lambda _, name: name, optimizer.init(tree(0)), NAMES)
    assert state[0] == ScaleByAggMoState((None, NAMES))


def test_without_weight_decay_no_parameters_are_needed():
    updates, _ = aggmo(0.1).update(tree(0), aggmo(0.1).init(tree(0)))
    assert_close(updates, jax.tree.map(lambda g: -0.1 * g, tree(0)), rtol=1e-6)
    masked = aggmo(0.1, mask={"matrix": True, "list": False})
    assert_close(masked.update(tree(0), masked.init(tree(0)))[0], updates)
    with pytest.raises(ValueError, match="params"):
        aggmo(0.1, weight_decay=0.1).update(tree(0), aggmo(0.1, weight_decay=0.1).init(tree(0)))


def python(code):
    """The output of a fresh interpreter."""
    done = subprocess.run([sys.executable, "-W", "error", "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.split()


def test_no_other_framework_is_loaded():
    loaded = python("import sys, aggmo.optax; print(*{name.split('.')[0] for name in sys.modules})")
    assert {"jax", "optax"} <= set(loaded)
    assert not {"torch", "keras", "tensorflow", "scipy.optimize"} & set(loaded)


@pytest.mark.parametrize("missing", ["jax", "optax"])
def test_what_to_install(missing):
    code = f"""
import sys
sys.modules["{missing}"] = None  # any import of it now fails as if it were not installed
try:
    import aggmo.optax
except ModuleNotFoundError as error:
    print(error.name, "pip install 'aggmo[jax]'" in str(error))
"""
    assert python(code) == [missing, "True"]


def required(extra):
    """All distributions that an extra of aggmo brings, of those that are installed."""
    found, waiting = set(), [("aggmo", extra)]
    while waiting:
        name, extra = waiting.pop()
        try:
            lines = metadata.requires(name) or []
        except metadata.PackageNotFoundError:  # for another system
            continue
        for one in map(Requirement, lines):
            if (one.marker is None or one.marker.evaluate({"extra": extra})) and one.name not in found:
                found.add(one.name)
                waiting += [(one.name, part) for part in one.extras or [""]]
    return {name.lower() for name in found}


def test_extras_bring_no_other_framework():
    assert {"jax", "optax", "numpy"} <= required("jax")
    assert "torch" in required("torch")
    assert not {"torch", "keras", "tensorflow"} & required("jax")
    assert not {"jax", "optax", "keras", "tensorflow"} & required("torch")
    assert required("") == {"numpy"}


def test_the_state_by_name():
    assert ScaleByAggMoState._fields == ("velocities",)
