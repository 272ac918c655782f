"""The numbers of the README against the pages of the runs from which they come."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")


def rows(text):
    """The cells of every line of a Markdown table."""
    return [[cell.strip() for cell in line.split("|")[1:-1]] for line in text.splitlines() if line.startswith("| ")]


def measured():
    """The part of the README that says what was measured."""
    return re.search(r"^## Measured\n(.*?)^## ", README, re.MULTILINE | re.DOTALL)[1]


def test_the_speeds_are_those_of_the_page():
    """Oracle: docs/performance.md, the ratio to Adam on one thread of each contender and set of parameters."""
    page = (ROOT / "docs" / "performance.md").read_text(encoding="utf-8")
    sets = re.findall(r"^## (\w+): .*?$(.*?)(?=^## )", page, re.MULTILINE | re.DOTALL)
    expected = {name: {row[0]: row[3] for row in rows(text)} for name, text in sets}
    head, *found = [row for row in rows(measured()) if len(row) == 5]
    assert len(found) >= 5
    for contender, *ratios in found:
        assert ratios == [expected[name][contender] for name in head[1:]]


def test_the_verdicts_are_those_of_the_page():
    """Oracle: the overview of docs/reproduction.md."""
    page = (ROOT / "docs" / "reproduction.md").read_text(encoding="utf-8")
    verdicts = ("reproduced", "partly", "not at this scale", "not reproduced")
    expected = {verdict: [row[0] for row in rows(page) if len(row) == 3 and row[1] == verdict] for verdict in verdicts}
    found = {row[0]: row[1] for row in rows(measured()) if len(row) == 2 and row[0] in verdicts}
    assert {verdict: len(items) for verdict, items in expected.items() if items} == {
        verdict: int(count.partition(":")[0]) for verdict, count in found.items()
    }
