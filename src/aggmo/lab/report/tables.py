"""Tables for every reader: HTML, Markdown, LaTeX, and CSV for programs.

What stands in a table, in captions and in notes is plain text, in which `code` may stand between backticks. A score is
shown as mean ± standard deviation with the number of trials; CSV has these in columns of their own, unrounded.
"""

import csv
import html
import io
import math
import re
from collections.abc import Callable

from aggmo.lab.paper.result import Cell, Table
from aggmo.lab.selection import Score

_NOTHING = "–"
_SUPERSCRIPTS = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")
_CODE = re.compile(r"`([^`]+)`")
_MATH = r"""
    < <  > >  | |  − -  ± \pm  × \times  · \cdot  ∞ \infty  √ \surd  ∑ \sum  ∇ \nabla  ∈ \in  ‖ \|  ∥ \|  ∝ \propto
    ≤ \leq  ≥ \geq  ≈ \approx  ≠ \neq  ≡ \equiv  → \to  α \alpha  β \beta  γ \gamma  δ \delta  ε \varepsilon
    θ \theta  κ \kappa  λ \lambda  μ \mu  π \pi  ρ \rho  σ \sigma  φ \varphi  Δ \Delta  Λ \Lambda  Π \Pi  Σ \Sigma
    ζ \zeta  η \eta  ξ \xi  τ \tau  χ \chi  ψ \psi  ω \omega  Γ \Gamma  Θ \Theta  Φ \Phi  Ψ \Psi  Ω \Omega
"""
_TEX = {
    **{character: f"\\{character}" for character in "#$%&_{}"},
    **{character: f"${symbol}$" for character, symbol in zip(_MATH.split()[::2], _MATH.split()[1::2], strict=True)},
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "–": "--",
    "’": "'",
    "…": r"\dots{}",
}
_RAISED = str.maketrans("⁻⁰¹²³⁴⁵⁶⁷⁸⁹ᵀᵗ", "-0123456789Tt")
_LOWERED = str.maketrans("₀₁₂₃₄₅₆₇₈₉ₜᵢ", "0123456789ti")
_PIECES = re.compile("[⁻⁰¹²³⁴⁵⁶⁷⁸⁹ᵀᵗ]+|[₀₁₂₃₄₅₆₇₈₉ₜᵢ]+|.", re.DOTALL)
_SHORT = 20  # letters in a cell of a page, up to which it is one line
_LONG = 40  # letters in a column of a LaTeX table, from which on its lines are broken


def shown(cell: Cell) -> str:
    """What a reader sees of a cell, in plain text.

    >>> shown(Score({}, (1.36, 1.4, 1.41), 0)), shown(Score({}, (2.0,), 2)), shown(Score({}, (), 3))
    ('1.390 ± 0.026 (n = 3)', '2 (n = 3, 2 diverged)', 'diverged (n = 3)')
    >>> shown(-0.00012345), shown(2837314), shown(1e-12), shown(float("inf")), shown(None)
    ('−0.0001234', '2,837,314', '1 × 10⁻¹²', '∞', '–')
    """
    if isinstance(cell, Score):
        return _score(cell)
    if cell is None:
        return _NOTHING
    if isinstance(cell, bool):
        return "yes" if cell else "no"
    if isinstance(cell, int):
        return _signed(f"{cell:,}" if abs(cell) >= 10_000 else str(cell))
    return _number(cell) if isinstance(cell, float) else cell


def as_html(table: Table) -> str:
    r"""A figure element with the caption above the table, in a box that can be moved sideways where it is too wide.

    >>> print(as_html(Table("t", "A & B", ("x",), ((1,),))).replace("><", ">\n<"))
    <figure class="table">
    <figcaption>A &amp; B</figcaption>
    <div class="scroll" tabindex="0" role="region" aria-label="A &amp; B">
    <table>
    <thead>
    <tr>
    <th class="number" scope="col">x</th>
    </tr>
    </thead>
    <tbody>
    <tr>
    <td class="number">1</td>
    </tr>
    </tbody>
    </table>
    </div>
    </figure>
    """
    numeric = _numeric(table)
    heads = "".join(_html_cell(head, number, "col") for head, number in zip(table.columns, numeric, strict=True))
    rows = []
    for row in table.rows:
        scopes = ["" if numeric[0] else "row"] + [""] * len(row)  # text in the first column is the head of the row
        rows.append("".join(map(_html_cell, row, numeric, scopes)))
    caption = prose(table.caption)
    return (
        f'<figure class="table"><figcaption>{caption}</figcaption>'
        f'<div class="scroll" tabindex="0" role="region" aria-label="{html.escape(_plain(table.caption))}">'
        f"<table><thead><tr>{heads}</tr></thead>"
        f"<tbody>{''.join(f'<tr>{row}</tr>' for row in rows)}</tbody></table></div></figure>"
    )


