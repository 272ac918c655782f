"""Steps, state and errors of the Keras optimizer, on the back end of this process."""

import json

import keras
import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from keras import ops
from strategies import arrays, dampings, invalid_betas, invalid_weights

from aggmo import Damping, reference
from aggmo.keras import AggMo

STEPS = 5
RATES = st.floats(0.0, 1.0)


@pytest.fixture(autouse=True)
def float64():
    """The learning rate, too, is of Keras's default dtype."""
    before = keras.config.floatx()
    keras.config.set_floatx("float64")
    yield
    keras.config.set_floatx(before)


def reference_run(theta, gradients, damping, rates, weight_decay=0.0):
    """The iterates of `aggmo.reference.step`."""
    velocities, iterates = [np.zeros_like(theta) for _ in damping], []
    for gradient, lr in zip(gradients, rates, strict=True):
        theta, velocities = reference.step(
            theta, velocities, gradient, damping, lr, weight_decay=weight_decay, decoupled_weight_decay=True
        )
        iterates.append(theta)
    return np.array(iterates)


def run(optimizer, theta, gradients, before=lambda _: None, apply=None):
    """The iterates under given gradients."""
    variable, iterates = keras.Variable(theta), []
    optimizer.build([variable])
    apply = apply or optimizer.apply
    for t, gradient in enumerate(gradients):
        before(t)
        apply([ops.convert_to_tensor(gradient)])
        iterates.append(ops.convert_to_numpy(variable))
    return np.array(iterates)


def linear(t):
    """A schedule that Keras does not have, as a user writes one."""
    return 0.5 - 0.1 * t


class Linear(keras.optimizers.schedules.LearningRateSchedule):
    def __call__(self, step):
        return linear(ops.cast(step, "float64"))


