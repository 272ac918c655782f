"""Residual networks for images of 32 x 32 (He et al., 2016), with and without batch normalisation."""

from torch import Tensor, nn
from torch.nn import functional

from aggmo.theory.arguments import whole


class ResNet(nn.Module):
    """A residual network of depth 6n + 2, three stages of n basic blocks each.

    A convolution comes before them, the mean over the image and a linear layer after them. The stages have width,
    2 width and 4 width channels; the second and the third halve the image. Weights start as PyTorch makes them, as in
    the authors' code; without batch normalisation it matters that they are small.

    Args:
        depth: 8, 14, 20, 26, 32, ...
        width: channels of the first stage.
        classes: of the output.
        shortcut: what leads past a block that changes the shape: "projection", a 1 x 1 convolution with batch
            normalisation, or "identity", every second pixel and zeros for the new channels, without parameters.
        batch_norm: False leaves batch normalisation out and gives every convolution a bias.

    Raises:
        ValueError: a depth that is not 6n + 2, a size that is no whole number >= 1, or another shortcut.

    >>> resnet = ResNet()
    >>> sum(parameter.numel() for parameter in resnet.parameters())
    466906
    >>> import torch
    >>> ResNet(depth=8, width=8, classes=100)(torch.zeros(7, 3, 32, 32)).shape
    torch.Size([7, 100])
    """

    def __init__(
        self,
        depth: int = 32,
        width: int = 16,
        classes: int = 10,
        *,
        shortcut: str = "projection",
        batch_norm: bool = True,
    ) -> None:
        if whole("depth", depth, least=8) % 6 != 2:
            raise ValueError(f"depth={depth!r}: must be 6n + 2, like 8, 20 or 32")
        if shortcut not in ("projection", "identity"):
            raise ValueError(f"shortcut={shortcut!r}: must be 'projection' or 'identity'")
        whole("width", width, least=1)
        super().__init__()
        self.stem = _convolution(3, width, 3, 1, batch_norm)
        blocks: list[nn.Module] = []
        channels = width
        for stage in range(3):
            for block in range(depth // 6):
                stride = 2 if stage > 0 and block == 0 else 1
                blocks.append(_Block(channels, width * 2**stage, stride, shortcut, batch_norm))
                channels = width * 2**stage
        self.blocks = nn.Sequential(*blocks)
        self.linear = nn.Linear(channels, whole("classes", classes, least=1))

    def forward(self, images: Tensor) -> Tensor:
        """The logits of the classes."""
        features: Tensor = self.blocks(functional.relu(self.stem(images)))
        logits: Tensor = self.linear(features.mean(dim=(2, 3)))
        return logits


class _Block(nn.Module):
    """Two convolutions beside a shortcut."""

    def __init__(self, inputs: int, outputs: int, stride: int, shortcut: str, batch_norm: bool) -> None:
        super().__init__()
        self.first = _convolution(inputs, outputs, 3, stride, batch_norm)
        self.second = _convolution(outputs, outputs, 3, 1, batch_norm)
        self.shortcut: nn.Module = nn.Identity()
        if inputs != outputs:
            project = shortcut == "projection"
            self.shortcut = _convolution(inputs, outputs, 1, stride, batch_norm) if project else _Pad(outputs - inputs)

    def forward(self, x: Tensor) -> Tensor:
        return functional.relu(self.second(functional.relu(self.first(x))) + self.shortcut(x))


class _Pad(nn.Module):
    """Every second pixel, and zeros for the new channels."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.channels = channels

    def forward(self, x: Tensor) -> Tensor:
        return functional.pad(x[:, :, ::2, ::2], (0, 0, 0, 0, 0, self.channels))


def _convolution(inputs: int, outputs: int, kernel: int, stride: int, batch_norm: bool) -> nn.Sequential:
    """A convolution, with batch normalisation or with a bias."""
    convolution = nn.Conv2d(inputs, outputs, kernel, stride, padding=kernel // 2, bias=not batch_norm)
    return nn.Sequential(convolution, nn.BatchNorm2d(outputs)) if batch_norm else nn.Sequential(convolution)
