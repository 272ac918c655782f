"""Settings and the links that carry them, and the views at any of them."""

import re
from math import inf, nan
from urllib.parse import parse_qs

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from aggmo import AggMo, Damping
from aggmo.explore.paths import LANDSCAPES, path, paths
from aggmo.explore.poles import poles
from aggmo.explore.presets import PRESETS
from aggmo.explore.rates import rates
from aggmo.explore.responses import responses
from aggmo.explore.settings import CHOICES, RANGES, Settings, code, query, read
from aggmo.explore.trajectories import trajectories


def numbers(low, high):
    """Numbers of a range, its ends among them."""
    return st.floats(low, high).map(lambda value: 0.0 if low <= 0 and abs(value) < 1e-6 else value)


@st.composite
def all_settings(draw):
    """Any settings that a link may carry."""
    found = {name: draw(numbers(*RANGES[name])) for name in RANGES}
    found |= {name: draw(st.sampled_from(allowed)) for name, allowed in CHOICES.items()}
    found["k"], found["steps"] = draw(st.integers(1, 8)), draw(st.integers(10, 60))
    if draw(st.booleans()):
        found["betas"] = tuple(draw(st.lists(numbers(0, 0.9999), min_size=1, max_size=8)))
    k = len(found["betas"]) if "betas" in found else found["k"]
    if draw(st.booleans()):
        weights = tuple(draw(st.lists(numbers(0, 10), min_size=k, max_size=k)))
        found["weights"] = weights if sum(weights) > 0.01 else (1.0,) * k
    return Settings(**found)


def given_by(link):
    """The query as marimo gives it: a text, or a list if a name comes twice."""
    found = parse_qs(link.removeprefix("?"), keep_blank_values=True)
    return {name: values[0] if len(values) == 1 else values for name, values in found.items()}


@given(all_settings())
def test_a_link_carries_all_settings(chosen):
    again = read(given_by(query(chosen)))
    assert (again.damping, again.rival) == (chosen.damping, chosen.rival)
    assert query(again) == query(chosen)


@given(all_settings())
def test_the_line_makes_the_optimizer_of_these_settings(chosen):
    names = {"AggMo": AggMo, "model": torch.nn.Linear(1, 1)}
    exec(code(chosen), names)
    (group,) = names["optimizer"].param_groups
    assert group["lr"] == chosen.lr
    assert Damping(group["betas"], group["weights"]) == chosen.damping


@settings(max_examples=40)
@given(all_settings())
def test_every_view_can_be_drawn_at_all_settings(chosen):
    one, other, lr = chosen.damping, chosen.rival, chosen.lr
    views = [
        trajectories(one, other, "it", lr, chosen.curvature, chosen.steps),
        rates(one, other, "it", lr, chosen.kappa),
        poles(one, other, "it", lr * chosen.curvature),
        paths(one, chosen.beta, chosen.landscape, chosen.x, chosen.y, lr, chosen.steps),
        responses(one, other, "it", chosen.alpha, chosen.spread),
    ]
    for view in views:
        html = view.html()
        for attribute in re.findall(r' (?:d|x|y|x1|x2|y1|y2|cx|cy|width|height)="([^"]*)"', html):
            assert re.fullmatch(r"[MLZ\d. -]*", attribute), attribute


@pytest.mark.parametrize("name", PRESETS)
def test_a_preset_can_be_sent_as_a_link(name):
    assert read(given_by(query(PRESETS[name].settings))).damping == PRESETS[name].settings.damping


BAD = {
    "lr=nan": r"^lr=nan: must be a number from 1e-05 to 10$",
    "lr=inf": "^lr=inf: must be a number",
    "lr=-1": r"^lr=-1\.0: must be a number",
    "lr=0": r"^lr=0\.0: must be a number",
    "lr=one": "^lr='one': must be a number$",
    "lr=": "^lr='': must be a number$",
    "lr=0.1&lr=0.2": "^'lr' is given 2 times",
    "k=99": "^k=99: must be a whole number from 1 to 8$",
    "k=2.5": r"^k=2\.5: must be a whole number",
    "k=nan": "^k=nan: must be a whole number",
    "a=1": r"^a=1\.0: must be a number",
    "betas=0,1": r"^betas=\(0\.0, 1\.0\): must be 1 to 8 numbers from 0 to 0\.9999$",
    "betas=0,nan": "^betas=",
    "betas=0,,0.9": "^betas='': must be a number$",
    "betas=" + ",".join(["0"] * 9): "^betas=",
    "betas=0,0.9&k=2": "^betas are given beside k or a",
    "weights=1,1": "^2 weights for 3 betas",
    "weights=0,0,0": "^all weights are 0",
    "weights=-1,1,1": "^weights=",
    "weights=1,1e-9,1": "^weights=.*: must be numbers of at least 1e-06, or 0$",
    "beta=1e-300": "^beta=1e-300: must be at least 1e-06, or 0$",
    "steps=1000000": "^steps=1000000: must be a whole number from 10 to 3000$",
    "landscape=moon": "^landscape='moon': must be one of quadratic, rosenbrock, printed, funnel$",
    "versus=" + "x" * 10_000: "^versus='x{79}…: must be one of",
    "speed=3": "^'speed' is no setting: must be one of k, a,",
}


@pytest.mark.parametrize("link", BAD, ids=lambda link: link[:20])
def test_a_bad_link_is_refused_by_name(link):
    with pytest.raises(ValueError, match=BAD[link]):
        read(given_by(link))


@pytest.mark.parametrize("value", [nan, inf, -inf, -1.0])
def test_settings_refuse_what_a_link_must_not_have(value):
    for name in [*RANGES, "k", "steps"]:
        if name not in ("x", "y") or value != -1.0:
            with pytest.raises(ValueError, match=f"^{name}="):
                Settings(**{name: value})


@pytest.mark.parametrize("landscape", LANDSCAPES)
@pytest.mark.parametrize("nesterov", [False, True])
def test_the_paths_of_the_classical_methods_are_those_of_torch(landscape, nesterov):
    shown = LANDSCAPES[landscape]
    theta = torch.tensor(shown.start, dtype=torch.float64, requires_grad=True)
    optimizer = torch.optim.SGD([theta], lr=shown.lr, momentum=0.9, nesterov=nesterov)
    wanted = [shown.start]
    for _ in range(50):
        theta.grad = torch.from_numpy(shown.function.gradient(theta.detach().numpy()))
        optimizer.step()
        wanted.append(theta.detach().numpy().copy())
    damping = Damping.nesterov(0.9) if nesterov else Damping.classical(0.9)
    found = path(damping, landscape, *shown.start, shown.lr, 50)
    np.testing.assert_allclose(found, wanted, rtol=1e-9, atol=1e-12)
    assert np.abs(found[-1] - found[0]).max() > 0.01


def test_a_path_that_has_left_ends():
    found = path(Damping.classical(0.9), "rosenbrock", -1.0, 1.5, 10.0, 100)
    assert len(found) < 5
    assert not np.abs(found[-1]).max() < 100
