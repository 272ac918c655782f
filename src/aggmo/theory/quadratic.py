"""Momentum on a quadratic: transition matrix, eigenvalues, rates, trajectories, difference equation.

On f = 1/2 x' A x every eigenvector of A goes its own way, and of learning rate and curvature only the product counts,
the step c = lr * lambda. The signs are the paper's: velocities accumulate -gradient, and the step adds them.
"""

import math
from collections.abc import Iterable
from typing import NamedTuple, SupportsFloat

import numpy as np
import numpy.typing as npt

from aggmo import reference
from aggmo.damping import Damping
from aggmo.theory.arguments import Floats, array, number, whole
from aggmo.theory.poles import felt_rate, poles, roots, step_at


def transition_matrix(damping: Damping | Iterable[SupportsFloat], lr: float, curvature: npt.ArrayLike) -> Floats:
    """The matrix B of appendix B: one step takes (v_1, ..., v_K, x - x*) to B times it.

        v_i <- beta_i v_i - A x
        x   <- x + lr * sum_i w_i beta_i v_i - lr * (sum_i w_i) A x

    Args:
        damping: the damping vector, or its betas.
        lr: the learning rate, finite and > 0.
        curvature: a number gives the block B_j of appendix C, of order K + 1; n numbers, the eigenvalues of A, give
            the full form with A diagonal, of order (K + 1) n; a symmetric matrix A gives the full form with it.

    Raises:
        ValueError: lr out of range, or a curvature that is not finite, empty or not symmetric.

    >>> transition_matrix((0.5,), lr=0.25, curvature=2)
    array([[ 0.5  , -2.   ],
           [ 0.125,  0.5  ]])
    >>> transition_matrix((0, 0.5), lr=0.25, curvature=[1, 2]).shape
    (6, 6)
    """
    damping = Damping.of(damping)
    lr = _learning_rate(lr)
    a = array("curvature", curvature, "a number, a row of them or a symmetric matrix", _is_curvature)
    a = np.diag(np.atleast_1d(a)) if a.ndim < 2 else a
    betas, weights = np.array(damping.betas), np.array(damping.weights)
    k, n = len(betas), len(a)
    b = np.zeros(((k + 1) * n, (k + 1) * n))
    b[: k * n, : k * n] = np.kron(np.diag(betas), np.eye(n))
    b[: k * n, k * n :] = np.tile(-a, (k, 1))
    b[k * n :, : k * n] = np.kron(lr * weights * betas, np.eye(n))
    b[k * n :, k * n :] = np.eye(n) - lr * math.fsum(weights) * a
    return b


def characteristic_polynomial(damping: Damping | Iterable[SupportsFloat], step: npt.ArrayLike) -> Floats:
    """Coefficients of det(z - B) for one curvature, highest power first, as `numpy.polyval` takes them.

        (z - 1) prod_i (z - beta_i) + c z sum_i w_i prod_{k != i} (z - beta_k),  c = lr * lambda

    Args:
        damping: the damping vector, or its betas.
        step: c, any finite number or an array of them.

    Returns:
        K + 2 coefficients, along the last axis if step is an array.

    Raises:
        ValueError: a step that is not finite.

    >>> characteristic_polynomial((0.5,), step=0.25)  # z^2 - (1 + beta - c) z + beta
    array([ 1.  , -1.25,  0.5 ])
    """
    c = array("step", step, "real", lambda _: True)
    left, right = _lag_polynomials(Damping.of(damping))
    polynomial = np.broadcast_to(left, (*c.shape, len(left))).copy()
    polynomial[..., 1:-1] += c[..., None] * right
    return polynomial


def eigenvalues(damping: Damping | Iterable[SupportsFloat], step: npt.ArrayLike) -> npt.NDArray[np.complex128]:
    """The K + 1 eigenvalues of B for one curvature.

    First the two that can be complex (one, 1 - c sum_i w_i, if no beta is positive), then the real ones between
    neighbouring betas, falling, then the idle ones, which are betas: motions of the velocities that theta does not feel
    (`aggmo.theory.poles.Poles`).

    Args:
        damping: the damping vector, or its betas.
        step: c = lr * lambda, >= 0, a number or an array.

    Returns:
        An array with one more axis than step, of length K + 1.

    Raises:
        ValueError: a step that is negative or not finite.

    >>> eigenvalues((0.25,), step=[1, 2.25])  # 1/8 +- i sqrt(15)/8 on the circle |z|^2 = 1/4; then twice -1/2
    array([[ 0.125+0.48412292j,  0.125-0.48412292j],
           [-0.5  +0.j        , -0.5  +0.j        ]])
    """
    c, p = _steps(step), poles(damping)
    u = roots(p, c.ravel())
    idle = np.tile(np.array(p.idle, dtype=np.complex128), (c.size, 1))
    return np.concatenate([1.0 - u.T, idle], axis=1).reshape(*c.shape, -1)


