"""AggMo: aggregated momentum, several velocities with dampings of their own averaged into one step.

Importing this package loads no framework: `AggMo`, the optimizer for PyTorch, is looked up when it is first used.
"""

from typing import TYPE_CHECKING, Any

from aggmo.damping import Damping

if TYPE_CHECKING:
    from aggmo.torch import AggMo

__all__ = ["AggMo", "Damping", "__version__"]


def __getattr__(name: str) -> Any:
    if name == "AggMo":
        try:
            from aggmo.torch import AggMo
        except ModuleNotFoundError as error:
            if error.name != "torch":
                raise
            raise ModuleNotFoundError("AggMo needs PyTorch: pip install 'aggmo[torch]'", name="torch") from error
        return AggMo
    if name == "__version__":
        from importlib.metadata import version

        return version("aggmo")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
