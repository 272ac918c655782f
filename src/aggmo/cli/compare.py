"""`aggmo compare`: optimizers on one task, each at its best, as a study that may be interrupted."""

import math
from collections.abc import Sequence
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from aggmo.lab.comparison import Comparison
    from aggmo.lab.engine import Engine
    from aggmo.lab.study import Study
    from aggmo.lab.task import Task


class EngineName(StrEnum):
    """Where trials are run."""

    LOCAL = "local"
    RAY = "ray"


def compare(
    task: Annotated[str, typer.Argument(help="One of `aggmo tasks`, or module:function for one of your own.")],
    scale: Annotated[
        str | None, typer.Option(help="Of a task of the paper: paper, small or quick.", show_default="quick")
    ] = None,
    optimizers: Annotated[
        list[str] | None, typer.Option(help="Names, such as cm,aggmo: sgd, nt-asgd, cm, nesterov, adam, aggmo.")
    ] = None,
    lr: Annotated[list[str] | None, typer.Option(help="Learning rates, such as 0.1,0.01 or adam=0.001,0.01.")] = None,
    betas: Annotated[
        list[str] | None, typer.Option(help="A damping to try, such as aggmo=0,0.9,0.99; once for each.")
    ] = None,
    seeds: Annotated[int | None, typer.Option(help="Seeds for each setting.", show_default="the task's")] = None,
    epochs: Annotated[int | None, typer.Option(help="Epochs of each trial.", show_default="the task's")] = None,
    data_dir: Annotated[
        Path | None, typer.Option(help="The published data files; without it scale quick takes stand-ins.")
    ] = None,
    runs: Annotated[Path, typer.Option(help="Where studies are kept, one directory each.")] = Path("runs"),
    engine: Annotated[EngineName, typer.Option(help="This machine, or a Ray cluster.")] = EngineName.LOCAL,
    address: Annotated[str | None, typer.Option(help="Of the Ray cluster; one is started here without it.")] = None,
    workers: Annotated[int | None, typer.Option(help="Trials at a time.", show_default="one a processor")] = None,
    cpus: Annotated[float, typer.Option(help="Processors of a trial on Ray.")] = 1.0,
    gpus: Annotated[float, typer.Option(help="GPUs of a trial on Ray, such as 0.25; it then runs there.")] = 0.0,
    resume: Annotated[
        bool, typer.Option("--resume/--fresh", help="Keep what has finished, or set the study aside and begin anew.")
    ] = True,
    retry: Annotated[bool, typer.Option(help="Try failed trials again.")] = False,
    target: Annotated[float | None, typer.Option(help="Validation value to wait for in 'epochs to'.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON in place of tables.")] = False,
    csv: Annotated[Path | None, typer.Option(help="Write the tables as one CSV file.")] = None,
    markdown: Annotated[Path | None, typer.Option(help="Write the tables as Markdown.")] = None,
    latex: Annotated[Path | None, typer.Option(help="Write the tables as LaTeX, for booktabs.")] = None,
    figures: Annotated[bool, typer.Option(help="Draw the figures, into the study's directory.")] = True,
    tensorboard: Annotated[bool, typer.Option(help="Log for TensorBoard, into the study's directory.")] = False,
) -> None:
    """Tune optimizers on a task over the same grid and seeds, and show each at its best.

    What has finished is never run again, and a run that was stopped or killed goes on where it was. Exit codes: 0, all
    trials have an outcome; 1, some have failed; 2, bad input; 130, stopped by Ctrl-C.
    """
    if math.isnan(target or 0.0):
        raise ValueError("--target nan: must be a number")
    if engine is not EngineName.RAY:
        refuse_shares(address, gpus, cpus)
    _check_files({"--csv": csv, "--markdown": markdown, "--latex": latex})
    place = _engine(engine, address, workers, cpus, gpus)
    found, scale, settings = _grid(task, scale, data_dir, optimizers, lr, betas, seeds, epochs)
    study = _declare(runs / _name(task, scale), task, scale, data_dir, found, settings, fresh=not resume)
    summary = _run(study, place, retry, tensorboard)
    comparison = _comparison(study, found, target)
    if as_json:
        _print_json(study, found, comparison, summary)
    else:
        _print_tables(found, comparison, len({each["seed"] for each in settings}))
    _save(comparison, csv, markdown, latex)
    if figures and not summary.interrupted and comparison.best:
        _draw(study, comparison, quiet=as_json)
    raise typer.Exit(130 if summary.interrupted else 0 if summary.done else 1)


