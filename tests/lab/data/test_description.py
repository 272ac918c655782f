"""Descriptions and digests, by hand."""

import dataclasses
import hashlib
import json

import numpy as np
import pytest

from aggmo.lab.data.description import DataError, Description, digest

PAPER = {"train": 60_000, "test": 10_000}


@pytest.mark.parametrize(
    ("source", "sizes", "complete"),
    [
        ("download", PAPER, True),
        ("data-dir", PAPER, True),
        ("data-dir", {"train": 60_000, "test": 9_999}, False),
        ("data-dir", {"train": 5_000, "test": 10_000}, False),
        ("embedded", PAPER, False),
    ],
)
def test_what_is_complete(source, sizes, complete):
    description = Description("MNIST", source, sizes, PAPER, "ab")
    assert description.complete is complete
    if complete:
        description.require_complete("scale paper")
    else:
        with pytest.raises(DataError) as caught:
            description.require_complete("scale paper")
        assert "\n" not in str(caught.value)
        assert "scale paper needs; give --data-dir with the original files, or leave it out" in str(caught.value)


def test_a_record_can_carry_it():
    description = Description("MNIST", "data-dir", {"train": 5, "test": 3}, PAPER, "ab")
    back = json.loads(json.dumps(dataclasses.asdict(description)))
    assert Description(**back) == description


def test_the_digest_by_hand():
    expected = hashlib.sha256(b"|u1 (2,):\x05\x06<i8 (1, 1):" + (7).to_bytes(8, "little") + b"text 3:\xc3\xa4b")
    assert digest(np.array([5, 6], np.uint8), np.array([[7]], np.int64), "äb") == expected.hexdigest()


def test_the_digest_is_that_of_the_values():
    array = np.arange(6).reshape(2, 3)
    assert digest(array) == digest(array.astype(">i8")) == digest(np.asfortranarray(array))
    different = [array + 1, array.T, array.reshape(6), array.astype(np.int32)]
    assert len({digest(array), *map(digest, different)}) == 5
    assert digest("ab", "c") != digest("a", "bc")
