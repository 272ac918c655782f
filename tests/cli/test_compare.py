"""`aggmo compare` and `aggmo tasks` as programs: what they print, write and leave, and how they end."""

import csv
import io
import json
import os
import re
import shlex
import shutil
import signal
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest
import small_tasks
import torch
from PIL import Image
from trials import alive, attempts, children, contents, kill, until, without_root

from aggmo.cli import main
from aggmo.lab.comparison import Comparison
from aggmo.lab.data.store import Store
from aggmo.lab.records import Records
from aggmo.lab.setting import Setting
from aggmo.lab.task import find
from aggmo.lab.train import train

TESTS = Path(small_tasks.__file__).parent
AGGMO = str(Path(sys.executable).with_name("aggmo"))
TASK = "small_tasks:classification"
GRID = ["--optimizers", "cm,aggmo", "--lr", "0.1,0.3", "--lr", "cm=0.1,1e38", "--betas", "cm=0.9", "--betas"]
GRID += ["aggmo=0,0.9", "--seeds", "2", "--epochs", "3"]


def aggmo(*arguments, **options):
    """The console script, in the directory of the tests, where their tasks are found."""
    command = [AGGMO, *map(str, arguments)]
    return subprocess.run(command, cwd=TESTS, capture_output=True, text=True, check=False, **options)


def here(capsys, *arguments):
    """The same in this process, which has everything imported: exit code, standard output and error."""
    with pytest.raises(SystemExit) as ended:
        main(list(map(str, arguments)))
    return ended.value.code or 0, *capsys.readouterr()


