"""Models trained, saved and loaded with the Keras optimizer, on the back end of this process."""

import inspect

import keras
import numpy as np
import pytest

import aggmo.keras
from aggmo import Damping, reference
from aggmo.keras import AggMo

X = np.round(4 * np.random.default_rng(0).normal(size=(16, 3))) / 4  # exact in float32, which `fit` may make of it
Y = X @ np.array([[1.0], [-2.0], [3.0]])


@pytest.fixture(autouse=True)
def _settings():
    """The defaults before and after each test."""
    floatx = keras.config.floatx()
    yield
    keras.config.set_floatx(floatx)
    keras.config.set_dtype_policy(floatx)


def model(optimizer, **options):
    """A linear one, which starts at zero."""
    made = keras.Sequential(
        [keras.layers.Input((3,)), keras.layers.Dense(1, use_bias=False, kernel_initializer="zeros")]
    )
    made.compile(optimizer, "mse", **options)
    return made


def fit(made, epochs, first=0, y=Y):
    """One step each epoch, with all of the data."""
    made.fit(X, y, batch_size=len(X), epochs=epochs, initial_epoch=first, shuffle=False, verbose=0)
    return made.get_weights()[0]


def expected(damping, rates, weight_decay=0.0):
    """What gradients in closed form and the reference make of it."""
    theta, velocities = np.zeros((3, 1)), [np.zeros((3, 1)) for _ in damping]
    for lr in rates:
        gradient = 2 * X.T @ (X @ theta - Y) / len(X)
        theta, velocities = reference.step(
            theta, velocities, gradient, damping, lr, weight_decay=weight_decay, decoupled_weight_decay=True
        )
    return theta


def rtol():
    """On torch, part of how Keras calculates a loss is in float32."""
    return 1e-10 if keras.config.backend() == "jax" else 1e-6


@pytest.mark.parametrize("damping", [Damping((0, 0.9, 0.99)), Damping.nesterov(0.9)], ids=str)
def test_fit(damping):
    """Oracle: the reference. On JAX the step is compiled, as it is there by default."""
    keras.config.set_floatx("float64")
    keras.config.set_dtype_policy("float64")
    schedule = keras.optimizers.schedules.InverseTimeDecay(0.1, decay_steps=1, decay_rate=0.5)
    made = model(AggMo(schedule, damping, weight_decay=0.1))
    rates = [0.1 / (1 + 0.5 * t) for t in range(6)]
    np.testing.assert_allclose(fit(made, 6), expected(damping, rates, 0.1), rtol=rtol())
    if keras.config.backend() == "jax":
        assert made.jit_compile


def test_callbacks_change_the_learning_rate():
    """Oracle: the reference, whose learning rate changes alike."""
    keras.config.set_floatx("float64")
    keras.config.set_dtype_policy("float64")
    made = model(AggMo(0.1))
    halve = keras.callbacks.LearningRateScheduler(lambda epoch, lr: lr / 2 if epoch else lr)
    made.fit(X, Y, batch_size=16, epochs=4, callbacks=[halve], verbose=0)
    rates = [0.1 / 2**t for t in range(4)]
    np.testing.assert_allclose(made.get_weights()[0], expected(made.optimizer.damping, rates), rtol=rtol())


@pytest.mark.parametrize("extension", ["keras", "weights.h5"])
@pytest.mark.parametrize("options", [{"weights": (1, 2, 3)}, {"use_ema": True, "ema_momentum": 0.5}], ids=str)
def test_a_loaded_model_goes_on(options, extension, tmp_path):
    """Oracle: the run that was not interrupted, bit for bit."""

    def make():
        schedule = keras.optimizers.schedules.PolynomialDecay(0.1, 8, end_learning_rate=0.01)
        return model(AggMo(schedule, weight_decay=0.1, **options))

    file = tmp_path / f"saved.{extension}"
    uninterrupted = make()
    fit(uninterrupted, 3)
    if extension == "keras":
        uninterrupted.save(file)
        loaded = keras.saving.load_model(file)
        assert type(loaded.optimizer).__mro__[1:] == AggMo.__mro__[1:]
    else:
        uninterrupted.save_weights(file)
        loaded = make()
        loaded.optimizer.build(loaded.trainable_variables)
        loaded.load_weights(file)
    assert loaded.optimizer.get_config()["betas"] == [0.0, 0.9, 0.99]
    np.testing.assert_array_equal(fit(loaded, 6, first=3), fit(uninterrupted, 6, first=3))
    for ours, theirs in zip(loaded.optimizer.variables, uninterrupted.optimizer.variables, strict=True):
        np.testing.assert_array_equal(keras.ops.convert_to_numpy(ours), keras.ops.convert_to_numpy(theirs))


def test_a_file_with_another_k_is_refused(tmp_path):
    saved, other = model(AggMo(betas=(0.5, 0.9))), model(AggMo(betas=(0, 0.5, 0.9)))
    fit(saved, 1)
    saved.save_weights(tmp_path / "saved.weights.h5")
    other.optimizer.build(other.trainable_variables)
    with pytest.raises(
        ValueError, match=r"the saved state is of betas=\(0.5, 0.9\), this optimizer has betas=\(0.0, 0"
    ):
        other.load_weights(tmp_path / "saved.weights.h5")
    with pytest.warns(UserWarning, match="the saved state is of betas"):
        other.load_weights(tmp_path / "saved.weights.h5", skip_mismatch=True)
    np.testing.assert_array_equal(other.get_weights()[0], saved.get_weights()[0])


def test_the_file_of_another_optimizer_gives_the_model_alone(tmp_path):
    saved, other = model(keras.optimizers.SGD(0.1, momentum=0.9)), model(AggMo())
    fit(saved, 2)
    saved.save_weights(tmp_path / "saved.weights.h5")
    other.optimizer.build(other.trainable_variables)
    with pytest.warns(UserWarning, match="Skipping variable loading for optimizer"):
        other.load_weights(tmp_path / "saved.weights.h5")
    np.testing.assert_array_equal(other.get_weights()[0], saved.get_weights()[0])


@pytest.mark.parametrize("policy", ["mixed_float16", "mixed_bfloat16"])
def test_mixed_precision(policy, tmp_path):
    """Oracle: the reference, within the precision of the gradients; a loaded model goes on bit for bit."""
    keras.config.set_dtype_policy(policy)
    made = model(AggMo(0.05, betas=(0, 0.5)))
    y = Y / 16  # more, times the first scale of 2^15, is infinite in float16
    np.testing.assert_allclose(16 * fit(made, 3, y=y), expected(Damping((0, 0.5)), [0.05] * 3), rtol=3e-2)
    optimizer = made.optimizer
    if policy == "mixed_float16":
        assert isinstance(optimizer, keras.optimizers.LossScaleOptimizer)
        optimizer = optimizer.inner_optimizer
    assert {v.dtype for v in [*made.trainable_variables, *optimizer.variables[1:]]} == {"float32"}
    made.save(tmp_path / "saved.keras")
    loaded = keras.saving.load_model(tmp_path / "saved.keras")
    np.testing.assert_array_equal(fit(loaded, 6, 3, y), fit(made, 6, 3, y))


def test_every_public_name_is_explained():
    assert aggmo.keras.__all__ == ["AggMo"]
    own = {name: member for name, member in vars(AggMo).items() if inspect.isfunction(member) and name[0] != "_"}
    assert {"build", "update_step", "get_config", "load_own_variables"} <= own.keys()
    for name, thing in {"AggMo": AggMo, **own}.items():
        assert ">>>" in inspect.getdoc(thing), name
