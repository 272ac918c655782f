"""The page in a browser, used as a person does; what it shows against `aggmo.theory` and closed forms."""

import re
from pathlib import Path

import pytest
import torch
from explorer import expected

import aggmo.explore
from aggmo import AggMo, Damping
from aggmo.explore.presets import PRESETS
from aggmo.explore.settings import query
from aggmo.lab.paper.style import OPTIMIZERS

ALL = {"trajectories", "rates", "poles", "paths", "responses"}
# By the name of its slider: the setting, and the views that depend on it.
SLIDERS = {
    "K, velocities": ("k", ALL),
    "a": ("a", ALL),
    "lr, learning rate": ("lr", ALL - {"responses"}),
    "its β": ("beta", ALL),
    "λ, curvature": ("curvature", {"trajectories", "poles"}),
    "κ, condition number": ("kappa", {"rates"}),
    "steps": ("steps", {"trajectories", "paths"}),
    "α": ("alpha", {"responses"}),
    "β of Beta": ("spread", {"responses"}),
}


@pytest.fixture
def fresh(explorer):
    """The common page, set to figure 3: as by default but for the comparison's damping."""
    explorer.preset("Figure 3: rate against condition number")
    return explorer


def changed(before, after):
    """The views that are different."""
    return {view for view in ALL if before[view] != after[view]}


@pytest.mark.parametrize("label", SLIDERS)
def test_a_slider_changes_the_views_that_depend_on_it_as_theory_says(fresh, label):
    name, views = SLIDERS[label]
    drawn, before = fresh.drawn(), fresh.numbers()
    value = fresh.move(label)
    after = fresh.shows(**{name: int(value) if name in ("k", "steps") else value})
    assert changed(drawn, fresh.drawn()) == views
    # The impulse response has no number of the comparison's; it is drawn.
    assert changed(before, after) == (views - {"responses"} if name == "beta" else views)


def test_the_damping_vector_and_the_weights_by_hand(fresh):
    fresh.page.get_by_role("radio", name="β by hand").click()
    fresh.shows(betas=(0.0, 0.9, 0.99))
    drawn = fresh.drawn()
    value = fresh.move("β 2", "PageDown")
    assert value < 0.9
    fresh.shows(betas=(0.0, value, 0.99))
    assert changed(drawn, fresh.drawn()) == ALL
    fresh.page.get_by_role("radio", name="w by hand").click()
    fresh.slider("w 1").wait_for()
    drawn = fresh.drawn()
    weight = fresh.move("w 3", "PageUp")
    fresh.shows(weights=(1 / 3, 1 / 3, weight))
    assert changed(drawn, fresh.drawn()) == ALL
    # One velocity more keeps the others' damping; the weights are equal again.
    fresh.move("K, velocities")
    fresh.shows(betas=(0.0, value, 0.99, 0.999), weights=(0.25,) * 4)
    assert fresh.value("β 2") == value


def test_no_weight_at_all_is_told_and_can_be_mended(fresh):
    fresh.page.get_by_role("radio", name="w by hand").click()
    fresh.shows(weights=(1 / 3,) * 3)
    fresh.slider("w 3").wait_for()
    for i in (1, 2, 3):
        fresh.slider(f"w {i}").press("Home")
    told = fresh.page.get_by_role("alert")
    told.wait_for()
    assert told.inner_text() == "all weights are 0: at least one must be > 0"
    fresh.slider("w 2").press("End")
    fresh.shows(weights=(0.0, 1.0, 0.0))
    assert told.count() == 0


def test_the_comparison_is_chosen_from_a_list(fresh):
    drawn = fresh.drawn()
    fresh.choose("Comparison", "Nesterov")
    fresh.shows(versus="nesterov")
    assert changed(drawn, fresh.drawn()) == ALL - {"paths"}  # which has both
    assert "Nesterov, β = 0.99" in fresh.page.locator("[data-view=poles] .key").inner_text()
    colour = "one => getComputedStyle(one).stroke"
    green = fresh.page.locator("[data-view=paths] .line.nesterov").first.evaluate(colour)
    assert fresh.page.locator("[data-view=rates] .line.rival").first.evaluate(colour) == green


