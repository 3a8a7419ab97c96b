"""What an experiment leaves behind: cells beside the paper's, settings, a Markdown table, a picture."""

import io
import json
import math
import os
import platform
import sys
from dataclasses import dataclass, field
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any, TypedDict

from PIL import Image

RESULTS = Path(__file__).parent / "results"
PACKAGES = ("natvi", "jax", "jaxlib", "optax", "numpy", "matplotlib")

Value = float | int | str | bool | None


class Cell(TypedDict):
    """One figure of ours beside the paper's; `paper` is None where the paper prints none."""

    row: str
    column: str
    metric: str
    paper: Value
    ours: Value


@dataclass
class Report:
    """Collects what an experiment finds; `figure` is a Matplotlib figure or None."""

    label: str
    title: str = ""
    quick: bool = False
    seed: int = 0
    settings: dict[str, Any] = field(default_factory=dict)
    cells: list[Cell] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    figure: Any = None
    seconds: float | None = None

    def cell(self, row: str, column: str, metric: str, ours: Any, paper: Value = None) -> None:
        """Add one cell; whatever comes from JAX or NumPy becomes a plain number."""
        self.cells.append(Cell(row=row, column=column, metric=metric, paper=plain(paper), ours=plain(ours)))

    def note(self, text: str) -> None:
        """Keep a remark: what the paper leaves open, what differs and why."""
        self.notes.append(text)

    def say(self, text: str) -> None:
        """Tell the person who waits."""
        print(text, file=sys.stderr, flush=True)

    def document(self) -> dict[str, Any]:
        """Return all that the JSON file holds."""
        about = {"seed": self.seed, "seconds": self.seconds, "date": now(), "machine": machine(), "notes": self.notes}
        return {
            "label": self.label,
            "settings": self.settings | about,
            "quick": self.quick,
            "versions": versions(),
            "cells": self.cells,
        }

    def json(self) -> str:
        """Return the document as text."""
        return json.dumps(self.document(), indent=1, allow_nan=False) + "\n"

    def markdown(self) -> str:
        """Return the tables, one a metric, with the paper's figures in parentheses."""
        parts = [f"# {self.label}: {self.title}{' (quick)' if self.quick else ''}"]
        metrics = list(dict.fromkeys(cell["metric"] for cell in self.cells))
        parts += [table(metric, [cell for cell in self.cells if cell["metric"] == metric]) for metric in metrics]
        if any(cell["paper"] is not None for cell in self.cells):
            parts.append("In parentheses: the paper.")
        if self.notes:
            parts.append("\n".join(f"- {note}" for note in self.notes))
        if self.figure is not None:
            parts.append(f"![{self.label}]({self.label}.png)")
        about = machine()
        seconds = "" if self.seconds is None else f"; {self.seconds:.1f} s"
        parts.append(f"{about['cpu']}, {about['cores']} cores{seconds}; {now()[:10]}.")
        return "\n\n".join(parts) + "\n"

    def save(self, path: Path) -> list[Path]:
        """Write the JSON file, and Markdown and picture beside it; each replaces its forerunner in one go."""
        path.parent.mkdir(parents=True, exist_ok=True)
        written = [_replace(path, self.json())]
        markdown = self.markdown().replace(f"({self.label}.png)", f"({path.stem}.png)")
        written.append(_replace(path.with_suffix(".md"), markdown))
        if self.figure is not None:
            written.append(path.with_suffix(".png"))
            _save_picture(self.figure, written[-1])
        return written


def plain(value: Any) -> Value:
    """Return a value that JSON can hold: numbers that are not finite become None."""
    value = value.item() if hasattr(value, "item") else value
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if not isinstance(value, bool | int | float | str | None):
        raise ValueError(f"A cell holds a number, a text or nothing; got a {type(value).__name__}.")
    return value


def table(metric: str, cells: list[Cell]) -> str:
    """Return a Markdown table of one metric: a line per row, a column per column."""
    rows = list(dict.fromkeys(cell["row"] for cell in cells))
    columns = list(dict.fromkeys(cell["column"] for cell in cells))
    shown = {(cell["row"], cell["column"]): show_cell(cell) for cell in cells}
    lines = [[metric.replace("_", " "), *columns], ["---"] + ["---:"] * len(columns)]
    lines += [[row, *(shown.get((row, column), "") for column in columns)] for row in rows]
    return "\n".join(f"| {' | '.join(text.replace('|', chr(92) + '|') for text in line)} |" for line in lines)


def show_cell(cell: Cell) -> str:
    """Return our figure, and the paper's in parentheses."""
    return show(cell["ours"]) + ("" if cell["paper"] is None else f" ({show(cell['paper'])})")


def show(value: Value) -> str:
    """Return a value in four digits, or as it is."""
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def versions() -> dict[str, str]:
    """Return the versions of what took part."""
    return {"python": platform.python_version()} | {name: version(name) for name in PACKAGES}


def machine() -> dict[str, Any]:
    """Return what the experiment ran on."""
    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.is_file() else []
    models = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return {"cpu": models[0] if models else platform.machine(), "cores": cores, "system": platform.system()}


def now() -> str:
    """Return date and time."""
    return datetime.now(UTC).isoformat(timespec="seconds")


def _save_picture(figure: Any, path: Path) -> None:
    """Write a PNG file with a palette of 256 colours, a third of the size of one without."""
    picture = io.BytesIO()
    figure.savefig(picture, format="png", dpi=150)
    image = Image.open(picture).convert("RGB")
    image.quantize(256, dither=Image.Dither.NONE).save(path, optimize=True)


def _replace(path: Path, text: str) -> Path:
    temporary = path.with_name(f".{path.name}.tmp")
    temporary.write_text(text, "utf-8")
    temporary.replace(path)
    return path
