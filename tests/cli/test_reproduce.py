"""`aggmo reproduce` as a program: what a whole quick run leaves, how it goes on, and bad input."""

import csv
import os
import re
import signal
import sqlite3
import statistics
import subprocess
import sys
import time
from pathlib import Path

import pytest

from aggmo.cli import main
from aggmo.lab.paper.experiment import Experiment
from aggmo.lab.paper.items import ITEMS, wanted

AGGMO = str(Path(sys.executable).with_name("aggmo"))
ITEM = "section-5.2-no-batch-norm"


def here(capsys, *arguments):
    """The command in this process: exit code, standard output and error."""
    with pytest.raises(SystemExit) as ended:
        main(["reproduce", *map(str, arguments)])
    return ended.value.code or 0, *capsys.readouterr()


def start(directory):
    """The command for one item in a process group of its own."""
    return subprocess.Popen(
        [AGGMO, "reproduce", ITEM, "--out", "run", "--workers", "2"],
        cwd=directory,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )


def count(directory, query):
    """What a query of the study's database counts; 0 as long as there is none."""
    database = directory / "run" / "studies" / "quick" / "study.sqlite"
    if not database.exists():
        return 0
    connection = sqlite3.connect(f"file:{database}?mode=ro", uri=True)
    try:
        return connection.execute(query).fetchone()[0]
    except sqlite3.OperationalError:  # its tables are not there yet
        return 0
    finally:
        connection.close()


def written(directory):
    """All that was written but the studies and the pictures for print, times taken out."""
    files = {}
    for path in sorted((directory / "run").rglob("*")):
        if path.suffix in {".csv", ".tex", ".md", ".html", ".svg"}:
            text = re.sub(r"<time[^>]*>[^<]*</time>|Computing: [^<\n]*|Time: [^\n]*", "", path.read_text())
            files[path.relative_to(directory)] = re.sub(r"20\d\d-\d\d-\d\d \d\d:\d\d", "", text)
    return files


def test_killed_twice_it_ends_with_the_same_page(tmp_path):
    """Oracle: the run that nobody disturbed, byte for byte but for times; then a run that computes nothing again."""
    (tmp_path / "undisturbed").mkdir()
    (tmp_path / "killed").mkdir()
    assert start(tmp_path / "undisturbed").wait() == 0
    # Two rounds of trials, one pair of workers.
    assert count(tmp_path / "undisturbed", "SELECT count(DISTINCT pid) FROM attempts") == 2
    for finished in (2, 9):  # in the first round of trials, and in the second
        run = start(tmp_path / "killed")
        while count(tmp_path / "killed", "SELECT count(*) FROM trials WHERE status = 'finished'") < finished:
            assert run.poll() is None
            time.sleep(0.02)
        os.killpg(run.pid, signal.SIGKILL)
        run.wait()
    assert start(tmp_path / "killed").wait() == 0
    assert written(tmp_path / "killed") == written(tmp_path / "undisturbed")
    before = count(tmp_path / "killed", "SELECT count(*) FROM attempts")
    assert start(tmp_path / "killed").wait() == 0
    assert count(tmp_path / "killed", "SELECT count(*) FROM attempts") == before
    assert written(tmp_path / "killed") == written(tmp_path / "undisturbed")


def test_a_whole_quick_run_has_every_item(quick_run):
    """Oracle: the list of items, each with its section, its figures in all formats and its tables, in the page."""
    page = (quick_run / "index.html").read_text()
    evidence = Experiment(quick_run / "studies" / "quick", "quick", wanted(ITEMS)).evidence()
    for item in ITEMS:
        result = item.make(evidence)
        assert f'<section id="{item.name}"' in page
        for picture in result.pictures:
            assert f'id="{picture.name}-picture"' in page
            for suffix in ("svg", "png", "pdf"):
                assert (quick_run / "figures" / f"{picture.name}.{suffix}").stat().st_size > 1000
        for table in result.tables:
            with (quick_run / "tables" / f"{table.name}.csv").open(newline="") as file:
                rows = list(csv.reader(file))
            assert [row[0] for row in rows[1:]] == [str(row[0]) for row in table.rows]


