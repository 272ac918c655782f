"""The report: results → figures, tables, one HTML page and one Markdown document."""

import os
import tempfile
from collections.abc import Sequence
from pathlib import Path

from aggmo.lab.paper.result import Erratum, Picture, Result, Table
from aggmo.lab.report.about import About
from aggmo.lab.report.document import document
from aggmo.lab.report.page import page
from aggmo.lab.report.pictures import Drawing, drawn
from aggmo.lab.report.tables import as_csv, as_latex, as_markdown


def write(results: Sequence[Result], out: Path, about: About, errata: Sequence[Erratum] = ()) -> Path:
    """Write index.html, report.md, and the files of all figures and tables in folders beside them.

    Every file is replaced as a whole, the page last: at no moment does it lack a file that it links to.

    Args:
        results: of the items, in their order.
        out: the directory, which is made if need be.
        about: the run behind them.
        errata: of the paper.

    Returns:
        The page.

    Raises:
        ValueError: two pictures or two tables have one name.
        OSError: a file cannot be written; what was there before stays.

    >>> from aggmo.lab.report.about import here
    >>> about = here("quick", "--scale quick", Table("data", "", ("data",), (("none",),)), 1.0)
    >>> with tempfile.TemporaryDirectory() as directory:
    ...     write([], Path(directory), about).name
    'index.html'
    """
    pictures = [picture for result in results for picture in result.pictures]
    tables = [table for result in results for table in result.tables]
    _all_different([picture.name for picture in pictures])
    _all_different([table.name for table in tables])
    drawings = {picture.name: drawn(picture) for picture in pictures}
    for drawing in drawings.values():
        _write_drawing(drawing, out / "figures")
    for table in tables:
        write_table(table, out / "tables")
    _replace(out / "report.md", document(results, about, errata).encode())
    _replace(out / "index.html", page(results, drawings, about, errata).encode())
    return out / "index.html"


def write_table(table: Table, directory: Path) -> None:
    """Write a table as CSV, Markdown and LaTeX.

    Raises:
        OSError: a file cannot be written; what was there before stays.

    >>> with tempfile.TemporaryDirectory() as directory:
    ...     write_table(Table("t", "", ("x",), ((1,),)), Path(directory))
    ...     sorted(file.name for file in Path(directory).iterdir())
    ['t.csv', 't.md', 't.tex']
    """
    for suffix, render in {"csv": as_csv, "md": as_markdown, "tex": as_latex}.items():
        _replace(directory / f"{table.name}.{suffix}", render(table).encode())


def write_picture(picture: Picture, directory: Path) -> None:
    """Write a picture as SVG, PDF and PNG.

    Raises:
        OSError: a file cannot be written; what was there before stays.

    >>> with tempfile.TemporaryDirectory() as directory:
    ...     write_picture(Picture("p", "", "", lambda figure: figure.subplots()), Path(directory))
    ...     sorted(file.name for file in Path(directory).iterdir())
    ['p.pdf', 'p.png', 'p.svg']
    """
    _write_drawing(drawn(picture), directory)


def _write_drawing(drawing: Drawing, directory: Path) -> None:
    """All files of a picture."""
    for suffix, content in drawing.files.items():
        _replace(directory / f"{drawing.picture.name}.{suffix}", content)


def _all_different(names: list[str]) -> None:
    """Refuse two things whose files would be the same."""
    for name in names:
        if names.count(name) > 1:
            raise ValueError(f"name={name!r}: must be the name of one figure or table only")


def _replace(path: Path, content: bytes) -> None:
    """Put a file in the place of another, or of none, in one moment."""
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor, name = tempfile.mkstemp(dir=path.parent, prefix=".unfinished-")
    try:
        with os.fdopen(descriptor, "wb") as stream:
            stream.write(content)
        Path(name).chmod(0o644)
        Path(name).replace(path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise
