import math
import pickle

import numpy as np
import pytest
import scipy.special
import strategies
from hypothesis import assume, example, given
from hypothesis import strategies as st

from aggmo import Damping


def simulated_step_under_constant_gradient(damping: Damping, steps: int) -> float:
    velocities = [0.0] * len(damping)
    for _ in range(steps):
        velocities = [beta * v + 1.0 for beta, v in zip(damping, velocities, strict=True)]
    return sum(w * v for w, v in zip(damping.weights, velocities, strict=True))


@given(strategies.dampings())
def test_a_damping_keeps_what_it_is_given(damping):
    assert list(damping) == list(damping.betas)
    assert len(damping) == len(damping.betas) == len(damping.weights)
    assert Damping(damping.betas, damping.weights) == damping
    assert hash(Damping(damping.betas, damping.weights)) == hash(damping)
    assert pickle.loads(pickle.dumps(damping)) == damping
    assert eval(repr(damping)) == damping
    assert all(type(x) is float for x in (*damping.betas, *damping.weights))


def test_weights_default_to_the_papers_average():
    assert Damping((0, 0.9, 0.99)).weights == (1 / 3, 1 / 3, 1 / 3)


def test_any_iterable_of_numbers_will_do():
    expected = Damping((0.0, 0.5), (1.0, 2.0))
    assert Damping(iter([0, 0.5]), np.array([1, 2])) == expected
    assert Damping(np.array([0, 0.5], dtype=np.float32), (np.float64(1), np.int64(2))) == expected


def test_minus_zero_is_zero():
    assert repr(Damping((-0.0,))) == "Damping(betas=(0.0,), weights=(1.0,))"


def test_a_damping_is_frozen():
    damping = Damping((0, 0.9))
    with pytest.raises(AttributeError):
        damping.betas = (0.5,)
    with pytest.raises((AttributeError, TypeError)):
        damping.other = 1


@given(strategies.invalid_betas())
def test_betas_outside_their_range_are_refused_by_name(betas):
    with pytest.raises(ValueError, match=r"^betas\[\d\]"):
        Damping(betas)


@given(st.data())
def test_weights_outside_their_range_are_refused_by_name(data):
    k = data.draw(st.integers(1, 4))
    with pytest.raises(ValueError, match="weight"):
        Damping([0.5] * k, data.draw(strategies.invalid_weights(k)))


@pytest.mark.parametrize("betas", [(), [], np.array([])])
def test_no_betas_are_refused(betas):
    with pytest.raises(ValueError, match="betas is empty"):
        Damping(betas)


@pytest.mark.parametrize("betas", [0.9, "0, 0.9", b"0", None, np.array(0.9), {0.0, 0.5}, {0.0: 0.9}], ids=repr)
def test_what_is_no_sequence_is_refused(betas):
    with pytest.raises(ValueError, match=r"betas=.*sequence of numbers"):
        Damping(betas)


def test_the_message_names_position_value_and_range():
    with pytest.raises(ValueError, match=r"^betas\[1\] is 1.0: every beta must be in \[0, 1\)$"):
        Damping((0, 1.0))
    with pytest.raises(ValueError, match=r"^weights\[0\] is -1.0: every weight must be finite and >= 0$"):
        Damping((0, 0.5), (-1, 1))
    with pytest.raises(ValueError, match=r"^3 weights for 2 betas"):
        Damping((0, 0.5), (1, 1, 1))


def test_of_takes_a_damping_or_a_sequence_but_no_weights_twice():
    nesterov = Damping.nesterov(0.9)
    assert Damping.of(nesterov) is nesterov
    assert Damping.of([0, 0.9], [1, 0.9]) == nesterov
    with pytest.raises(ValueError, match="leave one out"):
        Damping.of(nesterov, (1, 1))


def test_exponential_gives_the_papers_vectors():
    assert Damping.exponential() == Damping((0, 0.9, 0.99))
    for k, betas in {1: [0], 2: [0, 0.9], 4: [0, 0.9, 0.99, 0.999], 5: [0, 0.9, 0.99, 0.999, 0.9999]}.items():
        np.testing.assert_allclose(list(Damping.exponential(k=k)), betas, rtol=0, atol=1e-15)
    assert Damping.exponential(k=np.int64(2), a=0.5).betas == (0.0, 0.5)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"k": 0}, "k=0"),
        ({"k": -1}, "k=-1"),
        ({"k": 2.0}, "k=2.0"),
        ({"k": True}, "k=True"),
        ({"k": "3"}, "k='3'"),
        ({"a": 0.0}, "a=0.0"),
        ({"a": 1.0}, "a=1.0"),
        ({"a": -0.1}, "a=-0.1"),
        ({"a": math.nan}, "a=nan"),
        ({"a": "x"}, "a is 'x'"),
        ({"k": 18}, "rounds to 1"),
        ({"k": 10**400}, "from 1 to 1000"),
    ],
)
def test_exponential_refuses_by_name(arguments, message):
    with pytest.raises(ValueError, match=message):
        Damping.exponential(**arguments)


