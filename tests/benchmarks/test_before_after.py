"""Before and after: pieces of a run add up in one file, and what is too slow is named."""

import importlib
import json
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2]))  # the benchmarks are not part of the package

before_after = importlib.import_module("benchmarks.before_after")


def test_pieces_of_a_run_are_kept_in_one_file(tmp_path, capsys, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[set[str] | None] = []
    seconds = {"step": (1.0, 1.2), "glm": (2.0, 1.0)}

    def made_up(name: str):
        def figures(trees, quick, names):
            asked.append(names)
            yield before_after.Figure(f"{name}: one", seconds[name], (-3.0, -3.0))

        return figures

    monkeypatch.setattr(before_after, "FIGURES", {name: made_up(name) for name in seconds})
    monkeypatch.setattr(before_after, "_commit", lambda tree: tree.name)
    path = tmp_path / "figures.json"
    trees = [str(tmp_path / "old"), str(tmp_path / "new")]
    before_after.main([*trees, "--only", "step", "--problems", "A4A", "--json", str(path)])
    assert "1.20 (!)" in capsys.readouterr().out
    seconds["step"] = (1.0, 0.5)
    for only in ("glm", "step"):
        before_after.main([*trees, "--only", only, "--json", str(path)])
    found = json.loads(path.read_text())
    assert {row["name"]: row["ratio"] for row in found["figures"]} == {"step: one": 0.5, "glm: one": 0.5}
    assert found["commits"] == {"before": "old", "after": "new"} and found["machine"]["cores"] >= 1
    assert asked == [{"a4a"}, None, None]
    assert "2 figures, geometric mean of the ratios 0.500; above 1.1: none." in capsys.readouterr().out
    # figures of other commits are not mixed with these
    before_after.main([trees[0], str(tmp_path / "newer"), "--only", "glm", "--json", str(path)])
    assert len(json.loads(path.read_text())["figures"]) == 1
