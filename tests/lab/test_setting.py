"""Settings: what they take, and their way through JSON."""

import json
import math
import pickle

import pytest
import strategies
from hypothesis import given
from hypothesis import strategies as st

from aggmo import Damping
from aggmo.lab.optimizers import BETAS
from aggmo.lab.schedule import Constant, Milestones, Plateau
from aggmo.lab.setting import Setting

OVERRIDES = st.fixed_dictionaries(
    {},
    optional={
        "epochs": st.integers(1, 1000),
        "batch_size": st.integers(1, 1000),
        "patience": st.integers(1, 1000),
        "weight_decay": st.floats(0, 1),
        "clip": st.none() | st.floats(0, exclude_min=True, allow_infinity=False),
        "schedule": st.sampled_from([Constant(), Milestones((3, 5)), Plateau(2)]),
    },
)


@st.composite
def settings(draw):
    name = draw(st.sampled_from(sorted(BETAS)))
    lr = draw(st.floats(0, exclude_min=True, allow_infinity=False))
    if name == "aggmo":
        return Setting(name, lr, draw(strategies.dampings()), **draw(OVERRIDES))
    betas = draw(st.none() | st.lists(strategies.BETAS, min_size=1, max_size=len(BETAS[name]))) if BETAS[name] else None
    return Setting(name, lr, betas, **draw(OVERRIDES))


@given(settings())
def test_a_setting_comes_back_the_same(setting):
    for other in (Setting.from_json(setting.to_json()), pickle.loads(pickle.dumps(setting))):
        assert other == setting
        assert hash(other) == hash(setting)
        assert other.to_json() == setting.to_json()
    json.dumps(json.loads(setting.to_json()), allow_nan=False)


def test_equal_settings_are_equal():
    assert Setting("aggmo", 1) == Setting("aggmo", 1.0, Damping.exponential()) == Setting("aggmo", 1, (0, 0.9, 0.99))
    assert Setting("aggmo", 1, (0, 0.5), (1, 1)) != Setting("aggmo", 1, (0, 0.5))
    assert Setting("adam", 1) == Setting("adam", 1, (0.9,)) == Setting("adam", 1, [0.9, 0.999])
    assert Setting("cm", 1, epochs=2, clip=1) == Setting("cm", 1, clip=1.0, epochs=2)
    assert Setting("cm", 1, clip=None) != Setting("cm", 1)
    assert Setting("cm", 1, (0.9,)) != Setting("nesterov", 1, (0.9,))
    assert Setting("sgd", 1, ()) == Setting("sgd", 1)


@pytest.mark.parametrize(
    ("arguments", "overrides", "message"),
    [
        (("momentum", 0.1), {}, "optimizer='momentum'.*nesterov"),
        ((["sgd"], 0.1), {}, "optimizer="),
        (("sgd", 0), {}, "lr=0"),
        (("sgd", math.nan), {}, "lr=nan"),
        (("sgd", math.inf), {}, "lr=inf"),
        (("sgd", True), {}, "lr=True"),
        (("sgd", "0.1"), {}, "lr='0.1'"),
        (("sgd", 0.1, (0.9,)), {}, r"betas=\(0.9,\): sgd takes none"),
        (("cm", 0.1, (0.9, 0.99)), {}, "cm takes at most 1"),
        (("cm", 0.1, ()), {}, "betas is empty"),
        (("cm", 0.1, (1,)), {}, r"betas\[0\] is 1.0"),
        (("adam", 0.1, (0.9, 0.99, 0.999)), {}, "adam takes at most 2"),
        (("nesterov", 0.1, Damping.nesterov(0.9)), {}, "only aggmo takes a Damping"),
        (("nesterov", 0.1, (0.9,), (1,)), {}, "only aggmo has weights"),
        (("aggmo", 0.1, (0, 1.5)), {}, r"betas\[1\] is 1.5"),
        (("aggmo", 0.1, (0, 0.5), (1,)), {}, "1 weights for 2 betas"),
        (("sgd", 0.1), {"epochs": 0}, "epochs=0"),
        (("sgd", 0.1), {"epochs": 2.0}, "epochs=2.0"),
        (("sgd", 0.1), {"batch_size": True}, "batch_size=True"),
        (("sgd", 0.1), {"patience": 0}, "patience=0"),
        (("sgd", 0.1), {"weight_decay": -1}, "weight_decay=-1"),
        (("sgd", 0.1), {"weight_decay": math.inf}, "weight_decay=inf"),
        (("sgd", 0.1), {"clip": 0}, "clip=0"),
        (("sgd", 0.1), {"clip": math.nan}, "clip=nan"),
        (("sgd", 0.1), {"clip": math.inf}, "clip=inf"),
        (("sgd", 0.1), {"schedule": lambda _: 1.0}, "schedule=.*Plateau"),
        (("sgd", 0.1), {"schedule": "plateau"}, "schedule='plateau'"),
        (("sgd", 0.1), {"momentum": 0.9}, "momentum: the options of a training are epochs"),
    ],
)
def test_bad_arguments(arguments, overrides, message):
    with pytest.raises(ValueError, match=message):
        Setting(*arguments, **overrides)


@pytest.mark.parametrize(
    "text", ["", "[]", "3", "null", '{"optimizer": "sgd"}', '{"optimizer": "sgd", "lr": 1, "overrides": 3}']
)
def test_no_setting(text):
    with pytest.raises(ValueError):  # noqa: PT011  of json, or of Setting
        Setting.from_json(text)
