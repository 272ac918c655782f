"""The command line: parse, call, print. A command is a module of this package, and imports what it calls when called.

Exit codes: 0, all went well; 1, something that was run has failed; 2, bad input, said in one line on the standard
error; 130, ended by Ctrl-C.
"""

import sys
from collections.abc import Sequence

try:
    import typer
except ModuleNotFoundError:
    typer = None  # type: ignore[assignment]


def main(arguments: Sequence[str] | None = None) -> None:
    """Run a command and leave with its exit code; the console script `aggmo`.

    Args:
        arguments: those of the command line if None.
    """
    if typer is None:
        sys.exit(_refuse("the command line needs what the extra `theory` brings: pip install 'aggmo[theory]'"))
    from aggmo.cli.commands import app

    try:
        code = app(arguments, prog_name="aggmo", standalone_mode=False)
    except (typer.TyperException, ValueError, OSError) as error:
        code = _refuse(error.format_message() if isinstance(error, typer.TyperException) else str(error))
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] == "aggmo":
            raise
        code = _refuse(f"this command needs {error.name}, which is not installed: pip install 'aggmo[all]'")
    except (KeyboardInterrupt, typer.Abort):
        code = 130
    sys.exit(code)


def _refuse(message: str) -> int:
    """Say what was wrong in one line, whatever the message has; an empty one stands for help that was printed."""
    if message:
        print("aggmo:", " ".join(message.split()), file=sys.stderr)
    return 2
