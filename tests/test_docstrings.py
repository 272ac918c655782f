"""Every public name is explained, with an example that doctest runs."""

import inspect

import pytest

import aggmo.damping
import aggmo.reference
import aggmo.torch
import aggmo.torch.schedule

MODULES = [aggmo.damping, aggmo.reference, aggmo.torch, aggmo.torch.schedule]


def public_names():
    """Functions and classes of the public modules, and what the classes define themselves."""
    found = {}
    for module in MODULES:
        names = getattr(module, "__all__", [name for name in vars(module) if not name.startswith("_")])
        for name in names:
            thing = getattr(module, name)
            if not (inspect.isclass(thing) or inspect.isfunction(thing)) or not thing.__module__.startswith(
                module.__name__
            ):
                continue
            found[f"{module.__name__}.{name}"] = thing
            if inspect.isclass(thing):
                members = {key: value for key, value in vars(thing).items() if not key.startswith("_")}
                for key, value in members.items():
                    if inspect.isfunction(value) or isinstance(value, classmethod | property):
                        found[f"{module.__name__}.{name}.{key}"] = getattr(thing, key)
    return found


def test_the_names_are_found():
    assert {"aggmo.damping.Damping.exponential", "aggmo.torch.AggMo.from_sgd", "aggmo.torch.schedule.decay"} <= set(
        public_names()
    )


@pytest.mark.parametrize("name", public_names())
def test_a_public_name_has_a_sentence_and_an_example(name):
    text = inspect.getdoc(public_names()[name])
    assert text
    assert text.partition("\n")[0].endswith(".")
    assert ">>>" in text
