"""The figures of the paper as settings of the explorer."""

from typing import NamedTuple

from aggmo.damping import Damping
from aggmo.explore.settings import Settings


class Preset(NamedTuple):
    """The settings of a figure, and where to look.

    >>> Preset(Settings(), "Look here.").note
    'Look here.'
    """

    settings: Settings
    note: str


_BETA_AVERAGED = Damping.beta_distributed(alpha=100, beta=1, nodes=4)
_NETWORK = "That figure is a network's training; these are its damping vectors on a quadratic. "

PRESETS: dict[str, Preset] = {
    "Figure 1 (a): CM, β = 0.9": Preset(
        Settings(betas=(0.9,), versus="nesterov", beta=0.9),
        "One velocity of small damping: it does not oscillate for long, and it is slow where λ = 0.001.",
    ),
    "Figure 1 (b): CM, β = 0.999": Preset(
        Settings(betas=(0.999,), versus="classical", beta=0.9, steps=1000),
        "One velocity of large damping oscillates at every curvature.",
    ),
    "Figure 1 (c): Nesterov, β = 0.999": Preset(
        Settings(betas=(0.0, 0.999), weights=(1.0, 0.999), versus="classical", beta=0.999, steps=1000),
        "Nesterov momentum damps the high curvatures, and still oscillates at the low ones.",
    ),
    "Figure 1 (d): AggMo, β = 0, 0.9, 0.99, 0.999": Preset(
        Settings(k=4, versus="nesterov", beta=0.999, steps=1000),
        "Four velocities: the path comes to rest at every curvature.",
    ),
    "Figure 2: passive damping": Preset(
        Settings(betas=(0.0, 0.9, 0.999), beta=0.999, curvature=0.1, steps=100),
        "The bands are the velocities. That of β = 0.9 turns long before that of 0.999, and brakes it.",
    ),
    "Figure 3: rate against condition number": Preset(
        Settings(k=3, beta=0.99, kappa=100.0),
        "Between the kinks of CM 0.9 and CM 0.99 AggMo passes smoothly; the dotted line knows κ beforehand.",
    ),
    "Figure 4: autoencoder": Preset(
        Settings(k=4, lr=0.1, versus="nesterov", beta=0.99),
        _NETWORK + "AggMo with K = 4 beside Nesterov 0.99, the best of each in Table 1.",
    ),
    "Figure 5: damping vectors": Preset(
        Settings(k=5, lr=0.1, versus="nesterov", beta=0.999, steps=1000),
        _NETWORK + "K = 5, the longest of the vectors, beside Nesterov 0.999.",
    ),
    "Figure 6: CIFAR-100": Preset(
        Settings(k=3, lr=0.1, beta=0.9),
        _NETWORK + "The default (0, 0.9, 0.99) beside CM 0.9, each as good as tuned in Table 2.",
    ),
    "Figure 7: LSTM": Preset(
        Settings(k=3, lr=0.1, versus="nesterov", beta=0.9),
        _NETWORK + "The default (0, 0.9, 0.99) beside Nesterov 0.9.",
    ),
    "Appendix A: Nesterov as AggMo, quadratic": Preset(
        Settings(betas=(0.0, 0.999), weights=(1.0, 0.999), versus="nesterov", beta=0.999, steps=300),
        "In the landscape, AggMo with the weights (1, β) lies exactly on Nesterov's path.",
    ),
    "Appendix A: Nesterov as AggMo, Rosenbrock": Preset(
        Settings(
            betas=(0.0, 0.999), weights=(1.0, 1.0), versus="nesterov", beta=0.999, landscape="printed",
            lr=0.001, x=-1.0, y=1.5, steps=500,
        ),
        "With the weights (1, 1) the two paths are alike at first only. The function is the one printed there.",
    ),
    "Appendix B (a): velocity of CM": Preset(
        Settings(betas=(0.999,), versus="nesterov", beta=0.999, curvature=0.1, steps=100),
        "One velocity, and nothing that turns before it.",
    ),
    "Appendix B (b): velocities of Nesterov": Preset(
        Settings(betas=(0.0, 0.999), weights=(1.0, 0.999), beta=0.999, curvature=0.1, steps=100),
        "The velocity and, as that of β = 0, the gradient that corrects it.",
    ),
    "Appendix B (c): velocities of AggMo": Preset(
        Settings(betas=(0.0, 0.9, 0.999), versus="nesterov", beta=0.999, curvature=0.1, steps=100),
        "The velocity of β = 0.9 turns more often, and damps the whole.",
    ),
    "Appendix E: the toy problem": Preset(
        Settings(k=4, beta=0.999, landscape="funnel", lr=0.001, x=-2.0, y=0.0, steps=3000),
        "From (−2, 0) through the funnels: AggMo with K = 4 arrives, CM 0.999 overshoots.",
    ),
    "Appendix F: Beta-averaged momentum": Preset(
        Settings(
            betas=tuple(round(beta, 5) for beta in _BETA_AVERAGED.betas),
            weights=tuple(round(weight, 5) for weight in _BETA_AVERAGED.weights), versus="classical", beta=0.99,
            alpha=100.0, spread=1.0, steps=1000,
        ),
        "Infinitely many velocities under Beta(100, 1), by a quadrature of four: see the impulse response.",
    ),
}  # fmt: skip
