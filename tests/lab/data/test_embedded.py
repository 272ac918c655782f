"""The data that come with the dependencies, against the mappings that their modules promise."""

import builtins
import importlib
import subprocess
import sys
import sysconfig
from pathlib import Path

import numpy as np
import pytest
import torch
from sklearn.datasets import load_digits

from aggmo.lab.data import cifar10, cifar100, digits, mnist, ptb, stdlib
from aggmo.lab.data.description import DataError
from aggmo.lab.data.store import Store

STORE = Store(embedded=True)
PIXELS, LABELS = load_digits().images, load_digits().target


@pytest.mark.parametrize("module", [mnist, cifar10, cifar100, ptb])
def test_nothing_is_read_or_downloaded(module, monkeypatch, tmp_path):
    """Neither a cache nor a network is touched, and no one can take it for the paper's data."""
    monkeypatch.setattr("aggmo.lab.data.store.fetch", None)
    store = Store(embedded=True, cache_dir=tmp_path / "cache")
    description = module.load(store).description
    assert not (tmp_path / "cache").exists()
    assert description.source == "embedded"
    assert not description.complete
    assert "in place of" in description.name


def test_the_same_in_every_process():
    modules = [mnist, cifar10, cifar100, ptb]
    code = "from importlib import import_module as get; from aggmo.lab.data.store import Store\n"
    code += f"for name in {[module.__name__ for module in modules]}:\n"
    code += "    print(get(name).load(Store(embedded=True)).description.digest)"
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, check=True, env={"PYTHONHASHSEED": "7"})
    assert done.stdout.split() == [module.load(STORE).description.digest for module in modules]


def test_the_digits_have_not_changed():
    """Results on embedded data can be compared as long as these hold."""
    assert mnist.load(STORE).description.digest[:16] == "9216337730792f0d"
    assert cifar10.load(STORE).description.digest[:16] == "06af07c8b6acad99"
    assert cifar100.load(STORE).description.digest[:16] == "1d400da3f0a48cee"


def parts(images):
    return torch.cat([images.train[0], images.test[0]]).numpy(), torch.cat([images.train[1], images.test[1]]).numpy()


