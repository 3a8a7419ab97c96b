"""One self-contained HTML page per fit: no script, nothing fetched, for any screen, light or dark, and for print."""

import html
import re
from collections.abc import Callable, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any, NamedTuple

import pandas as pd

from natvi.run.storage.files import write_text
from natvi.show.style import STYLE
from natvi.show.svg import to_svg

LONGEST_BESIDE = 34  # characters of a name that has its numbers beside it; longer ones have them below


class Section(NamedTuple):
    """A part of the page.

    Attributes:
        title: Its heading.
        parts: Pieces of HTML, made by the functions below.
        folded: Whether it is closed until somebody opens it.
        half: Whether it stands beside the next one that says so, where there is room.
    """

    title: str
    parts: Sequence[str]
    folded: bool = False
    half: bool = False


class Picture(NamedTuple):
    """A figure with words: for those who cannot see it, and below it."""

    axes: Any
    alt: str
    caption: str = ""


def write_page(path: Path, title: str, lead: Sequence[str], sections: Sequence[Section]) -> Path:
    """Write the page and return its path.

    Args:
        path: Of the file.
        title: The first heading.
        lead: Pieces of HTML below it: what everybody should read.
        sections: What follows.
    """
    body = "".join(
        halves(*map(_section, group)) if beside else "".join(map(_section, group))
        for beside, group in groupby(sections, lambda section: section.half)
    )
    head = (
        "<meta charset='utf-8'><meta name='viewport' content='width=device-width, initial-scale=1'>"
        f"<title>{escape(title)}</title><style>{STYLE}</style>"
    )
    page = (
        f"<!doctype html><html lang='en'><head>{head}</head><body><main><h1>{escape(title)}</h1>"
        f"<div class='halves verdicts'>{''.join(lead)}</div>{body}"
        "<footer>made by natvi</footer></main></body></html>"
    )
    return write_text(path, page)


def _section(section: Section) -> str:
    inside = "".join(section.parts)
    if section.folded:
        return f"<details><summary><h2>{escape(section.title)}</h2></summary>{inside}</details>"
    return f"<section><h2>{escape(section.title)}</h2>{inside}</section>"


def halves(*parts: str) -> str:
    """Return pieces side by side where there is room, and below each other elsewhere."""
    return f"<div class='halves'>{''.join(f'<div>{part}</div>' for part in parts)}</div>"


def escape(text: object) -> str:
    """Return a text as it stands in HTML."""
    return html.escape(str(text), quote=True)


def paragraph(text: str, quiet: bool = False) -> str:
    """Return a paragraph of plain text."""
    return f"<p class='quiet'>{escape(text)}</p>" if quiet else f"<p>{escape(text)}</p>"


def heading(text: str) -> str:
    """Return a heading within a section."""
    return f"<h3>{escape(text)}</h3>"


def listed(items: Sequence[str]) -> str:
    """Return a list of plain texts."""
    return f"<ul>{''.join(f'<li>{escape(item)}</li>' for item in items)}</ul>"


def code(text: str) -> str:
    """Return lines of code."""
    return f"<pre><code>{escape(text)}</code></pre>"


def mathematics(lines: Sequence[str]) -> str:
    """Return equations; they are HTML already."""
    return f"<div class='mathematics'>{''.join(f'<p>{line}</p>' for line in lines)}</div>"


def verdict(tone: str, subject: str, level: str, sentence: str, reasons: Sequence[str]) -> str:
    """Return a coloured box: what is judged, the verdict, what it means, and why."""
    return (
        f"<div class='verdict {tone}'><p>{escape(subject)}: <b>{escape(level)}</b>. {escape(sentence)}</p>"
        f"{listed(reasons) if reasons else ''}</div>"
    )


def table(frame: pd.DataFrame, show: Callable[[Any], str] = str, caption: str = "") -> str:
    """Return a table whose lines fold on a small screen: the name first, several numbers below it."""
    columns = "".join(f"<th scope='col' role='columnheader'>{escape(name)}</th>" for name in frame.columns)
    head = f"<tr role='row'><th scope='col' role='columnheader'>name</th>{columns}</tr>"
    lines = "".join(
        f"<tr role='row'><th scope='row' role='rowheader'>{_breakable(name)}</th>"
        + "".join(f"<td role='cell'>{escape(show(value))}</td>" for value in line)
        + "</tr>"
        for name, line in zip(frame.index, frame.itertuples(index=False, name=None), strict=True)
    )
    label = f" aria-label='{escape(caption)}'" if caption else ""
    shape = "wide" if len(frame.columns) > 1 else "pairs"  # a single number has room beside its name
    if len(frame.columns) > 1 and max((len(str(name)) for name in frame.index), default=0) > LONGEST_BESIDE:
        shape += " folded"
    opening = f"<table class='{shape}' role='table'{label} style='--columns:{len(frame.columns)}'>"
    return f"{opening}<thead role='rowgroup'>{head}</thead><tbody role='rowgroup'>{lines}</tbody></table>"


def _breakable(name: object) -> str:
    """Return a name that may be cut after its commas and bars, where a line is too short for it."""
    return re.sub(r"([,|])", r"\1<wbr>", escape(name))


def pictures(shown: Sequence[Picture], prefix: str) -> str:
    """Return figures side by side where there is room."""
    found = []
    for at, (axes, alt, caption) in enumerate(shown):
        below = f"<figcaption>{escape(caption)}</figcaption>" if caption else ""
        found.append(f"<figure>{to_svg(axes, alt, f'{prefix}{at}-')}{below}</figure>")
    return f"<div class='pictures'>{''.join(found)}</div>" if found else ""
