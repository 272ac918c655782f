from itertools import combinations, pairwise

import numpy as np
import pytest
from browser import contrast, linear
from matplotlib.figure import Figure
from numpy.testing import assert_allclose

from aggmo.lab.optimizers import BETAS
from aggmo.lab.paper import style
from aggmo.lab.report.page import OUTCOMES

# Colour vision without one kind of cone, on amounts of light: Machado, Oliveira and Fernandes (2009), severity 1.
VISION = {
    "all cones": np.eye(3),
    "protanopia": np.array(
        [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]]
    ),
    "deuteranopia": np.array(
        [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.011820, 0.042940, 0.968881]]
    ),
    "tritanopia": np.array(
        [[1.255528, -0.076749, -0.178779], [-0.078411, 0.930809, 0.147602], [0.004733, 0.691367, 0.303900]]
    ),
}
TO_CONES = np.array(
    [[0.4122214708, 0.5363325363, 0.0514459929], [0.2119034982, 0.6806995451, 0.1073969566],
     [0.0883024619, 0.2817188376, 0.6299787005]]
)  # fmt: skip
TO_LAB = np.array(
    [[0.2104542553, 0.7936177850, -0.0040720468], [1.9779984951, -2.4285922050, 0.4505937099],
     [0.0259040371, 0.7827717662, -0.8086757660]]
)  # fmt: skip
TEXT = [style.INK, style.MUTED, *style.OPTIMIZERS.values(), *style.ORDERED, *(tones[1:] for tones in OUTCOMES.values())]


def rgb(colour):
    return list(bytes.fromhex(colour[1:]))


def seen(colour, vision):
    """The place of a colour in Oklab, where distances are as they are seen."""
    return TO_LAB @ np.cbrt(TO_CONES @ np.clip(vision @ linear(rgb(colour)), 0, 1))


@pytest.mark.parametrize("dark", [False, True])
@pytest.mark.parametrize("tones", TEXT)
def test_every_tone_can_be_read_as_text(tones, dark):
    assert contrast(rgb(tones[dark]), rgb(style.PAPER[dark])) >= 4.5


def test_the_contrast_is_that_of_the_guidelines():
    assert contrast((0, 0, 0), (255, 255, 255)) == pytest.approx(21)
    assert contrast((119, 119, 119), (255, 255, 255)) == pytest.approx(4.48, abs=0.005)  # the known #777


@pytest.mark.parametrize("dark", [False, True])
@pytest.mark.parametrize("vision", VISION.values(), ids=VISION)
@pytest.mark.parametrize("tones", [list(style.OPTIMIZERS.values()), list(style.ORDERED)], ids=["optimizers", "ordered"])
def test_colours_differ_for_every_kind_of_vision(tones, vision, dark):
    for first, second in combinations(tones, 2):
        assert np.linalg.norm(seen(first[dark], vision) - seen(second[dark], vision)) > 0.065


def test_every_optimizer_has_its_style():
    for table in (style.OPTIMIZERS, style.NAMES, style.DASHES):
        assert table.keys() == BETAS.keys()
    assert len({str(dash) for dash in style.DASHES.values()}) == len(BETAS)


def test_no_two_parts_share_a_colour():
    light = [tones[0] for tones in [style.PAPER, style.FAINT, *TEXT[: 2 + len(BETAS) + len(style.ORDERED)]]]
    assert len(set(light)) == len(light)  # or a page could not tell which to exchange
    assert not {"#ffffff", "#000000"} & set(light)


def test_ordered_begins_and_ends_with_the_ends():
    for count in (2, 3, 4, 5):
        colours = style.ordered(count)
        assert len(set(colours)) == count
        assert (colours[0], colours[-1]) == (style.ORDERED[0][0], style.ORDERED[-1][0])
    for count in (0, 6):
        with pytest.raises(ValueError, match=f"count={count}: must be from 1 to 5"):
            style.ordered(count)


def test_a_curve_is_the_mean_with_one_standard_deviation_about_it():
    axis = Figure().subplots()
    seeds = np.array([[1.0, 2.0, 9.0], [2.0, 4.0, 9.0], [6.0, 3.0, np.nan]])
    line = style.curve(axis, [0, 1, 2], seeds, "adam")
    assert_allclose(line.get_ydata(), [3.0, 3.0, np.nan])  # one seed has diverged: the curve ends
    band = axis.collections[0].get_paths()[0].vertices
    sd = np.sqrt(7.0)
    assert sorted(set(np.round(band[band[:, 0] == 0, 1], 12))) == pytest.approx([1.0, 3.0 + sd])  # the least seed
    assert sorted(set(band[band[:, 0] == 1, 1])) == pytest.approx([2.0, 4.0])
    assert (line.get_label(), line.get_color()) == ("Adam", style.colour("adam"))


