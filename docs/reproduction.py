"""Write reproduction.md, its pictures, tables and study databases from a finished run of `aggmo reproduce`.

    python docs/reproduction.py reproduction --scale small --data-dir data

The first argument is the run's --out. Every number of the page comes from its records; nothing is computed but theory.
The page includes findings.md, which is written by hand.
"""

import argparse
import shutil
import sqlite3
import textwrap
from pathlib import Path

from aggmo.lab.paper.errata import errata
from aggmo.lab.paper.experiment import Experiment
from aggmo.lab.paper.items import ITEMS, wanted
from aggmo.lab.paper.result import Table
from aggmo.lab.paper.settings import SETTINGS
from aggmo.lab.report import write
from aggmo.lab.report.about import here
from aggmo.lab.report.document import document

DOCS = Path(__file__).parent

INTRODUCTION = (
    "What came of every figure, table and claim of *Aggregated Momentum: Stability Through Passive Damping* in a run of"
    " `aggmo reproduce --scale {scale}`: {counts}. Pictures, tables and verdicts are written by `docs/reproduction.py`"
    " from the records of the run, the study beside them in `docs/reproduction`; each verdict is computed by the rule"
    " that stands with it.",
    "{standing}",
    "The theory is at full size. The trainings are not: at this scale networks, data and numbers of epochs are smaller"
    " than the paper's, so that everything fits on two cores; `aggmo reproduce --scale paper` has the paper's own"
    " settings. A part of a claim counts as one that cannot be told where the difference is within two standard errors,"
    " or where there are no numbers.",
)
FINDINGS = "```{include} findings.md\n```"  # written by hand: what to make of the numbers


def main(arguments: argparse.Namespace) -> None:
    """Write the page and what it shows."""
    study = arguments.out / "studies" / arguments.scale
    experiment = Experiment(study, arguments.scale, wanted(ITEMS), arguments.data_dir)
    evidence = experiment.evidence()
    results = [item.make(evidence) for item in ITEMS]
    data = Table("data", "The data of each task.", ("task", "data"), tuple(evidence.data.items()))
    seconds = sum(evidence.seconds.values())
    about = here(arguments.scale, f"--scale {arguments.scale} --data-dir data", data, seconds)
    place = DOCS / "reproduction"
    shutil.rmtree(place, ignore_errors=True)
    write(results, place, about, errata())
    for name in ("index.html", "report.md"):
        (place / name).unlink()
    for file in (place / "figures").iterdir():
        if file.suffix != ".svg":
            file.unlink()
    for file in (place / "tables").iterdir():
        if file.suffix != ".csv":
            file.unlink()
    copy = place / "studies" / arguments.scale
    copy.mkdir(parents=True)
    with sqlite3.connect(study / "study.sqlite") as connection:
        connection.execute("VACUUM INTO ?", (str(copy / "study.sqlite"),))
    with sqlite3.connect(copy / "study.sqlite") as connection:
        connection.execute("UPDATE attempts SET host = NULL")  # whose machine it was is nobody's business
    outcomes = [result.verdict.outcome for result in results]
    words = ("reproduced", "partly", "not at this scale", "not reproduced")
    counts = ", ".join(f"{outcomes.count(word)} {word}" for word in words)
    filled = {"scale": arguments.scale, "counts": counts, "standing": standing(experiment)}
    introduction = [textwrap.fill(each.format(**filled), 120, break_on_hyphens=False) for each in INTRODUCTION]
    text = document(results, about, errata(), figures="reproduction/figures")
    (DOCS / "reproduction.md").write_text("\n\n".join(["# Reproduction of the paper", *introduction, FINDINGS, text]))


def standing(experiment: Experiment) -> str:
    """How far the run is, in a sentence."""
    with sqlite3.connect(experiment.directory / "study.sqlite") as connection:
        count = dict(connection.execute("SELECT status, count(*) FROM trials GROUP BY status").fetchall())
    done, waiting = count.get("finished", 0), count.get("waiting", 0)
    open_tasks = [task for task in SETTINGS if "validation" not in experiment.groups[task]]
    if not waiting and not open_tasks:
        return f"All {done} trials of the run have finished."
    return (
        f"**The run is not complete**: {done} trials have finished, {waiting} of the grids wait, and what is chosen"
        f" from the grids is still to be repeated for {', '.join(open_tasks) or 'no task'}. What needs them is"
        ' "not at this scale" here, for lack of numbers.'
    )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("--scale", default="small")
    parser.add_argument("--data-dir", type=Path)
    main(parser.parse_args())
