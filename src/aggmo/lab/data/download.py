"""Downloads with `pooch`: known checksums, several addresses, and a cache that never holds half a file."""

import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pooch  # type: ignore[import-untyped]

from aggmo.lab.data.description import DataError

TIMEOUT = (10.0, 30.0)  # seconds to connect, and between two pieces of the answer
ABANDONED = 600.0  # seconds without a write after which a temporary file belongs to a process that was killed

# Why an address gave nothing, by the exception of requests, which pooch lets through.
REASONS = {
    "ChunkedEncodingError": "the connection broke off",
    "ConnectionError": "no connection",
    "ConnectTimeout": "no connection in time",
    "ReadTimeout": "no answer in time",
}


@dataclass(frozen=True)
class Download:
    """One published file: its name, its SHA-256, and where to get it, best address first."""

    file: str
    sha256: str
    addresses: tuple[str, ...]


def default_cache() -> Path:
    """The user's cache directory for AggMo, as the operating system has it.

    >>> default_cache().name
    'aggmo'
    """
    return Path(pooch.os_cache("aggmo")).expanduser()


def fetch(
    download: Download,
    directory: Path,
    *,
    mirrors: Sequence[str] = (),
    offline: bool = False,
    progress: bool | None = None,
) -> Path:
    """The path of a file in a cache directory, downloaded if it is not there.

    A file appears under its name only after its checksum was right. One that no longer has it is replaced, or deleted
    if that fails. Mirrors are tried first, then the addresses in their order.

    Raises:
        DataError: no address gave the right file, there is no room for it, or it is not there and `offline` is set.
    """
    path = directory / download.file
    elsewhere = f"or give --data-dir a directory that holds {download.file}"
    try:
        if _right(path, download):
            return path
        if offline:
            problem = "has a wrong checksum" if path.exists() else "is not in the cache"
            raise DataError(f"{path}: {problem}; run once with a network, {elsewhere}")
        _sweep(directory)
        reasons = []
        for address in (*(f"{mirror.rstrip('/')}/{download.file}" for mirror in mirrors), *download.addresses):
            reason = _try(address, path, download.sha256, progress)
            if reason is None:
                return path
            reasons.append(f"{urlsplit(address).netloc}: {reason}")
        problem = f"could not be downloaded ({', '.join(reasons)}); check the network and try again"
    except OSError as error:
        problem = f"{error.strerror or error}; make room or take another cache"
    with suppress(OSError):
        if not _right(path, download):  # another process may have got it
            path.unlink()
    raise DataError(f"{path}: {problem}, {elsewhere}")


def _right(path: Path, download: Download) -> bool:
    """Whether the file is there with its checksum."""
    return path.exists() and pooch.file_hash(str(path)) == download.sha256


def _sweep(directory: Path) -> None:
    """Delete what killed processes left of their downloads; pooch names its temporary files tmp..."""
    for path in directory.glob("tmp*"):
        with suppress(FileNotFoundError):  # of another process, which has finished
            if time.time() - path.stat().st_mtime > ABANDONED:
                path.unlink()


def _try(address: str, path: Path, sha256: str, progress: bool | None) -> str | None:
    """Download from one address; None, or the reason why it gave nothing."""
    opened: list[Any] = []
    bar = _Progress(path.name, sys.stderr.isatty() if progress is None else progress)
    downloader = pooch.HTTPDownloader(
        progressbar=bar,
        chunk_size=1 << 16,
        timeout=TIMEOUT,
        headers={"Accept-Encoding": "identity"},  # the checksum is that of the file as it lies there
        hooks={"response": lambda response, **_: opened.append(response)},
    )
    try:
        pooch.retrieve(address, f"sha256:{sha256}", path.name, path.parent, downloader=downloader)
    except OSError as error:
        if error.errno is not None:  # of the disk; those of requests have no number
            raise
        response = getattr(error, "response", None)
        if response is not None:
            return f"{response.status_code} {response.reason}"
        return REASONS.get(type(error).__name__, type(error).__name__)
    except ValueError:  # of pooch, after a whole answer
        return "wrong checksum"
    finally:
        bar.end()
        for response in opened:  # which pooch leaves open after an error
            response.close()
    return None


class _Progress:
    """A line on standard error that counts up, in the form that pooch takes."""

    def __init__(self, name: str, shown: bool) -> None:
        self.name, self.shown = name, shown
        self.total = self.done = 0
        self.text = ""

    def update(self, count: int) -> None:
        self.done += count
        total = max(self.total, 1)
        text = f"{self.name}: {min(100, 100 * self.done // total)}% of {total / 1e6:,.1f} MB"
        if self.shown and text != self.text:
            print(f"\r{text}", end="", file=sys.stderr, flush=True)
            self.text = text

    def reset(self) -> None:
        self.done = 0

    def close(self) -> None:
        """Pooch closes a bar only after success; `end` comes always."""

    def end(self) -> None:
        if self.text:
            print(file=sys.stderr)