def rate(damping: Damping | Iterable[SupportsFloat], step: npt.ArrayLike) -> Floats:
    """The rate of convergence 1 - rho for one curvature, to its last digits however small it is.

    rho is the spectral radius of B: the error shrinks by this factor a step in the long run. (The paper says spectral
    norm, but the norm is above 1 even where the iteration converges.) A rate below 0 is one of divergence.

    Args:
        damping: the damping vector, or its betas.
        step: c = lr * lambda, >= 0, a number or an array.

    Returns:
        1 - rho, in the shape of step.

    Raises:
        ValueError: a step that is negative or not finite.

    >>> rate((0.25,), step=[1 / 6, 1, 2.25, 3.375])  # z = 3/4, |z|^2 = 1/4, twice -1/2, z = -2
    array([ 0.25,  0.5 ,  0.5 , -1.  ])
    """
    c, p = _steps(step), poles(damping)
    found = felt_rate(p, c.ravel())
    return np.minimum(found, min((1.0 - beta for beta in p.idle), default=math.inf)).reshape(c.shape)[()]


def spectral_radius(damping: Damping | Iterable[SupportsFloat], step: npt.ArrayLike) -> Floats:
    """The spectral radius rho of B for one curvature, the largest modulus of its eigenvalues.

    Args:
        damping: the damping vector, or its betas.
        step: c = lr * lambda, >= 0, a number or an array.

    Returns:
        rho, in the shape of step.

    Raises:
        ValueError: a step that is negative or not finite.

    >>> spectral_radius((0.25,), step=[1, 2.25, 2.5])
    array([0.5, 0.5, 1. ])
    """
    return 1.0 - rate(damping, step)


class Trajectory(NamedTuple):
    """A run from x = 1 at rest: iterates[t] and velocities[t, i], with the shape of the curvatures behind.

    >>> Trajectory(np.ones(1), np.zeros((1, 2))).iterates
    array([1.])
    """

    iterates: Floats
    velocities: Floats


def trajectory(
    damping: Damping | Iterable[SupportsFloat], lr: float, curvatures: npt.ArrayLike, steps: int
) -> Trajectory:
    """Equation (3), or (4) with unequal weights, on one-dimensional quadratics from x_0 = 1 and velocities 0.

    `Damping.classical` gives classical momentum, `Damping.nesterov` Nesterov's phi (`nesterov_trajectory` has theta
    too), `Damping.beta_distributed` Beta-averaged momentum.

    Args:
        damping: the damping vector, or its betas.
        lr: the learning rate, finite and > 0.
        curvatures: the curvatures lambda, an array of any shape; every one is a run of its own.
        steps: the number of steps, >= 0.

    Returns:
        The steps + 1 iterates, start first, and all velocities.

    Raises:
        ValueError: an argument out of range.

    >>> run = trajectory((0, 0.5), lr=0.5, curvatures=[1, 2], steps=2)
    >>> run.iterates[:, 1]  # 1; 1 - (2 + 2)/4; 0 - (0 + 1)/4
    array([ 1.  ,  0.  , -0.25])
    >>> run.velocities[:, 1, 1]  # that of beta 1/2
    array([ 0., -2., -1.])
    """
    damping, lr = Damping.of(damping), _learning_rate(lr)
    curvature = array("curvatures", curvatures, "real", lambda _: True)
    iterates = np.ones((whole("steps", steps, least=0) + 1, *curvature.shape))
    velocities = np.zeros((len(iterates), len(damping), *curvature.shape))
    x, v = iterates[0], list(velocities[0])
    for t in range(1, len(iterates)):
        x, v = reference.step(x, v, curvature * x, damping, lr)
        iterates[t], velocities[t] = x, v
    return Trajectory(iterates, 0.0 - velocities)  # not -velocities, which would start with -0


class Nesterov(NamedTuple):
    """A run of Nesterov momentum in both of its iterates, phi = theta + lr beta v, and its velocity.

    >>> Nesterov(theta=np.ones(1), phi=np.ones(1), velocity=np.zeros(1)).phi
    array([1.])
    """

    theta: Floats
    phi: Floats
    velocity: Floats


def nesterov_trajectory(beta: float, lr: float, curvatures: npt.ArrayLike, steps: int) -> Nesterov:
    """Nesterov momentum, equation (2), on one-dimensional quadratics from theta_0 = phi_0 = 1 and velocity 0.

    It is run as the aggregated momentum that phi follows (equations 5 to 7), and theta taken from it.

    Args:
        beta: the damping, 0 <= beta < 1.
        lr: the learning rate, finite and > 0.
        curvatures: the curvatures lambda, an array of any shape.
        steps: the number of steps, >= 0.

    Raises:
        ValueError: an argument out of range.

    >>> run = nesterov_trajectory(0.5, lr=0.5, curvatures=1, steps=2)
    >>> run.theta  # 1; 1 - 1/2; 1/2 + (-1/2 - 1/4)/2
    array([1.   , 0.5  , 0.125])
    >>> run.phi  # 1; 1/2 - 1/4; 1/8 - 3/16
    array([ 1.    ,  0.25  , -0.0625])
    """
    damping = Damping.nesterov(beta)
    run = trajectory(damping, lr, curvatures, steps)
    velocity = run.velocities[:, 1]
    return Nesterov(run.iterates - lr * damping.betas[1] * velocity, run.iterates, velocity)


