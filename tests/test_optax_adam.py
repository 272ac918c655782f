"""Aggregated momentum with Adam's preconditioning, beside Optax's AdEMAMix: where they are equal, and how they differ.

AdEMAMix (Pagliardini, Ablin and Grangier, 2024) is two velocities over one root mean square:

    (m_1 / (1 - b_1^t) + alpha m_2) / (sqrt(nu / (1 - b_2^t)) + eps),  m_i <- b_i m_i + (1 - b_i) g
"""

import jax
import jax.numpy as jnp
import numpy as np
import optax
from hypothesis import given, settings
from hypothesis import strategies as st

from aggmo.optax import scale_by_aggmo

B2, EPS, STEPS = 0.99, 1e-8, 12


def run(transformation, gradients):
    state, updates = transformation.init(gradients[0]), []
    for g in gradients:
        update, state = transformation.update(g, state)
        updates.append(update)
    return np.stack(updates)


def rms():
    """Adam's preconditioning without its momentum, as the documentation of Optax gives it."""
    return optax.scale_by_rms(B2, EPS, eps_in_sqrt=False, bias_correction=True)


def ademamix(b1, b3, alpha):
    return optax.contrib.scale_by_ademamix(b1, B2, b3, alpha, EPS)


def aggregated(b1, b3, alpha):
    return scale_by_aggmo((b1, b3), (1 - b1, alpha * (1 - b3)))


def preconditioned(inner):
    """The inner sum divided by the root mean square of the gradients, not the sum of gradients so divided."""

    def init(params):
        return inner.init(params), jnp.zeros_like(params), 0

    def update(g, state, params=None):
        inner_state, nu, t = state
        total, inner_state = inner.update(g, inner_state, params)
        nu = B2 * nu + (1 - B2) * g**2
        return total / (jnp.sqrt(nu / (1 - B2 ** (t + 1))) + EPS), (inner_state, nu, t + 1)

    return optax.GradientTransformation(init, update)


def gradients(seed, constant):
    """Random ones; of constant magnitude, if wanted, so that both orders of division are one."""
    g = np.random.default_rng(seed).normal(size=(STEPS, 5))
    return jnp.asarray(np.sign(g) * np.abs(g[0]) if constant else g)


PARAMETERS = (st.floats(0, 0.9999), st.floats(0, 10), st.integers(0, 99))


@settings(max_examples=15)
@given(*PARAMETERS)
def test_chained_it_is_ademamix_where_the_definitions_meet(b3, alpha, seed):
    """Oracle: Optax. They meet at b_1 = 0, where there is no bias to correct, and gradients of constant magnitude."""
    with jax.enable_x64(True):
        g = gradients(seed, constant=True)
        chained = optax.chain(rms(), aggregated(0, b3, alpha))
        np.testing.assert_allclose(run(chained, g), run(ademamix(0.0, b3, alpha), g), rtol=1e-12, atol=1e-12)


@settings(max_examples=15)
@given(st.floats(0, 0.999), *PARAMETERS)
def test_the_first_difference_is_the_bias_of_the_fast_velocity(b1, b3, alpha, seed):
    """Oracle: Optax; what AdEMAMix adds is m_1 (1 / (1 - b_1^t) - 1), which is gone after some 1 / (1 - b_1) steps."""
    with jax.enable_x64(True):
        g = gradients(seed, constant=True)
        chained = run(optax.chain(rms(), aggregated(b1, b3, alpha)), g)
        t = np.arange(1, STEPS + 1)[:, None]
        m1 = run(scale_by_aggmo((b1,), (1 - b1,)), g) / (np.abs(g[0]) + EPS)
        added = m1 * (1 / (1 - b1**t) - 1)
        np.testing.assert_allclose(chained + added, run(ademamix(b1, b3, alpha), g), rtol=1e-9, atol=1e-9)


@settings(max_examples=15)
@given(st.floats(0, 0.999), *PARAMETERS)
def test_the_second_difference_is_the_order_of_the_division(b1, b3, alpha, seed):
    """Oracle: Optax, on any gradients: divide last, and let a schedule of the weights correct the bias."""

    def weights(count):
        return jnp.stack([(1 - b1) / (1 - b1 ** (count + 1)), jnp.asarray(alpha * (1 - b3))])

    def factory(weights):
        return scale_by_aggmo((b1, b3), weights)

    with jax.enable_x64(True):
        g = gradients(seed, constant=False)
        corrected = optax.inject_hyperparams(factory)(weights=weights)
        state, found = preconditioned(corrected).init(g[0]), []
        for one in g:
            update, state = preconditioned(corrected).update(one, state, g[0])
            found.append(update)
        np.testing.assert_allclose(found, run(ademamix(b1, b3, alpha), g), rtol=1e-9, atol=1e-9)
        if b1 == 0:
            np.testing.assert_allclose(run(preconditioned(aggregated(b1, b3, alpha)), g), found, rtol=1e-9, atol=1e-9)


def test_more_velocities_than_two():
    """Oracle: the impulse response. Each normalised gradient counts sum_i w_i beta_i^l in the update l steps later."""
    betas, weights = (0.0, 0.9, 0.99), (0.5, 0.3, 0.2)
    with jax.enable_x64(True):
        g = gradients(3, constant=False)
        normalized = run(rms(), g)
        updates = run(optax.chain(rms(), scale_by_aggmo(betas, weights)), g)
        for t in range(STEPS):
            counts = [sum(w * b ** (t - s) for b, w in zip(betas, weights, strict=True)) for s in range(t + 1)]
            np.testing.assert_allclose(updates[t], counts @ normalized[: t + 1], rtol=1e-12)
