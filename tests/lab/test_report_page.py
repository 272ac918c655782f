import re

import pytest
from browser import chromium, faults, opened
from sample_results import WILD, about, errata, results

from aggmo.lab.paper import style
from aggmo.lab.report import write
from aggmo.lab.report.page import OUTCOMES


@pytest.fixture(scope="module")
def browser():
    with chromium() as found:
        yield found


@pytest.fixture(scope="module")
def index(tmp_path_factory):
    return write(results(), tmp_path_factory.mktemp("report"), about(), errata())


def test_the_page_has_no_faults_in_a_browser(browser, index):
    assert faults(browser, index.as_uri()) == []


def test_the_page_of_a_whole_quick_run_has_no_faults(browser, quick_run):
    assert faults(browser, (quick_run / "index.html").as_uri()) == []


def test_every_table_of_a_whole_quick_run_is_seen_whole_on_a_desk(browser, quick_run):
    """Settings of several tasks beside each other may be wider."""
    with opened(browser, (quick_run / "index.html").as_uri(), viewport={"width": 1400, "height": 900}) as (page, _):
        boxes = page.locator("section > figure .scroll:has(table)")
        assert boxes.count() > 10
        assert boxes.evaluate_all("(all) => all.filter((box) => box.scrollWidth > box.clientWidth + 1).length") == 0


def test_faults_are_found(browser, tmp_path):
    broken = {
        "<div style='width: 2000px'>wide</div>": "page of 2008 px",
        "<script>console.error('no')</script>": "error: no",
        "<script>throw new Error('thrown')</script>": "error: thrown",
        "<svg aria-label='empty' width='9' height='9'></svg>": "not drawn: empty",
        "<p style='color: #999; background: #fff'>pale</p>": "contrast 2.85: pale",
        "<img src='https://example.com/a.png' alt='remote'>": "request: https://example.com/a.png",
    }
    viewport = "<meta name=viewport content='width=device-width'>"
    (tmp_path / "broken.html").write_text(f"<!doctype html>{viewport}{''.join(broken)}")
    found = faults(browser, (tmp_path / "broken.html").as_uri())
    for fault in broken.values():
        assert any(fault in one for one in found), fault


def test_the_browser_itself_refuses_what_a_page_would_fetch(browser, index, tmp_path):
    page = index.read_text(encoding="utf-8").replace("<main>", "<main><img src='https://example.com/a.png'>")
    (tmp_path / "index.html").write_text(page, encoding="utf-8")
    with opened(browser, (tmp_path / "index.html").as_uri()) as (_, problems):
        assert any("Content Security Policy" in problem for problem in problems)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_pictures_take_the_tones_of_the_page(browser, index, scheme):
    with opened(browser, index.as_uri(), color_scheme=scheme) as (page, _):
        paths = page.locator("#figure-4 svg path")
        drawn = paths.evaluate_all("(all) => all.map((path) => getComputedStyle(path).stroke)")
    tones = {name: rgb(pair[scheme == "dark"]) for name, pair in style.OPTIMIZERS.items()}
    for name in ("cm", "nesterov", "adam", "aggmo"):
        assert tones[name] in drawn
    assert rgb(style.INK[scheme == "dark"]) in drawn
    assert not set(drawn) & {rgb(pair[scheme == "light"]) for pair in style.OPTIMIZERS.values()}


def rgb(colour):
    """As the browser writes it."""
    return "rgb({}, {}, {})".format(*bytes.fromhex(colour[1:]))


def test_text_is_shown_as_it_is(browser, index):
    with opened(browser, index.as_uri()) as (page, _):
        shown = page.text_content("main")
        assert page.text_content("#wild h2") == WILD
        assert page.get_attribute("#figure-1b-picture svg", "aria-label") == f"A map. {WILD}"
        assert page.text_content("#wild .notes code") == "--lr 0.1"
    assert "&lt;" not in shown
    assert "`" not in shown


def test_every_item_has_its_parts(browser, index):
    with opened(browser, index.as_uri()) as (page, _):
        for result in results():
            item = page.locator(f"[id='{result.name}']")
            assert item.locator("svg").count() == len(result.pictures)
            assert item.locator("table").count() == len(result.tables) + (result.settings is not None)
            assert (
                item.locator(".badge").inner_text() == f"{OUTCOMES[result.verdict.outcome][0]} {result.verdict.outcome}"
            )
            said = item.locator(".verdict").inner_text()
            assert result.verdict.rule in said
            assert result.verdict.reason in said
            answers = item.locator(".checks li").all_inner_texts()
            for check, answer, shown in zip(
                result.verdict.checks, ("yes", "no", "cannot be told"), answers, strict=True
            ):
                assert shown.split("\n")[-1].strip() == f"{check.claim}: {answer} {check.numbers}".strip()
            assert result.claim in item.locator(".claim").inner_text()
            assert f"aggmo reproduce {result.name} --scale quick" in item.inner_text()
        assert page.locator("#errata article").count() == len(errata())
        overview = page.locator(".overview tbody tr").all_inner_texts()
        assert [row.split("\t")[-1][2:] for row in overview] == [result.verdict.outcome for result in results()]


def test_links_lead_somewhere(browser, index):
    with opened(browser, index.as_uri()) as (page, _):
        links = page.locator("a").evaluate_all("(all) => all.map((link) => link.getAttribute('href'))")
        ids = page.locator("[id]").evaluate_all("(all) => all.map((element) => element.id)")
    assert len(ids) == len(set(ids))
    assert len(links) > 20
    for link in links:
        assert link[1:] in ids if link.startswith("#") else (index.parent / link).is_file(), link


def test_every_reference_within_a_picture_leads_somewhere(index):
    page = index.read_text(encoding="utf-8")
    ids = set(re.findall(r'\bid="([^"]*)"', page))
    assert {reference for pair in re.findall(r'url\(#([^)]*)\)|href="#([^"]*)"', page) for reference in pair} - {
        ""
    } <= ids


def test_paper_is_light_and_shows_the_settings(browser, index):
    with opened(browser, index.as_uri(), color_scheme="dark") as (page, _):
        pdf = page.pdf(format="A4")
        page.emulate_media(media="print", color_scheme="dark")
        ground = page.evaluate("() => getComputedStyle(document.body).backgroundColor")
        settings = page.locator("details table").bounding_box()
    assert pdf.startswith(b"%PDF-")
    assert len(re.findall(rb"/Type\s*/Page\b", pdf)) in range(2, 8)
    assert ground == rgb(style.PAPER[0])
    assert settings["height"] > 20
