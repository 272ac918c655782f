"""Splits, augmentation and normalisation of images against a computation image by image."""

import pytest
import torch
from torch import Generator

from aggmo.lab.data.description import Description
from aggmo.lab.data.images import ImageBatches, Images, crop_and_flip

DESCRIPTION = Description("images", "embedded", {}, {}, "00")


def numbered(count, channels=1, size=4):
    """Random images, and their numbers as labels."""
    generator = Generator().manual_seed(count)
    images = torch.randint(256, (count, channels, size, size), dtype=torch.uint8, generator=generator)
    return images, torch.arange(count)


def images(train=50, test=20):
    return Images(numbered(train), numbered(test), 10, DESCRIPTION)


def labels(part):
    return part[1].tolist()


def test_a_random_split():
    whole = images()
    divided = whole.divide(validation=0.2, seed=1)
    train, validation = labels(divided.train), labels(divided.validation)
    assert (len(train), len(validation)) == (40, 10)
    assert sorted(train + validation) == list(range(50))
    assert max(train) == 49  # not the last slice
    assert labels(divided.test) == list(range(20))
    for part, rows in ((divided.train, train), (divided.validation, validation)):
        assert torch.equal(part[0], whole.train[0][rows])


def test_a_split_is_that_of_its_seed():
    first, again, other = (labels(images().divide(validation=0.2, seed=seed).validation) for seed in (1, 1, 2))
    assert first == again != other


def test_the_last_slice():
    divided = images().divide(validation=0.1, held_out="last")
    assert labels(divided.train) == list(range(45))
    assert labels(divided.validation) == list(range(45, 50))


def test_fewer_examples():
    divided = images().divide(validation=0.25, examples=8, tested=3)
    train, validation = labels(divided.train), labels(divided.validation)
    assert (len(train), len(validation), len(set(train + validation))) == (6, 2, 8)
    assert labels(divided.test) == [0, 1, 2]
    divided = images().divide(validation=0.25, examples=8, held_out="last")
    assert (labels(divided.train), labels(divided.validation)) == ([0, 1, 2, 3, 4, 5], [6, 7])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"validation": 0}, "validation=0: must be a number"),
        ({"validation": 1.0}, r"validation=1\.0: must be a number"),
        ({"validation": float("nan")}, "validation=nan"),
        ({"validation": 0.001}, r"validation=0\.001 of 50 examples: must leave at least one"),
        ({"validation": 0.2, "examples": 51}, "examples=51: the data set has only 50"),
        ({"validation": 0.2, "examples": True}, "examples=True"),
        ({"validation": 0.2, "tested": 21}, "tested=21: the data set has only 20"),
        ({"validation": 0.2, "held_out": "first"}, "held_out='first'"),
        ({"validation": 0.2, "seed": -1}, "seed=-1"),
        ({"validation": 0.2, "padding": -1}, "padding=-1"),
    ],
)
def test_wrong_arguments(options, message):
    with pytest.raises(ValueError, match=message):
        images().divide(**options)


def one_by_one(batch, padding, generator):
    """Every image by itself: framed, cut out at its place, mirrored if its coin says so."""
    places = torch.randint(2 * padding + 1, (len(batch), 2), generator=generator).tolist()
    coins = torch.rand(len(batch), generator=generator).tolist()
    cut = []
    for image, (top, left), coin in zip(batch, places, coins, strict=True):
        channels, height, width = image.shape
        frame = torch.zeros(channels, height + 2 * padding, width + 2 * padding, dtype=image.dtype)
        frame[:, padding : padding + height, padding : padding + width] = image
        piece = frame[:, top : top + height, left : left + width]
        cut.append(torch.stack([piece[:, :, width - 1 - x] for x in range(width)], 2) if coin < 0.5 else piece)
    return torch.stack(cut)


