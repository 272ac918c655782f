"""The IDX reader against files written from the format's description, good and bad."""

import numpy as np
import pytest
import torch

from aggmo.lab.data import mnist
from aggmo.lab.data.description import DataError
from aggmo.lab.data.store import Member, Store


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("folder", [".", "mnist", "MNIST/raw"])
def test_the_tensors_are_what_the_files_hold(tmp_path, tiny, folder, packed):
    files, parts = tiny.mnist_files()
    tiny.write(tmp_path / folder, files, packed=packed)
    loaded = mnist.load(Store(tmp_path))
    for (images, labels), part in zip(parts, (loaded.train, loaded.test), strict=True):
        assert part[0].dtype == torch.uint8
        assert part[1].dtype == torch.long
        np.testing.assert_array_equal(part[0].numpy(), images[:, None])
        np.testing.assert_array_equal(part[1].numpy(), labels)
    assert loaded.classes == 10
    assert loaded.mean is loaded.std is None  # inputs in [0, 1]


def test_the_description(tmp_path, tiny):
    for directory, packed in (("a", False), ("b", True)):
        tiny.write(tmp_path / directory, tiny.mnist_files()[0], packed=packed)
    first, second = (mnist.load(Store(tmp_path / directory)).description for directory in "ab")
    assert first == second  # however packed
    assert (first.source, first.sizes, first.complete) == ("data-dir", {"train": 7, "test": 3}, False)
    tiny.write(tmp_path / "b", tiny.mnist_files(test=2)[0], packed=True)
    assert mnist.load(Store(tmp_path / "b")).description.digest != first.digest


def item(axes, *sizes, content=b"\1" * 28 * 28 * 2, kind=8):
    """A file that says these sizes and has this content."""
    return bytes([0, 0, kind, axes]) + b"".join(size.to_bytes(4, "big") for size in sizes) + content


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (b"", "not an IDX file of bytes with 3 axes: it starts with nothing"),
        (b"<html>", "not an IDX file of bytes with 3 axes: it starts with 3c68746d"),
        (item(1, 2), "with 3 axes: it starts with 00000801"),
        (item(3, 2, 28, 28, kind=13), "with 3 axes: it starts with 00000d03"),
        (item(3, 2, content=b"\0"), "cut off in its header"),
        (item(3, 2, 28, 27), r"items of \(2, 28, 27\) bytes, where \(n, 28, 28\) is expected"),
        (item(3, 0, 28, 28, content=b""), r"items of \(0, 28, 28\) bytes, where \(n, 28, 28\) is expected"),
        (item(3, 3, 28, 28), "1,584 bytes, where its header promises 2,368"),
        (item(3, 1, 28, 28), "1,584 bytes, where its header promises 800"),
        (item(3, 2**32 - 1, 28, 28), "1,584 bytes, where its header promises 3,367,254,359,296"),
    ],
    ids=["empty", "web page", "labels", "floats", "header", "shape", "no images", "cut off", "too long", "enormous"],
)
def test_a_broken_file(content, problem):
    with pytest.raises(DataError, match=f"^images: .*{problem}; replace it$"):
        mnist.read_idx(Member("images", content, "replace it"), (28, 28))


def test_images_and_labels_have_to_agree(tmp_path, tiny):
    files = tiny.mnist_files()[0]
    name = "train-labels-idx1-ubyte"
    tiny.write(tmp_path, files | {name: tiny.idx(np.zeros(6, np.uint8))})
    with pytest.raises(DataError, match=rf"{name}: 6 labels for 7 images; replace"):
        mnist.load(Store(tmp_path))
    tiny.write(tmp_path, files | {name: tiny.idx(np.full(7, 10, np.uint8))})
    with pytest.raises(DataError, match=rf"{name}: a label of 10, and there are 10 digits; replace"):
        mnist.load(Store(tmp_path))


def test_a_missing_file(tmp_path, tiny):
    tiny.write(tmp_path / "mnist", tiny.mnist_files()[0], packed=True)
    (tmp_path / "mnist" / "t10k-labels-idx1-ubyte.gz").unlink()
    with pytest.raises(DataError, match=r"mnist: t10k-labels-idx1-ubyte of MNIST is missing; add the published file"):
        mnist.load(Store(tmp_path))
