"""What an item of the paper comes to: pictures, tables and a verdict, with no say in how they are shown."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, NamedTuple

from matplotlib.figure import Figure

from aggmo.lab.selection import Score

Outcome = Literal["reproduced", "partly", "not at this scale", "not reproduced"]
Cell = str | float | int | None | Score  # a score is shown as mean ± sd over n seeds


@dataclass(frozen=True, slots=True)
class Picture:
    """A figure that is not drawn yet.

    Attributes:
        name: of its files, as "figure-1a".
        caption: what it shows, a sentence or two.
        alternative: what a reader who cannot see it is told.
        draw: draws it on an empty figure, under the report's style.
    """

    name: str
    caption: str
    alternative: str
    draw: Callable[[Figure], None]


@dataclass(frozen=True, slots=True)
class Table:
    """A table, its cells not formatted yet.

    Attributes:
        name: of its files, as "table-1".
        caption: what it shows.
        columns: the heads.
        rows: as many cells each as there are columns.
    """

    name: str
    caption: str
    columns: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]


class Check(NamedTuple):
    """One part of a claim.

    Attributes:
        claim: in words.
        holds: None if it cannot be told.
        numbers: those that decided.

    >>> Check("K = 4 is stable", True, "loss 0.12").holds
    True
    """

    claim: str
    holds: bool | None
    numbers: str = ""


@dataclass(frozen=True, slots=True)
class Verdict:
    """What came of a claim, by a rule.

    Attributes:
        outcome: the rule's answer.
        rule: the rule, in a sentence or two, as it is computed.
        reason: what decided, in a sentence.
        checks: that the rule is about; they are shown below it, each with its answer and its numbers.
    """

    outcome: Outcome
    rule: str
    reason: str
    checks: tuple[Check, ...] = ()


@dataclass(frozen=True, slots=True)
class Result:
    """All that an item comes to.

    Attributes:
        name: of the item, as "figure-1".
        title: its head on the page.
        claim: what the paper says.
        pictures, tables: what is shown.
        verdict: what came of the claim.
        settings: of the runs behind it, as a table; None for theory.
        notes: paragraphs on what to know besides: selection bias, warnings, departures from the paper.
        seconds: of computing behind it, all trials added up.
    """

    name: str
    title: str
    claim: str
    pictures: tuple[Picture, ...]
    tables: tuple[Table, ...]
    verdict: Verdict
    settings: Table | None = None
    notes: tuple[str, ...] = ()
    seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class Erratum:
    """An error in the paper, and the check that shows it.

    Attributes:
        name: as "erratum-1".
        place: where in the paper, as "Appendix C, the difference equation".
        printed: what stands there.
        right: what should.
        check: the numbers of the check, printed beside right.
        holds: whether they bear the correction out.
    """

    name: str
    place: str
    printed: str
    right: str
    check: Table
    holds: bool
