"""`aggmo explore`: the interactive page, in the browser."""

from typing import Annotated

import typer


def explore(
    port: Annotated[int, typer.Option(help="Where to serve the page; 0 is any free port.")] = 8010,
    browser: Annotated[bool, typer.Option(help="Open the page in the browser.")] = True,
) -> None:
    """Show what a damping vector does, on a page whose sliders are answered live."""
    import webbrowser

    import marimo  # noqa: F401  so that a missing extra is told before anything is opened

    from aggmo.explore.server import HOST, bind, serve

    with bind(port) as listening:
        address = f"http://{HOST}:{listening.getsockname()[1]}/"
        typer.echo(f"{address}  (Ctrl-C ends it)")
        if browser:
            webbrowser.open(address)
        serve(listening)
