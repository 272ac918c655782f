"""Damping vectors: the betas of the K velocities and the weights with which the step sums them.

Notation of the paper: K velocities v_i with damping beta_i, i = 1 ... K, and the step of equation (3),

    v_i   <- beta_i v_i - grad f(theta)
    theta <- theta + lr * sum_i w_i v_i

with w_i = 1/K. Free weights stand for the learning rates of each velocity in equation (4): w_i = lr_i / (K lr).
This is the only place where betas and weights are validated.
"""

import math
from collections.abc import Iterable, Iterator, Mapping, Set
from dataclasses import dataclass
from typing import Self, SupportsFloat

import numpy as np

MOST = 1000  # velocities that a family makes; a typing error should not fill the memory


@dataclass(frozen=True, init=False, slots=True)
class Damping:
    """The damping vector of an aggregated momentum: K betas, and a weight for each.

    Frozen and hashable; iterating gives the betas. Duplicate betas are allowed, and the weights may have any sum.

    Args:
        betas: the damping coefficients, one for each velocity, 0 <= beta < 1.
        weights: what each velocity counts in the step, finite, >= 0 and at least one > 0; the paper's 1/K each if None.

    Raises:
        ValueError: betas or weights outside these ranges, empty, or of different lengths.

    >>> damping = Damping((0, 0.5, 0.75), weights=(1, 1, 2))
    >>> list(damping), len(damping)
    ([0.0, 0.5, 0.75], 3)
    >>> damping.terminal_velocity  # 1/1 + 1/0.5 + 2/0.25
    11.0
    >>> Damping((0.5, 1.0))
    Traceback (most recent call last):
        ...
    ValueError: betas[1] is 1.0: every beta must be in [0, 1)
    """

    betas: tuple[float, ...]
    weights: tuple[float, ...]

    def __init__(self, betas: Iterable[SupportsFloat], weights: Iterable[SupportsFloat] | None = None) -> None:
        checked_betas = _floats("betas", betas)
        for i, beta in enumerate(checked_betas):
            if not 0.0 <= beta < 1.0:
                raise ValueError(f"betas[{i}] is {beta}: every beta must be in [0, 1)")
        k = len(checked_betas)
        checked_weights = (1.0 / k,) * k if weights is None else _floats("weights", weights)
        if len(checked_weights) != k:
            raise ValueError(f"{len(checked_weights)} weights for {k} betas: give one weight for each beta")
        for i, weight in enumerate(checked_weights):
            if not 0.0 <= weight < math.inf:
                raise ValueError(f"weights[{i}] is {weight}: every weight must be finite and >= 0")
        if not any(checked_weights):
            raise ValueError("all weights are 0: at least one must be > 0")
        object.__setattr__(self, "betas", checked_betas)
        object.__setattr__(self, "weights", checked_weights)

    @classmethod
    def of(
        cls, betas: "Iterable[SupportsFloat] | Damping", weights: Iterable[SupportsFloat] | None = None
    ) -> "Damping":
        """The damping meant by a `betas` argument that takes a sequence or a whole `Damping`.

        Raises:
            ValueError: as `Damping`, and when weights come beside a `Damping`, which has its own.

        >>> Damping.of((0, 0.9), (1, 2))
        Damping(betas=(0.0, 0.9), weights=(1.0, 2.0))
        >>> Damping.of(Damping.classical(0.9)).betas
        (0.9,)
        """
        if not isinstance(betas, Damping):
            return cls(betas, weights)
        if weights is not None:
            raise ValueError(f"weights={weights!r} given beside a Damping, which has weights of its own: leave one out")
        return betas

    @classmethod
    def exponential(cls, k: int = 3, a: float = 0.1) -> Self:
        """The paper's family, terminal velocities spaced by a factor 1/a (section 3.1).

            beta_i = 1 - a^(i-1),  i = 1 ... k;  w_i = 1/k

        Args:
            k: the number of velocities, from 1 to 1000.
            a: the scale, 0 < a < 1.

        Raises:
            ValueError: k or a out of range, or k so large that the last beta rounds to 1.

        >>> Damping.exponential().betas
        (0.0, 0.9, 0.99)
        >>> Damping.exponential(k=4, a=0.5).betas
        (0.0, 0.5, 0.75, 0.875)
        """
        if isinstance(k, bool) or not isinstance(k, int | np.integer) or not 1 <= k <= MOST:
            raise ValueError(f"k={k!r}: the number of velocities must be a whole number from 1 to {MOST}")
        scale = _float("a", a)
        if not 0.0 < scale < 1.0:
            raise ValueError(f"a={a!r}: the scale must be in (0, 1)")
        if 1.0 - scale ** (int(k) - 1) == 1.0:
            raise ValueError(f"k={k!r} with a={a!r}: the last beta, 1 - a^(k-1), rounds to 1; take a smaller k")
        return cls([1.0 - scale**i for i in range(int(k))])

    @classmethod
    def classical(cls, beta: float) -> Self:
        """Classical (heavy-ball) momentum, equation (1): one velocity of weight 1.

        Raises:
            ValueError: beta outside [0, 1).

        >>> Damping.classical(0.9)
        Damping(betas=(0.9,), weights=(1.0,))
        """
        return cls((_beta(beta),), (1.0,))

    @classmethod
    def nesterov(cls, beta: float) -> Self:
        """Nesterov momentum as an aggregated momentum (section 4), in the iterate phi of equation (7).

            betas = (0, beta),  w = (1, beta)

        This is the paper's equivalence, lr_1 = 2 lr and lr_2 = 2 beta lr, and what `torch.optim.SGD(nesterov=True)`
        computes at any learning rate schedule: the gradient plus beta times the new velocity.

        Raises:
            ValueError: beta outside [0, 1).

        >>> Damping.nesterov(0.75)
        Damping(betas=(0.0, 0.75), weights=(1.0, 0.75))
        """
        return cls((0.0, _beta(beta)), (1.0, beta))

    @classmethod
    def quasi_hyperbolic(cls, beta: float, nu: float) -> Self:
        """Quasi-hyperbolic momentum (Ma and Yarats, ICLR 2019), nu between the gradient and its moving average.

            betas = (0, beta),  w = (1 - nu, nu (1 - beta))

        Raises:
            ValueError: beta outside [0, 1) or nu outside [0, 1].

        >>> Damping.quasi_hyperbolic(beta=0.75, nu=0.5)
        Damping(betas=(0.0, 0.75), weights=(0.5, 0.125))
        """
        checked_nu = _float("nu", nu)
        if not 0.0 <= checked_nu <= 1.0:
            raise ValueError(f"nu={nu!r}: nu must be in [0, 1]")
        return cls((0.0, _beta(beta)), (1.0 - checked_nu, checked_nu * (1.0 - float(beta))))

    @classmethod
    def beta_distributed(cls, alpha: float, beta: float, nodes: int) -> Self:
        """Beta-averaged momentum (appendix F), its integral over damping replaced by Gauss-Jacobi quadrature.

            sum_i w_i beta_i^l = E[b^l],  b ~ Beta(alpha, beta),  exact for every lag l <= 2 nodes - 1

        The step then weighs a gradient of lag l as the average over infinitely many velocities does. Nodes and weights
        are eigenvalues and squared first eigenvector components of the Jacobi matrix (Golub and Welsch, 1969).

        Args:
            alpha, beta: the parameters of the Beta distribution, > 0.
            nodes: the number of velocities, from 1 to 1000.

        Raises:
            ValueError: a parameter out of range, or so extreme that a node rounds to 1.

        >>> damping = Damping.beta_distributed(alpha=100, beta=1, nodes=4)
        >>> lag3 = sum(w * b**3 for b, w in zip(damping.betas, damping.weights))
        >>> abs(lag3 - 100 / 103) < 1e-14  # E[b^3] = alpha / (alpha + 3) when beta is 1
        True
        """
        for name, value in (("alpha", alpha), ("beta", beta)):
            if not 0.0 < _float(name, value) < math.inf:
                raise ValueError(f"{name}={value!r}: the parameters of a Beta distribution must be finite and > 0")
        if isinstance(nodes, bool) or not isinstance(nodes, int | np.integer) or not 1 <= nodes <= MOST:
            raise ValueError(f"nodes={nodes!r}: the number of velocities must be a whole number from 1 to {MOST}")
        betas, weights = _gauss_jacobi(float(alpha), float(beta), int(nodes))
        if not (betas[0] >= 0.0 and betas[-1] < 1.0):
            raise ValueError(
                f"alpha={alpha!r}, beta={beta!r}, nodes={nodes!r}: so extreme that a node of the quadrature rounds to 1"
                " or is lost; take parameters nearer to 1"
            )
        return cls(betas, weights)

    @property
    def terminal_velocity(self) -> float:
        """The speed reached, in learning rates, under a constant gradient of 1: sum_i w_i / (1 - beta_i).

        >>> Damping.classical(0.75).terminal_velocity
        4.0
        """
        return math.fsum(weight / (1.0 - beta) for beta, weight in zip(self.betas, self.weights, strict=True))

    def __iter__(self) -> Iterator[float]:
        return iter(self.betas)

    def __len__(self) -> int:
        return len(self.betas)