@pytest.mark.parametrize(
    ("name", "fields"),
    {
        "Rosenbrock": {"landscape": "rosenbrock", "x": -1.2, "y": 1.0, "lr": 0.0005},
        "Rosenbrock as printed": {"landscape": "printed", "x": -1.0, "y": 1.5, "lr": 0.001},
        "funnels of appendix E": {"landscape": "funnel", "x": -2.0, "y": 0.0, "lr": 0.001},
    }.items(),
)
def test_a_landscape_comes_with_a_start_and_a_learning_rate_that_suit_it(fresh, name, fields):
    fresh.choose("Landscape", name)
    fresh.shows(**fields)


def test_a_start_is_typed(fresh):
    drawn = fresh.drawn()
    fresh.type("x", 0.75)
    fresh.shows(x=0.75)
    fresh.type("y", -1.25)
    fresh.shows(y=-1.25)
    assert changed(drawn, fresh.drawn()) == {"paths"}


def test_a_start_is_dragged(fresh):
    plot = fresh.page.locator("[data-drag] .plot")
    plot.scroll_into_view_if_needed()
    box, mouse = plot.bounding_box(), fresh.page.mouse
    mouse.move(box["x"] + box["width"] / 6, box["y"] + box["height"] / 6)  # -1, 1 of -1.5 ... 1.5
    mouse.down()
    for part in (0.3, 0.45, 0.6, 0.75):
        mouse.move(box["x"] + part * box["width"], box["y"] + part * box["height"])
    mouse.up()
    fresh.page.wait_for_function("document.querySelector('[data-link]').dataset.link.includes('x=0.75')")
    fresh.shows(x=0.75, y=-0.75)
    fields = fresh.page.locator("[data-start] input")
    assert [field.input_value() for field in fields.all()] == ["0.75", "-0.75"]


def test_a_slider_is_dragged_with_the_mouse(fresh):
    thumb = fresh.slider("κ, condition number")
    thumb.scroll_into_view_if_needed()
    box, mouse = thumb.bounding_box(), fresh.page.mouse
    mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    mouse.down()
    mouse.move(box["x"] + 60, box["y"] + box["height"] / 2, steps=8)
    mouse.up()
    value = fresh.value("κ, condition number")
    assert value > 1000
    fresh.shows(kappa=value)


@pytest.mark.parametrize("name", PRESETS)
def test_a_preset_shows_its_figure(explorer, name):
    explorer.preset(name)
    assert explorer.page.locator(".hint").inner_text() == PRESETS[name].note
    assert explorer.page.locator("[data-link]").get_attribute("data-link") == query(PRESETS[name].settings)


def test_the_copied_line_makes_the_optimizer(fresh):
    for by_hand in (False, True):
        if by_hand:
            fresh.page.get_by_role("radio", name="β by hand").click()
            fresh.page.get_by_role("radio", name="w by hand").click()
            fresh.slider("w 2").wait_for()
            fresh.shows(betas=(0.0, 0.9, 0.99), weights=(1 / 3,) * 3)
            fresh.shows(weights=(1 / 3, fresh.move("w 2"), 1 / 3), lr=fresh.move("lr, learning rate"))
        names = {"AggMo": AggMo, "model": torch.nn.Linear(2, 1)}
        exec(fresh.press("Copy the PyTorch line"), names)
        (group,) = names["optimizer"].param_groups
        assert group["lr"] == fresh.settings.lr
        assert Damping(group["betas"], group["weights"]) == fresh.settings.damping


def test_the_shared_link_is_reopened(fresh, explore):
    fresh.page.get_by_role("radio", name="β by hand").click()
    betas = (0.0, fresh.move("β 2"), 0.99)
    lr, steps = fresh.move("lr, learning rate", "PageDown"), fresh.move("steps", "PageDown")
    fresh.choose("Comparison", "Nesterov")
    fresh.type("x", 0.31)
    there = fresh.shows(betas=betas, lr=lr, steps=int(steps), versus="nesterov", x=0.31)
    link = fresh.press("Copy a link to this page")
    fresh.page.wait_for_url(link)  # the address bar has it too
    again = explore(re.sub("^[^?]*", "", link), fresh.settings)
    assert again.shows() == there
    assert (again.value("lr, learning rate"), again.value("β 2")) == (lr, betas[1])
    assert again.page.locator("[data-start=x] input").input_value() == "0.31"
    again.page.reload()
    again.shows()