@pytest.mark.parametrize("family", [Damping.classical, Damping.nesterov, lambda b: Damping.quasi_hyperbolic(b, 0.5)])
@pytest.mark.parametrize("beta", [1.0, -0.1, math.nan, "0.9"])
def test_families_refuse_a_beta_out_of_range(family, beta):
    with pytest.raises(ValueError, match=r"^beta"):
        family(beta)


@pytest.mark.parametrize("nu", [-0.1, 1.1, math.nan, "1"])
def test_quasi_hyperbolic_refuses_nu_out_of_range(nu):
    with pytest.raises(ValueError, match=r"^nu"):
        Damping.quasi_hyperbolic(0.9, nu)


@given(st.floats(0, 0.999), st.floats(0, 1))
def test_quasi_hyperbolic_spans_from_sgd_to_normalised_momentum(beta, nu):
    """Oracle: the published update, d = (1 - nu) g + nu m with m = beta m + (1 - beta) g, has terminal velocity 1."""
    assert Damping.quasi_hyperbolic(beta, nu).terminal_velocity == pytest.approx(1.0, rel=1e-12)
    assert Damping.quasi_hyperbolic(beta, 0).weights == (1.0, 0.0)


@given(st.floats(0, 0.999))
def test_nesterov_and_classical_have_one_terminal_velocity(beta):
    """Oracle: both reach 1 / (1 - beta)."""
    assert Damping.classical(beta).terminal_velocity == pytest.approx(1 / (1 - beta), rel=1e-12)
    assert Damping.nesterov(beta).terminal_velocity == pytest.approx(1 / (1 - beta), rel=1e-12)


@given(strategies.dampings())
def test_terminal_velocity_is_the_limit_of_a_simulation(damping):
    """Oracle: the step of a simulation under a constant gradient of 1, run until beta^steps < 1e-15."""
    assume(max(damping) <= 0.99)
    simulated = simulated_step_under_constant_gradient(damping, steps=3500)
    assert damping.terminal_velocity == pytest.approx(simulated, rel=1e-9)


SHAPE = st.floats(0.2, 200)


@given(SHAPE, SHAPE, st.integers(1, 12))
@example(0.3, 0.7, 5)  # alpha + beta = 1 and 2 are where the general recurrence is 0/0
@example(1.0, 1.0, 5)
def test_beta_distributed_has_the_distributions_moments(alpha, beta, nodes):
    """Oracle: E[b^l] of Beta(alpha, beta) in closed form, a product of (alpha + r) / (alpha + beta + r)."""
    damping = Damping.beta_distributed(alpha, beta, nodes)
    moment = 1.0
    for lag in range(2 * nodes):
        quadrature = math.fsum(w * b**lag for b, w in zip(damping, damping.weights, strict=True))
        assert quadrature == pytest.approx(moment, rel=1e-12, abs=1e-14)
        moment *= (alpha + lag) / (alpha + beta + lag)


@pytest.mark.parametrize(("alpha", "beta"), [(100, 1), (0.5, 0.5), (1, 1), (0.3, 0.6), (1.5, 0.5), (2, 5)])
@pytest.mark.parametrize("nodes", [1, 2, 3, 8])
def test_beta_distributed_agrees_with_scipys_nodes(alpha, beta, nodes):
    """Oracle: scipy.special.roots_jacobi, moved from [-1, 1] to [0, 1]."""
    x, w = scipy.special.roots_jacobi(nodes, beta - 1, alpha - 1)
    damping = Damping.beta_distributed(alpha, beta, nodes)
    np.testing.assert_allclose(damping.betas, (1 + x) / 2, rtol=1e-11)
    np.testing.assert_allclose(damping.weights, w / w.sum(), rtol=1e-9)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((0, 1, 3), "alpha=0"),
        ((1, -1, 3), "beta=-1"),
        ((math.inf, 1, 3), "alpha=inf"),
        ((1, math.nan, 3), "beta=nan"),
        (("a", 1, 3), "alpha is 'a'"),
        ((1, 1, 0), "nodes=0"),
        ((1, 1, 2.5), "nodes=2.5"),
        ((1e18, 1e-3, 2), "rounds to 1"),
        ((1e300, 1e300, 3), "so extreme"),
        ((1e-300, 1e-300, 3), "so extreme"),
        ((1, 1, 10**12), "from 1 to 1000"),
    ],
)
def test_beta_distributed_refuses_by_name(arguments, message):
    with pytest.raises(ValueError, match=message):
        Damping.beta_distributed(*arguments)
