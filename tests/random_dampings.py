"""Damping vectors by the thousand, to compare theory with brute force on; strategies.py has the few hard ones."""

import numpy as np

from aggmo import Damping


def random_dampings(count: int, seed: int, weight_decades: float = 3.0) -> list[Damping]:
    """K from 1 to 6, betas from exactly 0 to 0.9999, some equal, the paper's weights or free ones, some of them 0."""
    rng = np.random.default_rng(seed)
    return [_one(rng, weight_decades) for _ in range(count)]


def _one(rng: np.random.Generator, weight_decades: float) -> Damping:
    k = int(rng.integers(1, 7))
    near_one = rng.random(k) < 0.5
    betas = np.where(near_one, 1.0 - 10.0 ** -rng.uniform(0.0, 4.0, k), rng.uniform(0.0, 0.9999, k))
    betas[rng.random(k) < 0.15] = 0.0
    if k > 1 and rng.random() < 0.25:
        betas[0] = betas[1]
    if rng.random() < 0.4:
        return Damping(betas)
    weights = 10.0 ** -rng.uniform(0.0, weight_decades, k)
    weights[rng.random(k) < 0.15] = 0.0
    return Damping(betas, weights if weights.any() else None)
