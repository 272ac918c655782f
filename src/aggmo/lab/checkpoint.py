"""Checkpoints: one file a trial, replaced as a whole, so that there is a good one at every moment.

A checkpoint is written beside the old one, brought to the disk, and renamed onto it. A file that cannot be read, or
that another trial wrote, is an error and not a reason to begin anew: it may hold hours of work.
"""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

FORMAT = 1


def save(file: Path, trial: Mapping[str, Any], state: Mapping[str, Any]) -> None:
    """Replace the file by a checkpoint of this trial.

    Args:
        file: where; its directory is made if need be.
        trial: what tells this trial from others, in plain values.
        state: tensors and plain values, in dicts, lists and tuples.

    Raises:
        OSError: the disk does not take it; the old checkpoint is still there then.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as directory:
    ...     file = Path(directory, "checkpoint.pt")
    ...     save(file, {"seed": 0}, {"epoch": 3})
    ...     load(file, {"seed": 0})
    {'epoch': 3}
    """
    file.parent.mkdir(parents=True, exist_ok=True)
    unfinished = _unfinished(file)
    try:
        with unfinished.open("wb") as stream:
            torch.save({"format": FORMAT, "trial": dict(trial), "state": dict(state)}, stream)
            stream.flush()
            os.fsync(stream.fileno())
        unfinished.replace(file)
    except BaseException:
        unfinished.unlink(missing_ok=True)
        raise
    directory = os.open(file.parent, os.O_RDONLY)
    try:
        os.fsync(directory)  # the renaming, too, outlives a power failure
    finally:
        os.close(directory)


def load(file: Path, trial: Mapping[str, Any]) -> dict[str, Any] | None:
    """The state in the checkpoint of this trial, or None if there is no file; what a killed `save` left is removed.

    Raises:
        ValueError: the file is damaged, no checkpoint, or one of another trial.

    >>> load(Path("no-such-directory", "checkpoint.pt"), {"seed": 0}) is None
    True
    """
    _unfinished(file).unlink(missing_ok=True)
    if not file.exists():
        return None
    try:
        found = torch.load(file, map_location="cpu", weights_only=True)
        kind, saved, state = found["format"], dict(found["trial"]), dict(found["state"])
    except Exception as error:
        raise ValueError(
            f"{file} is damaged, or no checkpoint ({type(error).__name__}): remove it to begin the trial anew"
        ) from error
    if kind != FORMAT:
        raise ValueError(f"{file} is a checkpoint of format {kind!r}: this version reads format {FORMAT}")
    if differing := [name for name in {**trial, **saved} if trial.get(name) != saved.get(name)]:
        name = differing[0]
        raise ValueError(
            f"{file} is the checkpoint of another trial, with {name} {saved.get(name)!r}, not {trial.get(name)!r}: "
            "choose another directory"
        )
    return state


def _unfinished(file: Path) -> Path:
    """Where a checkpoint is written before it is complete."""
    return file.with_name(file.name + ".unfinished")