def test_digits_as_mnist():
    images, labels = parts(mnist.load(STORE))
    assert images.shape == (1797, 1, 28, 28)
    np.testing.assert_array_equal(labels, LABELS)
    for y in range(28):
        for x in range(28):
            inside = 2 <= y < 26 and 2 <= x < 26
            expected = PIXELS[:, (y - 2) // 3, (x - 2) // 3] * 255 // 16 if inside else 0
            np.testing.assert_array_equal(images[:, 0, y, x], expected)


def test_digits_as_cifar10():
    """Each image has at most 17 colours, all between its two, and brightness tells the pixel of the digit."""
    images, labels = parts(cifar10.load(STORE))
    np.testing.assert_array_equal(labels, LABELS)
    colours = np.array(digits.COLOURS)
    for image, digit in zip(images, PIXELS, strict=True):
        small = image[:, ::4, ::4].astype(int)
        np.testing.assert_array_equal(image, small.repeat(4, axis=1).repeat(4, axis=2))
        ground = small[:, digit == 0][:, 0]
        assert (colours // 4 == ground).all(axis=1).any()
        inks = [ink for ink in colours if (small == between(ink, ground, digit)).all()]
        assert len(inks) == 1


def between(ink, ground, digit):
    """The share digit/16 of the way from ground to ink, rounded down."""
    return ground[:, None, None] + np.floor((ink - ground)[:, None, None] * digit / 16).astype(int)


def test_colours_say_nothing_about_the_digit():
    """Chi-squared of ground colour against digit, below its 99.9 % point for 54 degrees of freedom."""
    images, labels = parts(cifar10.load(STORE))
    corner = images[:, :, 0, 0]  # black in nearly every digit
    _, colour = np.unique(corner[PIXELS[:, 0, 0] == 0], axis=0, return_inverse=True)
    table = np.zeros((colour.max() + 1, 10))
    np.add.at(table, (colour.ravel(), labels[PIXELS[:, 0, 0] == 0]), 1)
    assert table.shape == (7, 10)
    expected = table.sum(1, keepdims=True) * table.sum(0) / table.sum()
    assert ((table - expected) ** 2 / expected).sum() < 91.9


def test_digits_as_cifar100():
    """Each half of an image is one of the digits that its class spells, with 4 x 2 pixels for one."""
    loaded = cifar100.load(STORE)
    for (images, labels), (start, stop) in ((loaded.train, (0, 1500)), (loaded.test, (1500, 1797))):
        known = {}
        for digit, label in zip(PIXELS[start:stop], LABELS[start:stop], strict=True):
            known.setdefault(rank(digit).tobytes(), set()).add(label)
        for image, label in zip(images.numpy(), labels.tolist(), strict=True):
            small = image[:, ::4, ::2].astype(int)
            np.testing.assert_array_equal(image, small.repeat(4, axis=1).repeat(2, axis=2))
            share = shares(small)
            assert label // 10 in known[rank(share[:, :8]).tobytes()]
            assert label % 10 in known[rank(share[:, 8:]).tobytes()]


def shares(small):
    """How far each pixel lies from the ground towards the ink, from 0 to 16: the channel with the widest range."""
    widest = max(small, key=lambda plane: plane.max() - plane.min())
    corner = np.bincount(widest.ravel()).argmax()  # most of an image is ground
    far = np.abs(widest - corner)
    return np.rint(far * 16 / far.max()).astype(int)


def rank(pixels):
    """Which pixels are ink at all: enough to know a digit again."""
    return (np.asarray(pixels) > 0).astype(np.uint8)


def test_every_class_is_there():
    for module, classes in ((mnist, 10), (cifar10, 10), (cifar100, 100)):
        loaded = module.load(STORE)
        assert loaded.classes == classes
        assert sorted(set(loaded.train[1].tolist())) == list(range(classes))


def test_colour_images_are_normalised_by_their_own_mean_and_deviation():
    for module in (cifar10, cifar100):
        loaded = module.load(STORE)
        pixels = loaded.train[0].double() / 255
        assert loaded.mean == pytest.approx(pixels.mean((0, 2, 3)).tolist(), abs=5.1e-5)
        assert loaded.std == pytest.approx(pixels.std((0, 2, 3)).tolist(), abs=5.1e-5)


def test_the_modules_are_in_order_and_belong_to_the_standard_library():
    assert list(stdlib.MODULES) == sorted(stdlib.MODULES)
    assert set(stdlib.MODULES) <= sys.stdlib_module_names


def scan(line):
    """The words of a line, character by character."""
    found, kind = [], None
    for char in line:
        if kind == "number" and (char.isalnum() or char in "_."):
            continue
        if kind == "name" and (char.isalnum() or char == "_"):
            found[-1] += char
            continue
        kind = "number" if char.isdecimal() else "name" if char.isalpha() or char == "_" else None
        if not char.isspace():
            found.append("N" if kind == "number" else char)
    return [*found, "<eos>"] if found else []


def test_the_source_text_by_hand():
    """Words of the files on disk, and which part each goes to."""
    text = stdlib.as_ptb()
    expected = {"train": [], "validation": [], "test": []}
    directory = Path(sysconfig.get_path("stdlib"))
    for i, module in enumerate(stdlib.MODULES):
        path = directory / f"{module}.py"
        path = path if path.exists() else directory / module / "__init__.py"
        part = "validation" if i % 10 == 8 else "test" if i % 10 == 9 else "train"
        for line in path.read_text(encoding="utf-8").split("\n"):
            expected[part] += scan(line)
    for part, words in expected.items():
        assert getattr(text, part) == words
        assert text.description.sizes[part] == len(words)


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("def f(x_1, *args):", ["def", "f", "(", "x_1", ",", "*", "args", ")", ":"]),
        ("1e5 0b11 3.14 1_000 a1", ["N", "N", "N", "N", "a1"]),
        ("'don''t' é", ["'", "don", "'", "'", "t", "'", "é"]),
        ("   ", None),
    ],
)
def test_words_of_source_by_hand(line, expected):
    assert stdlib.words(line) == ([] if expected is None else [*expected, "<eos>"])


def test_no_module_is_run(monkeypatch):
    """Finding a module's source must not import it."""
    imported = []

    def record(name, *rest):
        imported.append(name)
        return original(name, *rest)

    original = builtins.__import__
    monkeypatch.delitem(sys.modules, "wave", raising=False)
    monkeypatch.setattr(builtins, "__import__", record)
    stdlib.as_ptb()
    assert "wave" not in sys.modules
    assert not set(imported) & {"wave", "turtle"}


def test_a_python_without_sources(monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: None)
    with pytest.raises(DataError, match=r"without the source of its standard library; give --data-dir"):
        stdlib.as_ptb()
