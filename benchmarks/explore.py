"""How soon `aggmo explore` answers a slider: from the key press until the last view that it changes is painted.

Every slider is moved by the keyboard in a headless Chromium, forwards and back, and the times are printed as a Markdown
table of milliseconds.
"""

import argparse
import statistics
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from playwright.sync_api import Page, sync_playwright

FLAGS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)
# The time of the last key press, and that of the frame after the last change of a view.
WATCH = """() => {
    window.pressed = window.painted = 0;
    document.addEventListener("keydown", () => { window.pressed = performance.now() }, true);
    const watch = new MutationObserver(() => requestAnimationFrame(() => setTimeout(() => {
        window.painted = performance.now();
    })));
    watch.observe(document.body, {subtree: true, childList: true, attributes: true, characterData: true,
        attributeFilter: ["d", "data-value"]});
}"""
QUIET = "() => window.painted > window.pressed && performance.now() - window.painted > 400"


@contextmanager
def page(chromium: str) -> Iterator[Page]:
    """The explorer, started for this, in a browser."""
    command = [sys.executable, "-m", "aggmo", "explore", "--no-browser", "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server, sync_playwright() as playwright:
        try:
            assert server.stdout is not None
            browser = playwright.chromium.launch(executable_path=chromium, args=FLAGS)
            opened = browser.new_page(viewport={"width": 1400, "height": 900})
            opened.goto(server.stdout.readline().split(" ")[0])
            opened.locator("[data-view=responses]").wait_for()
            opened.wait_for_timeout(1000)
            opened.evaluate(WATCH)
            yield opened
            browser.close()
        finally:
            server.kill()


def measure(opened: Page, slider: int, moves: int) -> list[float]:
    """The times of one slider, the first move, for which nothing is warm, left out."""
    times = []
    for move in range(moves + 1):
        opened.get_by_role("slider").nth(slider).press("ArrowLeft" if move % 4 > 1 else "ArrowRight")
        opened.wait_for_function(QUIET)
        times.append(opened.evaluate("window.painted - window.pressed"))
    return times[1:]


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--moves", type=int, default=12, help="of each slider")
    parser.add_argument("--chromium", default="/usr/bin/chromium", help="the browser")
    options = parser.parse_args(arguments)
    every = []
    print("| slider | median, ms | slowest, ms |\n| --- | ---: | ---: |")
    with page(options.chromium) as opened:
        for i in range(opened.get_by_role("slider").count()):
            thumb = opened.get_by_role("slider").nth(i)
            name = thumb.evaluate("one => one.getRootNode().querySelector('label').textContent")
            times = measure(opened, i, options.moves)
            every += times
            print(f"| {name} | {statistics.median(times):.0f} | {max(times):.0f} |", flush=True)
    print(f"| all | {statistics.median(every):.0f} | {max(every):.0f} |")


if __name__ == "__main__":
    main()
