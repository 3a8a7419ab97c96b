"""Rows of results with everything that is needed to judge them: machine, date, settings, seed, versions."""

import hashlib
import json
import math
import os
import platform
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypedDict

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "benchmarks" / "results"

Value = float | int | str | bool | None


class Row(TypedDict):
    """One figure: what was measured, on what, with what."""

    problem: str
    tool: str
    metric: str
    value: Value
    threads: int | str | None
    versions: dict[str, str]
    settings: dict[str, Any]


def make_row(
    problem: str,
    tool: str,
    metric: str,
    value: Value,
    *,
    threads: int | str | None = None,
    versions: Mapping[str, str],
    settings: Mapping[str, Any] | None = None,
) -> Row:
    """A row whose value JSON can hold: a number that is not finite becomes null."""
    if not (problem and tool and metric and versions):
        raise ValueError(f"A row needs problem, tool, metric and versions: {(problem, tool, metric, versions)}.")
    if not isinstance(value, float | int | str | None):
        raise ValueError(f"{metric} of {tool} on {problem} is a {type(value).__name__}, not a number or text.")
    if isinstance(value, float) and not math.isfinite(value):
        value = None
    return Row(
        problem=problem,
        tool=tool,
        metric=metric,
        value=value,
        threads=threads,
        versions=dict(versions),
        settings=dict(settings or {}),
    )


@dataclass
class Report:
    """Collects rows and notes; after each of them the file holds all there is, whatever happens next."""

    name: str
    path: Path | None
    quick: bool = False
    seed: int = 0
    settings: dict[str, Any] = field(default_factory=dict)
    rows: list[Row] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    about: dict[str, Any] = field(default_factory=lambda: {"date": _now(), "commit": commit()} | machine())

    def add(self, problem: str, tool: str, metrics: Mapping[str, Value], **rest: Any) -> None:
        """Add one row per metric and save."""
        for metric, value in metrics.items():
            self.rows.append(make_row(problem, tool, metric, value, **rest))
        self.save()
        figures = ", ".join(f"{metric} {show(value)}" for metric, value in metrics.items())
        self.say(f"{problem}, {tool}, threads {rest.get('threads')}: {figures}")

    def note(self, text: str) -> None:
        """Keep a remark, such as what was left out and why."""
        self.notes.append(text)
        self.say(f"note: {text}")
        self.save()

    def say(self, text: str) -> None:
        """Tell the person who waits."""
        print(text, file=sys.stderr, flush=True)

    def document(self) -> dict[str, Any]:
        """Everything, as JSON holds it."""
        about = dict(self.about)
        return {
            "name": self.name,
            "date": about.pop("date"),
            "commit": about.pop("commit"),
            "machine": about,
            "quick": self.quick,
            "seed": self.seed,
            "settings": self.settings,
            "versions": merged_versions(self.rows),
            "notes": self.notes,
            "rows": self.rows,
        }

    def json(self) -> str:
        """The document as text."""
        return json.dumps(self.document(), indent=1, allow_nan=False) + "\n"

    def save(self) -> None:
        """Replace the file by one with all rows so far."""
        if self.path is None:
            return
        self.path.parent.mkdir(parents=True, exist_ok=True)
        temporary = self.path.with_name(f".{self.path.name}.tmp")
        temporary.write_text(self.json(), "utf-8")
        temporary.replace(self.path)

    def markdown(self) -> str:
        """The tables, the notes and where the figures come from."""
        about = self.about
        head = f"{about['cpu']}, {about['cores']} cores, {about['memory_gib']:.0f} GiB; {about['date']}"
        versions = ", ".join(f"{name} {version}" for name, version in merged_versions(self.rows).items())
        notes = [f"- {note}" for note in self.notes]
        parts = [f"# {self.name}{' (quick)' if self.quick else ''}", head, markdown_tables(self.rows)]
        return "\n\n".join([*parts, *(["\n".join(notes)] if notes else []), f"Versions: {versions}."])


def markdown_tables(rows: Sequence[Row]) -> str:
    """One line per problem, tool and threads; lines that share their metrics share a table."""
    lines: dict[tuple[str, str, str], dict[str, str]] = {}
    for row in rows:
        threads = "" if row["threads"] is None else str(row["threads"])
        lines.setdefault((row["problem"], row["tool"], threads), {})[row["metric"]] = show(row["value"])
    tables: dict[tuple[str, ...], list[str]] = {}
    for key, cells in lines.items():
        columns = tuple(cells)
        if columns not in tables:
            names = ("problem", "tool", "threads", *(metric.replace("_", " ") for metric in columns))
            tables[columns] = [_line(names), _line(["---"] * 3 + ["---:"] * len(columns))]
        tables[columns].append(_line([*key, *cells.values()]))
    return "\n\n".join("\n".join(table) for table in tables.values())


def show(value: Value) -> str:
    """A value in about four digits, or as it is."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:,.2f}" if abs(value) >= 100 else f"{value:.4g}"
    return f"{value:,}" if isinstance(value, int) else value


def _line(cells: Sequence[str]) -> str:
    clean = (cell.replace("|", "\\|").replace("\n", " ") for cell in cells)
    return f"| {' | '.join(clean)} |"


def merged_versions(rows: Sequence[Row]) -> dict[str, str]:
    """Versions of everything that took part, in order of appearance."""
    return {name: version for row in rows for name, version in row["versions"].items()}


def machine() -> dict[str, Any]:
    """What the figures were measured on, and how busy it was before."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    return {
        "cpu": _cpu_model(),
        "cores": len(cores()),
        "memory_gib": round(memory, 1),
        "system": platform.platform(),
        "load_average_before": round(os.getloadavg()[0], 2),
    }


def cores() -> list[int]:
    """The processor cores this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return sorted(os.sched_getaffinity(0))
    return list(range(os.cpu_count() or 1))


def commit() -> str:
    """The commit of the sources, marked when they have changed since."""
    command = ["git", "describe", "--always", "--dirty", "--exclude=*"]
    try:
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return "unknown"
    return done.stdout.strip()


def source_digest() -> str:
    """A digest of natvi's sources, to notice when they change while a benchmark runs."""
    digest = hashlib.sha256()
    for path in sorted((ROOT / "src" / "natvi").rglob("*.py")):
        digest.update(path.read_bytes())
    return digest.hexdigest()


def _cpu_model() -> str:
    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.is_file() else []
    models = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return models[0] if models else platform.processor() or platform.machine()


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")
