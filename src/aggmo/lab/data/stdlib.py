"""Text without a network: the source of Python's own standard library, in place of the Penn Treebank.

Modules in alphabetical order; of every ten, the ninth is for validation, the tenth for testing, the rest for training.
A word is a name, a number, which is written N as in the Penn Treebank, or one other character; lines without any are
left out.

The text changes with the version of Python and so do all results; the description has the version and a hash.
"""

import importlib.util
import platform
import re
from importlib.abc import InspectLoader

from aggmo.lab.data.description import DataError, Description, digest
from aggmo.lab.data.text import END, Text

# In every version from 3.11 on, written in Python, and not frozen into the interpreter.
MODULES = (
    *("argparse", "ast", "base64", "bdb", "bisect", "calendar", "cmd", "code", "collections", "compileall"),
    *("configparser", "contextlib", "copy", "csv", "dataclasses", "difflib", "dis", "doctest", "enum", "filecmp"),
    *("fileinput", "fractions", "ftplib", "functools", "getopt", "gettext", "gzip", "hashlib", "heapq", "hmac"),
    *("imaplib", "inspect", "ipaddress", "locale", "logging", "mailbox", "mimetypes", "modulefinder", "netrc"),
    *("numbers", "optparse", "pdb", "pickle", "pickletools", "pkgutil", "platform", "plistlib", "poplib", "pprint"),
    *("profile", "pstats", "pyclbr", "pydoc", "queue", "random", "reprlib", "sched", "selectors", "shelve", "shlex"),
    *("shutil", "smtplib", "socket", "socketserver", "ssl", "statistics", "string", "stringprep", "subprocess"),
    *("symtable", "sysconfig", "tarfile", "tempfile", "textwrap", "threading", "timeit", "tokenize", "trace"),
    *("traceback", "tracemalloc", "types", "typing", "uuid", "warnings", "wave", "weakref", "webbrowser", "zipfile"),
)
SIZES = {"train": 929_589, "validation": 73_760, "test": 82_430}

WORD = re.compile(r"[^\W\d]\w*|\d[\w.]*|\S")


def as_ptb() -> Text:
    """The source of the standard library as a text.

    Raises:
        DataError: this Python comes without the source of its standard library.

    >>> text = as_ptb()
    >>> text.train[:4]  # of the first module, argparse
    ['#', 'Author', ':', 'Steven']
    """
    sources = [source for source in map(_source, MODULES) if source]
    if len(sources) < len(MODULES) // 2:
        raise DataError(
            f"{importlib.util.__file__}: this Python comes without the source of its standard library;"
            " give --data-dir with the Penn Treebank, or take another Python"
        )
    parts: tuple[list[str], list[str], list[str]] = ([], [], [])
    for i, source in enumerate(sources):
        parts[{8: 1, 9: 2}.get(i % 10, 0)].extend(words(source))
    sizes = {name: len(part) for name, part in zip(SIZES, parts, strict=True)}
    name = f"source of Python {platform.python_version()} in place of the Penn Treebank"
    return Text(*parts, Description(name, "embedded", sizes, SIZES, digest(*sources)))


def words(source: str) -> list[str]:
    r"""The words of a source text, with `<eos>` at the end of each line that has any.

    >>> words("x1 = 0x10 + 2.5\n\nf(x1)")
    ['x1', '=', 'N', '+', 'N', '<eos>', 'f', '(', 'x1', ')', '<eos>']
    """
    lines = (WORD.findall(line) for line in source.split("\n"))
    return [word for line in lines if line for word in (*("N" if w[0].isdecimal() else w for w in line), END)]


def _source(module: str) -> str | None:
    """The source of a module, which is not run; None if it has none here."""
    spec = importlib.util.find_spec(module)
    if spec is None or not isinstance(spec.loader, InspectLoader):
        return None
    try:
        return spec.loader.get_source(module)
    except (OSError, ImportError):  # only the compiled module is there
        return None
