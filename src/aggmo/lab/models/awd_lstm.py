"""The AWD-LSTM language model of section 5.3 (Merity, Keskar and Socher, 2017), its base model.

Tensors are (time, batch, features). A dropout here keeps an entry with probability 1 - p and multiplies it with
1 / (1 - p); a locked one takes the same mask at every time step. With p = 0 it draws no random number.
"""

import itertools
from typing import NamedTuple, cast

import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn import functional

from aggmo.lab.data.text import Window
from aggmo.theory.arguments import number, whole

Hidden = tuple[tuple[Tensor, Tensor], ...]


class Outputs(NamedTuple):
    """What the model returns: enough for the loss, its regularisers and the next window.

    Attributes:
        logits: of the next word, (time, batch, vocabulary).
        raw: the last layer's output, which temporal activation regularisation reads.
        dropped: the same after its dropout, which activation regularisation reads and the decoder decodes.
        hidden: state and cell of every layer after the last time step.
    """

    logits: Tensor
    raw: Tensor
    dropped: Tensor
    hidden: Hidden


class AWDLSTM(nn.Module):
    """Layers of LSTM between an embedding and a decoder of the same weights, with every dropout of the paper.

    The embedding starts uniform in +-0.1, the decoder's bias at 0. Weight drop acts on the hidden-to-hidden weights,
    one mask for a whole window; the embedding's dropout takes out whole words, wherever they stand in the window.

    Args:
        vocabulary: the number of words.
        embedding: width of the embedding and of the last layer.
        hidden: width of the other layers.
        layers: the number of LSTM layers.
        embedding_dropout, input_dropout, hidden_dropout, output_dropout: probabilities for words, and, locked over
            time, for the first layer's input, the outputs between layers and the last output.
        weight_drop: probability for each hidden-to-hidden weight.

    Raises:
        ValueError: a size that is no whole number >= 1, or a probability outside [0, 1).

    >>> model = AWDLSTM()
    >>> sum(parameter.numel() for parameter in model.parameters())
    24221600
    >>> small = AWDLSTM(vocabulary=50, embedding=8, hidden=16)
    >>> outputs = small(torch.zeros(5, 3, dtype=torch.long), small.initial(batch=3))
    >>> outputs.logits.shape, outputs.raw.shape
    (torch.Size([5, 3, 50]), torch.Size([5, 3, 8]))
    """

    def __init__(
        self,
        vocabulary: int = 10_000,
        embedding: int = 400,
        hidden: int = 1150,
        layers: int = 3,
        *,
        embedding_dropout: float = 0.1,
        input_dropout: float = 0.65,
        hidden_dropout: float = 0.3,
        output_dropout: float = 0.4,
        weight_drop: float = 0.5,
    ) -> None:
        super().__init__()
        self.embedding_dropout = _probability("embedding_dropout", embedding_dropout)
        self.input_dropout = _probability("input_dropout", input_dropout)
        self.hidden_dropout = _probability("hidden_dropout", hidden_dropout)
        self.output_dropout = _probability("output_dropout", output_dropout)
        self.weight_drop = _probability("weight_drop", weight_drop)
        inner = [whole("hidden", hidden, least=1)] * (whole("layers", layers, least=1) - 1)
        widths = [whole("embedding", embedding, least=1), *inner, embedding]
        self.embedding = nn.Parameter(torch.empty(whole("vocabulary", vocabulary, least=1), embedding))
        self.bias = nn.Parameter(torch.zeros(vocabulary))
        nn.init.uniform_(self.embedding, -0.1, 0.1)
        self.layers = nn.ModuleList(nn.LSTM(*pair) for pair in itertools.pairwise(widths))

    def initial(self, batch: int) -> Hidden:
        """The state before the first window: zeros."""
        widths = [layer.hidden_size for layer in self.layers if isinstance(layer, nn.LSTM)]
        zeros = [self.embedding.new_zeros(1, batch, width) for width in widths]
        return tuple((zero, zero) for zero in zeros)

    def forward(self, words: Tensor, hidden: Hidden) -> Outputs:
        """Read a window of words, (time, batch), from the state that the window before left."""
        x = embed(words, self.embedding, self.embedding_dropout, self.training)
        x = locked_dropout(x, self.input_dropout, self.training)
        last = len(self.layers) - 1
        after = []
        for i, (layer, state) in enumerate(zip(self.layers, hidden, strict=True)):
            weight = _dropout(layer.get_parameter("weight_hh_l0"), self.weight_drop, self.training)
            raw, state_after = functional_call(layer, {"weight_hh_l0": weight}, (x, state))
            after.append(state_after)
            x = locked_dropout(raw, self.output_dropout if i == last else self.hidden_dropout, self.training)
        return Outputs(functional.linear(x, self.embedding, self.bias), raw, x, tuple(after))