@pytest.mark.parametrize(
    ("bad", "told"),
    {
        "?lr=NaN": "lr=nan: must be a number from 1e-05 to 10",
        "?k=99": "k=99: must be a whole number from 1 to 8",
        "?lr=-1": "lr=-1.0: must be a number from 1e-05 to 10",
        "?versus=<img src=x onerror=alert(1)>": "versus='<img src=x onerror=alert(1)>': must be one of",
    }.items(),
)
def test_a_bad_link_is_told_and_the_page_as_by_default(explore, bad, told):
    page = explore(bad)
    message = page.page.get_by_role("alert").inner_text()
    assert message.startswith(f"This link cannot be used; the page is as by default. {told}")
    assert "Traceback" not in page.page.locator("body").inner_text()
    page.shows()
    # It is forgotten with the first choice.
    value = page.move("κ, condition number")
    page.shows(kappa=value)
    assert page.page.get_by_role("alert").count() == 0


def test_the_keyboard_reaches_everything_in_order(explore):
    page = explore().page
    reached = []
    for _ in range(40):
        page.keyboard.press("Tab")
        reached.append(
            page.evaluate("""() => {
            let one = document.activeElement;
            while (one?.shadowRoot?.activeElement) one = one.shadowRoot.activeElement;
            const label = one.getRootNode().querySelector?.("label");
            return [one.tagName === "BUTTON" && !one.role ? one.textContent : label?.textContent ?? "",
                    one.matches(":focus-visible")];
        }""")
        )
    names = [name for name, _ in reached]
    wanted = [
        "Copy the PyTorch line", "Copy a link to this page", "A figure of the paper", "Damping vector",
        "K, velocities", "a", "Weights", "lr, learning rate", "Comparison", "its β", "λ, curvature",
        "κ, condition number", "steps", "Landscape", "start x", "start y", "α", "β of Beta",
    ]  # fmt: skip
    at = names.index(wanted[0])
    assert names[at : at + len(wanted)] == wanted
    assert all(visible for _, visible in reached[at : at + len(wanted)])


def test_the_keyboard_alone_chooses_a_preset(explorer):
    explorer.preset("Figure 1 (b): CM, β = 0.999")
    explorer.page.get_by_label("A figure of the paper").focus()
    explorer.page.keyboard.press("ArrowUp")
    explorer.settings = PRESETS["Figure 1 (a): CM, β = 0.9"].settings
    explorer.shows()


def test_a_screen_reader_is_told_plain_names(fresh):
    for axis in ("x", "y"):
        field = fresh.page.locator(f"[data-start={axis}] input")
        field.focus()
        assert field.get_attribute("aria-label") == f"start {axis}"
    fresh.page.get_by_role("radio", name="w by hand").focus()
    assert fresh.page.get_by_role("radiogroup", name="Weights").count() == 1
    charts = fresh.page.get_by_role("img").all()
    assert len(charts) == 14
    assert all(chart.get_attribute("aria-label") for chart in charts)


def test_a_slider_keeps_the_focus_and_tells_its_value(fresh):
    fresh.slider("K, velocities").focus()
    for k in (4, 5):
        fresh.page.keyboard.press("ArrowRight")
        fresh.shows(k=k)
    fresh.slider("lr, learning rate").press("ArrowLeft")
    assert fresh.slider("lr, learning rate").get_attribute("aria-valuetext") == str(fresh.value("lr, learning rate"))
    fresh.shows(lr=fresh.value("lr, learning rate"))


