"""`aggmo reproduce`: every figure, table and claim of the paper, and one page that shows them beside its numbers."""

import shlex
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from aggmo.cli.compare import EngineName, refuse_shares

if TYPE_CHECKING:
    from aggmo.lab.engine import Engine
    from aggmo.lab.paper.experiment import Evidence
    from aggmo.lab.paper.items import Item
    from aggmo.lab.paper.result import Table


def reproduce(
    items: Annotated[list[str] | None, typer.Argument(metavar="[ITEM]...", help="See --list; all if none.")] = None,
    scale: Annotated[
        str, typer.Option(help="quick: minutes, embedded data; small: hours, real data; paper: GPUs.")
    ] = "quick",
    data_dir: Annotated[
        Path | None, typer.Option(help="The published data files; without it scale quick takes stand-ins.")
    ] = None,
    out: Annotated[Path, typer.Option(help="Where page, files and studies go.")] = Path("reproduction"),
    engine: Annotated[EngineName, typer.Option(help="This machine, or a Ray cluster.")] = EngineName.LOCAL,
    address: Annotated[str | None, typer.Option(help="Of the Ray cluster; one is started here without it.")] = None,
    workers: Annotated[int | None, typer.Option(help="Trials at a time.", show_default="one a processor")] = None,
    gpus: Annotated[float, typer.Option(help="GPUs of a trial on Ray, such as 0.25.")] = 0.0,
    report_only: Annotated[bool, typer.Option("--report-only", help="Run nothing: a page of what there is.")] = False,
    list_items: Annotated[bool, typer.Option("--list", help="List the items and leave.")] = False,
) -> None:
    """Make the figures, tables and claims of the paper, each with a verdict, and a page of them all.

    Ctrl-C loses nothing: the same command goes on, and one that is done computes nothing again.
    """
    from rich.console import Console

    from aggmo.lab.paper.experiment import Experiment
    from aggmo.lab.paper.items import ITEMS, choose, wanted

    if list_items:
        for item in ITEMS:
            typer.echo(f"{item.name:28}{item.shows}{'' if item.tasks else ' (theory)'}")
        return
    if engine is not EngineName.RAY:
        refuse_shares(address, gpus)
    chosen = choose(items or [])
    began = time.monotonic()
    options = _options(items or [], scale, data_dir, out)
    experiment = Experiment(out / "studies" / scale, scale, wanted(chosen), data_dir)
    failed = False
    if not report_only:
        place = _engine(engine, address, workers, gpus)
        summary = experiment.run(place, Console(stderr=True), shlex.join(["aggmo", "reproduce", *options]))
        if summary is not None and (summary.interrupted or summary.waiting):
            raise typer.Exit(130)
        failed = summary is not None and bool(summary.failed)
    page = _write(chosen, experiment.evidence(), out, shlex.join(options[len(items or []) :]), time.monotonic() - began)
    typer.echo(str(page))
    if failed:
        typer.echo("some trials failed; the page lacks them", err=True)
        raise typer.Exit(1)


def _options(items: list[str], scale: str, data_dir: Path | None, out: Path) -> list[str]:
    """The arguments that make the same page again, the items first."""
    options = [*items, "--scale", scale]
    if data_dir is not None:
        options += ["--data-dir", str(data_dir)]
    return [*options, "--out", str(out)]


def _engine(name: EngineName, address: str | None, workers: int | None, gpus: float) -> "Engine":
    """The engine as asked for."""
    if name is EngineName.RAY:
        from aggmo.lab.engine.ray import Ray

        return Ray(address, gpus=gpus, workers=workers)
    from aggmo.lab.engine.local import Local

    return Local(workers)


def _write(chosen: "list[Item]", evidence: "Evidence", out: Path, options: str, seconds: float) -> Path:
    """The page of these items."""
    from aggmo.lab.paper.errata import errata
    from aggmo.lab.report import write
    from aggmo.lab.report.about import here

    began = time.monotonic()
    results = [item.make(evidence) for item in chosen]
    about = here(evidence.scale, options, _data(evidence), seconds + time.monotonic() - began)
    return write(results, out, about, errata())


def _data(evidence: "Evidence") -> "Table":
    """What each task ran on."""
    from aggmo.lab.paper.result import Table

    return Table("data", "The data of each task.", ("task", "data"), tuple(evidence.data.items()))
