"""What a page says of the run behind it: data, versions, machine, time, and the command that repeats it."""

import os
import platform
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib import metadata

from aggmo.lab.paper.result import Table

_PACKAGES = ("aggmo", "numpy", "scipy", "torch", "scikit-learn", "matplotlib", "ray")


@dataclass(frozen=True, slots=True)
class About:
    """What is to be known of a run besides its results.

    Attributes:
        scale: "quick", "small" or "paper".
        options: of the command, as "--scale small --data-dir data".
        data: what the tasks ran on, a row for each data set.
        versions: of Python and of the packages, by name.
        machine: in a few words.
        seconds: that the run took.
        finished: when.
    """

    scale: str
    options: str
    data: Table
    versions: Mapping[str, str]
    machine: str
    seconds: float
    finished: str

    def command(self, item: str = "") -> str:
        """What to type to have the results, or those of one item, again.

        >>> here("quick", "--scale quick", Table("data", "", (), ()), 1.0).command("figure-1")
        'aggmo reproduce figure-1 --scale quick'
        """
        return " ".join(part for part in ("aggmo reproduce", item, self.options) if part)


def here(scale: str, options: str, data: Table, seconds: float) -> About:
    """About a run that ends now on this machine.

    >>> here("quick", "--scale quick", Table("data", "", (), ()), 1.0).versions["python"] == platform.python_version()
    True
    """
    now = datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC")
    return About(scale, options, data, _versions(), _machine(), seconds, now)


def _versions() -> dict[str, str]:
    """Of Python and of the packages that compute or draw, where they are installed."""
    found = {"python": platform.python_version()}
    for name in _PACKAGES:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return found


def _machine() -> str:
    """Kind and size, and no name."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    return f"{platform.system()} {platform.machine()}, {os.cpu_count()} cores, {memory:.0f} GiB of memory"