def transient_peak(damping: Damping | Iterable[SupportsFloat], step: npt.ArrayLike) -> Floats:
    """How far an iterate that starts at x_0 = 1, at rest, gets from the minimum: max_t |x_t| over all t >= 0.

    1 where it only decays; the spectral radius does not show what is above. The run ends when the eigenvalues rule out
    more (by a relative 1e-9): x_t = sum_j alpha_j z_j^t is at most sum_j |alpha_j| |z_j|^t.

    Args:
        damping: the damping vector, or its betas.
        step: c = lr * lambda, > 0, a number or an array; the run for each is simulated.

    Returns:
        The peak in the shape of step; infinite from the stability limit on, where nothing decays.

    Raises:
        ValueError: a step that is not finite and > 0.

    >>> transient_peak((0.5,), step=[0.01, 2.5, 3])  # x_1 = 1 - c
    array([1. , 1.5, inf])
    """
    damping, c = Damping.of(damping), array("step", step, "> 0", lambda c: bool((c > 0.0).all()))
    return np.reshape([_peak(damping, one) for one in c.flat], c.shape)[()]


class DifferenceEquation(NamedTuple):
    """Coefficients of the equation of order K + 1 for the iterates alone, the most recent first.

        theta_{t+1} = sum_j iterates_j theta_{t-j} - lr * sum_j gradients_j grad f(theta_{t-j})

    >>> len(difference_equation((0, 0.5, 0.75)).iterates)
    4
    """

    iterates: Floats
    gradients: Floats


def difference_equation(damping: Damping | Iterable[SupportsFloat]) -> DifferenceEquation:
    """The difference equation of appendix C with its signs right, for any K, any weights and any f.

    With L the shift back in time, v_i = -(1 - beta_i L)^-1 grad f; multiplying theta_{t+1} - theta_t by all K brackets,

        (1 - L) prod_i (1 - beta_i L) theta_{t+1} = -lr * sum_i w_i prod_{k != i} (1 - beta_k L) grad f(theta_t)

    Velocities that start at 0 mean theta_t = theta_0 and no gradient for t < 0.

    Raises:
        ValueError: betas that make no damping vector.

    >>> difference_equation((0.5, 0.25))  # 1 + b1 + b2, -(b1 + b2 + b1 b2), b1 b2; 1, -(b1 + b2) / 2
    DifferenceEquation(iterates=array([ 1.75 , -0.875,  0.125]), gradients=array([ 1.   , -0.375]))
    """
    left, right = _lag_polynomials(Damping.of(damping))
    return DifferenceEquation(-left[1:], right)


def _peak(damping: Damping, c: float) -> float:
    """The transient peak for one step, block by block of the run."""
    if c >= step_at(damping, -1.0):
        return math.inf
    p = poles(damping)
    u = roots(p, np.array([c]))[:, 0]
    # alpha_j = prod_i (z_j - beta_i) / prod_{k != j} (z_j - z_k). Closer roots count as 1e-8 apart, which the bound
    # survives: t z^(t-1), the most that their difference quotient can be, is below 1e8 z^t for as long as this is > 0.
    apart = np.maximum(np.abs(u[:, None] - u), 1e-8 * np.abs(u)[:, None])
    np.fill_diagonal(apart, 1.0)
    alpha = np.abs(p.distances - u[:, None]).prod(axis=1) / apart.prod(axis=1)
    modulus = np.abs(1.0 - u)
    power = transition_matrix(damping, 1.0, c)
    states = np.eye(len(power))[-1:]
    while len(states) < 4096:
        states, power = np.concatenate([states, states @ power.T]), power @ power
    peak, t = 1.0, 0
    while True:
        peak, t = max(peak, float(np.abs(states[:, -1]).max())), t + len(states)
        if (alpha * modulus**t).sum() <= peak * (1.0 + 1e-9):
            return peak
        states = states @ power.T


def _lag_polynomials(damping: Damping) -> tuple[Floats, Floats]:
    """Coefficients of (1 - L) prod_i (1 - beta_i L) and of sum_i w_i prod_{k != i} (1 - beta_k L), lag 0 first."""
    right, product = np.zeros(1), np.ones(1)
    for beta, weight in zip(damping.betas, damping.weights, strict=True):
        factor = np.array([1.0, -beta])
        right = np.convolve(right, factor)[: len(product)] + weight * product
        product = np.convolve(product, factor)
        right = np.concatenate([right, np.zeros(len(product) - 1 - len(right))])
    return np.convolve(product, [1.0, -1.0]), right


def _is_curvature(a: Floats) -> bool:
    """A number, a row of them, or a symmetric matrix up to rounding."""
    if a.ndim < 2:
        return a.size > 0
    square = a.ndim == 2 and a.shape[0] == a.shape[1] > 0
    return square and bool(np.abs(a - a.T).max() <= 1e-9 * np.abs(a).max())


def _learning_rate(lr: float) -> float:
    return number("lr", lr, "that is finite and > 0", lambda x: 0.0 < x < math.inf)


def _steps(step: npt.ArrayLike) -> Floats:
    return array("step", step, ">= 0", lambda c: bool((c >= 0.0).all()))
