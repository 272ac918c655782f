"""Images without a network: scikit-learn's 1,797 digits of 8 x 8, in place of MNIST and of the CIFAR data sets.

They are easier than what they stand for, and there are fewer of them: good for trying everything, not for a claim. The
first 1,500 train, the other 297 test. Everything is whole-number arithmetic without random numbers.

- For MNIST each pixel becomes 3 x 3, and a black frame of 2 makes 28 x 28.
- For CIFAR-10 each pixel becomes 4 x 4, drawn between two of seven colours that say nothing about the digit.
- For CIFAR-100 an image holds two digits of 16 x 32 side by side, and the class is the number they spell, 00 to 99. The
  pairs are taken twice from the training digits, once from the test digits, never from both.
"""

import hashlib

import numpy as np
import numpy.typing as npt
import torch

from aggmo.lab.data import cifar
from aggmo.lab.data.description import Description, digest
from aggmo.lab.data.images import Images

Whole = npt.NDArray[np.int64]

TRAIN = 1500
COLOURS = np.array(
    [(230, 60, 50), (50, 200, 80), (60, 90, 230), (240, 220, 70), (200, 70, 210), (70, 210, 220), (245, 245, 245)]
)


def as_mnist() -> Images:
    """The digits as grey images of 28 x 28.

    >>> as_mnist().test[0].shape
    torch.Size([297, 1, 28, 28])
    """
    pixels, labels = _digits()
    images = np.pad(_enlarge(pixels * 255 // 16, 3, 3), ((0, 0), (2, 2), (2, 2)))[:, None]
    return _images("MNIST", {"train": 60_000, "test": 10_000}, _halves(images), _halves(labels), 10)


def as_cifar10() -> Images:
    """The digits as coloured images of 32 x 32.

    >>> as_cifar10().test[0].shape
    torch.Size([297, 3, 32, 32])
    """
    pixels, labels = _digits()
    images = _coloured(_enlarge(pixels, 4, 4), "cifar-10")
    return _images("CIFAR-10", cifar.SIZES, _halves(images), _halves(labels), 10)


def as_cifar100() -> Images:
    """Pairs of digits as coloured images of 32 x 32, in 100 classes.

    >>> as_cifar100().test[0].shape
    torch.Size([297, 3, 32, 32])
    """
    pixels, labels = _digits()
    images, classes = [], []
    for part, rounds in ((slice(None, TRAIN), 2), (slice(TRAIN, None), 1)):
        halves, digit = _enlarge(pixels[part], 4, 2), labels[part]
        left = np.concatenate([_shuffled(len(digit), f"left {i}") for i in range(rounds)])
        right = np.concatenate([_shuffled(len(digit), f"right {i}") for i in range(rounds)])
        images.append(_coloured(np.concatenate([halves[left], halves[right]], axis=2), "cifar-100"))
        classes.append(10 * digit[left] + digit[right])
    return _images("CIFAR-100", cifar.SIZES, images, classes, 100)


def _digits() -> tuple[Whole, Whole]:
    """Pixels from 0 to 16, and the digits."""
    from sklearn.datasets import load_digits  # takes a second to import

    digits = load_digits()
    return digits.images.astype(np.int64), digits.target.astype(np.int64)


def _enlarge(pixels: Whole, height: int, width: int) -> Whole:
    """Every pixel as a block of that size."""
    return pixels.repeat(height, axis=1).repeat(width, axis=2)


def _coloured(pixels: Whole, purpose: str) -> Whole:
    """Pixels of 0 to 16 between two colours for each image: dark ground, bright ink, in an order without meaning."""
    order = _shuffled(len(pixels), purpose)
    ink, ground = COLOURS[order % 7][:, :, None, None], COLOURS[order // 7 % 7][:, :, None, None] // 4
    coloured: Whole = ground + (ink - ground) * pixels[:, None] // 16
    return coloured


def _shuffled(count: int, purpose: str) -> Whole:
    """The numbers below count in the order of their hashes, the same everywhere and always."""
    return np.array(sorted(range(count), key=lambda i: hashlib.sha256(f"{purpose} {i}".encode()).digest()))


def _halves(array: Whole) -> list[Whole]:
    """The training and the test part."""
    return [array[:TRAIN], array[TRAIN:]]


def _images(
    name: str,
    original: dict[str, int],
    images: list[Whole],
    labels: list[Whole],
    classes: int,
) -> Images:
    """The tensors with their description; colours are normalised by what they are, as CIFAR is."""
    pixels = [part.astype(np.uint8) for part in images]
    mean = std = None
    if pixels[0].shape[1] == 3:
        mean = tuple(round(float(x) / 255, 4) for x in pixels[0].mean(axis=(0, 2, 3)))
        std = tuple(round(float(x) / 255, 4) for x in pixels[0].std(axis=(0, 2, 3)))
    sizes = {"train": len(pixels[0]), "test": len(pixels[1])}
    content = digest(pixels[0], labels[0], pixels[1], labels[1])
    description = Description(f"scikit-learn's digits in place of {name}", "embedded", sizes, original, content)
    train, test = ((torch.tensor(x), torch.tensor(y)) for x, y in zip(pixels, labels, strict=True))
    return Images(train, test, classes, description, mean, std)
