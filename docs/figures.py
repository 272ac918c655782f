"""The pictures of the documentation, drawn from the package whenever the documentation is built."""

import sys
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure

import aggmo.explore
from aggmo import Damping
from aggmo.explore.presets import PRESETS
from aggmo.explore.trajectories import trajectories
from aggmo.lab.paper.style import MUTED, colour, ordered, style
from aggmo.theory.averaging import descend, impulse_response, moments, response_error, sampled, sampling_error
from aggmo.theory.online import periodic
from aggmo.theory.regret import adam, aggregated, proved_bound, regret

CURVATURES = np.array([1.0, 0.1, 0.01, 0.001])
ALPHA, BETA = 100.0, 1.0  # the paper's, appendix F


def beta_averaged(directory):
    """Appendix F: 1-D quadratics under Beta-averaged momentum, its quadrature, and AggMo as in figure 1."""
    steps = 1500
    quadrature = Damping.beta_distributed(ALPHA, BETA, nodes=4)
    panels = {
        f"full history, {steps} gradients stored": moments(ALPHA, BETA, steps),
        "quadrature, 4 velocities stored": impulse_response(quadrature, steps),
        "AggMo, β = 0, 0.9, 0.99, 0.999": impulse_response(Damping.exponential(k=4), steps),
    }
    figure = Figure(figsize=(9, 5))
    axes = figure.subplots(2, 3, sharex="row", sharey=True)
    for column, (name, response) in enumerate(panels.items()):
        iterates = descend(lambda x: CURVATURES * x, np.ones(4), lr=0.33, response=response, steps=steps)
        axes[0, column].set_title(name)
        for i, (curvature, tone) in enumerate(zip(CURVATURES, ordered(4), strict=True)):
            axis = axes[i // 2, column]  # the two of high curvature above
            axis.plot(iterates[:, i], color=tone, linewidth=1.1, label=f"λ = {curvature:g}")
            axis.set_xlabel("step")
    axes[0, 0].set(xlim=(0, 150), ylim=(-1.05, 1.05), ylabel="x")
    axes[1, 0].set(xlim=(0, steps), ylabel="x")
    names = [axis.get_legend_handles_labels() for axis in axes[:, 0]]
    figure.legend(names[0][0] + names[1][0], names[0][1] + names[1][1], loc="outside lower center", ncols=4)
    save(figure, directory / "beta_averaged.svg")


def response_errors(directory):
    """How far each way is from the full history, against what it stores."""
    lags, stored = 1000, np.unique(np.geomspace(1, 64, 13).astype(int)).tolist()
    quadrature = [impulse_response(Damping.beta_distributed(ALPHA, BETA, k), lags) for k in stored]
    truncated = [moments(ALPHA, BETA, k) for k in stored]
    draws = [[impulse_response(sampled(ALPHA, BETA, k, seed), lags) for seed in range(10)] for k in stored]
    random = [[response_error(draw, ALPHA, BETA, lags) for draw in seeds] for seeds in draws]
    full, cut, drawn = ordered(3)
    figure = Figure(figsize=(6.4, 3.8))
    axis = figure.subplots()
    axis.loglog(stored, [response_error(h, ALPHA, BETA, lags) for h in truncated], "s-", color=cut, ms=4)
    axis.loglog(stored, np.sqrt(np.square(random).mean(axis=1)), "^-", color=drawn, ms=4)
    axis.loglog(stored, [sampling_error(ALPHA, BETA, k, lags).max() for k in stored], ":", color=MUTED[0])
    axis.loglog(stored, [response_error(h, ALPHA, BETA, lags) for h in quadrature], "o-", color=full, ms=4)
    label(axis, stored[-1], 0.61, "truncated history", cut)
    label(axis, stored[-1], 0.04, "Monte Carlo\n(dotted: standard error)", drawn)
    label(axis, stored[-1], 5e-14, "quadrature", full)
    axis.set(xlabel="arrays stored: velocities K, gradients T, samples n", ylabel=f"largest error of {lags} lags")
    axis.set(xlim=(1, 64), ylim=(5e-15, 3), xticks=[1, 2, 4, 8, 16, 32, 64])
    axis.set_xticks([], minor=True)
    axis.xaxis.set_major_formatter("{x:g}")
    save(figure, directory / "response_errors.svg")


def average_regret(directory):
    """Adam on the periodic problem on which it fails, AggMo on the same, and the bound on AggMo's regret."""
    rounds, c, lr, decay, damping = 100_000, 3.0, 0.5, 0.9, Damping.exponential()
    problem = periodic(rounds, c)
    best, t = problem.best(), np.arange(1, rounds + 1)
    failing = adam(problem, lr, [0.0], betas=(0.0, 1.0 / (1.0 + c**2)))
    run = aggregated(problem, damping, lr, decay, [0.0])
    bound = proved_bound(run, best, damping, lr, decay).total
    figure = Figure(figsize=(6.4, 3.8))
    axis = figure.subplots()
    shown = np.unique(np.geomspace(3, rounds, 400).astype(int) // 3 * 3) - 1  # whole periods
    axis.loglog(t[shown], (bound / t)[shown], "--", color=colour("aggmo"))
    axis.loglog(t[shown], (regret(problem, failing, best) / t)[shown], color=colour("adam"))
    axis.loglog(t[shown], (regret(problem, run, best) / t)[shown], color=colour("aggmo"))
    label(axis, rounds, (bound / t)[-1], "AggMo: proved bound", colour("aggmo"))
    label(axis, rounds, 2 * (c - 2) / 3, "Adam, β = (0, 0.1)", colour("adam"))
    label(axis, rounds, (regret(problem, run, best) / t)[-1], "AggMo, β = (0, 0.9, 0.99)", colour("aggmo"))
    axis.set(xlabel="T", ylabel="average regret R(T) / T", xlim=(3, rounds))
    save(figure, directory / "average_regret.svg")


def explorer(directory):
    """The first chart of the explorer at its preset of figure 2, with the page's own colours."""
    chosen = PRESETS["Figure 2: passive damping"].settings
    view = trajectories(chosen.damping, chosen.rival, "CM", chosen.lr, chosen.curvature, chosen.steps)
    colours = (Path(aggmo.explore.__file__).parent / "page.css").read_text()
    start, end = view.charts[0].split(">", 1)
    font = 'font-family="sans-serif" font-size="12" xmlns="http://www.w3.org/2000/svg"'
    (directory / "explorer.svg").write_text(f"{start} {font}><style>{colours}</style>{end}")


def label(axis, x, y, text, tone):
    """The name of a curve at its end, instead of a legend."""
    axis.annotate(text, (x, y), (6, 0), textcoords="offset points", color=tone, va="center", fontsize=9)


def save(figure, path):
    """Equal files from equal figures: without the date."""
    figure.savefig(path, metadata={"Date": None} if path.suffix == ".svg" else None)


def draw(directory):
    """All pictures, into a directory that is made if need be."""
    directory.mkdir(parents=True, exist_ok=True)
    with style():
        for picture in (beta_averaged, response_errors, average_regret, explorer):
            picture(directory)


if __name__ == "__main__":
    draw(Path(sys.argv[1]))