class Reader:
    """Reads the windows of a text one after the other, the state of each being where the next one starts.

    No gradient passes from a window to the one before; one without another before it starts from zeros.

    >>> from aggmo.lab.data.text import Window
    >>> model, reader = AWDLSTM(vocabulary=50, embedding=8, hidden=16).eval(), Reader()
    >>> words = torch.arange(6)[:, None]
    >>> once = reader(model, Window(words, words, first=True, factor=1.0)).logits
    >>> pieces = [Window(words[:4], words[:4], True, 1.0), Window(words[4:], words[4:], False, 1.0)]
    >>> torch.allclose(once, torch.cat([reader(model, piece).logits for piece in pieces]), atol=1e-6)
    True
    """

    def __init__(self) -> None:
        self.hidden: Hidden = ()

    def __call__(self, model: nn.Module, window: Window) -> Outputs:
        """The model's outputs for a window."""
        start = cast(AWDLSTM, model).initial(window.words.shape[1]) if window.first else self.hidden
        outputs: Outputs = model(window.words, start)
        self.hidden = detach(outputs.hidden)
        return outputs


def embed(words: Tensor, weight: Tensor, p: float, training: bool) -> Tensor:
    """The embeddings of words; in training, a word is missing everywhere in the window with probability p.

    >>> embed(torch.tensor([[1, 0, 1]]), torch.tensor([[2.0], [3.0]]), p=0.5, training=False).flatten()
    tensor([3., 2., 3.])
    """
    kept = _dropout(weight.new_ones(len(weight), 1), p, training)
    return functional.embedding(words, weight) * functional.embedding(words, kept)


def locked_dropout(x: Tensor, p: float, training: bool) -> Tensor:
    """Dropout of a sequence, in training, with one mask for all time steps.

    >>> bool(torch.equal(*locked_dropout(torch.ones(2, 3, 4), p=0.5, training=True)))
    True
    """
    return x * _dropout(torch.ones_like(x[:1]), p, training)


def activation_regularisation(dropped: Tensor, weight: float = 2.0) -> Tensor:
    """AR: weight times the mean square of the last layer's output after its dropout.

    >>> activation_regularisation(torch.tensor([1.0, 3.0]), weight=2).item()
    10.0
    """
    return weight * dropped.square().mean()


def temporal_activation_regularisation(raw: Tensor, weight: float = 1.0) -> Tensor:
    """TAR: weight times the mean square change over time of the last layer's output before its dropout.

    A window of a single word has no change, and costs 0.

    >>> temporal_activation_regularisation(torch.tensor([1.0, 3.0, 3.0]), weight=1).item()
    2.0
    """
    return weight * raw.diff(dim=0).square().mean() if len(raw) > 1 else raw.new_zeros(())


def detach(hidden: Hidden) -> Hidden:
    """The same state without its history: gradients stop between windows.

    >>> state = torch.ones(1, requires_grad=True) * 2
    >>> ((after, _),) = detach(((state, state),))
    >>> after.requires_grad
    False
    """
    return tuple((state.detach(), cell.detach()) for state, cell in hidden)


def _dropout(x: Tensor, p: float, training: bool) -> Tensor:
    """Dropout that draws no random number when it does nothing."""
    return functional.dropout(x, p) if training and p > 0 else x


def _probability(name: str, value: float) -> float:
    """The value, if it is a number in [0, 1)."""
    return number(name, value, "in [0, 1)", lambda p: 0 <= p < 1)
