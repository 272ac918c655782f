import io
import re
from dataclasses import replace

import matplotlib as mpl
import pytest
from matplotlib.image import imread
from sample_results import WILD, about, errata, oscillation, result, results, scores

from aggmo.lab.paper.result import Picture
from aggmo.lab.report import write
from aggmo.lab.report.about import here
from aggmo.lab.report.document import document
from aggmo.lab.report.tables import as_markdown


@pytest.fixture(scope="module")
def report(tmp_path_factory):
    return write(results(), tmp_path_factory.mktemp("report"), about(), errata()).parent


def contents(directory):
    """Every file by its name."""
    return {str(path.relative_to(directory)): path.read_bytes() for path in directory.rglob("*") if path.is_file()}


def test_the_files(report):
    figures = {f"figures/{name}.{suffix}" for name in ("figure-1a", "figure-1b", "figure-4") for suffix in FORMATS}
    tables = {f"tables/{name}.{suffix}" for name in ("table-1", "wide", "wild") for suffix in ("csv", "md", "tex")}
    assert contents(report).keys() == {"index.html", "report.md"} | figures | tables
    for name in figures:
        assert (report / name).read_bytes().startswith(FORMATS[name[-3:]])


FORMATS = {"svg": b"<?xml", "pdf": b"%PDF-", "png": b"\x89PNG"}


def test_equal_results_make_equal_files(report, tmp_path):
    mpl.rcParams["font.size"] = 30.0  # another user's settings
    mpl.rcParams["svg.hashsalt"] = None
    again = write(results(), tmp_path, about(), errata()).parent
    mpl.rcdefaults()
    assert contents(again) == contents(report)


def test_pages_of_other_runs_differ_in_times_only(tmp_path):
    later = [replace(one, seconds=one.seconds * 2) for one in results()[1:]]
    run = replace(about(), seconds=9.0, finished="2030-12-31 23:59 UTC")
    first = write(results()[1:], tmp_path, about(), errata()).read_text(encoding="utf-8")
    page = write(later, tmp_path, run, errata()).read_text(encoding="utf-8")
    assert page != first
    assert untimed(page) == untimed(first)


def untimed(page):
    """Without what stands in its elements for times."""
    return re.sub(r"<time>.*?</time>", "", page)


def test_pictures_are_as_large_as_they_say(report):
    assert imread(report / "figures" / "figure-1a.png").shape == (540, 700, 4)  # 3.5 × 2.7 inches at 200 dpi
    assert imread(report / "figures" / "figure-4.png").shape == (760, 1440, 4)


def test_a_picture_that_fails_leaves_the_old_report(tmp_path):
    def fail(_figure):
        raise RuntimeError("no records")

    write(results()[1:2], tmp_path, about())
    before = contents(tmp_path)
    broken = result("figure-9", "partly", pictures=(Picture("figure-9", "", "", fail),))
    with pytest.raises(RuntimeError, match="no records"):
        write([*results()[1:2], broken], tmp_path, about())
    assert contents(tmp_path) == before


def test_a_full_disk_leaves_no_part_of_a_file(tmp_path, monkeypatch):
    write(results()[1:2], tmp_path, about())
    before = contents(tmp_path)

    class FullDisk(io.BytesIO):
        def write(self, _):
            raise OSError(28, "No space left on device")

    monkeypatch.setattr("aggmo.lab.report.os.fdopen", lambda descriptor, _: closing(descriptor, FullDisk()))
    with pytest.raises(OSError, match="No space left"):
        write(results()[3:], tmp_path, about())
    assert contents(tmp_path) == before


def closing(descriptor, stream):
    """The stream in place of a file that is open."""
    io.FileIO(descriptor, "w").close()
    return stream


def test_the_page_is_written_last(tmp_path, monkeypatch):
    written = []

    def note(path, content, put=write.__globals__["_replace"]):
        put(path, content)
        written.append(path.name)

    monkeypatch.setattr("aggmo.lab.report._replace", note)
    write(results()[1:3], tmp_path, about())
    assert written[-1] == "index.html"
    assert len(written) == 3 + 2 * 3 + 2  # a picture, two tables


def test_names_of_files_are_used_once(tmp_path):
    twice = [result("one", "partly", tables=(scores(),)), result("two", "partly", tables=(scores(),))]
    with pytest.raises(ValueError, match="name='table-1': must be the name of one figure or table only"):
        write(twice, tmp_path, about())
    picture = Picture("figure-1", "", "", oscillation)
    with pytest.raises(ValueError, match="name='figure-1'"):
        write([result("one", "partly", pictures=(picture, picture))], tmp_path, about())
    assert list(tmp_path.iterdir()) == []


def test_the_document_has_everything_that_the_page_has():
    text = document(results(), about(), errata(), figures="reproduction/figures")
    blocks = text.split("\n\n")
    assert [block for block in blocks if block.startswith("#")][:3] == [
        "## Overview",
        "## Figure 1: quadratics",
        "## The table-1",
    ]
    for one in results():
        assert f"**{one.verdict.outcome.capitalize()}**: {one.verdict.reason}" in blocks
        assert f"Rule: {one.verdict.rule}" in blocks
        assert f"Again: `aggmo reproduce {one.name} --scale quick`." in text
        assert "| K = 4 is stable | yes | loss 0.12 |" in text
        assert "| so | cannot be told |  |" in text
        for table in one.tables:
            assert as_markdown(table).strip() in blocks
        for picture in one.pictures:
            assert f"](reproduction/figures/{picture.name}.svg)" in text
    assert "**The check contradicts the correction.**" in blocks
    assert blocks[-1] == "All of it again: `aggmo reproduce --scale quick`.\n"
    assert WILD not in text  # for it is escaped
    assert "\\<script>" in text
    assert text.count("\n\n\n") == 0


def test_a_run_here_tells_what_it_ran_with():
    run = here("small", "--scale small --data-dir data", scores(), 2.0)
    assert run.command() == "aggmo reproduce --scale small --data-dir data"
    assert run.versions["matplotlib"] == mpl.__version__
    assert re.fullmatch(r"\w+ \w+, \d+ cores, \d+ GiB of memory", run.machine)
    assert re.fullmatch(r"\d{4}-\d\d-\d\d \d\d:\d\d UTC", run.finished)