def test_the_curves_of_a_whole_quick_run(quick_run):
    """Oracle: the optimizers and dampings that each figure of the paper shows."""
    from matplotlib.figure import Figure

    from aggmo.lab.paper import style

    everyone = {"CM", "Nesterov", "Adam", "AggMo"}
    expected = {
        "figure-4": everyone,
        "figure-5": {"K = 2", "K = 3", "K = 4", "K = 5", "β = 0.9", "β = 0.99", "β = 0.999", "β = 0.9999"},
        "figure-6-loss": everyone,
        "figure-6-accuracy": everyone,
        "section-5.2-default-cnn5": everyone - {"Adam"},
        "section-5.2-default-resnet32-c10": everyone - {"Adam"},
        "figure-7-train": everyone | {"SGD", "NT-ASGD"},
        "figure-7-validation": everyone | {"SGD", "NT-ASGD"},
    }
    evidence = Experiment(quick_run / "studies" / "quick", "quick", wanted(ITEMS)).evidence()
    results = [item.make(evidence) for item in ITEMS if item.tasks]
    pictures = {picture.name: picture for result in results for picture in result.pictures}
    for name, labels in expected.items():
        with style.style():
            figure = Figure()
            pictures[name].draw(figure)
        lines = [line for axis in figure.axes for line in axis.get_lines()]
        found = {str(line.get_label()): line for line in lines if not str(line.get_label()).startswith("_")}
        assert found.keys() == labels, name
        assert all(len(line.get_xdata()) > 1 for line in found.values())


def test_the_numbers_of_a_whole_quick_run(quick_run):
    """Oracle: the database, asked for the best of each grid and for the means of its repetitions."""
    connection = sqlite3.connect(f"file:{quick_run / 'studies' / 'quick' / 'study.sqlite'}?mode=ro", uri=True)
    shown = {}
    for name in ("table-1", "table-2-cnn5", "table-3"):
        with (quick_run / "tables" / f"{name}.csv").open(newline="") as file:
            shown[name] = {row["optimizer"]: row for row in csv.DictReader(file)}
    assert list(shown["table-1"]) == ["CM", "Nesterov", "Adam", "AggMo"]
    assert len(shown["table-2-cnn5"]) == 7
    assert len(shown["table-3"]) == 7
    for table, task, metric, order in (
        ("table-1", "autoencoder", "mse", "ASC"),
        ("table-2-cnn5", "cnn5", "accuracy", "DESC"),
        ("table-3", "lstm", "perplexity", "ASC"),
    ):
        for optimizer, name in (("cm", "CM"), ("adam", "Adam"), ("aggmo", "AggMo")):
            where = "task = ? AND optimizer = ? AND status = 'finished' AND diverged = 0"
            of_the_grid = f"{where} AND seed = 0 AND timed IS NULL AND schedule IS NULL"
            found = _best(connection, of_the_grid, task, optimizer, f"validation_{metric}", order)
            tests = [
                value
                for (value,) in connection.execute(
                    f"SELECT test_{metric} FROM results WHERE {where.replace('seed = 0', '1')} AND seed > 0"
                    " AND lr = ? AND betas = ? AND clip IS NULL AND schedule IS NULL",
                    (task, optimizer, *found),
                )
            ]
            assert len(tests) == 2
            mean = float(shown[table][name]["test, ours mean"])
            assert mean == pytest.approx(statistics.mean(tests), rel=1e-12)


def _best(connection, where, task, optimizer, metric, order):
    """Learning rate and damping of the best trial of the grid."""
    query = f"SELECT lr, betas FROM results WHERE {where} ORDER BY {metric} {order}, trial LIMIT 1"
    return connection.execute(query, (task, optimizer)).fetchone()


def test_the_items_are_listed(capsys):
    """Oracle: `ITEMS`."""
    code, out, _ = here(capsys, "--list")
    assert code == 0
    assert [line.split()[0] for line in out.splitlines()] == [item.name for item in ITEMS]


def test_theory_needs_no_trials(capsys, tmp_path):
    """Oracle: a page with one section, and no study."""
    code, out, _ = here(capsys, "figure-2", "appendix-c-lemma", "--out", tmp_path)
    assert code == 0
    assert out.strip() == str(tmp_path / "index.html")
    page = (tmp_path / "index.html").read_text()
    assert re.findall(r'<section id="(figure-[^"]*|appendix-[^"]*)"', page) == ["figure-2", "appendix-c-lemma"]
    assert not (tmp_path / "studies").exists()


def test_a_page_of_nothing_yet(capsys, tmp_path):
    """Oracle: "not at this scale", for there are no numbers at all."""
    code, _, _ = here(capsys, "table-1", "--report-only", "--out", tmp_path)
    assert code == 0
    assert "not at this scale" in (tmp_path / "index.html").read_text().lower()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["figure-8"], "item 'figure-8': must be one of"),
        (["--scale", "huge"], "scale='huge': must be one of paper, small, quick"),
        (["--address", "ray://x"], "is for --engine ray"),
        (["--gpus", "0.5"], "--gpus 0.5: is for --engine ray"),
        (["table-1", "--data-dir", "no/such/place"], "no such directory"),
        (["table-1", "--workers", "0"], "workers"),
    ],
)
def test_bad_input_is_one_line(capsys, tmp_path, arguments, said):
    """Oracle: exit code 2, and one line on the standard error that says what was wrong."""
    code, out, error = here(capsys, *arguments, "--out", tmp_path)
    assert code == 2
    assert out == ""
    assert len(error.splitlines()) == 1
    assert said in error
