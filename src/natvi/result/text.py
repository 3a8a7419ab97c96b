"""A result in words: plain text for the terminal, HTML for the notebook.

The first screen says what was fitted, the estimates, how well the posterior is approximated, and how well the model
describes the data, in words that need no paper. Numbers behind the verdicts are in `Result.diagnostics()`.
"""

import html
import math
import re
import textwrap
from collections.abc import Callable

import numpy as np
import pandas as pd

from natvi.result.core import Core
from natvi.result.outcome import ADVICE
from natvi.result.titles import titled

GREEN, AMBER, RED, GREY = "#2e7d4f", "#b26a00", "#b3261e", "#5a6b7d"
COLOUR = {"good": GREEN, "use with care": AMBER, "do not use": RED, "doubtful": AMBER, "not checked": GREY}
MARK = {"good": "✓", "use with care": "!", "do not use": "✗", "doubtful": "!", "not checked": "?"}
LINE_LENGTH = 100  # characters
MOST_DECIMALS = 7
MOST_ROWS = 60  # of a table that is printed
METHODS = {
    "gva": "Gaussian approximation",
    "integrated": "sds and dispersion integrated, a Gaussian of the rest at each point",
    "marginal": "random effects integrated out, weighted draws",
    "psis": "Gaussian approximation corrected by weighted draws",
    "rvb1": "Gaussian approximation of standardised random effects",
    "rvb2": "Gaussian approximation of standardised random effects",
}


def headline(result: Core) -> list[tuple[str, str]]:
    """Return label and text of each line above the tables."""
    seconds = result.seconds
    clock = f"{duration(seconds['run'])} + {duration(seconds['compile'])} compilation"
    steps = result.steps or len(result.trace)
    se = "exact" if result.elbo_se == 0 else f"± {result.elbo_se:.2g}"
    lines = list(result.model.headline)
    rule = "" if result.optimizer in (None, "ascent") else f" with {result.optimizer}"
    meaning = METHODS.get(result.method)
    method = f"{result.method}{rule} ({meaning})" if meaning else f"{result.method}{rule}"
    lines.append(("method", f"{method}, {result.outcome} after {steps} steps, {clock}"))
    lines.append(("ELBO", f"{result.elbo:,.3f} ({se})"))
    return lines


def text_summary(result: Core, prob: float = 0.95, width: int = LINE_LENGTH) -> str:
    """Return the summary as plain text, in lines of some width; tables whose lines are longer are folded."""
    indent = 10 if width >= 60 else 0
    lines = [line for label, text in headline(result) for line in _wrapped(f"{label + ':':<{indent}} ", text, width)]
    for title, table in titled(result.model.tables(prob)).items():
        lines += ["", f"{title}", *_rows(table, width)]
    for subject, level, reasons in verdicts(result):
        lines += ["", f"{subject}: {MARK[level]} {level}"]
        lines += [line for reason in reasons for line in _wrapped("  - ", reason, width)]
    if str(result.outcome) != "converged":
        lines += ["", *_wrapped("", ADVICE[result.outcome], max(width, LINE_LENGTH))]
    return "\n".join(lines)


def verdicts(result: Core) -> list[tuple[str, str, tuple[str, ...]]]:
    """Return subject, level and reasons of the verdicts: on approximation and model, and on a prior that decides."""
    found = [("Approximation of the posterior", result.trust, result.trust_reasons)]
    if result.predicts:
        found.append(("Model against the data", result.model_check, result.model_check_reasons))
    if result.prior_check == "doubtful":
        found.append(("Prior against the data", result.prior_check, result.prior_check_reasons))
    return found


def html_page(result: Core, prob: float = 0.95) -> str:
    """Return the summary as an HTML fragment for notebooks and reports."""
    rows = "".join(
        f"<tr><th style='text-align:left'>{html.escape(label)}</th>"
        f"<td style='text-align:left'>{html.escape(text)}</td></tr>"
        for label, text in headline(result)
    )
    tables = "".join(
        f"<h4>{html.escape(title)}</h4>{written(table).to_html(border=0, max_rows=MOST_ROWS)}"
        for title, table in titled(result.model.tables(prob)).items()
    )
    boxes = "".join(_box(*verdict) for verdict in verdicts(result))
    numbers = result.diagnostics().to_html(float_format=lambda value: f"{value:.4g}", border=0)
    details = f"<details><summary>Numbers behind the verdicts</summary>{numbers}</details>"
    return f"<div class='natvi'><table>{rows}</table>{boxes}{tables}{details}</div>"


