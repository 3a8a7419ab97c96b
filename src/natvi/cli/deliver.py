"""What leaves the command line: the summary, JSON for scripts, files, notices."""

import json
import math
import platform
import shutil
import sys
from importlib import metadata
from pathlib import Path
from typing import Any

import typer
from rich.console import Console
from rich.markup import escape

from natvi.result import Result
from natvi.result.text import LINE_LENGTH, text_summary
from natvi.run import Outcome
from natvi.run.storage.files import write_text

notices = Console(stderr=True)
UNUSABLE, INTERRUPTED = 3, 130  # exit codes; 2 is a mistake of the caller


def summary_document(result: Result, prob: float = 0.95) -> dict:
    """Return what `--json` writes."""
    tables = result.tables(prob)
    dispersion = tables.get("dispersion")
    return {
        **_about(result.model),
        "outcome": str(result.outcome),
        "trust": result.trust,
        "trust_reasons": list(result.trust_reasons),
        "model_check": result.model_check,
        "model_check_reasons": list(result.model_check_reasons),
        "prior_check": result.prior_check,
        "prior_check_reasons": list(result.prior_check_reasons),
        "method": result.method,
        "optimizer": result.optimizer,
        "elbo": result.elbo,
        "coefficients": result.fixed_effects(prob).to_dict(orient="index"),
        **({} if dispersion is None else {"dispersion": dispersion.to_dict(orient="index")}),
        "random_effects": tables["variance_components"].to_dict(orient="index")
        if "variance_components" in tables
        else {},
        "seconds": result.seconds,
        "versions": versions(),
    }


def _about(model: Any) -> dict[str, Any]:
    family = getattr(model, "family", None)
    return {
        "formula": getattr(model, "formula", None),
        "family": getattr(family, "name", None),
        "link": getattr(family, "link", None),
        "prior": dict(model.headline).get("prior"),
        "rows": getattr(model, "num_rows", None),
    }


def versions() -> dict[str, str]:
    """Return the versions of what computes."""
    found = {name: metadata.version(name) for name in ("natvi", "jax", "jaxlib", "numpy")}
    return found | {"python": platform.python_version()}


def deliver(result: Result, out: Path | None, report: Path | None, json_file: Path | None) -> None:
    """Print the summary, or JSON, and write the files; leave with a code that says how far the answer can be used."""
    document = json.dumps(finite(summary_document(result)), indent=2, allow_nan=False)
    if json_file == Path("-"):
        sys.stdout.write(document + "\n")
    else:
        sys.stdout.write(f"{text_summary(result, width=terminal_width())}\n")
    if json_file is not None and json_file != Path("-"):
        write_text(json_file, document + "\n")
    if out is not None:
        out.mkdir(parents=True, exist_ok=True)
        result.save(out / "fit.natvi")
        write_text(out / "summary.json", document + "\n")
        result.report(out / "report.html")
        say(f"saved: {out}/fit.natvi, summary.json, report.html")
    if report is not None:
        say(f"page: {result.report(report)}")
    if result.outcome is Outcome.INTERRUPTED:
        raise typer.Exit(INTERRUPTED)
    if result.trust == "do not use":
        raise typer.Exit(UNUSABLE)


def terminal_width() -> int:
    """Return how wide lines may be: the terminal's width, and a hundred columns elsewhere."""
    return min(shutil.get_terminal_size((LINE_LENGTH, 24)).columns, LINE_LENGTH) if sys.stdout.isatty() else LINE_LENGTH


def say(text: str, head: str = "") -> None:
    """Print a notice as it is: brackets are no markup, `:x:` is no picture, and lines are not cut."""
    notices.print(head + escape(text), highlight=False, soft_wrap=True, emoji=False)


def finite(value: Any) -> Any:
    """Return a document with null in place of numbers that JSON lacks."""
    if isinstance(value, dict):
        return {key: finite(item) for key, item in value.items()}
    return None if isinstance(value, float) and not math.isfinite(value) else value
