"""Parameter counts as the paper's architectures give them, worked out layer by layer in the comments."""

import itertools

import pytest

from aggmo.lab.models.autoencoder import Autoencoder
from aggmo.lab.models.awd_lstm import AWDLSTM
from aggmo.lab.models.cnn5 import CNN5
from aggmo.lab.models.resnet import ResNet


def count(model):
    return sum(parameter.numel() for parameter in model.parameters())


def linear(inputs, outputs):
    return inputs * outputs + outputs


def lstm(inputs, hidden):
    """Four gates, each with two matrices and two biases."""
    return 4 * hidden * (inputs + hidden + 2)


def resnet(blocks, width, classes, *, batch_norm, projection):
    """Convolutions of 9 weights a pair of channels, and 2 numbers a channel for batch norm or 1 for a bias."""
    extra = 2 if batch_norm else 1
    w1, w2, w3 = width, 2 * width, 4 * width
    total = 27 * w1 + extra * w1
    for inputs, w in ((w1, w1), (w1, w2), (w2, w3)):
        total += 9 * inputs * w + (2 * blocks - 1) * 9 * w * w + 2 * blocks * extra * w
        if projection and inputs != w:
            total += inputs * w + extra * w
    return total + linear(w3, classes)


def test_autoencoder():
    sizes = [784, 1000, 500, 250, 30, 250, 500, 1000, 784]
    assert sum(linear(*pair) for pair in itertools.pairwise(sizes)) == 2_837_314
    assert count(Autoencoder()) == 2_837_314


def test_cnn5():
    assert count(CNN5()) == 2_472_266
    # k11, k5, then three k3, and a linear layer, at a quarter of the width
    by_hand = linear(3 * 121, 16) + linear(16 * 25, 48) + linear(48 * 9, 96) + linear(96 * 9, 64) + linear(64 * 9, 64)
    assert count(CNN5((16, 48, 96, 64, 64), classes=7)) == by_hand + linear(64, 7)


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, 466_906),
        ({"classes": 100}, 472_756),
        ({"shortcut": "identity"}, 464_154),
        ({"batch_norm": False}, 465_674),
        ({"batch_norm": False, "classes": 100}, 471_524),
    ],
)
def test_resnet32(options, expected):
    formula = {
        "batch_norm": options.get("batch_norm", True),
        "projection": options.get("shortcut") != "identity",
        "classes": options.get("classes", 10),
    }
    assert resnet(blocks=5, width=16, **formula) == expected
    assert count(ResNet(**options)) == expected


@pytest.mark.parametrize("shortcut", ["projection", "identity"])
@pytest.mark.parametrize("batch_norm", [True, False])
def test_other_sizes_of_resnet(shortcut, batch_norm):
    model = ResNet(depth=8, width=8, classes=7, shortcut=shortcut, batch_norm=batch_norm)
    assert count(model) == resnet(1, 8, 7, batch_norm=batch_norm, projection=shortcut == "projection")


def test_awd_lstm():
    # The decoder is the embedding, so that it counts once, and has a bias of its own.
    by_hand = 10_000 * 400 + 10_000 + lstm(400, 1150) + lstm(1150, 1150) + lstm(1150, 400)
    assert by_hand == 24_221_600
    assert count(AWDLSTM()) == by_hand
    assert count(AWDLSTM(50, 8, 16, layers=2)) == 50 * 8 + 50 + lstm(8, 16) + lstm(16, 8)
