"""Images with labels as whole tensors, and batches of them: indexed, augmented and normalised on the device."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Generator, Tensor

from aggmo.lab.data.description import Description
from aggmo.theory.arguments import number, whole

Part = tuple[Tensor, Tensor]  # images in bytes (examples, channels, height, width), and labels


@dataclass(frozen=True, eq=False)
class Images:
    """A data set of images as loaded.

    Attributes:
        train, test: images in bytes, and labels, both in the order of the files.
        classes: the number of labels.
        mean, std: of each channel, for normalisation; None leaves the images in [0, 1].
        description: for the records.
    """

    train: Part
    test: Part
    classes: int
    description: Description
    mean: tuple[float, ...] | None = None
    std: tuple[float, ...] | None = None

    def divide(
        self,
        *,
        validation: float,
        examples: int | None = None,
        tested: int | None = None,
        seed: int = 0,
        held_out: str = "random",
        padding: int | None = None,
    ) -> "ImageBatches":
        """The training images in two parts, one of them for validation, beside the test images.

        Args:
            validation: the share to hold out, in (0, 1).
            examples: how many training images to divide; all if None, else a random sample, or with "last" the first.
            tested: how many test images; all if None, else the first.
            seed: of the random choice.
            held_out: "random", as the paper's text says, or "last", the last slice, as the authors' code takes it.
            padding: of the random crops in training, beside random flips; None augments nothing.

        Raises:
            ValueError: an argument out of range, or more examples than there are.

        >>> grey = torch.zeros(10, 1, 2, 2, dtype=torch.uint8), torch.arange(10)
        >>> description = Description("grey", "embedded", {"train": 10}, {"train": 10}, "00")
        >>> batches = Images(grey, grey, 10, description).divide(validation=0.2, held_out="last")
        >>> [part[1].tolist() for part in (batches.train, batches.validation)]
        [[0, 1, 2, 3, 4, 5, 6, 7], [8, 9]]
        """
        total = _at_most("examples", examples, len(self.train[0]))
        tested = _at_most("tested", tested, len(self.test[0]))
        number("validation", validation, "in (0, 1)", lambda share: 0 < share < 1)
        if held_out not in ("random", "last"):
            raise ValueError(f"held_out={held_out!r}: must be 'random' or 'last'")
        kept = total - round(total * validation)
        if not 0 < kept < total:
            raise ValueError(f"validation={validation!r} of {total} examples: must leave at least one on each side")
        order = torch.arange(len(self.train[0]))
        if held_out == "random":
            order = torch.randperm(len(order), generator=Generator().manual_seed(whole("seed", seed, least=0)))
        first, second = order[:kept], order[kept:total]
        return ImageBatches(
            train=(self.train[0][first], self.train[1][first]),
            validation=(self.train[0][second], self.train[1][second]),
            test=(self.test[0][:tested], self.test[1][:tested]),
            mean=self.mean,
            std=self.std,
            padding=padding,
        )


class ImageBatches:
    """Batches (images, labels) from whole tensors, in the form that a `Task` takes as its data.

    The tensors stay in bytes, a quarter of the memory of floats; a batch is taken from them by its row numbers,
    augmented in training, and then made floats in [0, 1], normalised if mean and std are given.

    Args:
        train, validation, test: images in bytes, and labels.
        mean, std: of each channel; None normalises nothing.
        padding: of the random crops in training, beside random flips; None augments nothing.
        evaluation_size: images in an evaluation batch.

    >>> part = torch.full((5, 1, 2, 2), 51, dtype=torch.uint8), torch.arange(5)
    >>> batches = ImageBatches(part, part, part)
    >>> [images.shape[0] for images, _ in batches.training(2, Generator().manual_seed(0))]
    [2, 2, 1]
    >>> images, labels = next(batches.evaluation("test"))
    >>> images[0, 0, 0], labels  # 51 / 255
    (tensor([0.2000, 0.2000]), tensor([0, 1, 2, 3, 4]))
    """

    def __init__(
        self,
        train: Part,
        validation: Part,
        test: Part,
        mean: Sequence[float] | None = None,
        std: Sequence[float] | None = None,
        padding: int | None = None,
        evaluation_size: int = 1000,
    ) -> None:
        self.train, self.validation, self.test = train, validation, test
        self.mean = None if mean is None else torch.tensor(mean, device=train[0].device)[:, None, None]
        self.std = None if std is None else torch.tensor(std, device=train[0].device)[:, None, None]
        self.padding = None if padding is None else whole("padding", padding, least=0)
        self.evaluation_size = whole("evaluation_size", evaluation_size, least=1)

    def training(self, batch_size: int, generator: Generator) -> Iterator[Part]:
        """The batches of an epoch in random order, the last one smaller if need be."""
        images, labels = self.train
        order = torch.randperm(len(images), generator=generator, device=generator.device).to(images.device)
        for rows in torch.split(order, batch_size):
            batch = images[rows]
            if self.padding is not None:
                batch = crop_and_flip(batch, self.padding, generator)
            yield self.normalise(batch), labels[rows]

    def evaluation(self, split: str) -> Iterator[Part]:
        """The batches of "validation" or "test", in order and unchanged."""
        images, labels = {"validation": self.validation, "test": self.test}[split]
        for start in range(0, len(images), self.evaluation_size):
            rows = slice(start, start + self.evaluation_size)
            yield self.normalise(images[rows]), labels[rows]

    def normalise(self, images: Tensor) -> Tensor:
        """Bytes as floats in [0, 1], or then less the mean and divided by the standard deviation of each channel."""
        floats = images.float().div_(255)
        if self.mean is not None:
            floats.sub_(self.mean)
        return floats if self.std is None else floats.div_(self.std)

    def to(self, device: torch.device | str) -> "ImageBatches":
        """The same with all tensors on a device."""
        train, validation, test = (
            (images.to(device), labels.to(device)) for images, labels in (self.train, self.validation, self.test)
        )
        mean, std = (None if x is None else x.flatten().tolist() for x in (self.mean, self.std))
        return ImageBatches(train, validation, test, mean, std, self.padding, self.evaluation_size)


def crop_and_flip(images: Tensor, padding: int, generator: Generator) -> Tensor:
    """Each image at a random place in a black frame of that width, cut to its size, and half of them mirrored.

    All of the batch at once: one draw of places, one of flips, and one look-up in the framed images.

    >>> images = torch.arange(1, 5, dtype=torch.uint8).reshape(1, 1, 2, 2).repeat(1000, 1, 1, 1)
    >>> seen = {tuple(image.flatten().tolist()) for image in crop_and_flip(images, 1, Generator().manual_seed(0))}
    >>> (1, 2, 3, 4) in seen, (2, 1, 4, 3) in seen, (0, 0, 0, 1) in seen, len(seen)
    (True, True, True, 18)
    """
    count, _, height, width = images.shape
    device = generator.device
    places = torch.randint(2 * padding + 1, (count, 2), generator=generator, device=device).to(images.device)
    flips = (torch.rand(count, generator=generator, device=device) < 0.5).to(images.device)
    framed = torch.nn.functional.pad(images, (padding,) * 4)
    columns = torch.arange(width, device=images.device).expand(count, width)
    columns = torch.where(flips[:, None], columns.flip(1), columns) + places[:, 1:]
    rows = torch.arange(height, device=images.device) + places[:, :1]
    each = torch.arange(count, device=images.device)[:, None, None]
    return framed.movedim(1, -1)[each, rows[:, :, None], columns[:, None, :]].movedim(-1, 1).contiguous()


def _at_most(name: str, value: int | None, limit: int) -> int:
    """The value, or the limit for None."""
    if value is None:
        return limit
    if whole(name, value, least=1) > limit:
        raise ValueError(f"{name}={value!r}: the data set has only {limit}")
    return value
