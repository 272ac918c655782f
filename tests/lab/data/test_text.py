"""Encoding and windows of text against direct counting."""

import itertools
import statistics

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Generator

from aggmo.lab.data.description import Description
from aggmo.lab.data.text import Corpus, Text, TextBatches, columns, random_length

DESCRIPTION = Description("text", "embedded", {}, {}, "00")


def batches(train=100, validation=100, test=30, **options):
    return TextBatches(Corpus(*map(torch.arange, (train, validation, test)), words=()), **options)


def test_a_smaller_vocabulary_by_hand():
    train = ["a", "b", "b", "c", "c", "c", "<eos>", "d", "<unk>"]
    corpus = Text(train, ["a", "c"], ["d", "e", "<eos>"], DESCRIPTION).encode(vocabulary=4)
    assert corpus.words == ("<unk>", "<eos>", "c", "b")
    assert corpus.train.tolist() == [0, 3, 3, 2, 2, 2, 1, 0, 0]
    assert corpus.validation.tolist() == [0, 2]
    assert corpus.test.tolist() == [0, 0, 1]


def test_the_vocabulary_is_that_of_the_words_taken():
    text = Text(["a", "b", "c", "c"], ["c", "a", "b"], ["a", "a", "b"], DESCRIPTION)
    corpus = text.encode(trained=2, evaluated=2)
    assert corpus.words == ("<unk>", "<eos>", "a", "b")
    assert (corpus.train.tolist(), corpus.validation.tolist(), corpus.test.tolist()) == ([2, 3], [0, 2], [2, 2])


@given(st.lists(st.sampled_from("abcdef"), min_size=2, max_size=40), st.integers(2, 9))
def test_decoding_gives_the_words_back(train, vocabulary):
    """Oracle: word by word, the most frequent ones stay and the others are unknown."""
    corpus = Text(train, train, train, DESCRIPTION).encode(vocabulary=vocabulary)
    kept = set(sorted(set(train), key=lambda word: (-train.count(word), word))[: vocabulary - 2])
    decoded = [corpus.words[number] for number in corpus.train]
    assert decoded == [word if word in kept else "<unk>" for word in train]


@given(st.integers(4, 200), st.integers(1, 5))
def test_columns_by_hand(count, batch):
    if count // batch < 2:
        with pytest.raises(ValueError, match=f"batch={batch}: {count} words are too few"):
            columns(torch.arange(count), batch)
        return
    found = columns(torch.arange(count), batch)
    time = count // batch
    assert found.tolist() == [[time * b + t for b in range(batch)] for t in range(time)]


@pytest.mark.parametrize("generator", [None, 0])
def test_windows_cover_the_text_once(generator):
    """Every word but the first is a target exactly once, and follows the word it stands beside."""
    data = batches(length=7, evaluated=(3, 1))
    windows = list(data.evaluation("validation") if generator is None else data.training(3, Generator()))
    targets = torch.cat([window.targets for window in windows])
    assert torch.equal(targets, columns(torch.arange(100), 3)[1:])
    assert torch.equal(torch.cat([window.words for window in windows]) + 1, targets)
    assert [window.first for window in windows] == [True] + [False] * (len(windows) - 1)
    for window in windows:
        assert window.factor == len(window.words) / 7
        assert window.words.shape == window.targets.shape == (len(window.words), 3)


def test_evaluation_windows_are_equal_and_their_columns_those_asked_for():
    data = batches(length=7, evaluated=(3, 1))
    assert [window.words.shape for window in data.evaluation("validation")] == [(7, 3)] * 4 + [(4, 3)]
    assert [window.words.shape for window in data.evaluation("test")] == [(7, 1)] * 4 + [(1, 1)]


def test_training_windows_come_from_the_generator():
    def lengths(seed):
        return [len(window.words) for window in batches(train=3000).training(2, Generator().manual_seed(seed))]

    assert lengths(0) == lengths(0) != lengths(1)


def test_training_windows_have_the_lengths_of_the_paper():
    """20,000 draws: 95 % are N(70, 5) less 1/2 for int(), the rest N(35, 5); four standard errors."""
    generator = Generator().manual_seed(0)
    lengths = [random_length(70, generator) for _ in range(20_000)]
    long = [length for length in lengths if length > 52]  # 3.4 standard deviations from both
    share, n = len(long) / len(lengths), len(long)
    assert abs(share - 0.95) < 4 * (0.95 * 0.05 / 20_000) ** 0.5
    assert abs(statistics.mean(long) - 69.5) < 4 * 5 / n**0.5
    assert abs(statistics.stdev(long) - (25 + 1 / 12) ** 0.5) < 4 * 5 / (2 * n) ** 0.5
    short = [length for length in lengths if length <= 52]
    assert abs(statistics.mean(short) - 34.5) < 4 * 5 / len(short) ** 0.5


def test_no_training_window_is_shorter_than_five():
    generator = Generator().manual_seed(0)
    lengths = [random_length(6, generator) for _ in range(1000)]
    assert min(lengths) == 5
    assert lengths.count(5) > 300  # int(N(6, 5)) is at most 5 half of the time


def test_moving_keeps_everything():
    data = batches(length=7, evaluated=(3, 2))
    for split in ("validation", "test"):
        for one, other in itertools.zip_longest(data.evaluation(split), data.to("cpu").evaluation(split)):
            assert torch.equal(one.words, other.words)
    moved = data.to("meta")
    assert next(moved.evaluation("test")).words.device.type == "meta"
    assert next(moved.training(3, Generator())).targets.device.type == "meta"


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda text: text.encode(vocabulary=1), "vocabulary=1"),
        (lambda text: text.encode(trained=0), "trained=0"),
        (lambda text: text.encode(evaluated=True), "evaluated=True"),
        (lambda text: TextBatches(text.encode(), length=0), "length=0"),
        (lambda text: TextBatches(text.encode(), evaluated=(0, 1)), "evaluated=0"),
        (lambda text: TextBatches(text.encode(), evaluated=(9, 1)), "batch=9"),
    ],
)
def test_wrong_arguments(make, message):
    with pytest.raises(ValueError, match=message):
        make(Text(["a"] * 9, ["a"] * 9, ["a"] * 9, DESCRIPTION))