@pytest.mark.parametrize(("width", "height"), [(390, 844), (1400, 900)])
def test_the_page_fits_and_the_controls_stay_in_sight(explore, width, height):
    opened = explore(width=width, height=height)
    page = opened.page
    assert page.evaluate("document.querySelector('#App').scrollWidth") <= width
    wide = page.evaluate(
        "[...document.querySelectorAll('.view *, .panel *')].map(e => e.getBoundingClientRect().right)"
    )
    assert max(wide) <= width + 1
    smallest = page.evaluate("""() => Math.min(...[...document.querySelectorAll("svg.chart text")].map((text) =>
        parseFloat(getComputedStyle(text).fontSize) * text.getScreenCTM().a))""")
    assert smallest >= 8
    page.locator("[data-view=responses] .numbers").scroll_into_view_if_needed()
    panel = page.locator(".marimo-cell:has(.panel)").bounding_box()
    assert panel["y"] == pytest.approx(0, abs=1)
    assert panel["height"] <= (height if width > 820 else height / 2)
    value = opened.move("α")
    opened.shows(alpha=value)


def test_the_colours_of_the_optimizers_are_those_of_the_lab():
    written = (Path(aggmo.explore.__file__).parent / "page.css").read_text()
    for ours, theirs in (("aggmo", "aggmo"), ("classical", "cm"), ("nesterov", "nesterov")):
        assert tuple(re.findall(rf"--{ours}: (#[0-9a-f]{{6}})", written)) == OPTIMIZERS[theirs]


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_colours_follow_the_system_and_can_be_read(explore, scheme):
    page = explore(scheme=scheme).page
    paper = luminance(page, page.locator("#App").evaluate("e => getComputedStyle(e).backgroundColor"))
    assert (paper > 0.8) == (scheme == "light")
    for style in ("aggmo", "rival"):
        line = page.locator(f"[data-view=rates] .line.{style}").first
        ink = luminance(page, line.evaluate("e => getComputedStyle(e).stroke"))
        assert (max(ink, paper) + 0.05) / (min(ink, paper) + 0.05) >= 3  # as WCAG 2 asks of graphics


def luminance(page, colour):
    """Relative luminance of a colour as a browser writes it, by WCAG's formula."""
    channels = page.evaluate(
        """colour => { const canvas = new OffscreenCanvas(1, 1).getContext("2d"); canvas.fillStyle = colour;
            canvas.fillRect(0, 0, 1, 1); return [...canvas.getImageData(0, 0, 1, 1).data].slice(0, 3) }""",
        colour,
    )
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in (one / 255 for one in channels)]
    return sum(w * c for w, c in zip((0.2126, 0.7152, 0.0722), linear, strict=True))


def test_what_the_presets_say_is_so():
    """The claims of the figures in numbers of theory: those that the notes of the presets make."""
    shown = {name.split(":")[0]: expected(preset.settings) for name, preset in PRESETS.items()}
    velocities = shown["Figure 2"]["trajectories"]
    assert velocities["turned 2"] < velocities["turned 3"]
    rest = [shown["Figure 1 (d)"]["trajectories"][f"settled aggmo {curvature}"] for curvature in ("1", "0.1", "0.01")]
    assert rest == [72, 209, 673]
    oscillating = shown["Figure 1 (b)"]["trajectories"]
    assert all(oscillating[f"settled aggmo {curvature}"] == float("inf") for curvature in ("1", "0.1", "0.01"))
    same = shown["Appendix A"]["paths"]  # the last of this name: Rosenbrock, with equal weights
    assert same["gap aggmo"] == pytest.approx(same["gap nesterov"], rel=0.1)
    assert same["gap aggmo"] != pytest.approx(same["gap nesterov"], rel=1e-3)
    exact = expected(PRESETS["Appendix A: Nesterov as AggMo, quadratic"].settings)["paths"]
    assert exact["gap aggmo"] == pytest.approx(exact["gap nesterov"], rel=1e-12)
    toy = shown["Appendix E"]["paths"]
    assert toy["gap aggmo"] < 1e-3 < 0.4 < toy["gap classical"]
    assert shown["Appendix F"]["responses"]["lag 1"] == pytest.approx(100 / 101, rel=1e-4)
