"""A result in words: plain text for the terminal, HTML for the notebook."""

import html
from typing import TYPE_CHECKING

import pandas as pd

from natvi.result.outcome import ADVICE

if TYPE_CHECKING:
    from natvi.result.result import Result

MARK = {"good": "✓", "use with care": "!", "do not use": "✗"}


def headline(result: "Result") -> list[tuple[str, str]]:
    """Return label and text of each line above the tables."""
    seconds = result.seconds
    clock = f"{duration(seconds['run'])} + {duration(seconds['compile'])} compilation"
    steps = len(result.trace)
    se = "exact" if result.elbo_se == 0 else f"± {result.elbo_se:.2g}"
    lines = list(result.model.headline)
    lines.append(("method", f"{result.method} ({result.structure}), {result.outcome} after {steps} steps, {clock}"))
    lines.append(("ELBO", f"{result.elbo:,.3f} ({se})"))
    return lines


def text_summary(result: "Result", prob: float = 0.95) -> str:
    """Return the summary as plain text."""
    lines = [f"{label + ':':<10} {text}" for label, text in headline(result)]
    for title, table in result.model.tables(prob).items():
        lines += ["", f"{title}", *_rows(table)]
    lines += ["", f"Trust {MARK[result.trust]} {result.trust}"]
    lines += [f"  - {reason}" for reason in result.trust_reasons]
    if str(result.outcome) != "converged":
        lines += ["", ADVICE[result.outcome]]
    return "\n".join(lines)


def html_page(result: "Result", prob: float = 0.95) -> str:
    """Return the summary as an HTML fragment for notebooks and reports."""
    rows = "".join(
        f"<tr><th style='text-align:left'>{html.escape(label)}</th>"
        f"<td style='text-align:left'>{html.escape(text)}</td></tr>"
        for label, text in headline(result)
    )
    tables = "".join(
        f"<h4>{html.escape(title)}</h4>{table.to_html(float_format=number, border=0)}"
        for title, table in result.model.tables(prob).items()
    )
    reasons = "".join(f"<li>{html.escape(reason)}</li>" for reason in result.trust_reasons)
    trust = f"<h4>Trust: {MARK[result.trust]} {result.trust}</h4><ul>{reasons}</ul>"
    return f"<div class='natvi'><table>{rows}</table>{tables}{trust}</div>"


def number(value: float) -> str:
    """Format a number with four significant digits or three decimals, whichever shows more.

    Example:
        >>> number(251.40512), number(0.00123456)
        ('251.405', '0.001235')
    """
    if value == 0 or not abs(value) < 1e7:
        return f"{value:.4g}"
    return f"{value:.3f}" if abs(value) >= 0.1 else f"{value:.4g}"


def duration(seconds: float) -> str:
    """Format a duration.

    Example:
        >>> duration(0.00057), duration(12.3)
        ('0.6 ms', '12.3 s')
    """
    return f"{1000 * seconds:.1f} ms" if seconds < 1 else f"{seconds:.1f} s"


def _rows(table: pd.DataFrame) -> list[str]:
    cells = [["", *map(str, table.columns)]]
    cells += [[str(name), *map(number, row)] for name, row in zip(table.index, table.to_numpy(), strict=True)]
    widths = [max(len(row[j]) for row in cells) for j in range(len(cells[0]))]
    return [
        "  "
        + "  ".join(
            cell.ljust(w) if j == 0 else cell.rjust(w) for j, (cell, w) in enumerate(zip(row, widths, strict=True))
        )
        for row in cells
    ]
