"""The commands by name."""

from typing import Annotated

import typer

from aggmo.cli.analyze import analyze
from aggmo.cli.compare import compare
from aggmo.cli.explore import explore
from aggmo.cli.reproduce import reproduce
from aggmo.cli.tasks import tasks

app = typer.Typer(
    name="aggmo",
    help="Aggregated momentum: its theory, the paper's experiments, and comparisons of your own.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
app.command()(analyze)
app.command()(explore)
app.command()(tasks)
app.command()(compare)
app.command()(reproduce)


def _version(wanted: bool) -> None:
    """Print the version and leave."""
    if wanted:
        from aggmo import __version__

        typer.echo(__version__)
        raise typer.Exit


@app.callback()
def options(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and leave.")
    ] = False,
) -> None:
    """Aggregated momentum: its theory, the paper's experiments, and comparisons of your own."""
