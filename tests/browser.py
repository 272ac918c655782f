"""Pages in a headless Chromium, the one that the machine has."""

import re
import shutil
from contextlib import contextmanager

import numpy as np
from playwright.sync_api import sync_playwright

# As root there is no sandbox; the rest keeps Chromium from calling its maker.
ARGUMENTS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]


def executable():
    """Where Chromium is."""
    for name in ("chromium", "chromium-browser", "google-chrome", "chrome"):
        if path := shutil.which(name):
            return path
    raise FileNotFoundError("no Chromium: the tests of pages need one (Debian: apt-get install chromium)")


@contextmanager
def chromium():
    """A browser; while it is open this thread can run no event loop of its own."""
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=executable(), args=ARGUMENTS)
        try:
            yield browser
        finally:
            browser.close()


@contextmanager
def opened(browser, address, **options):
    """A page with `problems`, a list that gets every message, error and request that leaves the machine.

    Args:
        browser: from `chromium`.
        address: of the page.
        options: of the browser's context, as viewport and color_scheme.
    """
    context = browser.new_context(**options)
    page = context.new_page()
    problems = []
    page.on("console", lambda message: problems.append(f"{message.type}: {message.text}"))
    page.on("pageerror", lambda error: problems.append(f"error: {error}"))
    page.on("request", lambda request: _note_leaving(request.url, problems))
    page.goto(address)
    try:
        yield page, problems
    finally:
        context.close()


def faults(browser, address):
    """What is wrong with a page that shows pictures, on a phone and on a desk, light and dark.

    Messages, errors, requests that leave the machine; a page wider than the window; pictures of no size, or with
    nothing drawn in them; text with a contrast below 4.5.
    """
    found = []
    for width, height in ((390, 844), (1400, 900)):
        for scheme in ("light", "dark"):
            size = {"width": width, "height": height}
            with opened(browser, address, viewport=size, color_scheme=scheme) as (page, problems):
                own = problems + page.evaluate(_WIDER) + page.evaluate(_NOT_DRAWN)
                own += [f"contrast {c:.2f}: {text}" for text, c in map(_contrast, page.evaluate(_TEXTS)) if c < 4.5]
            found += [f"{width} {scheme}: {fault}" for fault in own]
    return found


_WIDER = """() => document.documentElement.scrollWidth > innerWidth
    ? [`page of ${document.documentElement.scrollWidth} px`] : []"""

_NOT_DRAWN = """() => [...document.querySelectorAll("svg, img")].flatMap((picture) => {
    const box = (element) => element.getBoundingClientRect()
    const empty = (element) => !(box(element).width > 0 && box(element).height > 0)
    const marks = [...picture.querySelectorAll("path, use, image")]
    const drawn = picture.tagName === "IMG" ? picture.naturalWidth > 0 : marks.some((mark) => !empty(mark))
    return empty(picture) || !drawn ? [`not drawn: ${picture.getAttribute("aria-label") || picture.alt}`] : []
})"""

# Every element that has text of its own: the text, its colour, and that of the nearest background.
_TEXTS = """() => [...document.body.querySelectorAll("*:not(svg *)")].flatMap((element) => {
    const text = [...element.childNodes].filter((node) => node.nodeType === 3).map((node) => node.data.trim()).join("")
    if (!text || !element.checkVisibility()) return []
    let below = element
    while (below && getComputedStyle(below).backgroundColor === "rgba(0, 0, 0, 0)") below = below.parentElement
    const ground = below ? getComputedStyle(below).backgroundColor : "rgb(255, 255, 255)"
    return [[text.slice(0, 40), getComputedStyle(element).color, ground]]
})"""


def _contrast(entry):
    """The text and its contrast."""
    text, front, ground = entry
    return text, contrast(*([int(part) for part in re.findall(r"\d+", colour)[:3]] for colour in (front, ground)))


def contrast(first, second):
    """Of two colours of sRGB from 0 to 255, as the accessibility guidelines of the web (WCAG 2.2) define it."""
    darker, lighter = sorted(np.dot([0.2126, 0.7152, 0.0722], linear(colour)) for colour in (first, second))
    return (lighter + 0.05) / (darker + 0.05)


def linear(colour):
    """Amounts of light, from 0 to 1, of a colour from 0 to 255."""
    part = np.asarray(colour) / 255
    return np.where(part <= 0.04045, part / 12.92, ((part + 0.055) / 1.055) ** 2.4)


def _note_leaving(url, problems):
    """A problem if the request is for another machine."""
    if not url.startswith(("file:", "data:", "blob:", "http://127.0.0.1", "http://localhost", "ws://127.0.0.1")):
        problems.append(f"request: {url}")
