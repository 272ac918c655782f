"""Pictures as files, and as part of a page that may be light or dark."""

import html
import io
import re
from dataclasses import dataclass

from matplotlib.figure import Figure

from aggmo.lab.paper import style
from aggmo.lab.paper.result import Picture

# Equal files from equal pictures: no dates, and no version of what has drawn them.
_METADATA: dict[str, dict[str, None]] = {
    "svg": {"Date": None, "Creator": None},
    "pdf": {"CreationDate": None, "Creator": None, "Producer": None},
    "png": {"Software": None},
}


@dataclass(frozen=True, slots=True)
class Drawing:
    """A picture that is drawn.

    Attributes:
        picture: what was drawn.
        width: in inches.
        files: the content of its files by their suffix: svg, pdf, png.
    """

    picture: Picture
    width: float
    files: dict[str, bytes]


def drawn(picture: Picture) -> Drawing:
    """Draw a picture, once for all formats.

    >>> drawing = drawn(Picture("p", "", "", lambda figure: figure.subplots().plot([0, 1])))
    >>> drawing.width, sorted(drawing.files)
    (7.2, ['pdf', 'png', 'svg'])
    """
    with style.style():
        figure = Figure()
        picture.draw(figure)
        style.write_powers(figure)
        figure.draw_without_rendering()
        figure.set_layout_engine("none")  # it is laid out now, and need not be again for each file
        files = {}
        for suffix, metadata in _METADATA.items():
            stream = io.BytesIO()
            figure.savefig(stream, format=suffix, metadata=metadata)
            files[suffix] = stream.getvalue()
    return Drawing(picture, float(figure.get_size_inches()[0]), files)


def inline(drawing: Drawing) -> str:
    """The SVG element for a page: its colours are the page's variables, its ids are of this picture alone.

    >>> drawing = drawn(Picture("p", "", "A line.", lambda figure: figure.subplots().plot([0, 1], color=style.INK[0])))
    >>> inline(drawing).startswith('<svg role="img" aria-label="A line." ')
    True
    >>> "stroke: var(--ink)" in inline(drawing)
    True
    """
    svg = drawing.files["svg"].decode()
    svg = svg[svg.index("<svg") :]
    svg = re.sub(r"<metadata>.*?</metadata>\s*", "", svg, flags=re.DOTALL)
    svg = re.sub(r'(<svg\b[^>]*?) width="[^"]*"', r"\1", svg, count=1)
    svg = re.sub(r'(<svg\b[^>]*?) height="[^"]*"', r"\1", svg, count=1)
    prefix = f"{drawing.picture.name}-"
    svg = re.sub(r'\bid="', f'id="{prefix}', svg)
    svg = re.sub(r'(href="#|url\(#)', rf"\g<1>{prefix}", svg)
    svg = re.sub(r"#[0-9a-f]{6}\b", lambda match: _VARIABLES.get(match[0], match[0]), svg)
    label = html.escape(drawing.picture.alternative)
    return svg.replace("<svg ", f'<svg role="img" aria-label="{label}" ', 1).strip()


def variables(dark: bool) -> str:
    """The tones of pictures and page as declarations in CSS.

    >>> variables(dark=True).partition(";")[0]
    '--paper: #15171a'
    """
    return "; ".join(f"--{name}: {tones[dark]}" for name, tones in _TONES.items())


_TONES = {
    "paper": style.PAPER,
    "ink": style.INK,
    "muted": style.MUTED,
    "faint": style.FAINT,
    **style.OPTIMIZERS,
    **{f"ordered-{i}": tones for i, tones in enumerate(style.ORDERED, start=1)},
}
_VARIABLES = {light: f"var(--{name})" for name, (light, _) in _TONES.items()}
