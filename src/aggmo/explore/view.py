"""What a view shows: charts, and the numbers to read off them."""

from collections.abc import Mapping, Sequence
from html import escape
from typing import NamedTuple


class Number(NamedTuple):
    """A number of a view: its label, its value, and words for it if digits are not what is to be read.

    >>> Number("limit", 3.0).value
    3.0
    """

    label: str
    value: float
    words: str = ""


class View(NamedTuple):
    """A view: its name, what to see in it, the key to its colours, its charts as SVG, and its numbers by name.

    >>> View("rates", "Rates", "", "", (), {"limit": Number("limit", 3.0)}).numbers["limit"].value
    3.0
    """

    name: str
    title: str
    text: str
    key: str
    charts: Sequence[str]
    numbers: Mapping[str, Number]

    def html(self) -> str:
        """The view as a section of the page; every number stands in `data-value` with all its digits.

        >>> 'data-value="3.0">3</dd>' in View("a", "A", "", "", (), {"limit": Number("limit", 3.0)}).html()
        True
        """
        items = "".join(
            f"<div><dt>{escape(label)}</dt>"
            f'<dd data-number="{name}" data-value="{value!r}">{escape(words or digits(value))}</dd></div>'
            for name, (label, value, words) in self.numbers.items()
        )
        charts = "".join(f"<figure>{chart}</figure>" for chart in self.charts)
        return (
            f'<section class="view" data-view="{self.name}" aria-labelledby="{self.name}-title">'
            f'<h2 id="{self.name}-title">{escape(self.title)}</h2><p>{escape(self.text)}</p>{self.key}'
            f'<div class="charts">{charts}</div><dl class="numbers">{items}</dl></section>'
        )


def digits(value: float) -> str:
    """A number in four significant digits.

    >>> digits(0.00012345), digits(-2), digits(1234567.0)
    ('1.234e-04', '−2', '1.235e+06')
    """
    size = abs(value)
    text = f"{value:.4g}" if size == 0.0 or 1e-3 <= size < 1e5 or size == float("inf") else f"{value:.3e}"
    return text.replace("-", "−", 1) if value < 0 else text
