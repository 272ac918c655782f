"""One page that shows all results: self-contained, light and dark, for screens of any width and for paper.

It asks nothing of a network, and runs no script. Equal results make equal pages but for what stands in `<time>`.
"""

import html
from collections import Counter
from collections.abc import Mapping, Sequence
from importlib import resources
from typing import get_args

from aggmo.lab.paper.result import Check, Erratum, Outcome, Result
from aggmo.lab.progress import duration
from aggmo.lab.report.about import About
from aggmo.lab.report.document import ANSWERS
from aggmo.lab.report.pictures import Drawing, inline, variables
from aggmo.lab.report.tables import as_html, prose

TITLE = "Aggregated momentum: the paper’s figures and tables, done again"

# For each outcome a sign, and a tone with which paper makes a contrast of 4.5 or more: (sign, light, dark).
OUTCOMES: dict[Outcome, tuple[str, str, str]] = {
    "reproduced": ("✓", "#0b7a4b", "#3ecf8e"),
    "partly": ("◐", "#8a6100", "#e3b341"),
    "not at this scale": ("○", "#5d636e", "#a2a8b3"),
    "not reproduced": ("✗", "#b3261e", "#ff7b72"),
}
_AS_OUTCOMES: dict[bool | None, Outcome] = {True: "reproduced", False: "not reproduced", None: "not at this scale"}
_HALF = 4.5  # inches; pictures up to this width stand two beside each other
_POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:"  # the browser itself refuses any request


def page(
    results: Sequence[Result], drawings: Mapping[str, Drawing], about: About, errata: Sequence[Erratum] = ()
) -> str:
    """The page.

    Args:
        results: of the items, in their order.
        drawings: of all their pictures, by name.
        about: the run behind them.
        errata: of the paper.

    >>> from aggmo.lab.paper.result import Table
    >>> from aggmo.lab.report.about import here
    >>> about = here("quick", "--scale quick", Table("data", "", ("data",), (("none",),)), 1.0)
    >>> page([], {}, about).startswith("<!doctype html>")
    True
    """
    parts = [_navigation(results, errata), "<main>", _overview(results, about)]
    parts += [_item(result, drawings, about) for result in results]
    parts += [_errata(errata)] if errata else []
    parts += [_about(about), "</main>"]
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f'<link rel="icon" href="data:,">\n<title>{TITLE}</title>\n<style>\n{_css()}</style>\n</head>\n<body>\n'
        + "\n".join(parts)
        + "\n</body>\n</html>\n"
    )


def _css() -> str:
    """The style sheet, after the tones in light and dark; paper is always light."""
    light = "".join(f'[data-outcome="{name}"] {{ --tone: {tones[1]} }}\n' for name, tones in OUTCOMES.items())
    dark = "".join(f'[data-outcome="{name}"] {{ --tone: {tones[2]} }}\n' for name, tones in OUTCOMES.items())
    sheet = resources.files("aggmo.lab.report").joinpath("page.css").read_text(encoding="utf-8")
    return (
        f":root {{ {variables(dark=False)} }}\n{light}"
        f"@media screen and (prefers-color-scheme: dark) {{\n:root {{ {variables(dark=True)} }}\n{dark}}}\n{sheet}"
    )


def _badge(outcome: Outcome) -> str:
    """The outcome in its colour, with a sign for who does not see it."""
    return f'<span class="badge" data-outcome="{outcome}">{OUTCOMES[outcome][0]} {outcome}</span>'


def _navigation(results: Sequence[Result], errata: Sequence[Erratum]) -> str:
    """All items, beside the page where it is wide enough."""
    entries = [
        f'<li><a href="#{result.name}"><i data-outcome="{result.verdict.outcome}" aria-hidden="true">'
        f"{OUTCOMES[result.verdict.outcome][0]}</i><span>{prose(result.title)}</span></a></li>"
        for result in results
    ]
    further = [("errata", "Errata of the paper")] if errata else []
    entries += [
        f'<li><a href="#{name}"><i></i><span>{title}</span></a></li>'
        for name, title in [*further, ("about", "About this run")]
    ]
    top = '<li><a href="#overview"><i></i><span>Overview</span></a></li>'
    return f'<nav aria-label="Items"><ol>{top}{"".join(entries)}</ol></nav>'


def _overview(results: Sequence[Result], about: About) -> str:
    """The head of the page, how many items came out how, and every verdict."""
    counts = Counter(result.verdict.outcome for result in results)
    tally = "".join(f"<li>{_badge(name)} {counts[name]}</li>" for name in get_args(Outcome))
    rows = "".join(
        f'<tr><th scope="row"><a href="#{result.name}">{prose(result.title)}</a></th>'
        f"<td>{_badge(result.verdict.outcome)}</td></tr>"
        for result in results
    )
    return (
        f'<header id="overview"><h1>{TITLE}</h1>'
        f"<p>Lucas, Sun, Zemel and Grosse, <cite>Aggregated Momentum: Stability Through Passive Damping</cite>, "
        f"ICLR 2019, at scale <strong>{html.escape(about.scale)}</strong>, finished"
        f" <time>{html.escape(about.finished)}</time>."
        " A verdict is computed from the records, by the rule that stands beside it.</p>"
        f'<ul class="tally">{tally}</ul>'
        f'<table class="overview"><thead><tr><th scope="col">Item</th><th scope="col">Verdict</th></tr></thead>'
        f"<tbody>{rows}</tbody></table></header>"
    )