@pytest.mark.parametrize("shape", [(64, 3, 32, 32), (9, 1, 5, 8), (1, 2, 3, 1)])
@pytest.mark.parametrize("padding", [0, 1, 4])
def test_augmentation_of_a_batch_is_that_of_each_image(shape, padding):
    batch = torch.randint(256, shape, dtype=torch.uint8, generator=Generator().manual_seed(3))
    found = crop_and_flip(batch, padding, Generator().manual_seed(4))
    assert found.dtype == torch.uint8
    assert found.is_contiguous()
    assert torch.equal(found, one_by_one(batch, padding, Generator().manual_seed(4)))


def test_all_places_and_both_directions_are_as_likely():
    """One bright pixel moves: 2 x 3 x 3 cases of 9,000, each within five standard deviations of 500."""
    image = torch.zeros(1, 1, 4, 6, dtype=torch.uint8)
    image[..., 1, 1] = 255  # mirrored, column 4
    seen = crop_and_flip(image.repeat(9000, 1, 1, 1), 1, Generator().manual_seed(0))[:, 0] > 0
    counts = seen.sum(0)
    assert counts.sum() == 9000
    cases = counts[0:3, [0, 1, 2, 3, 4, 5]]
    assert ((cases - 500).abs() < 5 * (9000 / 18 * 17 / 18) ** 0.5).all()


def test_a_training_epoch_has_every_image_once_augmented_and_normalised():
    train = numbered(10, channels=3)
    data = ImageBatches(train, train, train, mean=(0.5, 0.4, 0.3), std=(0.2, 0.25, 0.5), padding=1)
    batches = list(data.training(4, Generator().manual_seed(5)))
    assert [len(batch) for batch, _ in batches] == [4, 4, 2]
    seen = torch.cat([numbers for _, numbers in batches])
    assert sorted(seen.tolist()) == list(range(10)) != seen.tolist()
    generator = Generator().manual_seed(5)
    torch.randperm(10, generator=generator)
    for batch, numbers in batches:
        raw = one_by_one(train[0][numbers], 1, generator)  # black before normalisation
        for channel, (mean, std) in enumerate([(0.5, 0.2), (0.4, 0.25), (0.3, 0.5)]):
            expected = (raw[:, channel].double() / 255 - mean) / std
            torch.testing.assert_close(batch[:, channel].double(), expected, rtol=0, atol=1e-6)


def test_evaluation_changes_nothing_and_keeps_the_order():
    parts = numbered(3), numbered(5), numbered(4)
    data = ImageBatches(*parts, padding=2, evaluation_size=2)
    for split, (raw, numbers) in (("validation", parts[1]), ("test", parts[2])):
        batches = list(data.evaluation(split))
        assert [len(batch) for batch, _ in batches] == ([2, 2, 1] if split == "validation" else [2, 2])
        assert torch.equal(torch.cat([batch for batch, _ in batches]), raw.float() / 255)
        assert torch.equal(torch.cat([found for _, found in batches]), numbers)


def test_without_normalisation_images_lie_in_the_unit_interval():
    """Exactly: a cross-entropy refuses targets beyond 1."""
    part = torch.arange(256, dtype=torch.uint8).reshape(1, 1, 16, 16), torch.zeros(1)
    values = next(ImageBatches(part, part, part).training(1, Generator()))[0]
    assert (values.min(), values.max()) == (0, 1)


def test_the_tensors_stay_bytes_and_are_left_alone():
    train = numbered(10, channels=3)
    before = train[0].clone()
    data = ImageBatches(train, train, train, mean=(0.5,) * 3, std=(0.2,) * 3, padding=1)
    list(data.training(4, Generator().manual_seed(5)))
    list(data.evaluation("test"))
    assert data.train[0].dtype == torch.uint8
    assert torch.equal(train[0], before)


def test_moving_to_a_device():
    data = ImageBatches(*3 * [numbered(6, 3)], mean=(0.5,) * 3, std=(0.2,) * 3, padding=1, evaluation_size=2)
    same = data.to("cpu")
    for one, other in zip(data.evaluation("test"), same.evaluation("test"), strict=True):
        assert torch.equal(one[0], other[0])
    assert (same.padding, same.evaluation_size) == (1, 2)
    for batch, numbers in data.to("meta").training(2, Generator()):
        assert batch.device.type == numbers.device.type == "meta"
