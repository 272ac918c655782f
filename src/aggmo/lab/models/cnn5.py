"""The network with five convolutions of section 5.2."""

from collections.abc import Sequence

from torch import Tensor, nn

from aggmo.theory.arguments import whole


class CNN5(nn.Module):
    """Five convolutions and a linear layer for images of 32 x 32, without any regularisation.

    Kernels of 11 (stride 4), 5, 3, 3 and 3, ReLU after each, and a maximum over 2 x 2 after the first, second and last.

    Args:
        channels: of the five convolutions.
        classes: of the output.

    Raises:
        ValueError: not five channels, or a size that is no whole number >= 1.

    >>> cnn5 = CNN5()
    >>> sum(parameter.numel() for parameter in cnn5.parameters())
    2472266
    >>> import torch
    >>> cnn5(torch.zeros(7, 3, 32, 32)).shape
    torch.Size([7, 10])
    """

    def __init__(self, channels: Sequence[int] = (64, 192, 384, 256, 256), classes: int = 10) -> None:
        if len(channels) != 5:
            raise ValueError(f"channels={channels!r}: give five numbers, one for each convolution")
        first, second, third, fourth, fifth = (whole(f"channels[{i}]", n, least=1) for i, n in enumerate(channels))
        super().__init__()
        self.layers = nn.Sequential(
            *(nn.Conv2d(3, first, 11, stride=4, padding=5), nn.ReLU(), nn.MaxPool2d(2)),
            *(nn.Conv2d(first, second, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2)),
            *(nn.Conv2d(second, third, 3, padding=1), nn.ReLU()),
            *(nn.Conv2d(third, fourth, 3, padding=1), nn.ReLU()),
            *(nn.Conv2d(fourth, fifth, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)),
            nn.Flatten(),
            nn.Linear(fifth, whole("classes", classes, least=1)),
        )

    def forward(self, images: Tensor) -> Tensor:
        """The logits of the classes."""
        logits: Tensor = self.layers(images)
        return logits