def _name(task: str, scale: str | None) -> str:
    """The name of a study's directory."""
    return f"{task}-{scale}" if scale else task.replace(":", "-")


def refuse_shares(address: str | None, gpus: float, cpus: float = 1.0) -> None:
    """Refuse what only Ray can give, unless it is what there is without."""
    for option, value, usual in (("--address", address, None), ("--cpus", cpus, 1.0), ("--gpus", gpus, 0.0)):
        if value != usual:
            raise ValueError(f"{option} {value!r}: is for --engine ray")


def _check_files(files: dict[str, Path | None]) -> None:
    """Refuse files that could not be written in the end, before hours are spent on what they are to hold."""
    for option, file in files.items():
        if file is not None and (file.is_dir() or not file.parent.is_dir()):
            raise ValueError(f"{option} {file}: must be a file in a directory that exists")


def _engine(name: EngineName, address: str | None, workers: int | None, cpus: float, gpus: float) -> "Engine":
    """The engine as asked for."""
    if name is EngineName.RAY:
        from aggmo.lab.engine.ray import Ray

        return Ray(address, cpus, gpus, workers)
    from aggmo.lab.engine.local import Local

    return Local(workers)


def _grid(
    name: str,
    scale: str | None,
    data_dir: Path | None,
    optimizers: Sequence[str] | None,
    lr: Sequence[str] | None,
    betas: Sequence[str] | None,
    seeds: int | None,
    epochs: int | None,
) -> tuple["Task", str | None, list[dict[str, Any]]]:
    """The task, tried on one batch, its scale, and the settings of all trials."""
    from aggmo.lab import comparison
    from aggmo.lab.paper.settings import SCALES
    from aggmo.lab.task import find
    from aggmo.lab.train import check
    from aggmo.lab.trial import content

    rates, dampings = _rates(lr), _dampings(betas)
    names = None if optimizers is None else [part for text in optimizers for part in _parts(text)]
    if ":" in name:
        if scale is not None or data_dir is not None:
            raise ValueError(f"task {name!r} with --scale or --data-dir: only the paper's tasks have them")
        _look_here()
        task = find(name)
    else:
        scale = scale or "quick"
        task = find(name, scale, _store(scale, data_dir)) if scale in SCALES else find(name, scale)
    check(task)
    settings = comparison.trials(
        name,
        scale,
        content(name, scale, task),
        optimizers=names,
        lr=rates,
        betas=dampings,
        seeds=seeds,
        epochs=epochs,
    )
    return task, scale, settings


def _look_here() -> None:
    """Find modules in the working directory, as `python -m` does and a console script does not."""
    import os
    import sys

    if os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())


def _store(scale: str, data_dir: Path | None) -> Any:
    """Where the data of a task of the paper come from."""
    from aggmo.lab.data.store import Store

    return Store(data_dir, embedded=data_dir is None and scale == "quick")


def _parts(text: str) -> list[str]:
    """What stands between commas."""
    return [part.strip() for part in text.split(",") if part.strip()]


def _numbers(option: str, text: str, given: str) -> list[float]:
    """The numbers between commas."""
    try:
        numbers = [float(part) for part in _parts(text)]
    except ValueError:
        numbers = []
    if not numbers:
        raise ValueError(
            f"{option} {given!r}: must be numbers with commas between, such as 0.1,0.01 or adam=0.001,0.01"
        )
    return numbers


def _rates(texts: Sequence[str] | None) -> dict[str, list[float]]:
    """Learning rates by optimizer, under "" those for all others."""
    found: dict[str, list[float]] = {}
    for text in texts or ():
        name, equals, numbers = text.rpartition("=")
        found.setdefault(name.strip() if equals else "", []).extend(_numbers("--lr", numbers, text))
    return found


def _dampings(texts: Sequence[str] | None) -> dict[str, list[list[float]]]:
    """The dampings of each optimizer."""
    found: dict[str, list[list[float]]] = {}
    for text in texts or ():
        name, equals, numbers = text.partition("=")
        if not equals:
            raise ValueError(f"--betas {text!r}: must name an optimizer, such as aggmo=0,0.9,0.99")
        found.setdefault(name.strip(), []).append(_numbers("--betas", numbers, text))
    return found