@given(
    dampings(),
    arrays((2, 3)),
    arrays((STEPS, 2, 3)),
    st.lists(RATES, min_size=STEPS, max_size=STEPS),
    st.sampled_from(["constant", "assigned", "piecewise", "exponential", "own", "callable"]),
    st.one_of(st.none(), st.floats(0.0, 1.0)),
)
@settings(max_examples=60)
@example(
    Damping((0, 0.9, 0.9, 0.99), (1, 0, 2, 3)), np.ones((2, 3)), np.ones((STEPS, 2, 3)), [0.1] * 5, "piecewise", 0.1
)
def test_trajectories(damping, theta, gradients, rates, kind, weight_decay):
    """Oracle: `aggmo.reference` with decoupled weight decay, which is what Keras calls weight decay."""
    schedules = keras.optimizers.schedules
    given = rates[0]
    if kind == "constant":
        rates = rates[:1] * STEPS
    elif kind == "piecewise":
        given = schedules.PiecewiseConstantDecay(list(range(STEPS - 1)), rates)
    elif kind == "exponential":
        given = schedules.ExponentialDecay(rates[0], decay_steps=2, decay_rate=0.5)
        rates = [rates[0] * 0.5 ** (t / 2) for t in range(STEPS)]
    elif kind == "own":
        given, rates = Linear(), list(map(linear, range(STEPS)))
    elif kind == "callable":
        given, left = lambda: left.pop(0), list(np.repeat(rates, 1 if weight_decay is None else 2))
    optimizer = AggMo(given, damping, weight_decay=weight_decay)

    def assign(t):
        if kind == "assigned":
            optimizer.learning_rate = rates[t]

    expected = reference_run(theta, gradients, damping, rates, weight_decay or 0.0)
    np.testing.assert_allclose(run(optimizer, theta, gradients, assign), expected, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("nesterov", [False, True])
def test_the_momentum_of_keras(nesterov):
    """Oracle: `keras.optimizers.SGD` at a constant learning rate."""
    gradients = np.random.default_rng(0).normal(size=(20, 4))
    damping = Damping.nesterov(0.9) if nesterov else Damping.classical(0.9)
    sgd = keras.optimizers.SGD(0.1, momentum=0.9, nesterov=nesterov)
    aggmo = AggMo(0.1, damping)
    theta = np.ones(4)
    np.testing.assert_allclose(run(aggmo, theta, gradients), run(sgd, theta, gradients), rtol=1e-12, atol=1e-12)


def compiled_apply(optimizer):
    """The step as `fit` compiles it: on JAX a function of the state."""
    if keras.config.backend() == "torch":
        import torch

        # One graph, traced as for Inductor, which would be long about compiling it.
        return torch.no_grad()(torch.compile(optimizer.apply, fullgraph=True, backend="aot_eager"))
    import jax

    step = jax.jit(optimizer.stateless_apply)

    def apply(gradients):
        trained = optimizer._trainable_variables
        states = ([v.value for v in variables] for variables in (optimizer.variables, trained))
        new_trained, new = step(next(states), gradients, next(states))
        for variable, value in zip([*trained, *optimizer.variables], [*new_trained, *new], strict=True):
            variable.assign(value)

    return apply


def test_a_compiled_step_is_the_step():
    """Oracle: the reference."""
    gradients = np.random.default_rng(0).normal(size=(STEPS, 3))
    optimizer = AggMo(Linear(), (0, 0.5, 0.9), (1, 2, 3), weight_decay=0.1)
    rates = list(map(linear, range(STEPS)))
    iterates = run(optimizer, np.ones(3), gradients, apply=compiled_apply(optimizer))
    expected = reference_run(np.ones(3), gradients, optimizer.damping, rates, weight_decay=0.1)
    np.testing.assert_allclose(iterates, expected, rtol=1e-12)


@pytest.mark.parametrize("option", ["clipnorm", "clipvalue", "global_clipnorm"])
def test_gradients_are_clipped_before_the_velocities(option):
    """Oracle: the reference under clipped gradients; for one variable both norms are the same."""
    gradients = np.random.default_rng(0).normal(size=(STEPS, 4))
    norms = np.linalg.norm(gradients, axis=1, keepdims=True)
    clipped = np.clip(gradients, -0.5, 0.5) if option == "clipvalue" else gradients * np.minimum(1, 0.5 / norms)
    optimizer = AggMo(0.1, (0, 0.9), **{option: 0.5})
    expected = reference_run(np.ones(4), clipped, optimizer.damping, [0.1] * STEPS)
    rtol = 1e-7 if "norm" in option else 1e-12  # on torch Keras divides by the norm in float32
    np.testing.assert_allclose(run(optimizer, np.ones(4), gradients), expected, rtol=rtol)


def test_the_moving_average():
    """Oracle: the average of the reference's iterates; Keras starts it at the first of them."""
    gradients = np.random.default_rng(0).normal(size=(STEPS, 4))
    variable = keras.Variable(np.ones(4))
    optimizer = AggMo(0.1, (0, 0.9), use_ema=True, ema_momentum=0.75)
    for gradient in gradients:
        optimizer.apply([ops.convert_to_tensor(gradient)], [variable])
    iterates = reference_run(np.ones(4), gradients, optimizer.damping, [0.1] * STEPS)
    average = iterates[0]
    for iterate in iterates[1:]:
        average = 0.75 * average + 0.25 * iterate
    np.testing.assert_allclose(ops.convert_to_numpy(variable), iterates[-1], rtol=1e-12)
    optimizer.finalize_variable_values([variable])
    np.testing.assert_allclose(ops.convert_to_numpy(variable), average, rtol=1e-12)


def test_gradients_are_accumulated():
    """Oracle: the reference under the means of two gradients; between, nothing moves."""
    gradients = np.random.default_rng(0).normal(size=(6, 4))
    optimizer = AggMo(0.1, (0, 0.9), gradient_accumulation_steps=2)
    iterates = run(optimizer, np.ones(4), gradients)
    expected = reference_run(np.ones(4), gradients.reshape(3, 2, 4).mean(axis=1), optimizer.damping, [0.1] * 3)
    np.testing.assert_allclose(iterates[1::2], expected, rtol=1e-12)
    np.testing.assert_array_equal(iterates[2::2], iterates[1:-1:2])


def test_weight_decay_leaves_out_what_is_excluded():
    """Oracle: without a gradient, decay alone multiplies by 1 - lr * weight_decay."""
    kernel, bias = keras.Variable(np.ones(2), name="kernel"), keras.Variable(np.ones(2), name="bias")
    optimizer = AggMo(0.5, weight_decay=0.5)
    optimizer.exclude_from_weight_decay(var_names=["bias"])
    optimizer.apply([ops.zeros(2), ops.zeros(2)], [kernel, bias])
    assert [ops.convert_to_numpy(v).tolist() for v in (kernel, bias)] == [[0.75, 0.75], [1.0, 1.0]]


@given(dampings())
@settings(max_examples=20)
def test_a_beta_of_0_stores_nothing(damping):
    optimizer = AggMo(0.1, damping)
    optimizer.build([keras.Variable(np.ones((2, 3))), keras.Variable(np.ones(5))])
    elements = sum(int(np.prod(variable.shape)) for variable in optimizer.variables[2:])
    assert elements == 11 * sum(beta > 0 for beta in damping)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
def test_velocities_have_the_dtype_of_their_variable(dtype):
    variable = keras.Variable(np.ones(2), dtype=dtype)
    optimizer = AggMo(0.5, (0, 0.5))
    for _ in range(2):
        optimizer.apply([ops.convert_to_tensor(np.ones(2))], [variable])
    assert {v.dtype for v in (variable, optimizer.variables[2])} == {dtype}
    assert ops.convert_to_numpy(ops.cast(variable, "float64")).tolist() == [-0.125, -0.125]  # 1 - 1/2 - (1 + 3/2) / 4


@given(dampings(), st.one_of(st.none(), RATES), st.one_of(RATES, st.just("schedule")))
@settings(max_examples=30)
def test_the_config_makes_it_anew(damping, weight_decay, rate):
    """Through JSON, as a file has it; the class is found under its registered name."""
    given = keras.optimizers.schedules.CosineDecay(0.5, 10) if rate == "schedule" else rate
    optimizer = AggMo(given, damping, weight_decay=weight_decay, clipnorm=2.0, use_ema=True, ema_momentum=0.5)
    saved = json.loads(json.dumps(keras.optimizers.serialize(optimizer)))
    assert saved["registered_name"] == "aggmo>AggMo"
    again = keras.optimizers.deserialize(saved)
    assert again.damping == damping
    assert again.get_config() == optimizer.get_config() == AggMo.from_config(optimizer.get_config()).get_config()


def test_the_loss_scale_is_taken_out_of_the_gradients():
    """Oracle: the same steps without a scale; and infinities change nothing but the scale."""
    gradients = np.random.default_rng(0).normal(size=(STEPS, 4))
    scaled = keras.optimizers.LossScaleOptimizer(AggMo(0.1), initial_scale=1024.0)
    apply = scaled.apply if keras.config.backend() == "torch" else compiled_apply(scaled)
    iterates = run(scaled, np.ones(4), gradients * 1024.0, apply=apply)
    np.testing.assert_allclose(iterates, run(AggMo(0.1), np.ones(4), gradients), rtol=1e-12)
    state = [*scaled.inner_optimizer.variables, *scaled._trainable_variables]
    before = [ops.convert_to_numpy(variable).copy() for variable in state]
    apply([ops.convert_to_tensor(np.array([1.0, np.inf, 1.0, np.nan]))])
    for variable, value in zip(state, before, strict=True):
        np.testing.assert_array_equal(ops.convert_to_numpy(variable), value)
    assert float(ops.convert_to_numpy(scaled.dynamic_scale)) == 512.0


@given(invalid_betas())
def test_bad_betas(betas):
    with pytest.raises(ValueError, match="beta"):
        AggMo(betas=betas)


@given(invalid_weights(2))
def test_bad_weights(weights):
    with pytest.raises(ValueError, match="weight"):
        AggMo(betas=(0, 0.9), weights=weights)


@pytest.mark.parametrize("name", ["learning_rate", "weight_decay"])
@pytest.mark.parametrize("value", [-0.1, np.nan, np.inf, True, "0.1", [0.1]])
def test_bad_numbers(name, value):
    with pytest.raises(ValueError, match=f"^{name}=.*must be a finite number >= 0"):
        AggMo(**{name: value})


def test_unknown_arguments_fail():
    with pytest.raises(ValueError, match=r"not recognized: \{'momentum': 0.9\}"):
        AggMo(momentum=0.9)


def test_integers_are_not_trained():
    count = keras.Variable([1, 2], dtype="int32", trainable=False, name="count")
    with pytest.raises(ValueError, match="'count' is int32: AggMo trains floating-point variables only"):
        AggMo().build([count])


def test_state_of_another_k_is_refused():
    theta = [keras.Variable(np.ones(2))]
    two, three = AggMo(betas=(0.5, 0.9)), AggMo(betas=(0, 0.5, 0.9))
    for optimizer in (two, three):
        optimizer.build(theta)
    with pytest.raises(ValueError, match="4 arrays for the 5 variables of an optimizer"):
        AggMo.set_weights(built(betas=(0.5, 0.6, 0.7)), [ops.convert_to_numpy(v) for v in two.variables])
    store = {}
    two.save_own_variables(store)
    with pytest.raises(ValueError, match=r"is of betas=\(0.5, 0.9\), this optimizer has betas=\(0.0, 0.5, 0.9\)"):
        three.load_own_variables(store)  # as many variables, but others
    store = {}
    built(betas=(0.5, 0)).save_own_variables(store)
    with pytest.raises(ValueError, match=r"is of betas=\(0.5, 0.0\), .* and zeros in the same places"):
        built(betas=(0, 0.5)).load_own_variables(store)


def built(**options):
    optimizer = AggMo(**options)
    optimizer.build([keras.Variable(np.ones(2))])
    return optimizer


def test_state_passes_from_one_to_another():
    """Oracle: the run that goes on."""
    gradients = np.random.default_rng(0).normal(size=(4, 2))
    optimizer, variable = AggMo(0.5, (0, 0.5, 0.9)), keras.Variable(np.ones(2))
    for gradient in gradients[:2]:
        optimizer.apply([ops.convert_to_tensor(gradient)], [variable])
    other, copy = AggMo(0.1, (0, 0.5, 0.9)), keras.Variable(ops.convert_to_numpy(variable))
    other.build([copy])
    other.set_weights([ops.convert_to_numpy(v) for v in optimizer.variables])
    for gradient in gradients[2:]:
        optimizer.apply([ops.convert_to_tensor(gradient)], [variable])
        other.apply([ops.convert_to_tensor(gradient)], [copy])
    np.testing.assert_array_equal(ops.convert_to_numpy(copy), ops.convert_to_numpy(variable))