@pytest.fixture(scope="module", autouse=True)
def one_thread():
    """As the workers have: the last bits of a sum depend on it."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """A comparison with everything that it can write; cm diverges at one of its learning rates."""
    place = tmp_path_factory.mktemp("finished")
    files = ["--csv", place / "t.csv", "--markdown", place / "t.md", "--latex", place / "t.tex", "--tensorboard"]
    done = aggmo("compare", TASK, *GRID, "--runs", place / "runs", "--workers", 2, *files)
    assert done.returncode == 0, done.stderr
    return place, done


@pytest.fixture
def study(finished):
    return finished[0] / "runs" / "small_tasks-classification"


# What it shows


def test_the_records_are_those_of_the_training(study):
    """Oracle: `train` called by hand for one trial; the settings, by hand, for all."""
    with Records(study / "study.sqlite") as records:
        trials = records.trials()
        [mine] = [
            t for t in trials if (t.settings["optimizer"], t.settings["lr"], t.settings["seed"]) == ("aggmo", 0.3, 1)
        ]
        curve = records.curve(mine.trial)
    expected = train(small_tasks.classification(), Setting("aggmo", 0.3, (0.0, 0.9), epochs=3), 1)
    for name in ("train_loss", "validation_accuracy", "test_accuracy", "lr", "steps"):
        assert curve[name].tolist() == [record[name] for record in expected.records]
    assert mine.outcome["test_accuracy"] == expected.best["test_accuracy"]
    found = [(t.settings["seed"], t.settings["optimizer"], t.settings["lr"], t.outcome["diverged"]) for t in trials]
    rates = [("cm", 0.1, False), ("cm", 1e38, True), ("aggmo", 0.1, False), ("aggmo", 0.3, False)]
    assert found == [(seed, *rate) for seed in (0, 1) for rate in rates]


def test_the_screen(finished):
    _, done = finished
    assert "small_tasks" not in done.stdout.partition("figures:")[0]
    heads = ["best validation accuracy", "least final training loss", "how much the settings matter"]
    assert [head in " ".join(done.stdout.split()) for head in heads] == [True] * 3
    assert re.search(r"cm +2 +4 +2 +0\.1 +0 *\n", done.stdout)  # settings, trials, diverged, lr near the best, decades
    assert re.search(r"aggmo +2 +4 +0 +", done.stdout)
    assert "Mean ± standard deviation over 2 seeds." in done.stdout
    lines = done.stderr.splitlines()
    assert re.fullmatch(r"small_tasks-classification: 8 trials to run on 2 workers, about \S+ s", lines[0])
    assert lines[-1].startswith("small_tasks-classification: 8 of 8 trials have finished, 2 of them diverged, best val")


def test_the_files_say_what_the_records_do(finished, study):
    """Oracle: the comparison made anew from the database."""
    place, _ = finished
    with Records(study / "study.sqlite") as records:
        trials = records.trials()
        made = Comparison(
            "classification", "accuracy", "max", trials, {t.trial: records.curve(t.trial) for t in trials}
        )
    rows = {row["optimizer"]: row for row in csv.DictReader(io.StringIO((place / "t.csv").read_text()))}
    for name, choice in made.best.items():
        assert float(rows[name]["validation accuracy mean"]) == choice.score.mean
        assert float(rows[name]["validation accuracy sd"]) == choice.score.sd
        assert int(rows[name]["trials"]) == 4
    assert rows["cm"]["diverged"] == "2"
    markdown = (place / "t.md").read_text()
    assert markdown.count("| optimizer |") == 3
    assert (place / "t.tex").read_text().count(r"\begin{tabular}") == 3


def test_the_figures(study):
    names = ("training", "validation", "sensitivity", "maps")
    expected = {f"{name}.{suffix}" for name in names for suffix in ("svg", "pdf", "png")}
    assert {path.name for path in (study / "figures").iterdir()} == expected
    for name in names:
        with Image.open(study / "figures" / f"{name}.png") as picture:
            assert min(picture.size) > 200
            assert len(picture.convert("RGB").getcolors(1 << 24)) > 10  # something is drawn


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_tensorboard_has_the_curves(study):
    """Oracle: the database."""
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    with Records(study / "study.sqlite") as records:
        trials, curve = records.trials(), records.curve(1)
    directories = sorted((study / "tensorboard").iterdir(), key=lambda path: int(path.name.split()[0]))
    assert len(directories) == len(trials)
    assert "optimizer=cm lr=0.1" in directories[0].name
    events = EventAccumulator(str(directories[0])).Reload()
    shown = events.Scalars("train/loss")
    assert [event.step for event in shown] == [1, 2, 3]
    assert [event.value for event in shown] == pytest.approx(curve["train_loss"].tolist(), rel=1e-6)


def test_a_second_call_runs_nothing_and_prints_json(finished, study, capsys):
    place, _ = finished
    before, tried = contents(study), attempts(study)
    code, out, err = here(capsys, "compare", TASK, *GRID, "--runs", place / "runs", "--json", "--no-figures")
    assert (code, attempts(study), contents(study)) == (0, tried, before)
    found = json.loads(out)
    assert list(found["optimizers"]) == ["cm", "aggmo"]
    assert found["trials"] == {"finished": 8, "diverged": 2, "failed": 0, "waiting": 0, "interrupted": False}
    assert [each["diverged"] for each in found["optimizers"]["cm"]["ranking"]] == [0, 2]
    assert err.count("\n") == 1


def test_fresh_sets_the_study_aside(study, capsys, tmp_path):
    shutil.copytree(study, tmp_path / study.name)
    before = contents(study)
    options = ["--optimizers", "sgd", "--lr", "0.1", "--seeds", 1, "--epochs", 1, "--runs", tmp_path, "--workers", 1]
    code, _, err = here(capsys, "compare", TASK, *options, "--fresh", "--no-figures")
    assert code == 0
    assert f"the study that was there is now {tmp_path / study.name}.1\n" in err
    assert contents(tmp_path / f"{study.name}.1") == before
    assert len(contents(tmp_path / study.name)["trials"]) == 1


def test_trials_that_fail(tmp_path, capsys):
    options = ["--optimizers", "sgd", "--lr", "0.1", "--seeds", 1, "--runs", tmp_path, "--workers", 1]
    code, out, err = here(capsys, "compare", "small_tasks:failing", *options)
    assert code == 1
    assert "sgd: no trial has an outcome" in out
    assert "failed: ArithmeticError: one epoch is enough" in err
    assert "Traceback" not in out + err
    assert here(capsys, "compare", "small_tasks:failing", *options)[0] == 1
    assert len(attempts(tmp_path / "small_tasks-failing")) == 1
    assert here(capsys, "compare", "small_tasks:failing", *options, "--retry")[0] == 1
    assert len(attempts(tmp_path / "small_tasks-failing")) == 2


def test_a_task_of_the_paper_without_network_or_files(tmp_path, capsys):
    options = ["--optimizers", "sgd", "--lr", "0.1", "--seeds", 1, "--epochs", 1, "--workers", 1, "--no-figures"]
    code, out, err = here(capsys, "compare", "resnet32-c10", *options, "--runs", tmp_path)
    assert code == 0, err
    assert "resnet32-c10 (quick)" in out
    assert "Data: scikit-learn's digits in place of CIFAR-10 (embedded): 1,500 of 50,000 train" in " ".join(out.split())
    plain = json.loads(here(capsys, "compare", "resnet32-c10", *options, "--runs", tmp_path, "--json")[1])
    assert plain["data"] == find("resnet32-c10", "quick", Store(embedded=True)).description
    assert json.loads((tmp_path / "resnet32-c10-quick" / "data.json").read_text()) == {
        "data_dir": None,
        "embedded": True,
    }


# Interruptions

SLOW = ["small_tasks:slow", "--optimizers", "cm,aggmo", "--lr", "0.1", "--betas", "cm=0.9", "--betas", "aggmo=0,0.9"]
SLOW += ["--seeds", "2", "--epochs", "8", "--no-figures"]


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    runs = tmp_path_factory.mktemp("undisturbed")
    with pytest.raises(SystemExit) as ended:
        main(["compare", *SLOW, "--runs", str(runs), "--workers", "2"])
    assert not ended.value.code
    return contents(runs / "small_tasks-slow")


def started(runs):
    """A comparison in the middle of its first trials."""
    command = [AGGMO, "compare", *SLOW, "--runs", str(runs), "--workers", "2"]
    driver = subprocess.Popen(command, cwd=TESTS, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    database = runs / "small_tasks-slow" / "study.sqlite"
    until(lambda: database.exists() and len(contents(database.parent)["curves"]) > 10, seconds=90)
    return driver


def test_ctrl_c_says_how_to_go_on(undisturbed, tmp_path, capsys):
    driver = started(tmp_path)
    driver.send_signal(signal.SIGINT)
    _, err = driver.communicate(timeout=60)
    assert driver.returncode == 130
    assert "Traceback" not in err
    *_, last = err.splitlines()
    assert last.startswith("stopped; nothing is lost. To go on: aggmo compare small_tasks:slow ")
    command = shlex.split(last.partition("To go on: ")[2])
    assert here(capsys, *command[1:])[0] == 0
    assert contents(tmp_path / "small_tasks-slow") == undisturbed


def test_kill_9(undisturbed, tmp_path, capsys):
    """A worker, then the driver and all workers; what is there in the end is what an undisturbed run leaves."""
    driver = started(tmp_path)
    study = tmp_path / "small_tasks-slow"
    rows = len(contents(study)["curves"])
    kill(children(driver.pid)[0])
    until(lambda: driver.poll() is not None or len(contents(study)["curves"]) > rows + 20, seconds=90)
    workers = children(driver.pid)
    for victim in [driver.pid, *workers]:
        kill(victim)
    driver.communicate(timeout=60)
    until(lambda: not any(map(alive, workers)))
    assert len(contents(study)["curves"]) < len(undisturbed["curves"])
    assert here(capsys, "compare", *SLOW, "--runs", tmp_path)[0] == 0
    assert contents(study) == undisturbed
    assert {path.name for path in study.iterdir()} == {"study.sqlite", "study.lock"}


def test_ray_gives_the_same_records(undisturbed, tmp_path, capsys):
    code, _, err = here(capsys, "compare", *SLOW, "--runs", tmp_path, "--engine", "ray", "--workers", 2, "--cpus", 0.5)
    assert code == 0, err
    assert contents(tmp_path / "small_tasks-slow") == undisturbed
    with sqlite3.connect(tmp_path / "small_tasks-slow" / "study.sqlite") as connection:
        assert connection.execute("SELECT DISTINCT engine FROM attempts").fetchall() == [("ray",)]
    connection.close()


# Bad input: one line on the standard error, exit code 2, and what was there stays as it was

BAD = {
    "no task": ([], "Missing argument 'task'."),
    "unknown task": (["mnist"], "task 'mnist': must be module:function, or one of autoencoder, cnn5"),
    "no module": (["no_such_module:task"], "ModuleNotFoundError: No module named 'no_such_module'"),
    "a task that raises": (["small_tasks:broken"], "task 'small_tasks:broken' cannot be made: KeyError"),
    "a task that leaves": (["small_tasks:leaving"], "task 'small_tasks:leaving' cannot be made: SystemExit: 0"),
    "a task that is rubbish": (["small_tasks:rubbish"], "rubbish() returned a dict, not a Task"),
    "a task that does not work": (["small_tasks:misfit"], "task misfit does not work: RuntimeError: mat1 and mat2"),
    "no scale": (["cnn5", "--scale", "large"], "scale='large': must be one of paper, small, quick"),
    "a scale": ([TASK, "--scale", "quick"], "only the paper's tasks have them"),
    "data for a task of one's own": ([TASK, "--data-dir", "."], "only the paper's tasks have them"),
    "no data": (["cnn5", "--data-dir", "nowhere"], "nowhere: no such directory; give --data-dir one that holds"),
    "empty grid": ([TASK, "--optimizers", ""], "the grid is empty"),
    "no lr": ([TASK, "--lr", ""], "--lr '': must be numbers with commas between"),
    "lr of 0": ([TASK, "--lr", "0.1,0"], "lr=0.0: must be a number > 0 and finite"),
    "lr of -1": ([TASK, "--lr=-1"], "lr=-1.0: must be a number > 0"),
    "lr of nan": ([TASK, "--lr", "nan"], "lr=nan: must be a number > 0"),
    "lr of abc": ([TASK, "--lr", "abc"], "--lr 'abc': must be numbers with commas between, such as 0.1,0.01"),
    "lr for nobody": ([TASK, "--lr", "sgd=0.1"], "optimizer 'sgd': is given settings, but is not among cm, nesterov"),
    "optimizer": ([TASK, "--optimizers", "momentum"], "optimizer 'momentum': must be one of sgd, nt-asgd, cm"),
    "betas of nobody": ([TASK, "--betas", "0.9"], "--betas '0.9': must name an optimizer"),
    "beta of 1": ([TASK, "--betas", "aggmo=0,1"], "betas[1] is 1.0: every beta must be in [0, 1)"),
    "seeds": ([TASK, "--seeds", "0"], "seeds=0: must be a whole number >= 1"),
    "seeds of x": ([TASK, "--seeds", "x"], "Invalid value for '--seeds'"),
    "epochs": ([TASK, "--epochs", "0"], "epochs=0: must be a whole number >= 1"),
    "target": ([TASK, "--target", "nan"], "--target nan: must be a number"),
    "workers": ([TASK, "--workers", "0"], "workers=0: must be a whole number >= 1"),
    "engine": ([TASK, "--engine", "slurm"], "Invalid value for '--engine'"),
    "address": ([TASK, "--address", "10.0.0.1:6379"], "--address '10.0.0.1:6379': is for --engine ray"),
    "cpus here": ([TASK, "--cpus", "2"], "--cpus 2.0: is for --engine ray"),
    "gpus here": ([TASK, "--gpus", "0.5"], "--gpus 0.5: is for --engine ray"),
    "a file nowhere": (
        [TASK, "--csv", "nowhere/t.csv"],
        "--csv nowhere/t.csv: must be a file in a directory that exists",
    ),
    "a file that is none": ([TASK, "--latex", "."], "--latex .: must be a file in a directory"),
    "cpus": ([TASK, "--engine", "ray", "--cpus", "0"], "cpus=0.0: must be a number > 0"),
    "no cluster": ([TASK, *GRID, "--seeds", 3, "--engine", "ray", "--address", "127.0.0.1:9"], "no Ray cluster at"),
    "option": ([TASK, "--learning-rate", "1"], "No such option: --learning-rate"),
}


@pytest.mark.parametrize("bad", BAD)
def test_bad_input(bad, study, tmp_path, capsys):
    arguments, message = BAD[bad]
    shutil.copytree(study, tmp_path / study.name)
    code, out, err = here(capsys, "compare", *arguments, "--runs", tmp_path)
    assert (code, out) == (2, "")
    assert err.startswith("aggmo: ")
    assert message in err
    assert err.count("\n") == 1
    if bad != "no cluster":  # by when the larger grid has been declared
        assert contents(tmp_path / study.name) == contents(study)
    finished_rows = [row for row in contents(tmp_path / study.name)["trials"] if row[3] == "finished"]
    assert finished_rows == contents(study)["trials"]


def test_bad_input_of_the_program_itself(tmp_path):
    """One of them through the console script: no traceback, nothing made."""
    done = aggmo("compare", "small_tasks:broken", "--runs", tmp_path / "runs")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "aggmo: task 'small_tasks:broken' cannot be made: KeyError: 'no such\\nthing'\n"
    assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        ("PRAGMA user_version = 99", "a newer version of AggMo wrote this study (format 99, this one knows 1)"),
        (None, "file is not a database"),
    ],
)
def test_a_database_that_is_not_ours(spoil, message, study, tmp_path, capsys):
    database = tmp_path / study.name / "study.sqlite"
    shutil.copytree(study, tmp_path / study.name)
    if spoil:
        with sqlite3.connect(database) as connection:
            connection.execute(spoil)
        connection.close()
    else:
        database.write_bytes(b"a file of somebody else's" * 100)
    before = database.read_bytes()
    for options in ([], ["--json"]):
        code, out, err = here(capsys, "compare", TASK, *GRID, "--runs", tmp_path, *options)
        assert (code, out, err.count("\n")) == (2, "", 1)
        assert message in err
    assert database.read_bytes() == before


def test_runs_that_cannot_be_written(study, capsys):
    before = contents(study)
    with without_root() as directory:
        directory.chmod(0o555)
        code, out, err = here(capsys, "compare", TASK, *GRID, "--runs", directory / "runs")
        assert (code, out) == (2, "")
        assert err == f"aggmo: {directory}/runs/{study.name}: cannot be written (Permission denied)\n"
        assert not list(directory.iterdir())
    assert here(capsys, "compare", TASK, *GRID, "--runs", "/dev/null")[0] == 2
    assert contents(study) == before


def test_a_study_that_somebody_else_runs(study, tmp_path, capsys):
    from aggmo.lab import lock

    shutil.copytree(study, tmp_path / study.name)
    with lock.held(tmp_path / study.name / "study.lock"):
        for options in ([], ["--fresh"]):
            code, out, err = here(capsys, "compare", TASK, *GRID, "--runs", tmp_path, *options)
            assert (code, out) == (2, "")
            assert f"process {os.getpid()} on host" in err
    assert contents(tmp_path / study.name) == contents(study)


# aggmo tasks


def test_the_tasks(capsys):
    """Oracle: the paper's parameter counts."""
    code, out, _ = here(capsys, "tasks", "--json")
    found = {row["task"]: row["parameters"]["paper"] for row in json.loads(out)}
    expected = {"autoencoder": 2_837_314, "cnn5": 2_472_266, "resnet32-c10": 466_906, "resnet32-c100": 472_756}
    assert code == 0
    assert expected.items() <= found.items()
    assert round(found["lstm"] / 1e6, 1) == 24.2
    assert list(found)[4:] == ["resnet32-c100-nobn", "lstm"]
    code, out, _ = here(capsys, "tasks")
    assert code == 0
    assert all(name in out and f"{number:,}" in out for name, number in found.items())


def test_the_settings_of_a_task(capsys):
    code, out, _ = here(capsys, "tasks", "lstm")
    assert code == 0
    assert re.search(r"\| batch_size +\| 80 +\|", out)
    code, out, _ = here(capsys, "tasks", "lstm", "--json")
    assert json.loads(out)["paper"]["vocabulary"] == 10_000
    code, out, err = here(capsys, "tasks", "mnist")
    assert (code, out) == (2, "")
    assert err.startswith("aggmo: task 'mnist': must be one of autoencoder, cnn5")