def as_markdown(table: Table) -> str:
    r"""A pipe table without its caption.

    >>> print(as_markdown(Table("t", "", ("a|b", "x"), (("<eos>", 0.5),))), end="")
    | a\|b | x |
    | --- | ---: |
    | \<eos> | 0.5 |
    """
    kinds = ["---:" if numeric else "---" for numeric in _numeric(table)]
    rows = [[markdown(head) for head in table.columns], kinds]
    rows += [[markdown(shown(cell)) for cell in row] for row in table.rows]
    return "".join(f"| {' | '.join(row)} |\n" for row in rows)


def as_latex(table: Table) -> str:
    r"""A table environment for the package booktabs.

    >>> print(as_latex(Table("table-1", "5% of β", ("x",), ((0.5,),))), end="")
    \begin{table}
      \centering
      \caption{5\% of $\beta$}
      \label{tab:table-1}
      \begin{tabular}{r}
        \toprule
        x \\
        \midrule
        0.5 \\
        \bottomrule
      \end{tabular}
    \end{table}
    """
    columns = "".join(_latex_column(table, i, numeric) for i, numeric in enumerate(_numeric(table)))
    rows = ["    " + " & ".join(latex(shown(cell)) for cell in row) + r" \\" for row in table.rows]
    lines = [
        r"\begin{table}",
        r"  \centering",
        rf"  \caption{{{latex(table.caption)}}}",
        rf"  \label{{tab:{table.name}}}",
        rf"  \begin{{tabular}}{{{columns}}}",
        r"    \toprule",
        "    " + " & ".join(map(latex, table.columns)) + r" \\",
        r"    \midrule",
        *rows,
        r"    \bottomrule",
        r"  \end{tabular}",
        r"\end{table}",
    ]
    return "\n".join(lines) + "\n"


def as_csv(table: Table) -> str:
    """Comma-separated values; a column with scores becomes four.

    >>> print(as_csv(Table("t", "", ("setting", "loss"), (("lr 0.1", Score({}, (1.0, 3.0), 1)),))), end="")
    setting,loss mean,loss sd,loss n,loss diverged
    lr 0.1,2.0,1.4142135623730951,3,1
    """
    split = [any(isinstance(row[i], Score) for row in table.rows) for i in range(len(table.columns))]
    stream = io.StringIO()
    writer = csv.writer(stream, lineterminator="\n")
    heads = [_split(head) if several else [head] for head, several in zip(table.columns, split, strict=True)]
    writer.writerow([name for group in heads for name in group])
    for row in table.rows:
        groups = [_values(cell) if several else [cell] for cell, several in zip(row, split, strict=True)]
        writer.writerow([value for group in groups for value in group])
    return stream.getvalue()


def prose(text: str) -> str:
    """Plain text as HTML.

    >>> prose("`--lr` < 1")
    '<code>--lr</code> &lt; 1'
    """
    return _CODE.sub(r"<code>\1</code>", html.escape(text))


def markdown(text: str) -> str:
    r"""Plain text as Markdown, in one line.

    >>> markdown("a * b, `c * d`")
    'a \\* b, `c * d`'
    """
    return _apart(" ".join(text.split()), lambda part: re.sub(r"([\\*_\[\]<|~])", r"\\\1", part), _markdown_code)


def latex(text: str) -> str:
    r"""Plain text as LaTeX.

    >>> latex("β ≤ 0.9, `a_b`")
    '$\\beta$ $\\leq$ 0.9, \\texttt{a\\_b}'
    """

    def escaped(part: str) -> str:
        pieces = "".join(_latex_piece(piece) for piece in _PIECES.findall(part))
        return re.sub(r"(?<!\\)\$\$", "", pieces)  # β₁ is one formula

    return _apart(text, escaped, lambda part: rf"\texttt{{{escaped(part)}}}")


