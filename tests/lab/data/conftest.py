"""Tiny data sets in the formats of the originals, and the originals themselves where a directory holds them."""

import gzip
import io
import os
import struct
import tarfile
from pathlib import Path

import numpy as np
import pytest

from aggmo.lab.data.store import Store


def idx(array):
    """The IDX file of an array of bytes, from the description of the format."""
    return struct.pack(f">BBBB{array.ndim}I", 0, 0, 8, array.ndim, *array.shape) + array.tobytes()


def mnist_files(train=7, test=3):
    """Images, labels and the four files with them."""
    rng = np.random.default_rng(0)
    files, arrays = {}, []
    for prefix, count in (("train", train), ("t10k", test)):
        images = rng.integers(256, size=(count, 28, 28)).astype(np.uint8)
        labels = (np.arange(count) % 10).astype(np.uint8)
        files[f"{prefix}-images-idx3-ubyte"] = idx(images)
        files[f"{prefix}-labels-idx1-ubyte"] = idx(labels)
        arrays.append((images, labels))
    return files, arrays


def records(count, label_bytes, seed):
    """Random CIFAR records, as an array with a row for each."""
    rows = np.random.default_rng(seed).integers(256, size=(count, label_bytes + 3072)).astype(np.uint8)
    for position in range(label_bytes):
        rows[:, position] = (np.arange(count) + seed) % 10
    return rows


def cifar10_files(batches=5, each=2):
    """The records of all training batches, those of the test batch, and the files with them."""
    train = [records(each, 1, seed) for seed in range(batches)]
    test = records(3, 1, 9)
    files = {f"data_batch_{i + 1}.bin": rows.tobytes() for i, rows in enumerate(train)}
    return files | {"test_batch.bin": test.tobytes()}, np.concatenate(train), test


def cifar100_files():
    """Training and test records, and the files with them."""
    train, test = records(5, 2, 3), records(2, 2, 4)
    return {"train.bin": train.tobytes(), "test.bin": test.tobytes()}, train, test


PTB_FILES = {
    "ptb.train.txt": b" the cat sat \n the <unk> sat on N mats \n",
    "ptb.valid.txt": b" the cat \n",
    "ptb.test.txt": b" N mats \n sat \n",
}


def write(directory, files, *, packed=False):
    """Write files into a directory, made if need be, gzip'ed if packed."""
    directory.mkdir(parents=True, exist_ok=True)
    for name, content in files.items():
        path = directory / (f"{name}.gz" if packed else name)
        path.write_bytes(gzip.compress(content) if packed else content)


def write_tar(path, files, folder, mode="w:gz"):
    """Write an archive with the files in a folder."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with tarfile.open(path, mode) as archive:
        for name, content in files.items():
            entry = tarfile.TarInfo(f"{folder}/{name}")
            entry.size = len(content)
            archive.addfile(entry, io.BytesIO(content))


@pytest.fixture(scope="session")
def tiny():
    """The functions above."""

    class Tiny:
        pass

    for name in ("idx", "mnist_files", "records", "cifar10_files", "cifar100_files", "write", "write_tar", "PTB_FILES"):
        setattr(Tiny, name, staticmethod(globals()[name]) if callable(globals()[name]) else globals()[name])
    return Tiny


# Without the published data there is nothing in it to test, so that nothing is skipped.
collect_ignore = [] if os.environ.get("AGGMO_DATA_DIR") else ["test_originals.py"]


@pytest.fixture(scope="session")
def originals():
    """A store of the published files, in the directory that AGGMO_DATA_DIR names."""
    return Store(Path(os.environ["AGGMO_DATA_DIR"]))
