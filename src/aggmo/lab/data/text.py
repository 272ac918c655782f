"""Text as whole tensors of word numbers, and windows of it for a recurrent language model."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Generator, Tensor

from aggmo.lab.data.description import Description
from aggmo.theory.arguments import whole

END, UNKNOWN = "<eos>", "<unk>"


@dataclass(frozen=True, eq=False)
class Text:
    """A data set of text as loaded: the words of each part, with an `<eos>` after every line.

    Attributes:
        train, validation, test: the words.
        description: for the records.
    """

    train: Sequence[str]
    validation: Sequence[str]
    test: Sequence[str]
    description: Description

    def encode(
        self, *, vocabulary: int | None = None, trained: int | None = None, evaluated: int | None = None
    ) -> "Corpus":
        """The words as numbers, in order of how often they come in the training part; equally frequent ones by name.

        Words outside the vocabulary become `<unk>`, which it always has, as it has `<eos>`.

        Args:
            vocabulary: how many words to keep, at least 2; all of the training part if None.
            trained: how many words of the training part to take, the first; all if None.
            evaluated: how many of the validation and of the test part.

        Raises:
            ValueError: an argument out of range.

        >>> text = Text(["b", "a", "b", END], ["a", "c", END], ["b", END], Description("t", "embedded", {}, {}, "00"))
        >>> corpus = text.encode()
        >>> corpus.words
        ('<unk>', '<eos>', 'b', 'a')
        >>> corpus.validation, text.encode(vocabulary=3).validation
        (tensor([3, 0, 1]), tensor([0, 0, 1]))
        """
        if vocabulary is not None:
            whole("vocabulary", vocabulary, least=2)
        taken = self.train[: None if trained is None else whole("trained", trained, least=2)]
        end = None if evaluated is None else whole("evaluated", evaluated, least=2)
        counts = Counter(taken)
        others = sorted((word for word in counts if word not in (UNKNOWN, END)), key=lambda word: (-counts[word], word))
        words = (UNKNOWN, END, *others)[:vocabulary]
        numbers = {word: i for i, word in enumerate(words)}
        train, validation, test = (
            torch.tensor([numbers.get(word, 0) for word in part])
            for part in (taken, self.validation[:end], self.test[:end])
        )
        return Corpus(train, validation, test, words)


class Corpus(NamedTuple):
    """The parts of a text as word numbers, and the words by number."""

    train: Tensor
    validation: Tensor
    test: Tensor
    words: tuple[str, ...]


class Window(NamedTuple):
    """A batch of text: `targets` are the words that follow `words`, both (time, batch).

    `first` tells that no window came before it, so that the hidden state starts anew; `factor` is its length as a share
    of the usual one, by which the learning rate of its step is to be multiplied.
    """

    words: Tensor
    targets: Tensor
    first: bool
    factor: float


class TextBatches:
    """Windows over columns of text, in the form that a `Task` takes as its data.

    The text is cut into as many columns as the batch has rows, what is left over at its end is dropped, and windows go
    down all columns at once. In training their lengths are random (Merity, Keskar and Socher, 2017),

        max(5, int(N(base, 5)))   with base = length with probability 0.95, else length / 2

    Args:
        corpus: what to read.
        length: of a window in evaluation, and usually in training.
        evaluated: columns of the validation and of the test part.

    Raises:
        ValueError: a length or a number of columns < 1.

    >>> part = torch.arange(23)
    >>> batches = TextBatches(Corpus(part, part, part, words=()), length=4)
    >>> window = next(batches.evaluation("test"))
    >>> window.words.flatten().tolist(), window.targets.flatten().tolist(), window.first, window.factor
    ([0, 1, 2, 3], [1, 2, 3, 4], True, 1.0)
    >>> [window.words.shape for window in batches.evaluation("validation")]
    [torch.Size([1, 10])]
    """

    def __init__(self, corpus: Corpus, length: int = 70, evaluated: tuple[int, int] = (10, 1)) -> None:
        self.corpus = corpus
        self.length = whole("length", length, least=1)
        validation, test = (whole("evaluated", columns, least=1) for columns in evaluated)
        self.columns = {"validation": columns(corpus.validation, validation), "test": columns(corpus.test, test)}

    def training(self, batch_size: int, generator: Generator) -> Iterator[Window]:
        """The windows of an epoch, of random lengths."""
        return self._windows(columns(self.corpus.train, batch_size), generator)

    def evaluation(self, split: str) -> Iterator[Window]:
        """The windows of "validation" or "test", of equal lengths but for the last."""
        return self._windows(self.columns[split], None)

    def _windows(self, text: Tensor, generator: Generator | None) -> Iterator[Window]:
        start = 0
        while start < len(text) - 1:
            length = self.length if generator is None else random_length(self.length, generator)
            words, targets = text[start:-1][:length], text[start + 1 :][:length]
            yield Window(words, targets, start == 0, len(words) / self.length)
            start += length

    def to(self, device: torch.device | str) -> "TextBatches":
        """The same with all tensors on a device."""
        train, validation, test, words = self.corpus
        corpus = Corpus(train.to(device), validation.to(device), test.to(device), words)
        validated, tested = (self.columns[split].shape[1] for split in ("validation", "test"))
        return TextBatches(corpus, self.length, (validated, tested))


def columns(numbers: Tensor, batch: int) -> Tensor:
    """The text side by side in columns, (time, batch), without the words that are left over.

    Raises:
        ValueError: fewer than two words a column.

    >>> columns(torch.arange(7), 3)
    tensor([[0, 2, 4],
            [1, 3, 5]])
    """
    time = len(numbers) // whole("batch", batch, least=1)
    if time < 2:
        raise ValueError(f"batch={batch!r}: {len(numbers)} words are too few for so many columns")
    return numbers[: time * batch].reshape(batch, time).T.contiguous()


def random_length(length: int, generator: Generator) -> int:
    """The length of one training window.

    >>> generator = Generator().manual_seed(0)
    >>> {random_length(1000, generator) // 100 for _ in range(1000)}  # around 1000 or, seldom, 500
    {9, 10, 4, 5}
    """
    device = generator.device
    base = length if torch.rand((), generator=generator, device=device).item() < 0.95 else length / 2
    return max(5, int(base + 5 * torch.randn((), generator=generator, device=device).item()))