def _box(subject: str, level: str, reasons: tuple[str, ...]) -> str:
    items = "".join(f"<li>{html.escape(reason)}</li>" for reason in reasons)
    return (
        f"<p style='border-left:.3rem solid {COLOUR[level]};padding-left:.8rem'>{html.escape(subject)}: "
        f"<b style='color:{COLOUR[level]}'>{MARK[level]} {level}</b></p><ul>{items}</ul>"
    )


def written(table: pd.DataFrame) -> pd.DataFrame:
    """Return a table as texts, every line with the decimals that its own sd needs.

    Example:
        >>> table = pd.DataFrame({"mean": [67.49, 2.1e-5], "sd": [30.1, 6.5e-6]})
        >>> written(table)["mean"].tolist()
        ['67.490', '0.0000210']
    """
    lines = [list(map(formatter(table.iloc[[at]]), line)) for at, line in enumerate(table.to_numpy())]
    return pd.DataFrame(lines, index=table.index, columns=table.columns)


def formatter(table: pd.DataFrame) -> Callable[[float], str]:
    """Return a format with as many decimals as show two digits of the smallest sd, the same for the whole table.

    Example:
        >>> show = formatter(pd.DataFrame({"mean": [251.405], "sd": [6.5]}))
        >>> show(251.40512)
        '251.405'
    """
    spreads = table["sd"].to_numpy()
    spreads = spreads[np.isfinite(spreads) & (spreads > 0)]
    needed = 1 - math.floor(math.log10(spreads.min())) if len(spreads) else 3
    decimals = max(3, needed)
    if needed > MOST_DECIMALS:  # what would be all zeros is shown in powers of ten
        return lambda value: f"{value:.3g}"
    return lambda value: f"{value:.{decimals}f}" if abs(value) < 1e12 else f"{value:.4g}"


def duration(seconds: float) -> str:
    """Format a duration.

    Example:
        >>> duration(0.00057), duration(12.3)
        ('0.6 ms', '12.3 s')
    """
    return f"{1000 * seconds:.1f} ms" if seconds < 1 else f"{seconds:.1f} s"


def _wrapped(label: str, text: str, width: int) -> list[str]:
    """Return a line, or several with a hanging indent where it would be too long to read."""
    return textwrap.wrap(
        text,
        width,
        initial_indent=label,
        subsequent_indent=" " * min(len(label), width // 5),
        break_long_words=False,
        break_on_hyphens=False,
    ) or [label.rstrip()]


def _rows(table: pd.DataFrame, width: int) -> list[str]:
    more = len(table) - MOST_ROWS
    if more > 0:
        return [*_rows(table.head(MOST_ROWS), width), f"  … and {more:,} more: all are in result.summary()"]
    names = ["", *map(str, table.index)]
    columns = [_aligned(str(title), list(column)) for title, column in written(table).items()]
    numbers = ["  ".join(cells) for cells in zip(*columns, strict=True)]
    longest = max(map(len, names))
    if 4 + longest + len(numbers[0]) <= width:
        return [f"  {name.ljust(longest)}  {text}".rstrip() for name, text in zip(names, numbers, strict=True)]
    folded = [f"    {numbers[0]}"]
    for name, text in zip(names[1:], numbers[1:], strict=True):
        folded += [f"  {name}", f"    {text}".rstrip()]
    return folded


def _aligned(title: str, texts: list[str]) -> list[str]:
    """Return a title and the numbers below it, the points of which stand below each other."""
    behind = [len(text) - len(re.split("[.e]", text, maxsplit=1)[0]) for text in texts]
    texts = [text + " " * (max(behind, default=0) - own) for text, own in zip(texts, behind, strict=True)]
    width = max(len(title), *map(len, texts)) if texts else len(title)
    return [title.rjust(width), *(text.rjust(width) for text in texts)]
