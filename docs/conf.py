"""Sphinx settings: `make docs`. Every warning is an error, and nothing is fetched."""

import os
import re
import runpy
from importlib import metadata
from pathlib import Path

from docutils import nodes

os.environ.setdefault("KERAS_BACKEND", "torch")  # the signatures are the same on all of them

project = "AggMo"
author = "The AggMo developers"
copyright = f"2026, {author}"
release = metadata.version("aggmo")

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
exclude_patterns = ["_build", "findings.md"]  # the latter is part of reproduction.md
html_theme = "furo"
html_title = f"AggMo {release}"
html_copy_source = False

autodoc_member_order = "bysource"
maximum_signature_line_length = 100
default_role = "code"  # `name` in a docstring

nitpicky = True
# Other projects' names have no page here, and their inventories are on the network.
nitpick_ignore_regex = [
    ("py:.*", r"(collections|jax|keras|matplotlib|np|numpy|optax|pathlib|rich|sqlite3|torch|typing)\..*"),
    ("py:exc", "DataError"),  # `aggmo.lab.data.description.DataError`, named where it is not imported
    ("py:class", r"aggmo\.torch\.sharpness\.Batch"),
    ("py:class", r"Store|aggmo\.lab\.(data|driver|engine)\..*"),  # what users are handed, but do not make
]


def prepare_docstring(_app, what, _name, _object, _options, lines):
    """Set off an indented equation as a literal block, where reStructuredText sees a quotation."""
    for i, line in enumerate(lines):
        if not line.startswith((" ", ">>>", "...")):
            lines[i] = re.sub(r"\|(?=\w)", r"\|", line)  # the modulus of something, no substitution
    for i in range(len(lines) - 1, 0, -1):
        starts = lines[i].startswith("    ") and not lines[i - 1].strip()
        above = next((line for line in reversed(lines[:i]) if line.strip()), "")
        if starts and above and not above.startswith(" "):
            lines[i:i] = ["::", ""]
    if what == "property":
        lines[:0] = ["..", ""]  # a comment, as napoleon takes what stands before a colon in the first line for a type


def end_examples(_app, doctree):
    """Take from an example the blank line that doctest needs before the fence, and that the page would show."""
    for block in doctree.findall(nodes.literal_block):
        if block.rawsource == block.astext():  # otherwise Sphinx would take it for one with markup in it
            block.rawsource = block.astext().rstrip("\n")
            block[:] = [nodes.Text(block.rawsource)]


def draw_figures(_app):
    """Draw the pictures of the pages, by running figures.py beside this file."""
    here = Path(__file__).parent
    runpy.run_path(str(here / "figures.py"))["draw"](here.parent / "build" / "figures")


def setup(app):
    """Docstrings before napoleon, whose priority is 500: the sections that it makes are indented too."""
    app.connect("builder-inited", draw_figures)
    app.connect("autodoc-process-docstring", prepare_docstring, priority=400)
    app.connect("doctree-read", end_examples)