def _floats(name: str, values: Iterable[SupportsFloat]) -> tuple[float, ...]:
    """The values as floats, at least one."""
    try:
        if isinstance(values, str | bytes | Set | Mapping):  # whose order says nothing
            raise TypeError
        items = list(values)
    except TypeError:  # a NumPy scalar calls itself iterable
        raise ValueError(f"{name}={values!r}: must be a sequence of numbers, like (0, 0.9, 0.99)") from None
    floats = tuple(_float(f"{name}[{i}]", value) for i, value in enumerate(items))
    if not floats:
        raise ValueError(f"{name} is empty: give at least one number")
    return floats


def _float(name: str, value: SupportsFloat) -> float:
    """The value as a float; a string of digits is not a number."""
    try:
        if isinstance(value, str | bytes):
            raise TypeError
        return float(value) + 0.0  # -0.0 becomes 0.0
    except (TypeError, ValueError, OverflowError):
        raise ValueError(f"{name} is {value!r}: must be one number") from None


def _beta(beta: float) -> float:
    """The one beta of a family, checked under its own name."""
    if not 0.0 <= _float("beta", beta) < 1.0:
        raise ValueError(f"beta={beta!r}: beta must be in [0, 1)")
    return float(beta)


def _gauss_jacobi(alpha: float, beta: float, nodes: int) -> tuple[list[float], list[float]]:
    """Nodes and weights on [0, 1] for the density of Beta(alpha, beta).

    The Jacobi polynomials' recurrence on [-1, 1] for (1-x)^(beta-1) (1+x)^(alpha-1), moved to [0, 1]; its first terms
    are written apart because the general ones are 0/0 at alpha + beta = 1 and 2.
    """
    lost = [math.nan], [math.nan]
    s = alpha + beta
    if not (0.0 < s * s < math.inf and alpha * beta < math.inf):
        return lost
    n = np.arange(1.0, nodes)
    centre = np.empty(nodes)
    centre[0] = alpha / s
    # (1 + (b^2 - a^2) / ((2n+a+b)(2n+a+b+2))) / 2 with b^2 - a^2 = (alpha - beta)(s - 2)
    centre[1:] = 0.5 + 0.5 * (alpha - beta) * (s - 2.0) / ((2.0 * n + s - 2.0) * (2.0 * n + s))
    spread = np.empty(nodes - 1)
    if nodes > 1:
        spread[0] = alpha * beta / (s * s * (s + 1.0))  # the distribution's variance
        m = n[1:]
        t = 2.0 * m + s - 2.0
        spread[1:] = m * (m + alpha - 1.0) * (m + beta - 1.0) * (m + s - 2.0) / (t * t * (t + 1.0) * (t - 1.0))
    if not (np.all(np.isfinite(centre)) and np.all(spread >= 0.0) and np.all(np.isfinite(spread))):
        return lost
    off_diagonal = np.sqrt(spread)
    values, vectors = np.linalg.eigh(np.diag(centre) + np.diag(off_diagonal, 1) + np.diag(off_diagonal, -1))
    return np.maximum(values, 0.0).tolist(), (vectors[0] ** 2).tolist()
