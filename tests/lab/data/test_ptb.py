"""The Penn Treebank's files, by hand."""

import pytest

from aggmo.lab.data import ptb
from aggmo.lab.data.description import DataError
from aggmo.lab.data.store import Store

LAYOUTS = ["ptb", ".", "simple-examples/data", "simple-examples.tgz"]


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_words_by_hand(tmp_path, tiny, layout, packed):
    if layout.endswith("tgz"):
        tiny.write_tar(tmp_path / layout, tiny.PTB_FILES, "./simple-examples/data")
    else:
        tiny.write(tmp_path / layout, tiny.PTB_FILES, packed=packed)
    text = ptb.load(Store(tmp_path))
    assert text.train == ["the", "cat", "sat", "<eos>", "the", "<unk>", "sat", "on", "N", "mats", "<eos>"]
    assert text.validation == ["the", "cat", "<eos>"]
    assert text.test == ["N", "mats", "<eos>", "sat", "<eos>"]
    assert text.description.sizes == {"train": 11, "validation": 3, "test": 5}
    assert not text.description.complete


def test_numbers_by_hand(tmp_path, tiny):
    tiny.write(tmp_path, tiny.PTB_FILES)
    corpus = ptb.load(Store(tmp_path)).encode()
    # twice: sat and the; once: the others, by name
    assert corpus.words == ("<unk>", "<eos>", "sat", "the", "N", "cat", "mats", "on")
    assert corpus.train.tolist() == [3, 5, 2, 1, 3, 0, 2, 7, 4, 6, 1]
    assert corpus.validation.tolist() == [3, 5, 1]
    assert corpus.test.tolist() == [4, 6, 1, 2, 1]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a b\n", ["a", "b", "<eos>"]),
        ("a b", ["a", "b", "<eos>"]),
        ("a\n\nb\n", ["a", "<eos>", "<eos>", "b", "<eos>"]),
        ("a\r\nb\r\n", ["a", "<eos>", "b", "<eos>"]),
    ],
)
def test_one_end_for_each_line(text, expected):
    assert ptb.words(text) == expected


@pytest.mark.parametrize(("content", "problem"), [(b" \n", "empty"), (b"the \xff", "not a text in UTF-8")])
def test_a_broken_file(tmp_path, tiny, content, problem):
    tiny.write(tmp_path, tiny.PTB_FILES | {"ptb.valid.txt": content})
    with pytest.raises(DataError, match=rf"ptb\.valid\.txt: {problem}.*; replace it with the published file"):
        ptb.load(Store(tmp_path))
