"""The image models against their layers written out, and against what He et al. say of the shortcut."""

import pytest
import torch
from torch.nn import functional

from aggmo.lab.models.autoencoder import Autoencoder
from aggmo.lab.models.cnn5 import CNN5
from aggmo.lab.models.resnet import ResNet


@pytest.fixture
def images():
    return torch.rand(6, 3, 32, 32, generator=torch.Generator().manual_seed(0))


def test_autoencoder_by_hand():
    """ReLU after every layer but the code and the output; W x + b each."""
    torch.manual_seed(0)
    model = Autoencoder((12, 7, 5, 3))
    images = torch.rand(4, 1, 3, 4)
    weights = [parameter for parameter in model.parameters() if parameter.ndim == 2]
    biases = [parameter for parameter in model.parameters() if parameter.ndim == 1]
    assert [tuple(weight.shape) for weight in weights] == [(7, 12), (5, 7), (3, 5), (5, 3), (7, 5), (12, 7)]
    x = images.reshape(4, 12)
    for i, (weight, bias) in enumerate(zip(weights, biases, strict=True)):
        x = x @ weight.T + bias
        if i not in (2, 5):
            x = x.clamp(min=0)
    torch.testing.assert_close(model(images), x)


def test_the_code_of_the_autoencoder_has_both_signs():
    torch.manual_seed(0)
    code = Autoencoder().encoder(torch.rand(20, 784))
    assert code.shape == (20, 30)
    assert code.min() < 0 < code.max()


def test_cnn5_by_hand(images):
    torch.manual_seed(0)
    model = CNN5((4, 5, 6, 7, 8), classes=9)
    p = list(model.parameters())
    x = functional.relu(functional.conv2d(images, p[0], p[1], stride=4, padding=5))
    assert x.shape == (6, 4, 8, 8)
    x = functional.max_pool2d(x, 2, 2)
    x = functional.max_pool2d(functional.relu(functional.conv2d(x, p[2], p[3], padding=2)), 2, 2)
    for i in (4, 6, 8):
        x = functional.relu(functional.conv2d(x, p[i], p[i + 1], padding=1))
    x = functional.max_pool2d(x, 2, 2)
    assert x.shape == (6, 8, 1, 1)
    torch.testing.assert_close(model(images), x[:, :, 0, 0] @ p[10].T + p[11])


def test_cnn5_kernels():
    shapes = [tuple(p.shape[2:]) for p in CNN5().parameters() if p.ndim == 4]
    assert shapes == [(11, 11), (5, 5), (3, 3), (3, 3), (3, 3)]


def resnet_by_hand(model, x):
    """Every layer in order, from the named parameters alone."""
    p = dict(model.named_parameters())
    identity = not any("shortcut" in name for name in p)

    def convolution(x, name, stride=1):
        weight = p[f"{name}.0.weight"]
        x = functional.conv2d(x, weight, p.get(f"{name}.0.bias"), stride, padding=weight.shape[-1] // 2)
        if f"{name}.1.weight" in p:
            x = functional.batch_norm(x, None, None, p[f"{name}.1.weight"], p[f"{name}.1.bias"], training=True)
        return x

    x = functional.relu(convolution(x, "stem"))
    for i in range(len(model.blocks)):
        halves = p[f"blocks.{i}.first.0.weight"].shape[0] != x.shape[1]
        inner = functional.relu(convolution(x, f"blocks.{i}.first", 2 if halves else 1))
        inner = convolution(inner, f"blocks.{i}.second")
        if halves and identity:
            past = torch.zeros_like(inner)
            past[:, : x.shape[1]] = x[:, :, ::2, ::2]
        else:
            past = convolution(x, f"blocks.{i}.shortcut", 2) if halves else x
        x = functional.relu(inner + past)
    assert x.shape[2:] == (8, 8)
    return functional.avg_pool2d(x, 8).flatten(1) @ p["linear.weight"].T + p["linear.bias"]


@pytest.mark.parametrize("shortcut", ["projection", "identity"])
@pytest.mark.parametrize("batch_norm", [True, False])
@pytest.mark.parametrize("depth", [8, 14])
def test_resnet_by_hand(images, shortcut, batch_norm, depth):
    torch.manual_seed(0)
    model = ResNet(depth, width=4, classes=5, shortcut=shortcut, batch_norm=batch_norm)
    torch.testing.assert_close(model(images), resnet_by_hand(model, images))


def test_depth_counts_the_layers_with_weights():
    """He et al.: 6n + 2 with the linear layer, projections not counted."""
    for depth in (8, 20, 32):
        weights = [p for name, p in ResNet(depth, width=2).named_parameters() if p.ndim > 1 and "shortcut" not in name]
        assert len(weights) == depth


def test_resnet_without_batch_norm_starts_with_outputs_of_moderate_size(images):
    torch.manual_seed(0)
    logits = ResNet(batch_norm=False)(images)
    assert logits.abs().max() < 10


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Autoencoder((784,)), r"sizes=\(784,\)"),
        (lambda: Autoencoder((784, 0)), r"sizes\[1\]=0"),
        (lambda: CNN5((1, 2, 3)), r"channels=\(1, 2, 3\)"),
        (lambda: CNN5((1, 2, 3, 4, True)), r"channels\[4\]=True"),
        (lambda: CNN5(classes=0), "classes=0"),
        (lambda: ResNet(depth=9), "depth=9"),
        (lambda: ResNet(depth=2), "depth=2"),
        (lambda: ResNet(width=0), "width=0"),
        (lambda: ResNet(shortcut="none"), "shortcut='none'"),
    ],
)
def test_wrong_sizes_are_refused(make, message):
    with pytest.raises(ValueError, match=message):
        make()
