"""Every public name is explained, with an example that doctest runs."""

import importlib
import inspect
import re
from pathlib import Path

import pytest

# Public is what the page of every public name has.
PAGE = (Path(__file__).parents[1] / "docs" / "api.md").read_text(encoding="utf-8")
# Keras is imported under a back end that a process chooses once, in tests/test_keras.py.
NAMES = [name for name in re.findall(r"automodule:: ([\w.]+)", PAGE) if name != "aggmo.keras"]
MODULES = [importlib.import_module(name) for name in ["aggmo.damping", "aggmo.torch", *NAMES]]


def public_names():
    """Functions and classes of the public modules, and what the classes define themselves, with its class."""
    found = {}
    for module in MODULES:
        names = getattr(module, "__all__", [name for name in vars(module) if not name.startswith("_")])
        for name in names:
            thing = getattr(module, name)
            if not (inspect.isclass(thing) or inspect.isfunction(thing)) or not thing.__module__.startswith(
                module.__name__
            ):
                continue
            found[f"{module.__name__}.{name}"] = thing, None
            if inspect.isclass(thing):
                members = {key: value for key, value in vars(thing).items() if not key.startswith("_")}
                for key, value in members.items():
                    if inspect.isfunction(value) or isinstance(value, classmethod | property):
                        found[f"{module.__name__}.{name}.{key}"] = getattr(thing, key), thing
    return found


def test_the_names_are_found():
    assert {"aggmo.damping.Damping.exponential", "aggmo.torch.AggMo.from_sgd", "aggmo.torch.schedule.decay"} <= set(
        public_names()
    )


@pytest.mark.parametrize("name", public_names())
def test_a_public_name_has_a_sentence_and_an_example(name):
    thing, owner = public_names()[name]
    text = inspect.getdoc(thing)
    assert text
    assert text.partition("\n")[0].endswith(".")
    if owner is None and not getattr(thing, "_is_protocol", False):  # a method may be shown by its class's example
        assert ">>>" in text
