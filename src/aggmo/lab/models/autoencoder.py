"""The fully connected autoencoder of section 5.1 (Hinton and Salakhutdinov, 2006)."""

import itertools
from collections.abc import Sequence

from torch import Tensor, nn

from aggmo.theory.arguments import whole


class Autoencoder(nn.Module):
    """A fully connected encoder and the decoder that reverses it, 784-1000-500-250-30 in the paper.

    ReLU stands between the layers, but not on the code; the sigmoid of the output is left to the loss, where the
    logarithm of the cross-entropy undoes it.

    Args:
        sizes: the widths from the image to the code; the decoder has the same ones backwards.

    Raises:
        ValueError: fewer than two sizes, or one that is no whole number >= 1.

    >>> autoencoder = Autoencoder()
    >>> sum(parameter.numel() for parameter in autoencoder.parameters())
    2837314
    >>> import torch
    >>> autoencoder(torch.zeros(5, 1, 28, 28)).shape
    torch.Size([5, 784])
    """

    def __init__(self, sizes: Sequence[int] = (784, 1000, 500, 250, 30)) -> None:
        if len(sizes) < 2:
            raise ValueError(f"sizes={sizes!r}: give at least the width of the image and that of the code")
        widths = [whole(f"sizes[{i}]", size, least=1) for i, size in enumerate(sizes)]
        super().__init__()
        self.encoder = _layers(widths)
        self.decoder = _layers(widths[::-1])

    def forward(self, images: Tensor) -> Tensor:
        """The logits of the pixels, one row an image; their sigmoid is the reconstruction."""
        logits: Tensor = self.decoder(self.encoder(images.flatten(1)))
        return logits


def _layers(widths: Sequence[int]) -> nn.Sequential:
    """Linear layers with ReLU between them, none after the last."""
    layers: list[nn.Module] = []
    for inputs, outputs in itertools.pairwise(widths):
        layers += [nn.Linear(inputs, outputs), nn.ReLU()]
    return nn.Sequential(*layers[:-1])
