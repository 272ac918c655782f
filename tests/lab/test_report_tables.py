import csv
import math
import re
from html.parser import HTMLParser

import pytest
from sample_results import WILD, results, scores

from aggmo.lab.paper.result import Table
from aggmo.lab.report.tables import as_csv, as_html, as_latex, as_markdown, latex, shown
from aggmo.lab.selection import Score

TABLES = [table for result in results() for table in result.tables]


@pytest.mark.parametrize(
    ("cell", "text"),
    [
        (None, "–"),
        ("CM", "CM"),
        (0, "0"),
        (1614, "1614"),
        (2_837_314, "2,837,314"),
        (-3, "−3"),
        (True, "yes"),
        (93.16, "93.16"),
        (0.0, "0"),
        (-0.0, "0"),
        (123456.0, "1.235 × 10⁵"),
        (3.8e-6, "3.8 × 10⁻⁶"),
        (float("nan"), "nan"),
        (float("-inf"), "−∞"),
        (Score({}, (2.45, 2.51, 2.57), 0), "2.510 ± 0.060 (n = 3)"),
        (Score({}, (250.0, 300.0), 0), "275 ± 35 (n = 2)"),
        (Score({}, (0.5, 0.5), 0), "0.5 ± 0 (n = 2)"),
        (Score({}, (1.25,), 0), "1.25 (n = 1)"),
        (Score({}, (1.0, 2.0), 3), "1.50 ± 0.71 (n = 5, 3 diverged)"),
        (Score({}, (), 2), "diverged (n = 2)"),
        (Score({}, (1e-9, 3e-9), 0), "2 × 10⁻⁹ ± 1.4 × 10⁻⁹ (n = 2)"),
        (Score({}, (-1.0, -3.0), 0), "−2.0 ± 1.4 (n = 2)"),
    ],
)
def test_cells(cell, text):
    assert shown(cell) == text


def test_csv_gives_back_every_number_unrounded():
    rows = list(csv.reader(as_csv(scores()).splitlines()))
    ours = [f"ours {part}" for part in ("mean", "sd", "n", "diverged")]
    assert rows[0] == ["optimizer", "paper", *ours, "n", "gap"]
    for row, (name, paper, score, n, gap) in zip(rows[1:], scores().rows, strict=True):
        assert (row[0], float(row[1]), int(row[4]), int(row[5])) == (name, paper, score.n, score.diverged)
        for text, value in zip(row[2:4], (score.mean, score.sd), strict=True):
            assert text == "" if math.isnan(value) else float(text) == value
        assert int(row[6]) == n
        assert row[7] == "" if gap is None else float(row[7]) == gap


def test_csv_keeps_text_as_it_is():
    wild = next(table for table in TABLES if table.name == "wild")
    assert list(csv.reader(as_csv(wild).splitlines()))[1][0] == WILD


class Cells(HTMLParser):
    """The texts of cells, row by row; it stops at tags that are not closed in order."""

    def __init__(self):
        super().__init__()
        self.open, self.rows = [], []

    def handle_starttag(self, tag, _attributes):
        self.open.append(tag)
        if tag == "tr":
            self.rows.append([])
        if tag in ("td", "th"):
            self.rows[-1].append("")

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if {"td", "th"} & set(self.open):
            self.rows[-1][-1] += data


@pytest.mark.parametrize("table", TABLES, ids=lambda table: table.name)
def test_html_shows_every_cell(table):
    reader = Cells()
    reader.feed(as_html(table))
    assert reader.open == []
    assert reader.rows == [
        list(table.columns),
        *([shown(cell) for cell in row] for row in table.rows),
    ]


@pytest.mark.parametrize("table", TABLES, ids=lambda table: table.name)
def test_markdown_has_as_many_cells_in_each_row_as_columns(table):
    lines = as_markdown(table).splitlines()
    assert len(lines) == 2 + len(table.rows)
    for line in lines:
        assert len(re.findall(r"(?<!\\)\|", line)) == len(table.columns) + 1


@pytest.mark.parametrize("table", TABLES, ids=lambda table: table.name)
def test_latex_is_balanced_and_escaped(table):
    text = as_latex(table)
    bare = re.sub(r"\\[\\#$%&_{}]", "", text)  # line ends and escaped characters
    assert bare.count("{") == bare.count("}")
    assert bare.count("$") % 2 == 0
    assert not re.search(r"[#%~^]", re.sub(r"\$[^$]*\$", "", bare))
    opened = re.findall(r"\\begin\{(\w+)\}", text)
    assert re.findall(r"\\end\{(\w+)\}", text) == opened[::-1] == ["tabular", "table"]
    for line in text.split("\\midrule\n")[1].split("    \\bottomrule")[0].splitlines():
        assert line.endswith(r" \\")
        assert len(re.findall(r"(?<!\\)&", line)) == len(table.columns) - 1
    assert text.isascii()


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("10⁻¹² λ²", r"10$^{-12}$ $\lambda^{2}$"),
        ("β₁ ≤ 0.9", r"$\beta_{1}$ $\leq$ 0.9"),
        ("$±", r"\$$\pm$"),
        ("50% of $5 & #1_a", r"50\% of \$5 \& \#1\_a"),
        ("`a_b` \\ ~", r"\texttt{a\_b} \textbackslash{} \textasciitilde{}"),
        ("2 ± 1", r"2 $\pm$ 1"),
    ],
)
def test_latex_of_text(text, expected):
    assert latex(text) == expected


def test_long_text_is_broken_into_lines_in_latex():
    table = Table("t", "", ("note", "n"), (("word " * 20, 1),))
    assert r"\begin{tabular}{p{0.45\linewidth}r}" in as_latex(table)
