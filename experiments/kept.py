"""Runs that take hours are kept in the repository, one small JSON file each, so that a later run goes on from them.

What a run is in the middle of (weights, the optimizer's state) is a checkpoint in the folder of `experiments.memory`.
"""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from experiments.memory import folder
from experiments.report import machine, now, versions
from natvi.run import Outcome

ROOT = Path(__file__).parent / "runs"


def keep(label: str, name: str, settings: dict[str, Any], compute: Callable[[Path], dict[str, Any]]) -> dict[str, Any]:
    """Return what a run found, now or earlier.

    Args:
        label: The table, a folder under experiments/runs.
        name: The run's file name.
        settings: All that decides the outcome; another setting needs another name.
        compute: Called with the path of a checkpoint if the run is not kept yet.
    """
    path = ROOT / label / f"{name}.json"
    if path.is_file():
        found = json.loads(path.read_text("utf-8"))
        if found["settings"] != json.loads(json.dumps(settings)):
            raise ValueError(f"{path} was made with other settings: delete it to run {name} anew.")
        return found
    checkpoint = folder() / f"{label}-{name}.checkpoint"
    found = {"settings": settings} | compute(checkpoint)
    if found.get("outcome") == str(Outcome.INTERRUPTED):
        raise KeyboardInterrupt(f"{name} was interrupted; the next call goes on from its checkpoint.")
    found |= {"versions": versions(), "machine": machine(), "date": now()}
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.tmp")
    temporary.write_text(json.dumps(found, indent=1, allow_nan=False) + "\n", "utf-8")
    temporary.replace(path)
    return found


def is_kept(label: str, name: str) -> bool:
    """Whether a run is finished."""
    return (ROOT / label / f"{name}.json").is_file()


def set_aside(label: str, name: str, other: str) -> None:
    """Keep a run under another name, and forget its checkpoint, so that the name can be run anew."""
    (ROOT / label / f"{name}.json").rename(ROOT / label / f"{other}.json")
    for path in folder().glob(f"{label}-{name}.*"):
        path.unlink()


def all_kept(label: str) -> dict[str, dict[str, Any]]:
    """Return all finished runs of a table by name."""
    return {path.stem: json.loads(path.read_text("utf-8")) for path in sorted((ROOT / label).glob("*.json"))}
