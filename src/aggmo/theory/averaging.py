"""Beta-averaged momentum (appendix F): a velocity for every damping b in [0, 1], averaged under a Beta distribution.

    theta_{t+1} = theta_t - lr * sum_l m_l g_{t-l},  m_l = E[b^l],  b ~ Beta(alpha, beta)

The moments m_l are the step's impulse response: what a gradient counts l steps later. Four ways to compute the step are
four impulse responses:

- the full history, `moments` of all lags, with every gradient stored: the oracle;
- the truncated history, `moments` of the first lags, after which a gradient is forgotten;
- Monte Carlo, which is an aggregated momentum with betas drawn at random: `sampled`;
- quadrature, an aggregated momentum with nodes and weights of Gauss and Jacobi: `aggmo.Damping.beta_distributed`, exact
  up to lag 2 nodes - 1, so that its first 2 nodes steps are those of the full history.
"""

import math
from collections.abc import Callable, Iterable
from typing import SupportsFloat

import numpy as np
import numpy.typing as npt
from scipy.special import gammaln

from aggmo.damping import Damping
from aggmo.theory.arguments import Floats, array, number, whole


def moments(alpha: float, beta: float, lags: int) -> Floats:
    """The impulse response of Beta-averaged momentum: the raw moments of Beta(alpha, beta), in closed form.

        E[b^l] = prod_{r=0}^{l-1} (alpha + r) / (alpha + beta + r),  l = 0 ... lags - 1

    Args:
        alpha, beta: the parameters of the Beta distribution, > 0.
        lags: how many, >= 1; fewer than the steps of a run mean the truncated history.

    Raises:
        ValueError: an argument out of range.

    >>> moments(1, 1, lags=4)  # uniform: 1 / (l + 1)
    array([1.        , 0.5       , 0.33333333, 0.25      ])
    """
    alpha, beta = _parameters(alpha, beta)
    r = np.arange(whole("lags", lags, least=1) - 1.0)
    return np.concatenate([[1.0], np.cumprod((alpha + r) / (alpha + beta + r))])


def impulse_response(damping: Damping | Iterable[SupportsFloat], lags: int) -> Floats:
    """What a gradient counts in the steps of an aggregated momentum: sum_i w_i beta_i^l, l = 0 ... lags - 1.

    Args:
        damping: the damping vector, or its betas.
        lags: how many, >= 1.

    Raises:
        ValueError: betas that make no damping vector, or lags < 1.

    >>> impulse_response((0, 0.5), lags=4)
    array([1.    , 0.25  , 0.125 , 0.0625])
    """
    damping = Damping.of(damping)
    betas, weights = np.asarray(damping.betas), np.asarray(damping.weights)
    # Lag by lag, for thousands of sampled betas and thousands of lags would fill the memory as a table.
    return np.array([weights @ betas**lag for lag in range(whole("lags", lags, least=1))])


def sampled(alpha: float, beta: float, samples: int, seed: int) -> Damping:
    """Monte Carlo as appendix F suggests it: betas drawn from Beta(alpha, beta), each with weight 1/samples.

    Its impulse response is right in the mean; see `sampling_error` for how far off one draw is.

    Args:
        alpha, beta: the parameters of the Beta distribution, > 0.
        samples: the number of velocities, >= 1.
        seed: of the random generator, >= 0.

    Raises:
        ValueError: an argument out of range, or a beta so small that a sample rounds to 1.

    >>> damping = sampled(alpha=100, beta=1, samples=4, seed=0)
    >>> len(damping), damping.weights[0], 0.9 < min(damping) < max(damping) < 1
    (4, 0.25, True)
    """
    alpha, beta = _parameters(alpha, beta)
    count = whole("samples", samples, least=1)
    drawn = np.random.default_rng(whole("seed", seed, least=0)).beta(alpha, beta, count)
    if drawn.max() == 1.0:
        raise ValueError(f"beta={beta} with alpha={alpha}: so small that a sample rounds to 1; take a larger beta")
    return Damping(drawn)


