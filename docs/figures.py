"""The pictures of the documentation, drawn from the package whenever the documentation is built."""

import runpy
import sys
from pathlib import Path

import numpy as np
import torch
from matplotlib.figure import Figure

import aggmo.explore
from aggmo import Damping
from aggmo.explore.presets import PRESETS
from aggmo.explore.trajectories import trajectories
from aggmo.lab.paper.style import INK, MUTED, colour, curve, label_lines, ordered, style
from aggmo.theory.averaging import descend, impulse_response, moments, response_error, sampled, sampling_error
from aggmo.theory.online import periodic
from aggmo.theory.poles import step_at
from aggmo.theory.quadratic import eigenvalues
from aggmo.theory.regret import adam, aggregated, proved_bound, regret
from aggmo.theory.stability import best_lr, design, limit, underdamped

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


def eigenvalues_and_steps(directory):
    """The function c(z) with the eigenvalues at one step, and the paths of the default's eigenvalues."""
    damping = Damping((0.05, 0.4))
    figure = Figure(figsize=(9, 3.9))
    left, right = figure.subplots(1, 2)
    z = np.linspace(-1.35, 1.12, 20_001)
    c = step_at(damping, z)
    left.plot(z, np.where((c > -0.4) & (c < 4), c, np.nan), color=colour("aggmo"))
    low, high = underdamped(damping)
    for level, name in ((low, "c_low"), (high, "c_high"), (limit(damping), "the limit, c(−1)")):
        left.axhline(level, color=MUTED[0], linewidth=0.9, linestyle="--")
        label(left, 1.12, level, name, MUTED[0])
    for beta in damping:
        left.plot(beta, 0, "o", color=colour("cm"), ms=5, clip_on=False)
    for step, name in ((1.2, "one is real"), (2.65, "all are real")):
        real = [z.real for z in eigenvalues(damping, step) if not z.imag]
        left.axhline(step, color=colour("nesterov"), linewidth=0.9)
        left.plot(real, np.full(len(real), step), "s", color=colour("nesterov"), ms=5)
        label(left, 1.12, step, f"c = {step}: {name}", colour("nesterov"))
    left.set(xlim=(-1.35, 1.12), ylim=(-0.4, 3.2), xlabel="z", title="c(z) for β = 0.05 and 0.4 (dots)")
    ends = np.array(underdamped(Damping.exponential()))
    steps = np.geomspace(1e-6, limit(Damping.exponential()), 4000)
    steps = np.sort(np.concatenate([steps, ends, *np.outer([1 - 1e-4, 1 - 1e-6, 1 + 1e-6, 1 + 1e-4], ends)]))
    paths = eigenvalues(Damping.exponential(), steps)
    for i, tone in enumerate(("aggmo", "aggmo", "cm")):
        right.plot(paths[:, i].real, paths[:, i].imag, color=colour(tone))
    angle = np.linspace(0, 2 * np.pi, 400)
    right.plot(np.cos(angle), np.sin(angle), color=MUTED[0], linewidth=0.9, linestyle="--")
    right.plot([0, 0.9, 0.99, 1], np.zeros(4), "o", color=INK[0], ms=3.5)
    right.set(aspect="equal", xlim=(-1.15, 1.15), ylim=(-1.1, 1.1), xlabel="Re z", ylabel="Im z")
    right.set_title("eigenvalues of (0, 0.9, 0.99)")
    save(figure, directory / "eigenvalues.svg")


def best_rates(directory):
    """Figure 3 of the paper, with a design."""
    kappa = np.geomspace(10, 1e7, 181)
    designed = design(10, 1e4, 3)
    figure = Figure(figsize=(6.4, 3.8))
    axis = figure.subplots()
    axis.set(xscale="log", yscale="log", xlabel="condition number κ", ylabel="1 − ρ at the best learning rate")
    axis.plot(kappa, 2 / (np.sqrt(kappa) + 1), ":", color=MUTED[0], label="CM, best β for κ")
    curve(axis, kappa, best_lr(Damping.classical(0.9), kappa)[1], "cm", "CM, β = 0.9")
    curve(axis, kappa, best_lr(Damping.classical(0.99), kappa)[1], "cm", "CM, β = 0.99", linestyle="-.")
    curve(axis, kappa, best_lr(Damping.exponential(), kappa)[1], "aggmo", "AggMo (0, 0.9, 0.99)")
    curve(axis, kappa, best_lr(designed, kappa)[1], "aggmo", "AggMo, designed\nfor κ = 10 … 10⁴", linestyle=(0, (3, 1)))
    label_lines(axis)
    save(figure, directory / "best_rates.svg")


def explorer(directory):
    """The first chart of the explorer at its preset of figure 2, with the page's own colours."""
    chosen = PRESETS["Figure 2: passive damping"].settings
    view = trajectories(chosen.damping, chosen.rival, "CM", chosen.lr, chosen.curvature, chosen.steps)
    colours = (Path(aggmo.explore.__file__).parent / "page.css").read_text()
    start, end = view.charts[0].split(">", 1)
    font = 'font-family="sans-serif" font-size="12" xmlns="http://www.w3.org/2000/svg"'
    paper = 'style="background: #ffffff"'  # as the other pictures: a page may be dark, and its picture does not know
    (directory / "explorer.svg").write_text(f"{start} {font} {paper}><style>{colours}</style>{end}")


def edge_of_stability(directory):
    """The sharpness of a small network in training, against the edge that the learning rate sets."""
    experiment = runpy.run_path(str(Path(__file__).parents[1] / "benchmarks" / "edge_of_stability.py"))
    train, dampings, steps = experiment["train"], experiment["DAMPINGS"], 2000
    tones = dict(zip(dampings, (colour("sgd"), colour("cm"), colour("nesterov"), *[colour("aggmo")] * 2), strict=True))
    torch.set_num_threads(1)  # as the benchmark does: with tensors as small as these, threads wait for one another
    figure = Figure(figsize=(7.2, 3.4))
    left, right = figure.subplots(1, 2)
    for name in list(dampings)[:-1]:
        run = train(dampings[name], edge=8, steps=steps, seed=0, measurements=25)
        left.plot(run.steps, run.sharpness, color=tones[name], label=name)
    left.set(title="lr = stability limit / 8", ylabel="sharpness", ylim=(0, 10))
    name = list(dampings)[-1]
    for seed, tone in enumerate(ordered(3)):
        run = train(dampings[name], edge=12, steps=steps, seed=seed, measurements=25)
        right.plot(run.steps, run.sharpness, color=tone, label=f"seed {seed}")
    right.set(title=f"{name}, lr = stability limit / 12", ylim=(0, 15))
    for axis, edge in ((left, 8), (right, 12)):
        axis.axhline(edge, color=MUTED[0], linestyle=":", label="stability limit / lr")
        axis.set_xlabel("step")
        axis.legend(loc="lower right", frameon=False, fontsize=8)
    save(figure, directory / "edge_of_stability.svg")


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
        for picture in (
            beta_averaged,
            response_errors,
            average_regret,
            eigenvalues_and_steps,
            best_rates,
            edge_of_stability,
            explorer,
        ):
            picture(directory)


if __name__ == "__main__":
    draw(Path(sys.argv[1]))
