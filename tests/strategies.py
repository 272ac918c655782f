"""Hypothesis strategies: damping vectors, valid and invalid, and arrays for parameters and gradients."""

import math

import numpy as np
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from aggmo import Damping

# Exactly 0, ordinary values, and values near 1; equal ones come up often because the first list is short.
BETAS = st.one_of(st.sampled_from([0.0, 0.5, 0.9, 0.99]), st.floats(0.0, 0.9999))
WEIGHTS = st.one_of(st.sampled_from([0.0, 0.5, 1.0]), st.floats(0.0, 3.0))


@st.composite
def dampings(draw: st.DrawFn, max_k: int = 6) -> Damping:
    """Valid damping vectors: any K, betas of 0, duplicates, the paper's weights or free ones, some of them 0."""
    betas = draw(st.lists(BETAS, min_size=1, max_size=max_k))
    if draw(st.booleans()):
        return Damping(betas)
    weights = draw(st.lists(WEIGHTS, min_size=len(betas), max_size=len(betas)).filter(any))
    return Damping(betas, weights)


@st.composite
def invalid_betas(draw: st.DrawFn) -> list[object]:
    """Betas with one that is outside [0, 1) or no number."""
    betas: list[object] = draw(st.lists(BETAS, max_size=4))
    outside = st.one_of(
        st.floats(min_value=1.0),
        st.floats(max_value=0.0, exclude_max=True),
        st.sampled_from([math.nan, math.inf, -math.inf, 1, -1, 10**400, "0.9", None, 0.5j, (0.9,), np.zeros(2)]),
        st.just(np.complex64(0.5)),  # float() would drop its imaginary part, with a warning
    )
    betas.insert(draw(st.integers(0, len(betas))), draw(outside))
    return betas


@st.composite
def invalid_weights(draw: st.DrawFn, k: int) -> list[object]:
    """Weights for k betas: one negative, infinite or no number, all of them 0, or too few or too many."""
    weights: list[object] = draw(st.lists(WEIGHTS, min_size=k, max_size=k))
    kind = draw(st.sampled_from(["bad", "zero", "length"]))
    if kind == "zero":
        return [0.0] * k
    if kind == "length":
        return draw(st.lists(st.just(1.0), max_size=k + 2).filter(lambda values: len(values) != k))
    bad = st.one_of(
        st.floats(max_value=0.0, exclude_max=True), st.sampled_from([math.nan, math.inf, -math.inf, "1", None, 1j])
    )
    weights[draw(st.integers(0, k - 1))] = draw(bad)
    return weights


def arrays(shape: tuple[int, ...], dtype: type = np.float64, limit: float = 4.0) -> st.SearchStrategy[np.ndarray]:
    """Finite arrays of ordinary size."""
    width = np.dtype(dtype).itemsize * 8
    return hnp.arrays(dtype, shape, elements=st.floats(-limit, limit, width=width, allow_subnormal=False))


SHAPES = hnp.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=4)