def descend(
    gradient: Callable[[Floats], Floats], start: npt.ArrayLike, lr: float, response: npt.ArrayLike, steps: int
) -> Floats:
    """Gradient descent with any impulse response h, by summing as many gradients as the response is long.

        theta_{t+1} = theta_t - lr * sum_l h_l g_{t-l},  l = 0 ... min(t, len(h) - 1)

    With `moments` of as many lags as steps this is the last update rule of appendix F, the oracle for everything else
    here.

    Args:
        gradient: of the function that is minimized.
        start: where to begin, an array of any shape.
        lr: the learning rate, > 0.
        response: the h_l, from lag 0; older gradients are forgotten.
        steps: how many, >= 0.

    Returns:
        The iterates in an array with steps + 1 rows, of which the first is start.

    Raises:
        ValueError: an argument out of range.

    >>> descend(lambda x: x, [8.0], lr=0.5, response=[1, 0.5], steps=3)[:, 0]  # 8 - 8/2, 4 - (4 + 8/2)/2, ...
    array([ 8.,  4.,  0., -1.])
    """
    theta = array("start", start, "numbers", lambda _: True)
    lr = number("lr", lr, "that is finite and > 0", lambda x: 0.0 < x < math.inf)
    h = array("response", response, "numbers in one row, at least one", lambda r: r.ndim == 1 and r.size > 0)
    h = h[: whole("steps", steps, least=0)]
    iterates = np.empty((steps + 1, *theta.shape))
    iterates[0] = theta
    gradients = np.empty((steps, *theta.shape))  # newest first: filled from the end
    for t in range(steps):
        newest = steps - 1 - t
        gradients[newest] = gradient(iterates[t])
        kept = gradients[newest : newest + len(h)]
        iterates[t + 1] = iterates[t] - lr * np.tensordot(h[: len(kept)], kept, axes=1)
    return iterates


def response_error(response: npt.ArrayLike, alpha: float, beta: float, lags: int) -> float:
    """The largest absolute error of an impulse response against the full history, over lags 0 ... lags - 1.

    Args:
        response: the h_l, 0 beyond its end; what it has beyond the lags does not count.
        alpha, beta: the parameters of the Beta distribution, > 0.
        lags: how many, >= 1.

    Raises:
        ValueError: an argument out of range.

    >>> response_error([1, 0.5], 1, 1, lags=4)  # the truncated history forgets 1/3 at lag 2
    0.3333333333333333
    """
    exact = moments(alpha, beta, lags)
    h = array("response", response, "numbers in one row, at least one", lambda r: r.ndim == 1 and r.size > 0)[:lags]
    exact[: len(h)] -= h
    return float(np.abs(exact).max())


def sampling_error(alpha: float, beta: float, samples: int, lags: int) -> Floats:
    """The standard error of the impulse response of `sampled`, lag by lag, in closed form.

        sqrt((E[b^2l] - E[b^l]^2) / samples)

    Raises:
        ValueError: an argument out of range.

    >>> sampling_error(1, 1, samples=3, lags=3)  # sqrt(variance / 3): variances 0, 1/12 and 1/5 - 1/9
    array([0.        , 0.16666667, 0.17213259])
    """
    count = whole("samples", samples, least=1)
    m = moments(alpha, beta, 2 * whole("lags", lags, least=1) - 1)
    return np.sqrt(np.maximum(m[::2] - m[:lags] ** 2, 0.0) / count)


def first_error(alpha: float, beta: float, nodes: int) -> float:
    """The error of the quadrature at lag 2 nodes, the first at which it has any, in closed form.

        E[b^2K] - sum_i w_i beta_i^2K = K! (alpha)_K (beta)_K / ((s + K - 1)_K (s)_2K),  s = alpha + beta, K nodes

    with (x)_n = x (x + 1) ... (x + n - 1). It is the mean square of the monic polynomial whose roots are the nodes.

    Args:
        alpha, beta: the parameters of the Beta distribution, > 0.
        nodes: K, >= 1.

    Raises:
        ValueError: an argument out of range.

    >>> first_error(1, 1, nodes=1)  # one node at 1/2: 1/3 - 1/4
    0.08333333333333333
    """
    alpha, beta = _parameters(alpha, beta)
    k, s = whole("nodes", nodes, least=1), alpha + beta
    above = gammaln(k + 1.0) + _log_rising(alpha, k) + _log_rising(beta, k)
    return float(np.exp(above - _log_rising(s + k - 1.0, k) - _log_rising(s, 2 * k)))


def _log_rising(x: float, n: int) -> float:
    """The logarithm of x (x + 1) ... (x + n - 1)."""
    return float(gammaln(x + n) - gammaln(x))


def _parameters(alpha: float, beta: float) -> tuple[float, float]:
    """The parameters of a Beta distribution, checked."""
    allowed = "that is finite and > 0"
    return (
        number("alpha", alpha, allowed, lambda x: 0.0 < x < math.inf),
        number("beta", beta, allowed, lambda x: 0.0 < x < math.inf),
    )