def _declare(
    directory: Path,
    name: str,
    scale: str | None,
    data_dir: Path | None,
    task: "Task",
    settings: list[dict[str, Any]],
    fresh: bool,
) -> "Study":
    """The study, which may have been there before."""
    from aggmo.lab import trial
    from aggmo.lab.study import Study, set_aside

    if fresh and (aside := set_aside(directory)):
        typer.echo(f"the study that was there is now {aside}", err=True)
    study = Study.declare(
        directory,
        trial.TRIAL,
        settings,
        timer=trial.TIMER,
        metric=f"validation_{task.select.name}",
        direction=task.select.direction,
        code=name if ":" in name else None,
    )
    if scale is not None:
        trial.save_store(directory, data_dir, embedded=data_dir is None and scale == "quick")
    return study


def _run(study: "Study", engine: "Engine", retry: bool, tensorboard: bool) -> Any:
    """Run what waits, and say with which command to go on if that is ended early."""
    import shlex
    import sys
    from contextlib import ExitStack

    from aggmo.lab.board import Board

    again = [argument for argument in sys.argv[1:] if argument not in ("--fresh", "--resume")]
    with ExitStack() as stack:
        board = stack.enter_context(Board(study.directory / "tensorboard")) if tensorboard else None
        return study.run(engine, retry=retry, observer=board, resume=f"aggmo {shlex.join(again)}")


def _comparison(study: "Study", task: "Task", target: float | None) -> "Comparison":
    """What the trials gave so far."""
    from aggmo.lab.comparison import Comparison

    trials = study.trials()
    with study.records() as records:
        curves = {trial.trial: records.curve(trial.trial) for trial in trials if trial.outcome is not None}
    return Comparison(task.name, task.select.name, task.select.direction, trials, curves, target)


def _print_json(study: "Study", task: "Task", comparison: "Comparison", summary: Any) -> None:
    """One JSON object on the standard output."""
    import json
    from dataclasses import asdict

    about = {"data": task.description, "study": str(study.directory), "trials": asdict(summary)}
    typer.echo(json.dumps({**comparison.plain(), **about}, indent=2))


def _print_tables(task: "Task", comparison: "Comparison", seeds: int) -> None:
    """The three tables, the data that they are about, and the warnings."""
    from rich import box
    from rich.console import Console
    from rich.table import Table

    from aggmo.lab.report.tables import shown

    console = Console()
    every = f" (n = {seeds})"
    for each in comparison.tables() if comparison.best else ():
        table = Table(box=box.SIMPLE_HEAD, pad_edge=False, title=each.caption, title_justify="left", title_style="bold")
        for i, head in enumerate(each.columns):
            text = head in ("optimizer", "betas")
            table.add_column(head, justify="left" if text else "right", no_wrap=i == 0)
        for row in each.rows:
            table.add_row(*(shown(cell).removesuffix(every) for cell in row))
        console.print(table)
    if comparison.best:
        console.print(f"Mean ± standard deviation over {seeds} seed{'s' * (seeds > 1)}.", style="dim")
    if comparison.best and task.description:
        console.print(f"Data: {task.description}.", style="dim", markup=False, highlight=False)
    for line in comparison.warnings():
        console.print(f"[yellow]note[/] {line}", highlight=False)


def _save(comparison: "Comparison", csv: Path | None, markdown: Path | None, latex: Path | None) -> None:
    """Write the files that were asked for."""
    from aggmo.lab.report.tables import as_csv, as_latex, as_markdown

    tables = comparison.tables() if comparison.best else ()
    if csv:
        csv.write_text(as_csv(comparison.wide()) if tables else "", encoding="utf-8")
    if markdown:
        parts = [f"{each.caption}\n\n{as_markdown(each)}" for each in tables]
        markdown.write_text("\n".join(parts), encoding="utf-8")
    if latex:
        latex.write_text("\n".join(map(as_latex, tables)), encoding="utf-8")


def _draw(study: "Study", comparison: "Comparison", quiet: bool) -> None:
    """The figures, as SVG, PDF and PNG."""
    from aggmo.lab.charts import pictures
    from aggmo.lab.report.pictures import drawn

    directory = study.directory / "figures"
    directory.mkdir(exist_ok=True)
    for picture in pictures(comparison):
        for suffix, content in drawn(picture).files.items():
            (directory / f"{picture.name}.{suffix}").write_bytes(content)
    if not quiet:
        typer.echo(f"\nfigures: {directory}, records: {study.directory / 'study.sqlite'}")
