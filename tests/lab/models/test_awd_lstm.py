"""AWD-LSTM: each regulariser against a direct computation with the random numbers it drew."""

import itertools

import pytest
import torch
from torch.nn import functional

from aggmo.lab.data.text import Window
from aggmo.lab.models.awd_lstm import (
    AWDLSTM,
    Reader,
    activation_regularisation,
    detach,
    embed,
    locked_dropout,
    temporal_activation_regularisation,
)

NO_DROPOUT = dict.fromkeys(
    ("embedding_dropout", "input_dropout", "hidden_dropout", "output_dropout", "weight_drop"), 0.0
)


def make(**options):
    torch.manual_seed(0)
    return AWDLSTM(vocabulary=20, embedding=5, hidden=7, layers=3, **(NO_DROPOUT | options))


def window(time=6, batch=4):
    return torch.randint(20, (time, batch), generator=torch.Generator().manual_seed(1))


def lstm(x, state, weights):
    """The recursion of an LSTM, one time step after the other; gates in the order input, forget, cell, output."""
    w_ih, w_hh, b_ih, b_hh = weights
    (h,), (c,) = state
    outputs = []
    for step in x:
        i, f, g, o = (step @ w_ih.T + b_ih + h @ w_hh.T + b_hh).chunk(4, dim=1)
        c = f.sigmoid() * c + i.sigmoid() * g.tanh()
        h = o.sigmoid() * c.tanh()
        outputs.append(h)
    return torch.stack(outputs), (h[None], c[None])


def by_hand(model, words, hidden, recurrent=None, masks=None):
    """The model without its own code: recurrent weights and masks between layers as given, if they are."""
    x = torch.stack([torch.stack([model.embedding[word] for word in row]) for row in words])
    masks = masks or [1.0] * (len(model.layers) + 1)
    x, after = x * masks[0], []
    for i, (layer, state) in enumerate(zip(model.layers, hidden, strict=True)):
        weights = [layer.weight_ih_l0, layer.weight_hh_l0, layer.bias_ih_l0, layer.bias_hh_l0]
        if recurrent is not None:
            weights[1] = recurrent[i]
        raw, state_after = lstm(x, state, weights)
        after.append(state_after)
        x = raw * masks[i + 1]
    return x @ model.embedding.T + model.bias, raw, x, tuple(after)


def random_state(model, batch=4):
    generator = torch.Generator().manual_seed(2)
    return tuple(
        tuple(torch.randn(1, batch, layer.hidden_size, generator=generator) for _ in range(2)) for layer in model.layers
    )


def test_without_dropout_by_hand():
    model = make()
    torch.nn.init.normal_(model.bias)
    expected = by_hand(model, window(), random_state(model))
    torch.testing.assert_close(tuple(model(window(), random_state(model))), expected)


def test_evaluation_drops_nothing():
    torch.manual_seed(0)
    model = AWDLSTM(20, 5, 7).eval()
    expected = by_hand(model, window(), random_state(model))
    before = torch.get_rng_state()
    torch.testing.assert_close(tuple(model(window(), random_state(model))), expected)
    assert torch.equal(torch.get_rng_state(), before)


def test_weight_drop_by_hand():
    """One mask a window for each hidden-to-hidden matrix, kept weights doubled at p = 1/2."""
    model = make(weight_drop=0.5)
    torch.manual_seed(3)
    masks = [functional.dropout(torch.ones_like(layer.weight_hh_l0), 0.5) for layer in model.layers]
    recurrent = [mask * layer.weight_hh_l0 for mask, layer in zip(masks, model.layers, strict=True)]
    expected = by_hand(model, window(), random_state(model), recurrent=recurrent)
    torch.manual_seed(3)
    torch.testing.assert_close(tuple(model(window(), random_state(model))), expected)


def test_weight_drop_sends_gradients_to_the_kept_weights_only():
    model = make(weight_drop=0.5)
    torch.manual_seed(3)
    masks = [functional.dropout(torch.ones_like(layer.weight_hh_l0), 0.5) for layer in model.layers]
    torch.manual_seed(3)
    model(window(), random_state(model)).logits.square().sum().backward()
    for mask, layer in zip(masks, model.layers, strict=True):
        assert torch.equal(layer.weight_hh_l0.grad != 0, mask != 0)


def test_weight_drop_leaves_the_weights_alone():
    model = make(weight_drop=0.5)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    model(window(), random_state(model))
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())


def test_weight_drop_takes_a_new_mask_each_window():
    model = make(weight_drop=0.5)
    first, second = (model(window(), random_state(model)).raw for _ in range(2))
    assert not torch.equal(first, second)


def test_locked_dropouts_by_hand():
    """Input, between the layers, output: masks of shape (1, batch, width), drawn in this order."""
    model = make(input_dropout=0.65, hidden_dropout=0.3, output_dropout=0.4)
    torch.manual_seed(3)
    shapes = ((5, 0.65), (7, 0.3), (7, 0.3), (5, 0.4))
    masks = [functional.dropout(torch.ones(1, 4, width), p) for width, p in shapes]
    expected = by_hand(model, window(), random_state(model), masks=masks)
    torch.manual_seed(3)
    torch.testing.assert_close(tuple(model(window(), random_state(model))), expected)


def test_locked_dropout_keeps_one_mask_over_time_for_each_sequence():
    torch.manual_seed(0)
    dropped = locked_dropout(torch.ones(9, 30, 50), p=0.4, training=True)
    assert torch.equal(dropped, dropped[:1].expand(9, 30, 50))
    assert dropped.unique().tolist() == pytest.approx([0, 1 / 0.6])
    assert not torch.equal(dropped[0, 0], dropped[0, 1])
    # binomial: 1500 entries, so the share of zeros lies within 4 standard deviations of 0.4
    assert abs((dropped[0] == 0).float().mean() - 0.4) < 4 * (0.4 * 0.6 / 1500) ** 0.5


