"""CIFAR-10 (Krizhevsky, 2009), binary version."""

from aggmo.lab.data import cifar, digits
from aggmo.lab.data.download import Download
from aggmo.lab.data.images import Images
from aggmo.lab.data.store import Original, Store

ORIGINAL = Original(
    name="CIFAR-10",
    members=(*(f"data_batch_{i}.bin" for i in range(1, 6)), "test_batch.bin"),
    folders=("cifar-10-batches-bin", "cifar-10-small-bin"),
    archives=("cifar-10-binary.tar.gz", "cifar-10-binary.tar"),
    downloads=(
        Download(
            "cifar-10-binary.tar.gz",
            "c4a38c50a1bc5f3a1c5537f2155ab9d68f9f25eb1ed8d9ddda3db29a59bca1dd",
            (
                "https://www.cs.toronto.edu/~kriz/cifar-10-binary.tar.gz",
                "https://cave.cs.toronto.edu/kriz/cifar-10-binary.tar.gz",
                "https://storage.googleapis.com/s4tf-hosted-binaries/datasets/CIFAR10/cifar-10-binary.tar.gz",
                "https://mindspore-website.obs.cn-north-4.myhuaweicloud.com/notebook/datasets/cifar-10-binary.tar.gz",
            ),
        ),
    ),
    optional=tuple(f"data_batch_{i}.bin" for i in range(2, 6)),
)
MEAN, STD = (0.4914, 0.4822, 0.4465), (0.2023, 0.1994, 0.2010)


def load(store: Store) -> Images:
    """CIFAR-10 from a store; from an embedded one, scikit-learn's digits in colour in its place.

    Raises:
        DataError: a file is missing or broken, or cannot be downloaded.

    >>> images = load(Store(embedded=True))
    >>> images.train[0].shape, images.classes
    (torch.Size([1500, 3, 32, 32]), 10)
    """
    if store.embedded:
        return digits.as_cifar10()
    return cifar.read(store, ORIGINAL, "test_batch.bin", [10], MEAN, STD)
