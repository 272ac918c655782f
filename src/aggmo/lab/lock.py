"""Locks on files, so that two processes do not do the same work. The kernel drops them with the process."""

import errno
import fcntl
import os
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from aggmo.lab.records import StudyError

_NO_LOCKS = (errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP)


@contextmanager
def held(path: Path, patience: float = 0.0) -> Iterator[None]:
    """Hold the lock of that file, which then says who does; it is made, with its directory, and stays.

    On a network file system this is as good as its locks: NFS from version 4 has them between hosts.

    Args:
        path: the file.
        patience: the seconds to wait for another process to let go.

    Raises:
        StudyError: another process holds it, or the file system has no locks.
        OSError: the file cannot be made.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as directory, held(Path(directory, "lock")):
    ...     Path(directory, "lock").read_text() == f"process {os.getpid()} on host {socket.gethostname()}"
    True
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    deadline = time.monotonic() + patience
    with path.open("a+", encoding="utf-8") as file:
        while not _locked(file.fileno(), path):
            if time.monotonic() >= deadline:
                file.seek(0)
                raise StudyError(f"{path.parent}: {file.read() or 'another process'} is at work here")
            time.sleep(0.02)
        file.truncate(0)
        file.write(f"process {os.getpid()} on host {socket.gethostname()}")
        file.flush()
        yield


def _locked(descriptor: int, path: Path) -> bool:
    """Whether the lock could be had at once."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError as error:
        if error.errno not in _NO_LOCKS:
            raise
        raise StudyError(f"{path.parent}: this file system has no locks; keep the study on another") from error
    return True
