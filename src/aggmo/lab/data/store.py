"""Where the files of a data set are found: in a directory of the user's, or downloaded into a cache."""

import gzip
import tarfile
import zlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from aggmo.lab.data.description import DataError
from aggmo.lab.data.download import Download, default_cache, fetch


@dataclass(frozen=True)
class Original:
    """The files of a data set as published.

    Attributes:
        name: of the data set.
        members: the files, unpacked; each is also found gzip'ed, with .gz after its name, or in one of the archives.
        folders: below a data directory, where the members or the archives may lie, besides the directory itself; the
            cache uses the first.
        archives: tar files that hold all the members, packed or not.
        downloads: what to download; archives, or members that may be gzip'ed.
        optional: members that a partial copy may lack.
    """

    name: str
    members: tuple[str, ...]
    folders: tuple[str, ...]
    archives: tuple[str, ...]
    downloads: tuple[Download, ...]
    optional: tuple[str, ...] = ()


class Member(NamedTuple):
    """The content of one file of a data set, and where it was found."""

    path: str
    content: bytes
    remedy: str

    def broken(self, problem: str) -> DataError:
        """The error to raise when a reader finds fault with the content.

        >>> print(Member("ptb/ptb.test.txt", b"", "replace the file").broken("empty"))
        ptb/ptb.test.txt: empty; replace the file
        """
        return DataError(f"{self.path}: {problem}; {self.remedy}")


class Store:
    """Finds the files of data sets and reads them.

    Args:
        data_dir: a directory with the published files, packed or unpacked, in folders or not; nothing is downloaded
            then. Without it files come from the cache, and into the cache from their publishers.
        cache_dir: where downloads are kept; the user's cache directory if None.
        offline: take what the cache holds, download nothing.
        embedded: no files at all: every data set's `load` gives data that come with AggMo's dependencies.
        mirrors: addresses of directories to try before the publishers'; checksums are the same.
        progress: whether to show the progress of downloads on standard error; if None, when that is a terminal.

    Raises:
        DataError: data_dir is no directory.
        ValueError: embedded data beside a data directory, or a mirror that is no http address.

    >>> Store(embedded=True).source
    'embedded'
    """

    def __init__(
        self,
        data_dir: str | Path | None = None,
        *,
        cache_dir: str | Path | None = None,
        offline: bool = False,
        embedded: bool = False,
        mirrors: Sequence[str] = (),
        progress: bool | None = None,
    ) -> None:
        if embedded and data_dir is not None:
            raise ValueError(f"data_dir={str(data_dir)!r} beside embedded=True: take one of them")
        self.embedded = embedded
        self.data_dir = None if data_dir is None else Path(data_dir).expanduser()
        if self.data_dir is not None and not self.data_dir.is_dir():
            raise DataError(f"{self.data_dir}: no such directory; give --data-dir one that holds the data sets")
        self.cache_dir = default_cache() if cache_dir is None else Path(cache_dir).expanduser()
        self.offline = offline
        self.mirrors = tuple(_mirror(mirror) for mirror in mirrors)
        self.progress = progress

    @property
    def source(self) -> str:
        """Where the data come from: "embedded", "data-dir" or "download"."""
        return "embedded" if self.embedded else "download" if self.data_dir is None else "data-dir"

    def read(self, original: Original) -> dict[str, Member]:
        """The members of a data set by name; of the optional ones, those that there are.

        Raises:
            DataError: a file cannot be found, downloaded or unpacked.
        """
        if self.data_dir is not None:
            return _read_directory(self.data_dir, original)
        folder = self.cache_dir / original.folders[0]
        remedy = f"delete {folder}, and the data are downloaded again"
        paths = [
            fetch(download, folder, mirrors=self.mirrors, offline=self.offline, progress=self.progress)
            for download in original.downloads
        ]
        found = {name: member for path in paths for name, member in _members(path, original, remedy)}
        return _checked(found, original, str(folder), remedy)


def _mirror(address: str) -> str:
    """The address, if it is one of http."""
    if not address.startswith(("http://", "https://")):
        raise ValueError(f"mirrors: {address!r} must start with http:// or https://")
    return address


def _read_directory(data_dir: Path, original: Original) -> dict[str, Member]:
    """All members from one folder, or from one archive: parts of two copies are never mixed."""
    remedy = "replace it with the published file"
    folders = [data_dir, *(data_dir / folder for folder in original.folders)]
    for folder in folders:
        paths = [path for name in original.members for path in (folder / name, folder / f"{name}.gz") if path.is_file()]
        if paths:
            found = {name: member for path in paths for name, member in _members(path, original, remedy)}
            return _checked(found, original, str(folder), "add the published file, packed or unpacked")
    for folder in folders:
        for archive in original.archives:
            path = folder / archive
            if path.is_file():
                return _checked(dict(_members(path, original, remedy)), original, str(path), remedy)
    places = ", ".join(f"{folder}/" for folder in original.folders)
    raise DataError(
        f"{data_dir}: no {original.members[0]} of {original.name} here, in {places} or in an archive"
        f" ({' or '.join(original.archives) or 'none is known'}); put the published files there, packed or unpacked"
    )


def _checked(found: dict[str, Member], original: Original, place: str, remedy: str) -> dict[str, Member]:
    """What was found, if nothing is missing."""
    for name in original.members:
        if name not in found and name not in original.optional:
            raise DataError(f"{place}: {name} of {original.name} is missing; {remedy}")
    return found


def _members(path: Path, original: Original, remedy: str) -> Iterator[tuple[str, Member]]:
    """The members in a file: one, if it is not an archive."""
    try:
        if path.name in original.archives:
            yield from _unpack(path, original.members, remedy)
        else:
            content = path.read_bytes()
            if content.startswith(b"\x1f\x8b"):
                content = gzip.decompress(content)
            yield path.name.removesuffix(".gz"), Member(str(path), content, remedy)
    except (EOFError, gzip.BadGzipFile, zlib.error, tarfile.TarError) as error:
        raise DataError(f"{path}: corrupt or cut off ({error}); {remedy}") from error
    except OSError as error:
        raise DataError(f"{path}: cannot be read ({error.strerror or error}); {remedy}") from error


def _unpack(path: Path, members: Iterable[str], remedy: str) -> Iterator[tuple[str, Member]]:
    """Members of a tar file by their last name, read into memory: nothing in it is ever written to disk."""
    with gzip.open(path) if path.name.endswith("gz") else path.open("rb") as stream:
        with tarfile.open(fileobj=stream, mode="r|") as archive:
            for entry in archive:
                name = entry.name.rpartition("/")[2]
                file = archive.extractfile(entry) if entry.isreg() and name in members else None
                if file is not None:
                    yield name, Member(f"{path}: {entry.name}", file.read(), remedy)
        while stream.read(1 << 20):  # up to the end, where gzip has its checksum
            pass
