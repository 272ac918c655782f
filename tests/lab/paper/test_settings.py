"""The settings of the paper's tasks: scale paper as read off the paper, and what smaller scales may not change."""

from dataclasses import asdict

import pytest

from aggmo.lab.paper.settings import PATIENCE, SCALES, SETTINGS, betas, table

IMAGE_LR = (0.1, 0.05, 0.01, 0.005, 0.001, 5e-4, 1e-4)
CLASSIFICATION = {
    "validation": 0.2,
    "examples": None,
    "tested": None,
    "batch_size": 128,
    "epochs": 400,
    "milestones": (150, 250),
    "optimizers": ("cm", "nesterov", "adam", "aggmo"),
    "lr": IMAGE_LR,
    "adam_lr": IMAGE_LR,
}
RESNET = CLASSIFICATION | {"padding": 4, "weight_decay": 5e-4}
PAPER = {
    "autoencoder": {
        "data": "mnist",
        "validation": 0.1,
        "batch_size": 200,
        "epochs": 1000,
        "milestones": (200, 400, 800),
        "weight_decay": 0.0,
        "padding": None,
        "lr": (*IMAGE_LR, 5e-5, 1e-5),
        "adam_lr": (*IMAGE_LR, 5e-5, 1e-5),
        "seeds": 15,
    },
    "cnn5": CLASSIFICATION | {"data": "cifar10", "padding": None, "weight_decay": 0.0},
    "resnet32-c10": RESNET | {"data": "cifar10"},
    "resnet32-c100": RESNET | {"data": "cifar100"},
    "resnet32-c100-nobn": RESNET | {"data": "cifar100", "optimizers": ("cm", "aggmo"), "lr": (0.1, 0.05, 0.01, 0.005)},
    "lstm": {
        "vocabulary": 10_000,
        "trained": None,
        "evaluated": None,
        "columns": (10, 1),
        "length": 70,
        "batch_size": 80,
        "epochs": 750,
        "plateau": 15,
        "decay": 0.5,
        "constant": ("sgd", "nt-asgd"),
        "clip": {"sgd": 0.25, "nt-asgd": 0.25},
        "activation": 2.0,
        "temporal": 1.0,
        "weight_decay": 1.2e-6,
        "optimizers": ("nt-asgd", "sgd", "cm", "nesterov", "adam", "aggmo"),
        "lr": (50.0, 30.0, 10.0, 5.0, 2.5, 1.0, 0.1, 0.01),
        "adam_lr": IMAGE_LR,
    },
}

# What only sizes, grids and numbers of runs are; every layer and regulariser stays.
KEPT = ("data", "model", "padding", "weight_decay", "optimizers", "clip", "constant", "activation", "temporal", "decay")
KEPT_SIZES = ("classes", "layers", "batch_norm")
LAYERS = ("sizes", "channels")  # of the autoencoder and of the CNN: as many, each no wider


@pytest.mark.parametrize("task", SETTINGS)
def test_scale_paper_is_the_papers(task):
    """Oracle: section 5 and appendix D of the paper, written out above."""
    found = asdict(SETTINGS[task]["paper"])
    assert {name: found[name] for name in PAPER[task]} == PAPER[task]
    assert PATIENCE == 250


def test_the_papers_dampings():
    assert betas("cm", "paper") == betas("nesterov", "paper") == ((0.0,), (0.9,), (0.99,), (0.999,))
    assert betas("adam", "paper") == ((0.9, 0.999), (0.99, 0.999), (0.999, 0.999))
    assert betas("aggmo", "paper") == ((0.0, 0.9), (0.0, 0.9, 0.99), (0.0, 0.9, 0.99, 0.999))


@pytest.mark.parametrize("task", SETTINGS)
def test_smaller_scales_shrink_sizes_alone(task):
    paper, small, quick = (asdict(SETTINGS[task][scale]) for scale in SCALES)
    for larger, smaller in ((paper, small), (small, quick)):
        assert [smaller.get(name) for name in KEPT] == [larger.get(name) for name in KEPT]
        assert smaller["epochs"] <= larger["epochs"] or task in ("autoencoder", "lstm")  # of fewer, or smaller batches
        assert smaller["sizes"].keys() == larger["sizes"].keys()
        for name, size in smaller["sizes"].items():
            if name in KEPT_SIZES:
                assert size == larger["sizes"][name]
            elif name in LAYERS:
                assert len(size) == len(larger["sizes"][name])
                assert all(a <= b for a, b in zip(size, larger["sizes"][name], strict=True))
            else:
                assert size <= larger["sizes"][name]


@pytest.mark.parametrize("task", SETTINGS)
def test_the_table_has_every_setting(task):
    """Oracle: the fields of the settings, and dampings; a column for each scale."""
    lines = [[cell.strip() for cell in line.strip("|").split("|")] for line in table(task).splitlines()]
    assert lines[0] == ["setting", *SCALES]
    assert [line[0] for line in lines[2:]] == [*asdict(SETTINGS[task]["paper"]), "damping"]
    assert {len(line) for line in lines} == {4}
