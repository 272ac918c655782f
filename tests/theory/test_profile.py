"""Oracles: the rate itself, and functions whose maximum is known."""

import numpy as np
import pytest
from random_dampings import random_dampings

from aggmo import Damping
from aggmo.theory.poles import felt_rate, poles
from aggmo.theory.profile import Profile, zoom
from aggmo.theory.quadratic import transition_matrix
from aggmo.theory.stability import limit


def test_zoom_finds_maxima_at_kinks_and_at_ends_side_by_side():
    kink, slopes = np.array([0.3, 2.0, -1.0]), np.array([1.0, 50.0, 1e-3])
    at, value = zoom(lambda x: 7 - slopes * np.abs(x - kink), np.array([0.0, 1.0, 0.0]), np.array([1.0, 3.0, 1.0]))
    np.testing.assert_allclose(at, [0.3, 2.0, 0.0], atol=1e-9)  # the last kink is outside
    np.testing.assert_allclose(value, [7, 7, 7 - 1e-3], atol=1e-7)


def test_the_rate_rises_to_its_maximum_and_falls():
    """Oracle: the moduli of NumPy's eigenvalues on a dense grid of steps, from which every fall is final."""
    for damping in random_dampings(300, seed=30, weight_decades=6):
        at_0, at_1 = (transition_matrix(damping, 1, curvature) for curvature in (0, 1))
        steps = limit(damping) * np.append(np.geomspace(1e-6, 0.1, 150, endpoint=False), np.linspace(0.1, 1, 150))
        moduli = np.sort(np.abs(np.linalg.eigvals(at_0 + steps[:, None, None] * (at_1 - at_0))), axis=1)
        rates = 1 - moduli[:, -1]
        rising, falling = np.maximum.accumulate(rates), np.maximum.accumulate(rates[::-1])[::-1]
        assert (rates > np.minimum(rising, falling) - 1e-7).all()


def test_a_pair_crosses_a_circle_once_only():
    """Oracle: the imaginary part of c on the circle, of which the docstring's sum is a positive multiple."""
    angles = np.linspace(0.01, np.pi - 0.01, 500)
    for damping in random_dampings(300, seed=31):
        betas, weights = np.array(damping.betas)[:, None], np.array(damping.weights)[:, None]
        for radius in (0.3, 0.8, 0.95, 0.999):
            z = radius * np.exp(1j * angles)
            total = (weights * (betas - radius**2) / (radius**2 + betas**2 - 2 * betas * z.real)).sum(axis=0)
            imaginary = (z * (weights / (z - betas)).sum(axis=0) / (1 - z)).imag
            np.testing.assert_allclose(-total * z.imag / np.abs(1 - z) ** 2, imaginary, rtol=1e-6, atol=1e-9)
            assert (np.diff(np.sign(total)) != 0).sum() <= 1


@pytest.mark.parametrize("exact", [True, False])
def test_the_least_rate_is_at_an_end(exact):
    """Oracle: the rate on a dense grid of steps."""
    kappa = np.array([10.0, 100.0, 1e4])
    for damping in random_dampings(40, seed=32):
        p = poles(damping)
        lr, worst = Profile(p, largest=1e4, exact=exact).best(kappa)
        dense = felt_rate(p, (lr * np.geomspace(1 / kappa, 1, 300)).ravel()).reshape(300, 3)
        np.testing.assert_allclose(worst, dense.min(axis=0), rtol=1e-9 if exact else 0.01)


def test_many_condition_numbers_are_one_after_the_other():
    profile, kappa = Profile(poles(Damping.exponential()), largest=1e5), np.array([3.0, 40.0, 700.0, 1e5])
    lr, worst = profile.best(kappa)
    for i in range(4):
        alone = profile.best(kappa[i : i + 1])
        np.testing.assert_array_equal((alone[0][0], alone[1][0]), (lr[i], worst[i]))