def test_one_seed_has_no_band():
    axis = Figure().subplots()
    style.curve(axis, [0, 1], [1.0, 2.0], "cm", label="CM, β = 0.9", color="#123456", linestyle="solid")
    assert len(axis.collections) == 0
    assert axis.get_lines()[0].get_color() == "#123456"


def boxes(axis):
    """Where the names are, in pixels, from the lowest."""
    axis.figure.draw_without_rendering()
    return sorted((text.get_window_extent() for text in axis.texts), key=lambda box: box.y0)


@pytest.mark.parametrize("heights", [[1, 1, 1, 1], [0, 0, 5, 5.01], [3, 1, 2, 2.2], [1, 2, 3, 4]])
def test_names_do_not_overlap(heights):
    with style.style():
        axis = Figure(figsize=style.HALF).subplots()
        for i, height in enumerate(heights):
            axis.plot([0, 1], [0, height], label=f"curve {i}\nsecond line" if i == 1 else f"curve {i}")
        style.label_lines(axis)
        found = boxes(axis)
    for lower, upper in pairwise(found):
        assert lower.y1 <= upper.y0 + 1  # pixel
    assert all(box.x0 >= axis.get_window_extent().x1 for box in found)
    order = [int(text.get_text()[6]) for text in sorted(axis.texts, key=lambda text: text.get_position()[1])]
    assert [heights[i] for i in order] == sorted(heights)


def test_names_with_room_stay_at_the_ends_of_their_curves():
    axis = Figure().subplots()
    for height in (1, 2, 4):
        axis.plot([0, 1], [0, height], label=str(height))
    axis.plot([0, 1], [0, 3], label="_hidden")
    style.label_lines(axis)
    low, high = axis.get_ylim()
    assert [text.xy for text in axis.texts] == [(1.0, pytest.approx((y - low) / (high - low))) for y in (1, 2, 4)]


def test_a_curve_that_ends_early_has_its_name_there():
    axis = Figure().subplots()
    axis.set(xlim=(0, 10), ylim=(0, 10))
    axis.plot([0, 1, 2, 3], [1, 2, 5, np.nan], label="diverges")
    axis.plot([0, 4, 5], [1, 8, 20], label="leaves")
    axis.plot([0, 10], [1, 1], label="goes on")
    style.label_lines(axis)
    spots = {text.get_text(): text.xy for text in axis.texts}
    assert spots["diverges"] == pytest.approx((0.2, 0.5))
    assert spots["leaves"] == pytest.approx((0.5, 1.0))
    assert spots["goes on"] == pytest.approx((1.0, 0.1))


@pytest.mark.parametrize(
    ("limits", "major", "minor"),
    [
        ((1e-3, 1e2), {"10⁻³", "10⁻²", "10⁻¹", "10⁰", "10¹", "10²"}, {""}),
        ((2e-5, 9e-5), set(), {"3×10⁻⁵"}),
        ((140, 160), set(), {"150"}),
        ((0.5, 12), {"1", "10"}, {""}),
    ],
)
def test_powers_are_text(limits, major, minor):
    with style.style():
        figure = Figure()
        axis = figure.subplots()
        axis.set(yscale="log", ylim=limits)
        style.write_powers(figure)
        figure.draw_without_rendering()
        shown = [
            {label.get_text().replace("\N{MINUS SIGN}", "-") for label in axis.get_yticklabels(minor=which)}
            for which in (False, True)
        ]
    assert major <= shown[0]
    assert minor <= shown[1]
    assert not any("$" in label for labels in shown for label in labels)


def test_powers_leave_other_axes_alone():
    figure = Figure()
    axis = figure.subplots()
    axis.set_yscale("log")
    axis.yaxis.set_major_formatter("{x:g}")
    style.write_powers(figure)
    assert axis.yaxis.get_major_formatter()(1000) == "1000"
    assert type(axis.xaxis.get_major_formatter()).__name__ == "ScalarFormatter"
