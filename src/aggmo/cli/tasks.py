"""`aggmo tasks`: what there is to compare optimizers on."""

import json
from typing import Annotated, Any

import typer


def tasks(
    task: Annotated[str | None, typer.Argument(help="One of them: its settings at every scale, as a table.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """List the paper's tasks, with the parameters of their models at each scale; or the settings of one."""
    from aggmo.lab.paper.settings import SETTINGS, table

    if task is not None:
        if task not in SETTINGS:
            raise ValueError(f"task {task!r}: must be one of {', '.join(SETTINGS)}")
        typer.echo(json.dumps(_settings(task), indent=2) if as_json else table(task))
        return
    found = [_described(name) for name in SETTINGS]
    if as_json:
        typer.echo(json.dumps(found, indent=2))
    else:
        _print(found)


def _described(name: str) -> dict[str, Any]:
    """A row of the list."""
    import torch

    from aggmo.lab.models.awd_lstm import AWDLSTM
    from aggmo.lab.paper.settings import SETTINGS, TextSettings
    from aggmo.lab.paper.tasks import MODELS

    parameters = {}
    for scale, settings in SETTINGS[name].items():
        with torch.device("meta"):  # no memory, no time
            if isinstance(settings, TextSettings):
                model: torch.nn.Module = AWDLSTM(vocabulary=settings.vocabulary, **settings.sizes)
            else:
                model = MODELS[settings.model](**settings.sizes)
        parameters[scale] = sum(parameter.numel() for parameter in model.parameters())
    whole = SETTINGS[name]["paper"]
    return {
        "task": name,
        "data": whole.data,
        "model": whole.model,
        "parameters": parameters,
        "optimizers": list(whole.optimizers),
    }


def _settings(name: str) -> dict[str, Any]:
    """The settings of a task by scale."""
    from dataclasses import asdict

    from aggmo.lab.paper.settings import SETTINGS

    return {scale: asdict(settings) for scale, settings in SETTINGS[name].items()}


def _print(found: list[dict[str, Any]]) -> None:
    """The list as a table."""
    from rich import box
    from rich.console import Console
    from rich.table import Table

    scales = list(found[0]["parameters"])
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0))
    for head in ("task", "data", "model"):
        table.add_column(head, no_wrap=True)
    for scale in scales:
        table.add_column(f"parameters: {scale}" if scale == scales[0] else scale, justify="right")
    for row in found:
        numbers = [f"{row['parameters'][scale]:,}" for scale in scales]
        table.add_row(f"[bold]{row['task']}[/]", row["data"], row["model"], *numbers)
    console = Console(soft_wrap=False)
    console.print(table)
    console.print("Compare optimizers on one:       aggmo compare autoencoder", highlight=False)
    console.print("Its settings at every scale:     aggmo tasks autoencoder", highlight=False)
    console.print("A task of your own:              aggmo compare module:function", highlight=False)
