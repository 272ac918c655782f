"""`aggmo.optax` inside programs: traced, mapped, scanned, sharded, donated, chained, saved."""

import json
import os
import pickle
import subprocess
import sys
from collections import Counter
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
import orbax.checkpoint as ocp
import pytest

from aggmo import Damping, reference
from aggmo.optax import aggmo, scale_by_aggmo

STEPS = 5


class Layer(NamedTuple):
    weight: object
    bias: object


def start(seed=0):
    """A pytree of all kinds of nodes, a leaf without dimensions, and places without parameters."""
    rng = np.random.default_rng(seed)
    layer = Layer(rng.normal(size=(3, 2)).astype("float32"), None)
    return {"layer": layer, "rest": [rng.normal(size=4).astype("float32"), (np.float32(rng.normal()), ())]}


def loss(params):
    """Neither quadratic nor convex."""
    return sum(jnp.sum(p**2 / 2 + jnp.cos(3 * p)) for p in jax.tree.leaves(params))


def stepper(optimizer):
    """One step: parameters and state to parameters and state."""

    def step(params, state):
        updates, state = optimizer.update(jax.grad(loss)(params), state, params)
        return optax.apply_updates(params, updates), state

    return step


def train(optimizer, params, steps=STEPS, jit=True):
    step = jax.jit(stepper(optimizer)) if jit else stepper(optimizer)
    params = jax.tree.map(jnp.asarray, params)
    state = optimizer.init(params)
    for _ in range(steps):
        params, state = step(params, state)
    return params, state


def assert_close(found, expected, rtol=1e-5):
    assert jax.tree.structure(found) == jax.tree.structure(expected)
    for a, b in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
        np.testing.assert_allclose(a, b, rtol=rtol, atol=rtol)


def assert_equal(found, expected):
    """Bit for bit."""
    assert jax.tree.structure(found) == jax.tree.structure(expected)
    for a, b in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
        np.testing.assert_array_equal(a, b)
        assert a.dtype == b.dtype


def test_a_compiled_step_is_the_step():
    """Oracle: the step outside of jit. A schedule does not compile it anew."""
    optimizer = aggmo(optax.linear_schedule(0.1, 0.0, STEPS), weight_decay=0.01)
    assert_close(train(optimizer, start()), train(optimizer, start(), jit=False))
    traced = Counter()

    @jax.jit
    def step(params, state):
        traced["step"] += 1
        return stepper(optimizer)(params, state)

    params, state = start(), optimizer.init(start())
    params, state = step(params, state)
    for _ in range(3):
        params, state = step(params, state)
    assert traced["step"] <= 2  # the first parameters are NumPy's


def test_scan():
    """Oracle: the loop in Python."""
    optimizer = aggmo(optax.exponential_decay(0.1, 1, 0.9))
    step = stepper(optimizer)

    @jax.jit
    def run(params):
        last, _ = jax.lax.scan(lambda carry, _: (step(*carry), None), (params, optimizer.init(params)), length=STEPS)
        return last

    assert_close(run(jax.tree.map(jnp.asarray, start())), train(optimizer, start()))


def test_many_seeds_and_learning_rates_at_once():
    """Oracle: each of them alone."""
    lrs = np.array([0.01, 0.1, 0.2], "float32")
    starts = [start(seed) for seed in (0, 1)]
    stacked = jax.tree.map(lambda *leaves: np.stack(leaves), *starts)

    def run(params, lr):
        step = stepper(aggmo(lr))
        state = aggmo(lr).init(params)
        for _ in range(STEPS):
            params, state = step(params, state)
        return params

    together = jax.jit(jax.vmap(jax.vmap(run, (None, 0)), (0, None)))(stacked, lrs)
    for i, params in enumerate(starts):
        for j, lr in enumerate(lrs.tolist()):
            alone, _ = train(aggmo(lr), params)
            assert_close(jax.tree.map(lambda leaf, i=i, j=j: leaf[i, j], together), alone)


@pytest.mark.parametrize("compiled", [False, True], ids=["eager init", "compiled init"])
def test_donated_buffers(compiled):
    """Oracle: the same without donation. The velocities' equal first values must not share a buffer."""
    optimizer = aggmo(0.1, (0.5, 0.9, 0.99), weight_decay=0.01)
    params = jax.tree.map(jnp.asarray, start())
    state = (jax.jit(optimizer.init) if compiled else optimizer.init)(params)
    step = jax.jit(stepper(optimizer), donate_argnums=(0, 1))
    for _ in range(STEPS):
        before = jax.tree.leaves((params, state))
        params, state = step(params, state)
        assert all(leaf.is_deleted() for leaf in before)
    assert_close((params, state), train(optimizer, start()))


