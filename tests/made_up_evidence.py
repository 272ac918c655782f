"""Records made by hand, on which the verdict rules are tried."""

import itertools

import numpy as np

from aggmo.damping import Damping
from aggmo.lab.paper.experiment import Evidence
from aggmo.lab.records import Trial

K = {k: list(Damping.exponential(k=k).betas) for k in (2, 3, 4, 5)}
BEST = {"cm": [0.99], "nesterov": [0.99], "adam": [0.9, 0.999], "aggmo": K[4], "sgd": [], "nt-asgd": []}
USUAL = {"cm": [0.9], "nesterov": [0.9], "aggmo": K[3]}


class Made:
    """Evidence of scale small, filled trial by trial."""

    def __init__(self):
        self.groups, self.curves, self.numbers = {}, {}, itertools.count(1)

    def add(self, task, group, optimizer, betas, curve=None, lr=0.1, seed=1, diverged=False, **outcome):
        """A trial that ended with these numbers."""
        number = next(self.numbers)
        settings = {"task": task, "optimizer": optimizer, "betas": betas, "lr": lr, "seed": seed}
        trial = Trial(number, str(number), settings, "finished", {"diverged": diverged, **outcome})
        self.groups.setdefault(task, {}).setdefault(group, []).append(trial)
        columns = {name: np.asarray(values, float) for name, values in (curve or {}).items()}
        length = len(next(iter(columns.values()), [0.0]))
        self.curves[number] = {"epoch": np.arange(1.0, length + 1.0), **columns}

    def seeds(self, task, group, optimizer, betas, values, spread=0.001):
        """Two seeds of a setting: every metric and every curve is the value of that optimizer, nearly."""
        for seed, sign in ((1, -1), (2, 1)):
            value = values[optimizer] * (1 + sign * spread)
            metrics = ("mse", "accuracy", "perplexity", "loss")
            outcome = {f"{split}_{metric}": value for split in ("train", "validation", "test") for metric in metrics}
            curve = {name: [2 * value, value] for name in outcome}
            self.add(task, group, optimizer, betas, curve, seed=seed, **outcome)

    def evidence(self, scale="small"):
        return Evidence(scale, self.groups, self.curves)


def compared(task, groups, values, spread=0.001, betas=None):
    """Evidence in which each optimizer has one value in all that is measured."""
    made = Made()
    for group in groups:
        for optimizer in values:
            own = (betas or (USUAL if group.startswith("usual") else BEST)).get(optimizer)
            if own is not None:
                made.seeds(task, group, optimizer, own, values, spread)
    return made


def joined(*parts):
    """The evidence of several, of different tasks."""
    made = Made()
    for part in parts:
        for task, groups in part.groups.items():
            for group, trials in groups.items():
                for trial in trials:
                    columns = {name: x for name, x in part.curves[trial.trial].items() if name != "epoch"}
                    settings = {name: value for name, value in trial.settings.items() if name != "task"}
                    made.add(task, group, curve=columns, **settings, **trial.outcome)
    return made
