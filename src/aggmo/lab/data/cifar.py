"""The binary files of the CIFAR data sets: records of label bytes and an image, 32 x 32 in three planes of colour.

They hold no pickles, unlike the `python version`, so that reading them runs nothing.
"""

from collections.abc import Sequence

import numpy as np
import torch

from aggmo.lab.data.description import Description, digest
from aggmo.lab.data.images import Images, Part
from aggmo.lab.data.store import Member, Original, Store

PIXELS = 3 * 32 * 32
SIZES = {"train": 50_000, "test": 10_000}


def read(
    store: Store, original: Original, test: str, labels: Sequence[int], mean: Sequence[float], std: Sequence[float]
) -> Images:
    """A CIFAR data set from a store.

    Args:
        store: to read the members from.
        original: the data set; all its members but the test file are for training, in their order.
        test: the member with the test images.
        labels: the number of classes of each label byte of a record; the last is the label of the task.
        mean, std: of the three channels.

    Raises:
        DataError: a file is missing or broken, or cannot be downloaded.
    """
    members = store.read(original)
    train = _records([members[name] for name in original.members if name != test and name in members], labels)
    tested = _records([members[test]], labels)
    sizes = {"train": len(train[0]), "test": len(tested[0])}
    content = digest(*(tensor.numpy() for tensor in (*train, *tested)))
    description = Description(original.name, store.source, sizes, SIZES, content)
    return Images(train, tested, labels[-1], description, tuple(mean), tuple(std))


def _records(members: Sequence[Member], classes: Sequence[int]) -> Part:
    """Images and last labels of the records in some files."""
    size = len(classes) + PIXELS
    images, labels = [], []
    for member in members:
        count, rest = divmod(len(member.content), size)
        if rest or not count:
            raise member.broken(f"{len(member.content):,} bytes, not a whole number of records of {size:,}")
        records = np.frombuffer(member.content, np.uint8).reshape(count, size)
        for position, limit in enumerate(classes):
            if records[:, position].max() >= limit:
                raise member.broken(f"a label of {records[:, position].max()}, and there are {limit} classes")
        images.append(records[:, len(classes) :].reshape(count, 3, 32, 32))
        labels.append(records[:, len(classes) - 1])
    return torch.tensor(np.concatenate(images)), torch.tensor(np.concatenate(labels), dtype=torch.long)
