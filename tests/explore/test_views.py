"""What the views draw, against `aggmo.theory` and closed forms; their numbers are read back in test_page.py."""

import re

import numpy as np
import pytest

from aggmo import Damping
from aggmo.explore.poles import poles
from aggmo.explore.trajectories import trajectories
from aggmo.theory.quadratic import eigenvalues
from aggmo.theory.stability import limit

WINDOW = Damping((0, 0.5, 0.9), (1, 0.01, 0.001))  # all real for a while between its under-damped steps


def spans(chart, style):
    """Left and right ends of the shaded regions of a style, in units of the picture."""
    found = re.findall(rf'<rect class="span {style}" x="([^"]*)" y="[^"]*" width="([^"]*)"', chart)
    return [(float(x), float(x) + float(width)) for x, width in found]


@pytest.mark.parametrize("damping", [Damping.exponential(), WINDOW, Damping((0,)), Damping.nesterov(0.9)])
def test_the_steps_marked_as_under_damped_are_those_of_complex_eigenvalues(damping):
    chart = poles(damping, Damping.classical(0.9), "it", 0.1).charts[1]
    ((_, right),) = spans(chart, "stable")
    under, unit = spans(chart, "under"), limit(damping) / right
    assert len(under) == {WINDOW: 2, Damping((0,)): 0}.get(damping, 1)
    steps = np.linspace(0, limit(damping), 1000)[1:]
    steps = [s for s in steps if all(abs(s - end * unit) > 0.3 * unit for span in under for end in span)]
    assert len(steps) > 950
    for step in steps:
        marked = any(low < step / unit < high for low, high in under)
        assert marked == any(eigenvalues(damping, step).imag), step


def test_a_window_of_real_eigenvalues_is_told():
    told = poles(WINDOW, Damping.classical(0.9), "it", 0.1).numbers["high"].words
    assert told == "0.6045, not 0.1178 … 0.4064"
    assert poles(Damping.exponential(), Damping.classical(0.9), "it", 0.1).numbers["high"].words == "2.628"


@pytest.mark.parametrize("step", [0.01, 3.0, 10.0])
def test_the_chosen_step_is_always_in_sight(step):
    chart = poles(Damping.exponential(), Damping.classical(0.9), "it", step).charts[1]
    assert chart.count('class="mark plain"') == 1


@pytest.mark.parametrize(("curvature", "points"), {0.25: 3, 0.3: 2, 1.0: 2}.items())
def test_what_grows_without_bound_is_drawn_until_it_has_left(curvature, points):
    """Gradient descent at lr = 10: x = (1 - 10 curvature)^t, which are -1.5, -2 and -9 to the power of t."""
    descent = Damping((0,))
    chart = trajectories(descent, descent, "it", 10.0, curvature, 300).charts[0]
    (drawn,) = re.findall('<path class="line aggmo" d="([^"]*)"', chart)
    assert drawn.count("L") + 1 == points
    (band,) = re.findall('<path class="band v0" d="([^"]*)"', chart)
    # The largest velocity drawn, the last, is half a unit high: beyond the path, and on its side of 0.
    ends = [float(pair.split()[1]) for pair in re.split("[MLZ]", drawn + band) if pair]
    x, unit = (1 - 10 * curvature) ** (points - 1), 194 / 3.2
    assert min(abs(end - (1.6 - (x + 0.5 * np.sign(x))) * unit) for end in ends) < 0.06


def test_both_axes_have_names():
    views = [poles(WINDOW, WINDOW, "it", 0.1), trajectories(WINDOW, WINDOW, "it", 0.1, 0.1, 50)]
    for chart, names in ((views[0].charts[0], ("Re z", "Im z")), (views[1].charts[0], ("step", "x"))):
        assert all(f">{name}</text>" in chart for name in names)
