"""The results as one Markdown document, for the documentation."""

from collections.abc import Sequence

from aggmo.lab.paper.result import Erratum, Picture, Result, Table
from aggmo.lab.progress import duration
from aggmo.lab.report.about import About
from aggmo.lab.report.tables import as_markdown, markdown

ANSWERS = {True: "yes", False: "no", None: "cannot be told"}


def document(results: Sequence[Result], about: About, errata: Sequence[Erratum] = (), figures: str = "figures") -> str:
    """Everything that the page shows; its headings begin at the second level.

    Args:
        results: of the items, in their order.
        about: the run behind them.
        errata: of the paper.
        figures: where the pictures are, as seen from the document.

    >>> from aggmo.lab.report.about import here
    >>> about = here("quick", "--scale quick", Table("data", "", ("data",), (("none",),)), 1.0)
    >>> document([], about).partition(chr(10))[0]
    '## Overview'
    """
    rows = tuple((result.title, result.verdict.outcome, result.verdict.reason) for result in results)
    overview = as_markdown(Table("overview", "", ("item", "verdict", "why"), rows))
    parts = ["## Overview", overview]
    for result in results:
        parts += _item(result, about, figures)
    if errata:
        parts += ["## Errata of the paper"]
    for i, erratum in enumerate(errata, start=1):
        parts += _erratum(i, erratum)
    parts += _about(about)
    return "\n\n".join(part.strip("\n") for part in parts) + "\n"


def _item(result: Result, about: About, figures: str) -> list[str]:
    """The blocks of one item."""
    verdict = result.verdict
    parts = [
        f"## {markdown(result.title)}",
        f"The paper: {markdown(result.claim)}",
        f"**{verdict.outcome.capitalize()}**: {markdown(verdict.reason)}",
        f"Rule: {markdown(verdict.rule)}",
    ]
    checks = tuple((check.claim, ANSWERS[check.holds], check.numbers) for check in verdict.checks)
    parts += [as_markdown(Table("checks", "", ("check", "holds", "numbers"), checks))] if checks else []
    parts += [_picture(picture, figures) for picture in result.pictures]
    for table in result.tables:
        parts += [f"*{markdown(table.caption)}*", as_markdown(table)]
    parts += map(markdown, result.notes)
    if result.settings:
        parts += [f"*{markdown(result.settings.caption)}*", as_markdown(result.settings)]
    time = f" Computing: {duration(result.seconds)}." if result.seconds else ""
    return [*parts, f"Again: `{about.command(result.name)}`.{time}"]


def _picture(picture: Picture, figures: str) -> str:
    """An image and its caption."""
    return f"![{markdown(picture.alternative)}]({figures}/{picture.name}.svg)\n\n*{markdown(picture.caption)}*"


def _erratum(number: int, erratum: Erratum) -> list[str]:
    """The blocks of one error."""
    return [
        f"### {number}. {markdown(erratum.place)}",
        f"Printed: {markdown(erratum.printed)}",
        f"Right: {markdown(erratum.right)}",
        f"*{markdown(erratum.check.caption)}*",
        as_markdown(erratum.check),
    ] + ([] if erratum.holds else ["**The check contradicts the correction.**"])


def _about(about: About) -> list[str]:
    """The blocks about the run."""
    versions = ", ".join(f"{name} {version}" for name, version in about.versions.items())
    return [
        "## About this run",
        as_markdown(about.data),
        f"Versions: {markdown(versions)}. Machine: {markdown(about.machine)}.",
        f"Time: {duration(about.seconds)}, finished {about.finished}.",
        f"All of it again: `{about.command()}`.",
    ]
