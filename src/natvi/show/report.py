"""One self-contained HTML page per fit: no script, nothing fetched, for any screen, light or dark, and for print."""

import html
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pandas as pd

from natvi.run.storage.files import write_text
from natvi.show.svg import to_svg

STYLE = """
:root { color-scheme: light dark; --text: #1d2733; --quiet: #56616e; --line: #8a96a3; --rule: #e3e8ee; --paper: #ffffff;
  --panel: #f5f7fa; --ink: #1f4e79; --shade: #9db8d2; --good: #1e6b3f; --doubt: #8a5200; --bad: #a3201a; }
@media (prefers-color-scheme: dark) { :root { --text: #e6eaef; --quiet: #a9b4c0; --line: #76828f; --rule: #2e3742;
  --paper: #14191f; --panel: #1c232b; --ink: #8ec1ee; --shade: #3f658a; --good: #6fcf97; --doubt: #f0b35c;
  --bad: #ff8a80; } }
* { box-sizing: border-box; }
body { font: 16px/1.55 system-ui, sans-serif; color: var(--text); background: var(--paper); margin: 0; }
main { max-width: 60rem; margin: 0 auto; padding: 1.2rem 1rem 3rem; overflow-wrap: break-word; }
h1 { font-size: 1.35rem; line-height: 1.3; margin: .4rem 0; } h2 { font-size: 1.1rem; margin: 2.2rem 0 .5rem; }
h3 { font-size: 1rem; margin: 1.2rem 0 .3rem; } p { margin: .5rem 0; max-width: 44rem; } .quiet { color: var(--quiet); }
ul { padding-left: 1.2rem; max-width: 44rem; } code, pre { font: .88em/1.5 ui-monospace, monospace; }
pre { background: var(--panel); padding: .7rem .9rem; border-radius: .4rem; white-space: pre-wrap; }
.verdict { background: var(--panel); border-left: .35rem solid var(--quiet); border-radius: .3rem; padding: .6rem .9rem;
  margin: .7rem 0; } .verdict p { margin: 0; } .verdict ul { margin: .3rem 0 0; font-size: .92em; }
.good { border-color: var(--good); } .doubt { border-color: var(--doubt); } .bad { border-color: var(--bad); }
.good b { color: var(--good); } .doubt b { color: var(--doubt); } .bad b { color: var(--bad); }
.mathematics { font: 1.02em/1.9 Cambria, "STIX Two Text", Georgia, serif; background: var(--panel);
  padding: .5rem .9rem; border-radius: .4rem; } .mathematics p { max-width: none; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; margin: .4rem 0; }
th, td { padding: .25rem 0 .25rem 1.2rem; text-align: right; }
th:first-child { text-align: left; padding-left: 0; } tbody th { font-weight: 600; }
thead th { color: var(--quiet); font-weight: 500; } tbody tr { border-top: 1px solid var(--rule); }
.pictures { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 22rem), 1fr)); gap: 1rem 2rem; }
figure { margin: .6rem 0; min-width: 0; } figure svg { width: 100%; height: auto; font-family: system-ui, sans-serif; }
svg text { fill: var(--text); }
figcaption { color: var(--quiet); font-size: .88em; max-width: 36rem; }
details { margin-top: 2rem; border-top: 1px solid var(--rule); padding-top: .7rem; }
summary { font-weight: 600; cursor: pointer; } summary h2 { display: inline; }
footer { color: var(--quiet); font-size: .88em; margin-top: 2.5rem; }
@media (max-width: 34rem) { .wide thead { display: block; } .wide tbody { display: block; } .wide { width: 100%; }
  .wide tr { display: grid; grid-template-columns: repeat(var(--columns), 1fr); }
  .wide thead th:first-child { display: none; }
  .wide tbody th { grid-column: 1 / -1; padding-bottom: 0; } .wide td, .wide thead th { padding-left: .3rem; } }
@media print { :root { color-scheme: light; --text: #000; --quiet: #444; --line: #777; --rule: #ccc; --paper: #fff;
  --panel: #fff; --ink: #1f4e79; --shade: #9db8d2; } body { font-size: 10.5pt; } main { max-width: none; padding: 0; }
  figure, .verdict, tr { break-inside: avoid; } h2, h3 { break-after: avoid; }
  details::details-content { content-visibility: visible; display: block; } }
"""


class Section(NamedTuple):
    """A part of the page.

    Attributes:
        title: Its heading.
        parts: Pieces of HTML, made by the functions below.
        folded: Whether it is closed until somebody opens it.
    """

    title: str
    parts: Sequence[str]
    folded: bool = False


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
    body = "".join(map(_section, sections))
    head = (
        "<meta charset='utf-8'><meta name='viewport' content='width=device-width, initial-scale=1'>"
        f"<title>{escape(title)}</title><style>{STYLE}</style>"
    )
    page = (
        f"<!doctype html><html lang='en'><head>{head}</head><body><main><h1>{escape(title)}</h1>{''.join(lead)}{body}"
        "<footer>made by natvi</footer></main></body></html>"
    )
    return write_text(path, page)


def _section(section: Section) -> str:
    inside = "".join(section.parts)
    if section.folded:
        return f"<details><summary><h2>{escape(section.title)}</h2></summary>{inside}</details>"
    return f"<section><h2>{escape(section.title)}</h2>{inside}</section>"


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
        f"<tr role='row'><th scope='row' role='rowheader'>{escape(name)}</th>"
        + "".join(f"<td role='cell'>{escape(show(value))}</td>" for value in line)
        + "</tr>"
        for name, line in zip(frame.index, frame.itertuples(index=False, name=None), strict=True)
    )
    label = f" aria-label='{escape(caption)}'" if caption else ""
    shape = "wide" if len(frame.columns) > 1 else "pairs"  # a single number has room beside its name
    return (
        f"<table class='{shape}' role='table'{label} style='--columns:{len(frame.columns)}'><thead role='rowgroup'>{head}"
        f"</thead><tbody role='rowgroup'>{lines}</tbody></table>"
    )


def pictures(shown: Sequence[Picture], prefix: str) -> str:
    """Return figures side by side where there is room."""
    found = []
    for at, (axes, alt, caption) in enumerate(shown):
        below = f"<figcaption>{escape(caption)}</figcaption>" if caption else ""
        found.append(f"<figure>{to_svg(axes, alt, f'{prefix}{at}-')}{below}</figure>")
    return f"<div class='pictures'>{''.join(found)}</div>" if found else ""