def _latex_piece(piece: str) -> str:
    """A character, or a run of superscripts or subscripts."""
    if ord(piece[0]) in _RAISED:
        return f"$^{{{piece.translate(_RAISED)}}}$"
    if ord(piece[0]) in _LOWERED:
        return f"$_{{{piece.translate(_LOWERED)}}}$"
    return _TEX.get(piece, piece)


def _markdown_code(part: str) -> str:
    """Code in Markdown; a pipe would end the cell of a table even there."""
    return "`" + part.replace("|", r"\|") + "`"


def _apart(text: str, plain: Callable[[str], str], code: Callable[[str], str]) -> str:
    """The text with one function applied to what is code and one to the rest."""
    parts = _CODE.split(text)
    return "".join(code(part) if i % 2 else plain(part) for i, part in enumerate(parts))


def _plain(text: str) -> str:
    """Without the backticks of code."""
    return _CODE.sub(r"\1", text)


def _html_cell(cell: Cell, number: bool, scope: str) -> str:
    """A cell, or the head of a row or a column; short text stays in one line, as numbers do."""
    text = shown(cell)
    kind = ' class="number"' if number else ' class="short"' if len(text) <= _SHORT else ""
    written = prose(text)
    if isinstance(cell, Score):
        written = written.replace(" (", " <small>(").replace(")", ")</small>")
    return f'<th{kind} scope="{scope}">{written}</th>' if scope else f"<td{kind}>{written}</td>"


def _latex_column(table: Table, column: int, numeric: bool) -> str:
    """How a column is set: numbers right, text left, long text in lines of a part of the page."""
    if numeric:
        return "r"
    texts = [shown(row[column]) for row in table.rows]
    share = 0.9 / len(table.columns)
    return rf"p{{{share:.2f}\linewidth}}" if max(map(len, texts), default=0) > _LONG else "l"


def _numeric(table: Table) -> list[bool]:
    """For each column, whether its cells are numbers."""
    columns = [[row[i] for row in table.rows if row[i] is not None] for i in range(len(table.columns))]
    return [bool(cells) and not any(isinstance(cell, str | bool) for cell in cells) for cells in columns]


def _split(head: str) -> list[str]:
    """The heads of the columns that a column of scores becomes."""
    return [f"{head} {part}" for part in ("mean", "sd", "n", "diverged")]


def _values(cell: Cell) -> list[object]:
    """A cell of a column of scores, in its four columns."""
    if not isinstance(cell, Score):
        return [cell, None, None, None]
    numbers = [None if math.isnan(value) else value for value in (cell.mean, cell.sd)]
    return [*numbers, cell.n, cell.diverged]


def _score(score: Score) -> str:
    """The mean to as many places as the standard deviation has with two digits."""
    trials = f"(n = {score.n}, {score.diverged} diverged)" if score.diverged else f"(n = {score.n})"
    if not score.values:
        return f"diverged (n = {score.n})"
    mean, sd = score.mean, score.sd
    if not math.isfinite(sd) or sd == 0.0:
        spread = " ± 0" if sd == 0.0 else ""
        return f"{_number(mean)}{spread} {trials}"
    places = max(0, 1 - math.floor(math.log10(sd)))
    if places > 6 or abs(mean) >= 1e6:
        return f"{_number(mean)} ± {_number(sd, 2)} {trials}"
    return f"{_signed(f'{mean:.{places}f}')} ± {sd:.{places}f} {trials}"


def _number(value: float, digits: int = 4) -> str:
    """A number with so many digits, with a power of ten where it is very small or large."""
    if not math.isfinite(value):
        return _signed(str(value)).replace("inf", "∞")
    mantissa, _, exponent = f"{value + 0.0:.{digits}g}".partition("e")
    power = f" × 10{str(int(exponent)).translate(_SUPERSCRIPTS)}" if exponent else ""
    return _signed(mantissa) + power


def _signed(number: str) -> str:
    """With a minus sign in place of the hyphen."""
    return number.replace("-", "−")
