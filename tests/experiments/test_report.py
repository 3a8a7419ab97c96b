"""What scripts rely on: the command, the schema of the JSON file, Markdown and picture beside it."""

import json

import numpy as np
import pytest
from experiments.__main__ import LABELS, built, main
from experiments.report import RESULTS, Report

KEYS = {"label", "settings", "quick", "versions", "cells"}
CELL = {"row", "column", "metric", "paper", "ours"}
ILLUSTRATIONS = ("table2", "figure1", "figure2", "figure3", "figure4", "figure5", "theorem3")


def check(document: dict, label: str) -> None:
    assert set(document) == KEYS and document["label"] == label
    assert isinstance(document["quick"], bool)
    assert {"seed", "date", "machine"} <= set(document["settings"])
    assert {"python", "natvi", "jax"} <= set(document["versions"])
    assert document["cells"] and all(set(cell) == CELL for cell in document["cells"])


def test_the_command_writes_three_files(tmp_path, capsys):
    target = tmp_path / "out.json"
    assert main(["figure4", "--json", str(target)]) == 0
    check(json.loads(target.read_text("utf-8")), "figure4")
    assert "![figure4](out.png)" in target.with_suffix(".md").read_text("utf-8")
    assert target.with_suffix(".png").read_bytes().startswith(b"\x89PNG")
    assert "| 43 (43) |" in capsys.readouterr().out


def test_json_to_the_standard_output(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main(["figure4", "--quick", "--json", "-"]) == 0
    document = json.loads(capsys.readouterr().out)
    check(document, "figure4")
    assert document["quick"] and not list(tmp_path.iterdir())


def test_what_is_not_built_and_what_makes_no_sense_is_said(capsys, monkeypatch):
    monkeypatch.setattr("experiments.__main__.built", lambda: ["figure4", "table2"])
    assert main(["table11"]) == 2
    assert "not built yet: table11" in capsys.readouterr().err
    assert main(["all", "--json", "one.json"]) == 2
    assert "one file" in capsys.readouterr().err


@pytest.mark.parametrize("label", ILLUSTRATIONS)
def test_committed_results(label):
    assert label in built() and label in LABELS
    document = json.loads((RESULTS / f"{label}.json").read_text("utf-8"))
    check(document, label)
    assert not document["quick"]
    assert (RESULTS / f"{label}.md").is_file()
    assert (RESULTS / f"{label}.png").is_file() == (label != "table2")


def test_cells_hold_plain_values():
    report = Report("table2")
    report.cell("a", "b", "m", np.float64(np.nan), np.int64(3))
    report.cell("a", "c", "m", np.bool_(True), "about 3")
    assert [(cell["ours"], cell["paper"]) for cell in report.cells] == [(None, 3), (True, "about 3")]
    assert "| a | - (3) | yes (about 3) |" in report.markdown()
    with pytest.raises(ValueError, match="list"):
        report.cell("a", "b", "m", [1])