SHARDED = """
import json, warnings
import jax, jax.numpy as jnp, numpy as np, optax
from jax.sharding import NamedSharding, PartitionSpec as P
from aggmo.optax import aggmo
assert len(jax.devices()) == 2
mesh = jax.make_mesh((2,), ("x",), axis_types=(jax.sharding.AxisType.Auto,))
rows, whole = NamedSharding(mesh, P("x")), NamedSharding(mesh, P())
optimizer = optax.chain(optax.clip_by_global_norm(1.0), aggmo(0.1, (0, 0.9, 0.99), weight_decay=0.01))
def step(params, state):
    gradient = jax.grad(lambda p: sum(jnp.sum(x**2 / 2 + jnp.cos(3 * x)) for x in p.values()))(params)
    updates, state = optimizer.update(gradient, state, params)
    return optax.apply_updates(params, updates), state
def run(params, state):
    compiled = jax.jit(step, donate_argnums=(0, 1))
    for _ in range(4):
        params, state = compiled(params, state)
    return params, state
start = {"w": np.linspace(-1, 1, 12, dtype="float32").reshape(4, 3), "b": np.ones(3, "float32")}
shardings = {"w": rows, "b": whole}
alone, _ = run(jax.tree.map(jnp.asarray, start), optimizer.init(jax.tree.map(jnp.asarray, start)))
params = jax.device_put(start, shardings)
by_init = optimizer.init(params)
# What Optax offers to lay out a state as its parameters: also where it is made inside a compiled function.
wanted = optax.tree.map_params(
    optimizer, lambda _, s: s, jax.eval_shape(optimizer.init, params), shardings, transform_non_params=lambda _: whole
)
by_jit = jax.jit(optimizer.init, out_shardings=wanted)(params)
def places(state):
    return [list(v[k].sharding.spec) for v in state[1][0].velocities if v is not None for k in ("w", "b")]
together, state = run(params, by_jit)
print(json.dumps({
    "init": places(by_init), "jit": places(by_jit), "end": places(state), "w": list(together["w"].sharding.spec),
    "shard": together["w"].addressable_shards[0].data.shape,
    "difference": max(float(np.abs(np.asarray(alone[k]) - np.asarray(together[k])).max()) for k in alone),
}))
"""


def test_sharded_arrays():
    """Oracle: the same on one device. Two virtual devices; each velocity lies where its parameter does."""
    flags = {"XLA_FLAGS": "--xla_force_host_platform_device_count=2", "JAX_PLATFORMS": "cpu"}
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", SHARDED],
        env=os.environ | flags,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    rows, whole = ["x"], []
    assert found["init"] == found["jit"] == found["end"] == [rows, whole, rows, whole]
    assert (found["w"], found["shard"]) == (rows, [2, 3])
    assert found["difference"] < 1e-6


def test_clipping_before():
    """Oracle: the reference under gradients clipped by hand."""
    damping, theta = Damping((0, 0.9)), np.array([3.0, -4.0], "float32")
    optimizer = optax.chain(optax.clip_by_global_norm(1.0), aggmo(0.1, damping))
    state, params, velocities = optimizer.init(theta), theta, [np.zeros(2)] * 2
    for g in ([30.0, 40.0], [0.3, 0.4], [-6.0, 8.0]):
        updates, state = optimizer.update(np.array(g, "float32"), state, params)
        params = optax.apply_updates(params, updates)
        theta, velocities = reference.step(theta, velocities, np.array(g) / max(1, np.hypot(*g)), damping, 0.1)
        np.testing.assert_allclose(params, theta, rtol=1e-5)


def test_parameters_in_groups():
    """Oracle: each part alone; what is frozen may be of whole numbers."""
    one, other = aggmo(0.1, (0, 0.9)), aggmo(0.01, Damping.nesterov(0.9), weight_decay=0.1)
    optimizer = optax.multi_transform(
        {"one": one, "other": other, "frozen": optax.set_to_zero()}, {"a": "one", "b": "other", "n": "frozen"}
    )
    params = {"a": jnp.ones(2), "b": jnp.ones(3), "n": jnp.arange(2)}
    state, parts = optimizer.init(params), {"a": (params["a"], one), "b": (params["b"], other)}
    states = {key: part.init(value) for key, (value, part) in parts.items()}
    for t in range(3):
        grads = jax.tree.map(lambda p, t=t: jnp.full_like(p, t + 1), params)
        updates, state = jax.jit(optimizer.update)(grads, state, params)
        for key, (_, part) in parts.items():
            expected, states[key] = part.update(grads[key], states[key], params[key])
            assert_close(updates[key], expected)
        params = optax.apply_updates(params, updates)
    np.testing.assert_array_equal(params["n"], [0, 1])