def _item(result: Result, drawings: Mapping[str, Drawing], about: About) -> str:
    """All of one item."""
    verdict = result.verdict
    pictures = "".join(_figure(drawings[picture.name]) for picture in result.pictures)
    tables = "".join(as_html(table) + _files("tables", table.name, ("csv", "md", "tex")) for table in result.tables)
    settings = f"<details><summary>Settings</summary>{as_html(result.settings)}</details>" if result.settings else ""
    notes = "".join(f"<p>{prose(note)}</p>" for note in result.notes)
    time = f" Computing: <time>{duration(result.seconds)}</time>." if result.seconds else ""
    return (
        f'<section id="{result.name}"><div class="head"><h2>{prose(result.title)}</h2>{_badge(verdict.outcome)}</div>'
        f'<p class="claim"><span class="muted">The paper:</span> {prose(result.claim)}</p>'
        f'<dl class="verdict" data-outcome="{verdict.outcome}"><dt>Verdict</dt><dd>'
        f"<strong>{verdict.outcome.capitalize()}.</strong> {prose(verdict.reason)}</dd>"
        f"<dt>Rule</dt><dd>{prose(verdict.rule)}{_checks(verdict.checks)}</dd></dl>"
        + (f'<div class="pictures">{pictures}</div>' if pictures else "")
        + tables
        + (f'<div class="notes"><h3>Notes</h3>{notes}</div>' if notes else "")
        + settings
        + f'<p class="muted">Again: <code>{html.escape(about.command(result.name))}</code>.{time}</p></section>'
    )


def _checks(checks: Sequence[Check]) -> str:
    """The parts of a claim, each with its answer and its numbers."""
    entries = []
    for check in checks:
        outcome = _AS_OUTCOMES[check.holds]
        numbers = f" <small>{prose(check.numbers)}</small>" if check.numbers else ""
        entries.append(
            f'<li data-outcome="{outcome}"><i aria-hidden="true">{OUTCOMES[outcome][0]}</i>'
            f"<span>{prose(check.claim)}: <strong>{ANSWERS[check.holds]}</strong>{numbers}</span></li>"
        )
    return f'<ul class="checks">{"".join(entries)}</ul>' if entries else ""


def _figure(drawing: Drawing) -> str:
    """A picture with its caption and its files."""
    picture = drawing.picture
    kind = "half" if drawing.width <= _HALF else "wide"
    box = f'<div class="scroll">{inline(drawing)}</div>'
    return (
        f'<figure class="{kind}" id="{picture.name}-picture">{box}<figcaption>{prose(picture.caption)}</figcaption>'
        f"{_files('figures', picture.name, sorted(drawing.files))}</figure>"
    )


def _files(directory: str, name: str, suffixes: Sequence[str]) -> str:
    """Links to the files of a picture or a table."""
    links = [f'<a href="{directory}/{name}.{suffix}">{suffix.upper()}</a>' for suffix in suffixes]
    return f'<p class="files">{" ".join(links)}</p>'


def _errata(errata: Sequence[Erratum]) -> str:
    """The errors of the paper, each with its check."""
    parts = [
        f'<article id="{erratum.name}"><h3>{i}. {prose(erratum.place)}</h3><dl class="facts">'
        f"<dt>Printed</dt><dd>{prose(erratum.printed)}</dd><dt>Right</dt><dd>{prose(erratum.right)}</dd>"
        f"<dt>Checked</dt><dd>{_confirmation(erratum)}</dd></dl>{as_html(erratum.check)}</article>"
        for i, erratum in enumerate(errata, start=1)
    ]
    return (
        '<section id="errata"><h2>Errata of the paper</h2><p>Each with the numbers of the check that shows it.</p>'
        + "".join(parts)
        + "</section>"
    )


def _confirmation(erratum: Erratum) -> str:
    """What the check of an erratum says."""
    return (
        "the numbers below bear the correction out" if erratum.holds else "the numbers below contradict the correction"
    )


def _about(about: About) -> str:
    """Data, versions, machine, time and command."""
    versions = ", ".join(f"{html.escape(name)} {html.escape(version)}" for name, version in about.versions.items())
    return (
        f'<section id="about"><h2>About this run</h2>{as_html(about.data)}<dl class="facts">'
        f'<dt>Versions</dt><dd id="versions">{versions}</dd>'
        f'<dt>Machine</dt><dd id="machine">{html.escape(about.machine)}</dd>'
        f"<dt>Time</dt><dd><time>{duration(about.seconds)}</time>, finished"
        f" <time>{html.escape(about.finished)}</time></dd></dl>"
        f"<p>All of it again:</p><pre><code>{html.escape(about.command())}</code></pre></section>"
    )
