"""What was loaded, for records to carry; and the error for data that cannot be had or used."""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy.typing as npt


class DataError(ValueError):
    """Data that cannot be had or used; the message is one line that names the file and the remedy."""


@dataclass(frozen=True)
class Description:
    """One loaded data set: where it came from, how large it is, and a hash of its content.

    Attributes:
        name: what it is, "MNIST" or "scikit-learn's digits in place of MNIST".
        source: "download", "data-dir" or "embedded".
        sizes: examples or words of each part, as loaded, before any cut that a task makes.
        original: the same of the data set that the paper used.
        digest: SHA-256 of the content: the same data have the same digest, however they were packed.

    >>> part = Description("MNIST", "data-dir", {"train": 500}, original={"train": 60_000}, digest="00")
    >>> part.complete
    False
    >>> print(part)
    MNIST (data-dir): 500 of 60,000 train, sha256 00
    """

    name: str
    source: str
    sizes: Mapping[str, int]
    original: Mapping[str, int]
    digest: str

    @property
    def complete(self) -> bool:
        """Whether this is the whole of the paper's data set, not a part of it and nothing in its place.

        >>> Description("MNIST", "download", {"train": 60_000}, {"train": 60_000}, "00").complete
        True
        """
        return self.source != "embedded" and dict(self.sizes) == dict(self.original)

    def require_complete(self, purpose: str) -> None:
        """Refuse to go on with less than the paper's data set.

        Raises:
            DataError: the data set is not complete.

        >>> Description("MNIST", "data-dir", {"train": 500}, {"train": 60_000}, "00").require_complete("scale paper")
        Traceback (most recent call last):
            ...
        aggmo.lab.data.description.DataError: MNIST (data-dir): 500 of 60,000 train, sha256 00: not the whole data set,\
 which scale paper needs; give --data-dir with the original files, or leave it out to download them
        """
        if not self.complete:
            raise DataError(
                f"{self}: not the whole data set, which {purpose} needs;"
                " give --data-dir with the original files, or leave it out to download them"
            )

    def __str__(self) -> str:
        parts = []
        for part, size in self.sizes.items():
            whole = self.original[part]
            parts.append(f"{size:,} {part}" if size == whole else f"{size:,} of {whole:,} {part}")
        return f"{self.name} ({self.source}): {', '.join(parts)}, sha256 {self.digest[:16]}"


def digest(*parts: npt.NDArray[Any] | str) -> str:
    """SHA-256 over arrays and texts, one after the other, each after its type and size.

    >>> import numpy as np
    >>> digest(np.zeros(4, np.uint8)) == digest(np.zeros((2, 2), np.uint8))
    False
    """
    sha = hashlib.sha256()
    for part in parts:
        if isinstance(part, str):
            content = part.encode()
            sha.update(f"text {len(content)}:".encode())
            sha.update(content)
        else:
            sha.update(f"{part.dtype.newbyteorder('<').str} {part.shape}:".encode())
            sha.update(part.astype(part.dtype.newbyteorder("<"), copy=False).tobytes())
    return sha.hexdigest()