def test_masked():
    """Gradients that are masked out pass as they are, and nothing is stored for them."""
    transformation = optax.masked(scale_by_aggmo((0.5,), (1,)), {"a": True, "b": False})
    params = {"a": jnp.ones(2), "b": jnp.arange(3)}
    state = transformation.init(params)
    for _ in range(2):
        updates, state = transformation.update(params, state)
    assert_equal(updates, {"a": jnp.full(2, 1.5), "b": jnp.arange(3)})
    assert [leaf.shape for leaf in jax.tree.leaves(state)] == [(2,)]


def test_hyperparameters_changed_in_the_middle():
    """Oracle: the reference with the learning rate of each step."""
    lrs, damping, theta = [0.1, 0.1, 0.01, 0.3], Damping((0, 0.9)), np.array([1.0, -2.0])
    optimizer = optax.inject_hyperparams(aggmo)(learning_rate=0.1, betas=damping)
    params = jnp.asarray(theta, "float32")
    state, velocities = optimizer.init(params), [np.zeros(2)] * 2
    update = jax.jit(optimizer.update)
    for t, lr in enumerate(lrs):
        state.hyperparams["learning_rate"] = jnp.asarray(lr)
        updates, state = update(jnp.full(2, t + 1.0), state, params)
        params = optax.apply_updates(params, updates)
        theta, velocities = reference.step(theta, velocities, np.full(2, t + 1.0), damping, lr)
    np.testing.assert_allclose(params, theta, rtol=1e-5)
    assert state.inner_state[0].velocities[0] is None


def test_gradients_accumulated_over_micro_batches():
    """Oracle: the step on their mean."""
    params = jnp.zeros(2)
    many, one = optax.MultiSteps(aggmo(0.1), every_k_schedule=2), aggmo(0.1)
    state, expected = many.init(params), one.init(params)
    for t in range(3):
        total, mean = jnp.zeros(2), jnp.full(2, t + 0.5)
        for g in (jnp.full(2, t + 0.0), jnp.full(2, t + 1.0)):
            updates, state = many.update(g, state, params)
            total = total + updates
        wanted, expected = one.update(mean, expected, params)
        assert_close(total, wanted)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_steps_that_are_not_finite_are_left_out(dtype):
    """Oracle: the run without them."""
    params = jnp.ones(2, dtype)
    optimizer = optax.apply_if_finite(aggmo(0.1), max_consecutive_errors=3)
    state, plain = optimizer.init(params), aggmo(0.1).init(params)
    for g in (1.0, float("nan"), 2.0, float("inf")):
        updates, state = jax.jit(optimizer.update)(jnp.full(2, g, dtype), state, params)
        expected = jnp.zeros(2, dtype)
        if np.isfinite(g):
            expected, plain = aggmo(0.1).update(jnp.full(2, g, dtype), plain, params)
        assert_close(updates, expected, rtol=1e-2)
    assert_close(state.inner_state[0], plain[0], rtol=1e-2)


@pytest.mark.parametrize("way", ["orbax", "pickle"])
def test_a_saved_state_goes_on(way, tmp_path):
    """Oracle: the run that was not interrupted, bit for bit."""
    optimizer = aggmo(optax.linear_schedule(0.1, 0.0, 2 * STEPS), (0, 0.9, 0.99), accumulator_dtype="bfloat16")
    whole = train(optimizer, start(), steps=2 * STEPS)
    saved = train(optimizer, start())
    if way == "pickle":
        params, state = pickle.loads(pickle.dumps(saved))
    else:
        with ocp.StandardCheckpointer() as checkpointer:
            checkpointer.save(tmp_path / "state", saved)
            checkpointer.wait_until_finished()
            params, state = checkpointer.restore(tmp_path / "state", (saved[0], optimizer.init(saved[0])))
    assert_equal((params, state), saved)
    step = jax.jit(stepper(optimizer))
    for _ in range(STEPS):
        params, state = step(params, state)
    assert_equal((params, state), whole)
