"""MNIST (LeCun et al., 1998): 28 x 28 grey images of handwritten digits, in the original IDX files."""

import struct

import numpy as np
import numpy.typing as npt
import torch

from aggmo.lab.data import digits
from aggmo.lab.data.description import Description, digest
from aggmo.lab.data.download import Download
from aggmo.lab.data.images import Images
from aggmo.lab.data.store import Member, Original, Store

SIZES = {"train": 60_000, "test": 10_000}

ADDRESSES = ("https://ossci-datasets.s3.amazonaws.com/mnist", "https://storage.googleapis.com/cvdf-datasets/mnist")

SHA256 = {
    "train-images-idx3-ubyte": "440fcabf73cc546fa21475e81ea370265605f56be210a4024d2ca8f203523609",
    "train-labels-idx1-ubyte": "3552534a0a558bbed6aed32b30c495cca23d567ec52cac8be1a0730e8010255c",
    "t10k-images-idx3-ubyte": "8d422c7b0a1c1c79245a5bcf07fe86e33eeafee792b84584aec276f5a2dbc4e6",
    "t10k-labels-idx1-ubyte": "f7ae60f92e00ec6debd23a6088c31dbd2371eca3ffa0defaefb259924204aec6",
}

ORIGINAL = Original(
    name="MNIST",
    members=tuple(SHA256),
    folders=("mnist", "MNIST/raw"),
    archives=(),
    downloads=tuple(
        Download(f"{name}.gz", sha256, tuple(f"{address}/{name}.gz" for address in ADDRESSES))
        for name, sha256 in SHA256.items()
    ),
)


def load(store: Store) -> Images:
    """MNIST from a store; from an embedded one, scikit-learn's digits in its place.

    Raises:
        DataError: a file is missing or broken, or cannot be downloaded.

    >>> images = load(Store(embedded=True))
    >>> images.train[0].shape, images.description.name
    (torch.Size([1500, 1, 28, 28]), "scikit-learn's digits in place of MNIST")
    """
    if store.embedded:
        return digits.as_mnist()
    members = store.read(ORIGINAL)
    parts, arrays = [], []
    for prefix in ("train", "t10k"):
        images = read_idx(members[f"{prefix}-images-idx3-ubyte"], (28, 28))
        member = members[f"{prefix}-labels-idx1-ubyte"]
        labels = read_idx(member, ())
        if len(labels) != len(images):
            raise member.broken(f"{len(labels)} labels for {len(images)} images")
        if labels.max() > 9:
            raise member.broken(f"a label of {labels.max()}, and there are 10 digits")
        arrays += [images, labels]
        parts.append((torch.tensor(images)[:, None], torch.tensor(labels, dtype=torch.long)))
    train, test = parts
    sizes = {"train": len(train[0]), "test": len(test[0])}
    return Images(train, test, 10, Description("MNIST", store.source, sizes, SIZES, digest(*arrays)))


def read_idx(member: Member, shape: tuple[int, ...]) -> npt.NDArray[np.uint8]:
    """The array of an IDX file of bytes whose items have this shape: a magic number, the sizes, then the items.

    Raises:
        DataError: the magic number, a size or the length of the file is not as it should be, or there is no item.

    >>> content = bytes([0, 0, 8, 1, 0, 0, 0, 3, 5, 6, 7])
    >>> read_idx(Member("labels", content, "replace it"), ())
    array([5, 6, 7], dtype=uint8)
    """
    content, axes = member.content, 1 + len(shape)
    header = 4 + 4 * axes
    if content[:4] != bytes([0, 0, 8, axes]):
        raise member.broken(
            f"not an IDX file of bytes with {axes} axes: it starts with {content[:4].hex() or 'nothing'}"
        )
    if len(content) < header:
        raise member.broken("cut off in its header")
    sizes = struct.unpack_from(f">{axes}I", content, 4)
    if sizes[1:] != shape or sizes[0] == 0:
        raise member.broken(f"items of {sizes} bytes, where ({', '.join(map(str, ('n', *shape)))}) is expected")
    expected = header + int(np.prod(sizes, dtype=np.int64))
    if len(content) != expected:
        raise member.broken(f"{len(content):,} bytes, where its header promises {expected:,}")
    return np.frombuffer(content, np.uint8, offset=header).reshape(sizes)
