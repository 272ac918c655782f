"""The published data sets, where AGGMO_DATA_DIR names a directory that holds them."""

import hashlib

import pytest
import torch

from aggmo.lab.data import cifar10, cifar100, mnist, ptb
from aggmo.lab.data.description import DataError


def checked(originals, original):
    """The members; and that a file with the name of a download is the published one, if the directory is no subset."""
    members = originals.read(original)
    for each in original.downloads:
        found = [member for name, member in members.items() if member.path.endswith(f"/{each.file}")]
        for member in found:
            with open(member.path, "rb") as file:
                assert hashlib.file_digest(file, "sha256").hexdigest() == each.sha256, member.path
    return members


def test_mnist(originals):
    checked(originals, mnist.ORIGINAL)
    images = mnist.load(originals)
    assert images.description.complete
    assert (images.train[0].shape, images.test[0].shape) == ((60_000, 1, 28, 28), (10_000, 1, 28, 28))
    # what LeCun's page says of the first labels, and the number of each digit
    assert images.train[1][:5].tolist() == [5, 0, 4, 1, 9]
    counts = [5923, 6742, 5958, 6131, 5842, 5421, 5918, 6265, 5851, 5949]
    assert images.train[1].bincount().tolist() == counts
    # the mean and deviation that everyone normalises MNIST by
    pixels = images.train[0].double() / 255
    assert (round(pixels.mean().item(), 4), round(pixels.std().item(), 4)) == (0.1307, 0.3081)


@pytest.mark.parametrize(("module", "classes"), [(cifar10, 10), (cifar100, 100)])
def test_cifar(originals, module, classes):
    images = module.load(originals)
    assert images.train[0].shape[1:] == (3, 32, 32)
    counts = images.train[1].bincount(minlength=classes)
    assert counts.tolist() == [len(images.train[1]) // classes] * classes  # both are balanced, and so are the subsets
    pixels = images.train[0].double() / 255
    torch.testing.assert_close(pixels.mean((0, 2, 3)), torch.tensor(module.MEAN).double(), rtol=0, atol=0.006)
    # smooth along both axes, as photographs are and wrongly cut planes are not
    for axis in (2, 3):
        assert pixels.diff(dim=axis).abs().mean() < 0.07
    if not images.description.complete:
        with pytest.raises(DataError, match="not the whole data set, which scale paper needs"):
            images.description.require_complete("scale paper")


def test_penn_treebank(originals):
    for name, member in checked(originals, ptb.ORIGINAL).items():
        assert hashlib.sha256(member.content).hexdigest() == ptb.SHA256[name]
    text = ptb.load(originals)
    assert text.description.complete
    assert (len(text.train), len(text.validation), len(text.test)) == (929_589, 73_760, 82_430)
    corpus = text.encode()
    assert len(corpus.words) == 10_000
    assert set(text.validation) | set(text.test) <= set(corpus.words)
    assert (corpus.train == 1).sum() == 42_068  # lines
