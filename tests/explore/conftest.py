"""The explorer as a person meets it: `aggmo explore` started once, and a headless Chromium."""

import os
import subprocess
import sys
import time
from contextlib import contextmanager
from dataclasses import replace

import pytest
from explorer import expected
from playwright.sync_api import sync_playwright

from aggmo.explore.presets import PRESETS
from aggmo.explore.settings import Settings

FLAGS = [
    "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync",
]  # fmt: skip
NUMBERS = """() => Object.fromEntries([...document.querySelectorAll("[data-view]")].map((view) => [view.dataset.view,
    Object.fromEntries([...view.querySelectorAll("[data-number]")].map(({dataset: {number, value}}) => [number, value]))
]))"""
DRAWN = """() => Object.fromEntries([...document.querySelectorAll("[data-view]")].map((view) =>
    [view.dataset.view, [...view.querySelectorAll("svg.chart")].map((one) => one.outerHTML).join("")]))"""


@contextmanager
def started(*arguments, **environment):
    """`aggmo explore` as a process, and where it says that it is."""
    command = [sys.executable, "-m", "aggmo", "explore", *arguments]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", **environment}
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=environment)
    try:
        yield process, process.stdout.readline().split(" ")[0]
    finally:
        process.kill()
        process.communicate()


@pytest.fixture(scope="session")
def run():
    """`aggmo explore` with arguments, as a context that gives the process and its address."""
    return started


@pytest.fixture(scope="module")
def address():
    """Where the explorer is."""
    with started("--no-browser", "--port", "0") as (_, where):
        yield where


@pytest.fixture(scope="module")
def chromium():
    """A browser: one for all pages, which then share what it has fetched."""
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path="/usr/bin/chromium", args=FLAGS)
        context = browser.new_context(viewport={"width": 1400, "height": 900})
        context.grant_permissions(["clipboard-read", "clipboard-write"])
        yield context
        browser.close()


class Explorer:
    """A page of the explorer, and what its controls have been set to."""

    def __init__(self, chromium, address, query="", settings=None, width=1400, height=900, scheme="light"):
        self.page, self.wrong, self.settings = chromium.new_page(), [], settings or Settings()
        self.page.set_viewport_size({"width": width, "height": height})
        self.page.emulate_media(color_scheme=scheme)
        ours = (address, address.replace("http", "ws"), "data:", "blob:")
        self.page.on("console", lambda one: self.wrong.append(one.text) if one.type == "error" else None)
        self.page.on("pageerror", lambda one: self.wrong.append(str(one)))
        self.page.on("request", lambda one: None if one.url.startswith(ours) else self.wrong.append(one.url))
        self.page.goto(address + query)
        self.page.locator("[data-view=responses]").wait_for(timeout=60_000)

    def slider(self, label):
        """The slider of this name."""
        return self.page.get_by_role("slider", name=label, exact=True)

    def value(self, label):
        """What stands beside a slider."""
        shown = self.slider(label).evaluate("thumb => thumb.closest('[dir]').nextElementSibling.textContent")
        return float(shown.replace(",", ""))

    def move(self, label, key="ArrowRight"):
        """Press a key on a slider, and give the value that it has then."""
        before = self.value(label)
        self.slider(label).press(key)
        assert self.value(label) != before
        return self.value(label)

    def choose(self, label, option):
        """Choose from a list."""
        self.page.get_by_label(label, exact=True).select_option(label=option)

    def preset(self, name):
        """Choose a preset, even if it is chosen already, and wait for it."""
        self.choose("A figure of the paper", "--")
        self.choose("A figure of the paper", name)
        self.settings = PRESETS[name].settings
        self.shows()

    def press(self, name):
        """Press a button that copies, and give what it has copied."""
        self.page.get_by_role("button", name=name).press("Enter")
        self.page.get_by_role("button", name="Copied").wait_for()
        self.page.get_by_role("button", name=name).wait_for()
        return self.page.evaluate("navigator.clipboard.readText()")

    def type(self, axis, value):
        """Type a coordinate of the start."""
        field = self.page.locator(f"[data-start={axis}] input")
        field.fill(str(value))
        field.press("Enter")

    def numbers(self):
        """All numbers that the page shows, with all their digits."""
        found = self.page.evaluate(NUMBERS)
        return {view: {name: float(value) for name, value in numbers.items()} for view, numbers in found.items()}

    def drawn(self):
        """The charts of each view."""
        return self.page.evaluate(DRAWN)

    def shows(self, **fields):
        """Wait until the page shows just what theory says after a change to these settings, and give the numbers."""
        self.settings = replace(self.settings, **fields)
        wanted = {
            view: pytest.approx(numbers, rel=1e-6, abs=1e-12, nan_ok=True)
            for view, numbers in expected(self.settings).items()
        }
        until = time.monotonic() + 30
        while (found := self.numbers()) != wanted and time.monotonic() < until:
            time.sleep(0.03)
        assert found == wanted
        return found

    def close(self):
        """Close the page, on which nothing must have gone wrong and nothing been fetched from elsewhere."""
        self.page.close()
        assert self.wrong == []


@pytest.fixture
def explore(chromium, address):
    """Open pages of the explorer that are closed after the test."""
    opened = []

    def opener(*arguments, **options):
        opened.append(Explorer(chromium, address, *arguments, **options))
        return opened[-1]

    yield opener
    for one in opened:
        one.close()


@pytest.fixture(scope="module")
def explorer(chromium, address):
    """One page for all tests that leave it in order: its settings say what has been chosen."""
    page = Explorer(chromium, address)
    yield page
    page.close()
