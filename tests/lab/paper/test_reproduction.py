"""The run at scale small that the documentation shows: its page and tables against its own study."""

import csv
import json
import re
import sqlite3
import statistics
from pathlib import Path

import pytest

from aggmo.damping import Damping
from aggmo.lab.paper.items import ITEMS
from aggmo.lab.paper.plan import FUNCTION
from aggmo.lab.paper.settings import SETTINGS, betas
from aggmo.lab.schema import VERSION

DOCS = Path(__file__).parents[3] / "docs"
RUN = DOCS / "reproduction"


@pytest.fixture(scope="module")
def study():
    connection = sqlite3.connect(f"file:{RUN / 'studies' / 'small' / 'study.sqlite'}?mode=ro", uri=True)
    yield connection
    connection.close()


@pytest.fixture(scope="module")
def page():
    return (DOCS / "reproduction.md").read_text(encoding="utf-8")


def rows(name):
    """Of a table that stands beside the page."""
    with (RUN / "tables" / f"{name}.csv").open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def section(page, title):
    """What stands under a heading."""
    return re.search(rf"^## {re.escape(title)}\n(.*?)(?=^## )", page, re.MULTILINE | re.DOTALL)[1]


def test_the_study_is_whole(study):
    """Oracle: SQLite's own check, the format's version, and no trial that waits or failed."""
    assert study.execute("PRAGMA integrity_check").fetchone() == ("ok",)
    assert study.execute("PRAGMA user_version").fetchone() == (VERSION,)
    assert study.execute("SELECT value FROM study WHERE name = 'function'").fetchone() == (FUNCTION,)
    counts = dict(study.execute("SELECT status, count(*) FROM trials GROUP BY status"))
    assert counts.keys() <= {"finished", "withdrawn"}
    assert counts["finished"] > 500
    assert study.execute("SELECT count(*) FROM attempts WHERE host IS NOT NULL").fetchone() == (0,)


@pytest.mark.parametrize("task", SETTINGS)
def test_every_setting_of_the_grids_was_run(study, task):
    """Oracle: the settings of scale small, as they stand in the code now."""
    settings = SETTINGS[task]["small"]
    found = {
        (optimizer, tuple(json.loads(own)), lr)
        for optimizer, own, lr in study.execute(
            "SELECT optimizer, betas, lr FROM results"
            " WHERE task = ? AND seed = 0 AND timed IS NULL AND schedule IS NULL AND status = 'finished'",
            (task,),
        )
    }
    for optimizer in settings.optimizers:
        for own in betas(optimizer, "small"):
            for lr in settings.adam_lr if optimizer == "adam" else settings.lr:
                assert (optimizer, own, lr) in found


def test_the_page_has_every_item_with_its_pictures(page):
    """Oracle: the verdicts as the overview counts them, and the files."""
    overview = re.findall(r"^\| .* \| (reproduced|partly|not at this scale|not reproduced) \| ", page, re.MULTILINE)
    assert len(overview) == len(ITEMS)
    for outcome in ("reproduced", "partly", "not at this scale", "not reproduced"):
        assert f"{overview.count(outcome)} {outcome}" in page.replace("\n", " ")
    pictures = re.findall(r"\]\((reproduction/figures/[^)]*)\)", page)
    assert len(pictures) > 20
    assert all((DOCS / picture).stat().st_size > 1000 for picture in pictures)
    assert sorted(RUN.joinpath("figures").iterdir()) == sorted({DOCS / picture for picture in pictures})


@pytest.mark.parametrize(
    ("table", "task", "metric", "order"),
    [
        ("table-1", "autoencoder", "mse", "ASC"),
        ("table-2-cnn5", "cnn5", "accuracy", "DESC"),
        ("table-2-resnet32-c10", "resnet32-c10", "accuracy", "DESC"),
        ("table-3", "lstm", "perplexity", "ASC"),
    ],
)
def test_the_tables_are_the_means_of_the_best(study, table, task, metric, order):
    """Oracle: the database, asked for the best of each grid, and for its repetitions on other seeds."""
    whole = "task = ? AND optimizer = ? AND status = 'finished' AND timed IS NULL AND schedule IS NULL AND clip IS NULL"
    shown = {row["optimizer"]: row for row in rows(table)}
    settings = SETTINGS[task]["small"]
    for optimizer, name in (("cm", "CM"), ("nesterov", "Nesterov"), ("adam", "Adam"), ("aggmo", "AggMo")):
        rates = settings.adam_lr if optimizer == "adam" else settings.lr
        best = study.execute(
            f"SELECT lr, betas FROM results WHERE {whole} AND seed = 0 AND diverged = 0"
            f" AND lr IN {rates} ORDER BY validation_{metric} {order} LIMIT 1",
            (task, optimizer),
        ).fetchone()
        tests = study.execute(
            f"SELECT test_{metric}, diverged FROM results WHERE {whole} AND seed > 0 AND lr = ? AND betas = ?",
            (task, optimizer, *best),
        ).fetchall()
        assert len(tests) == settings.seeds
        assert int(shown[name]["test, ours diverged"]) == sum(diverged for _, diverged in tests)
        mean = statistics.mean(value for value, diverged in tests if not diverged)
        assert float(shown[name]["test, ours mean"]) == pytest.approx(mean, rel=1e-12)


def test_figure_5_on_real_digits(study):
    """Oracle: the curves. The paper: Nesterov with 0.999 at 0.05 is unstable, AggMo with K = 4 at 0.1 is not."""

    def errors(optimizer, own, lr):
        return [
            value
            for (value,) in study.execute(
                "SELECT value FROM curves JOIN results USING (trial)"
                " WHERE task = 'autoencoder' AND optimizer = ? AND betas = ? AND lr = ? AND epochs = 15"
                " AND schedule IS NOT NULL AND name = 'train_mse' ORDER BY epoch",
                (optimizer, json.dumps(own, separators=(",", ":")), lr),
            )
        ]

    own = errors("aggmo", list(Damping.exponential(k=4).betas), 0.1)
    assert len(own) == 15
    assert own == sorted(own, reverse=True)
    assert own[-1] < 20
    theirs = errors("nesterov", [0.999], 0.05)
    assert len(theirs) < 15 or None in theirs or theirs[-1] > 50 > min(theirs)
    stable = {(row["optimizer"], row["damping"]): row["stable"] for row in rows("figure-5-stability")}
    assert stable["AggMo", "K = 4"] == "yes"
    assert stable["Nesterov", "β = 0.999"] == "no"


def test_the_theory_on_the_page(page):
    """Oracle: figures 1 and 3 and the toy problem hold in full, which is theory and the same at every scale."""
    for title in (
        "Figure 1: minimising a quadratic function",
        "Figure 3: convergence on quadratics of varying condition number",
        "Appendix E: a toy problem with winding funnels",
    ):
        assert "**Reproduced**" in section(page, title)