def test_embedding_dropout_by_hand():
    """The rows of the embedding are dropped, as if the word were not in the vocabulary; the decoder keeps them."""
    model = make(embedding_dropout=0.5)
    torch.manual_seed(3)
    kept = functional.dropout(torch.ones(20, 1), 0.5)
    mask = torch.stack([torch.stack([kept[word] for word in row]) for row in window()])
    expected = by_hand(model, window(), random_state(model), masks=[mask, 1.0, 1.0, 1.0])
    torch.manual_seed(3)
    torch.testing.assert_close(tuple(model(window(), random_state(model))), expected)


def test_embedding_dropout_drops_whole_words_everywhere():
    torch.manual_seed(0)
    words = torch.arange(2000).repeat(3, 1)
    embedded = embed(words, torch.ones(2000, 4), p=0.1, training=True)
    assert torch.equal(embedded, embedded[:1, :, :1].expand(3, 2000, 4))
    assert embedded.unique().tolist() == pytest.approx([0, 1 / 0.9])
    assert abs((embedded[0, :, 0] == 0).float().mean() - 0.1) < 4 * (0.1 * 0.9 / 2000) ** 0.5


def test_all_dropouts_are_on_by_default_with_the_probabilities_of_the_paper():
    model = AWDLSTM(20, 5, 7)
    assert (model.embedding_dropout, model.input_dropout, model.hidden_dropout) == (0.1, 0.65, 0.3)
    assert (model.output_dropout, model.weight_drop) == (0.4, 0.5)


def test_activation_regularisation_by_hand():
    outputs = make(output_dropout=0.4)(window(), make().initial(4))
    total = sum(value**2 for value in outputs.dropped.flatten().tolist())
    assert activation_regularisation(outputs.dropped, 2.0).item() == pytest.approx(2 * total / outputs.dropped.numel())
    assert not torch.equal(outputs.raw, outputs.dropped)


def test_temporal_activation_regularisation_by_hand():
    raw = make()(window(), make().initial(4)).raw
    columns = raw.flatten(1).T.tolist()
    changes = [(b - a) ** 2 for column in columns for a, b in itertools.pairwise(column)]
    assert temporal_activation_regularisation(raw, 1.5).item() == pytest.approx(1.5 * sum(changes) / len(changes))


def test_temporal_activation_regularisation_of_a_single_word_is_zero():
    assert temporal_activation_regularisation(torch.ones(1, 4, 5)).item() == 0


def test_two_windows_are_one_long_window():
    """The state that a window leaves is all that the next needs."""
    model = make()
    whole = model(window(), model.initial(4))
    first = model(window()[:2], model.initial(4))
    second = model(window()[2:], first.hidden)
    torch.testing.assert_close(torch.cat([first.logits, second.logits]), whole.logits)
    torch.testing.assert_close(second.hidden, whole.hidden)


def test_a_reader_carries_the_state_and_starts_anew_where_told():
    model, reader, words = make(), Reader(), window()
    pieces = [Window(words[:2], words[:2], True, 1.0), Window(words[2:], words[2:], False, 1.0)]
    for _ in range(2):
        first, second = (reader(model, piece) for piece in pieces)
        whole = model(words, model.initial(4))
        torch.testing.assert_close(torch.cat([first.logits, second.logits]), whole.logits)
    assert torch.autograd.grad(second.logits.sum(), first.raw, allow_unused=True) == (None,)


def test_gradients_stop_at_a_detached_state():
    model = make()
    first = model(window(), model.initial(4))
    assert all(tensor.requires_grad for state in first.hidden for tensor in state)
    stopped = detach(first.hidden)
    torch.testing.assert_close(stopped, first.hidden)
    assert not any(tensor.requires_grad for state in stopped for tensor in state)


def test_the_embedding_gets_the_gradients_of_both_its_uses():
    model = make()
    outputs = model(window(), model.initial(4))
    (tied,) = torch.autograd.grad(outputs.logits.square().sum(), model.embedding, retain_graph=True)
    encoder, decoder = (model.embedding.detach().clone().requires_grad_() for _ in range(2))
    x = functional.embedding(window(), encoder)
    for layer, state in zip(model.layers, model.initial(4), strict=True):
        x, _ = layer(x, state)
    separate = torch.autograd.grad((x @ decoder.T + model.bias).square().sum(), [encoder, decoder])
    torch.testing.assert_close(tied, separate[0] + separate[1])


def test_the_start():
    model = AWDLSTM(1000, 20, 30)
    assert model.embedding.abs().max() <= 0.1
    assert model.embedding.abs().max() > 0.0999  # uniform: 20,000 draws reach the ends
    assert abs(model.embedding.var().item() - 0.1**2 / 3) < 1e-4
    assert not model.bias.any()
    assert not any(tensor.any() for state in model.initial(2) for tensor in state)
    assert [state.shape for state, _ in model.initial(2)] == [(1, 2, 30), (1, 2, 30), (1, 2, 20)]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"vocabulary": 0}, "vocabulary=0"),
        ({"embedding": -1}, "embedding=-1"),
        ({"hidden": 1.5}, "hidden=1.5"),
        ({"layers": 0}, "layers=0"),
        ({"embedding_dropout": 1.0}, "embedding_dropout=1.0"),
        ({"input_dropout": -0.1}, "input_dropout=-0.1"),
        ({"hidden_dropout": float("nan")}, "hidden_dropout=nan"),
        ({"output_dropout": 2}, "output_dropout=2"),
        ({"weight_drop": True}, "weight_drop=True"),
    ],
)
def test_wrong_arguments_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        AWDLSTM(**options)
