"""The CIFAR reader against records laid out as published: label bytes, then red, green and blue planes."""

import numpy as np
import pytest

from aggmo.lab.data import cifar10, cifar100
from aggmo.lab.data.description import DataError
from aggmo.lab.data.store import Store


def check(part, rows, label_bytes):
    """Images and labels of a part are those of the records, byte by byte."""
    images, labels = (tensor.numpy() for tensor in part)
    for row, image, label in zip(rows, images, labels, strict=True):
        assert label == row[label_bytes - 1]  # the fine one of two
        for channel in range(3):
            plane = row[label_bytes + 1024 * channel :][:1024]
            np.testing.assert_array_equal(image[channel], [plane[32 * y :][:32] for y in range(32)])


LAYOUTS = ["cifar-10-batches-bin", "cifar-10-small-bin", ".", "cifar-10-binary.tar.gz", "cifar-10-binary.tar"]


@pytest.mark.parametrize("layout", LAYOUTS)
def test_cifar10_is_what_the_files_hold(tmp_path, tiny, layout):
    files, train, test = tiny.cifar10_files()
    if "tar" in layout:
        tiny.write_tar(tmp_path / layout, files, "cifar-10-batches-bin", "w:gz" if layout.endswith("gz") else "w")
    else:
        tiny.write(tmp_path / layout, files, packed=layout == ".")
    loaded = cifar10.load(Store(tmp_path))
    check(loaded.train, train, 1)
    check(loaded.test, test, 1)
    assert loaded.classes == 10
    assert (loaded.mean, loaded.std) == ((0.4914, 0.4822, 0.4465), (0.2023, 0.1994, 0.2010))
    assert loaded.description.sizes == {"train": 10, "test": 3}


@pytest.mark.parametrize("layout", ["cifar-100-binary", "cifar-100-small-bin", ".", "cifar-100-binary.tar.gz"])
def test_cifar100_is_what_the_files_hold(tmp_path, tiny, layout):
    files, train, test = tiny.cifar100_files()
    if "tar" in layout:
        tiny.write_tar(tmp_path / layout, files, "cifar-100-binary", "w:gz")
    else:
        tiny.write(tmp_path / layout, files)
    loaded = cifar100.load(Store(tmp_path))
    check(loaded.train, train, 2)
    check(loaded.test, test, 2)
    assert loaded.classes == 100
    assert (loaded.mean, loaded.std) == ((0.5071, 0.4867, 0.4408), (0.2675, 0.2565, 0.2761))


def test_part_of_cifar10_is_not_complete(tmp_path, tiny):
    files, train, _ = tiny.cifar10_files(batches=1)
    tiny.write(tmp_path / "cifar-10-small-bin", files)
    loaded = cifar10.load(Store(tmp_path))
    check(loaded.train, train, 1)
    assert not loaded.description.complete
    with pytest.raises(DataError, match=r"^CIFAR-10 \(data-dir\): 2 of 50,000 train, 3 of 10,000 test, .*scale paper"):
        loaded.description.require_complete("scale paper")


def test_the_number_of_records_decides(tmp_path, tiny):
    """Files of whatever content that has the size of the original."""
    train = np.zeros((10_000, 3073), np.uint8).tobytes()
    tiny.write(tmp_path, {f"data_batch_{i}.bin": train for i in range(1, 6)} | {"test_batch.bin": train})
    description = cifar10.load(Store(tmp_path)).description
    assert description.complete
    description.require_complete("scale paper")


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (b"", "0 bytes, not a whole number of records of 3,073"),
        (b"\0" * 3072, "3,072 bytes, not a whole number"),
        (b"\0" * 3074, "3,074 bytes, not a whole number"),
        (b"\x0a" * 3073, "a label of 10, and there are 10 classes"),
    ],
    ids=["empty", "cut off", "too long", "label"],
)
def test_a_broken_file(tmp_path, tiny, content, problem):
    files = tiny.cifar10_files()[0]
    tiny.write(tmp_path, files | {"data_batch_3.bin": content})
    with pytest.raises(DataError, match=rf"data_batch_3\.bin: {problem}.*; replace it with the published file"):
        cifar10.load(Store(tmp_path))


@pytest.mark.parametrize(("position", "value", "classes"), [(0, 20, 20), (1, 100, 100)])
def test_labels_of_cifar100(tmp_path, tiny, position, value, classes):
    files, train, _ = tiny.cifar100_files()
    train[3, position] = value
    tiny.write(tmp_path, files | {"train.bin": train.tobytes()})
    with pytest.raises(DataError, match=rf"train\.bin: a label of {value}, and there are {classes} classes"):
        cifar100.load(Store(tmp_path))


def test_an_archive_names_itself_and_the_file(tmp_path, tiny):
    files = tiny.cifar10_files()[0]
    folder = "cifar-10-batches-bin"
    tiny.write_tar(tmp_path / "cifar-10-binary.tar.gz", files | {"test_batch.bin": b"?"}, folder)
    with pytest.raises(DataError, match=r"cifar-10-binary\.tar\.gz: cifar-10-batches-bin/test_batch\.bin: 1 bytes"):
        cifar10.load(Store(tmp_path))
