"""Pages that name files name files that are there, and the map of the paper leaves nothing out."""

import importlib.util
import json
import re
from pathlib import Path
from typing import Any

import pytest

import natvi

REPOSITORY = Path(__file__).parents[1]
DOCS = REPOSITORY / "docs"
PAGES = [DOCS / "design.md", DOCS / "paper.md", DOCS / "reasons.md", *(DOCS / "contributing").glob("*.md")]
PATH = re.compile(r"`([\w./]+/(?:[\w.]+\.py)?)`")  # a file, or a folder with its slash


def missing(page: Path) -> list[str]:
    """Return the paths on a page that are neither below the repository nor below the package."""
    roots = (REPOSITORY, REPOSITORY / "src" / "natvi", REPOSITORY / "src")
    named = PATH.findall(page.read_text("utf-8"))
    return [path for path in named if not any((root / path).exists() for root in roots)]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_files_that_are_named_exist(page: Path):
    assert missing(page) == []


def test_a_file_that_is_gone_is_caught(tmp_path: Path):
    page = tmp_path / "page.md"
    page.write_text("`linalg/arrow.py` and `linalg/`, but not `linalg/gone.py` or `attic/`", "utf-8")
    assert missing(page) == ["linalg/gone.py", "attic/"]


def test_the_map_of_the_paper_is_complete():
    text = (DOCS / "paper.md").read_text("utf-8")
    wanted = [f"Theorem {k}" for k in range(1, 5)] + ["Lemma 1", "Lemma 2", "Corollary 1"]
    wanted += [f"Table {k}" for k in range(1, 12)] + [f"Figure {k}" for k in range(1, 11)]
    wanted += ["1E, 1N", "2E, 2N", "1S, 2S", "Adam", "Snngm", "Nagm", "VOGN", "PGA", "RVB1, RVB2"]
    assert [name for name in wanted if not re.search(rf"{name}\b", text)] == []


def test_every_skeleton_is_shown_in_a_guide():
    shown = {name for page in PAGES for name in re.findall(r'--8<-- "(\w+\.py)"', page.read_text("utf-8"))}
    assert shown == {path.name for path in (DOCS / "contributing" / "skeletons").glob("*.py")}


# --- pages whose code runs -------------------------------------------------------------------------------------

EXECUTED = [
    REPOSITORY / "README.md",
    *(DOCS / name for name in ("index.md", "start.md", "priors.md", "processes.md", "coming-from.md")),
    *sorted(
        page for page in (DOCS / "guide").glob("*.md") if page.stem not in ("command-line", "speed")
    ),  # no Python there
    *(DOCS / "tutorials" / f"{name}.md" for name in ("seizures", "crabs", "log-density")),
]
BLOCK = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)


# nets learn for minutes: their pages run on few rows, to see that every call exists
SHORTER = {
    "epochs=20": "epochs=1",
    "epochs=60": "epochs=1",
    "(train.X, train.y": "(train.X[:256], train.y[:256]",
    "test.X, test.y": "test.X[:64], test.y[:64]",
    "(test.X": "(test.X[:64]",
}


def execute(page: Path, changes: dict[str, str] | None = None) -> None:
    names: dict[str, object] = {"__name__": "page"}
    blocks = BLOCK.findall(page.read_text("utf-8"))
    assert blocks, "the page shows no code"
    for block in blocks:
        for old, new in (changes or {}).items():
            block = block.replace(old, new)
        exec(compile(block, str(page), "exec"), names)


@pytest.mark.slow
@pytest.mark.needs_data
@pytest.mark.parametrize("name", ["inputs-that-matter", "what-a-net-does-not-know"])
def test_the_code_of_tutorials_about_nets_runs(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    execute(DOCS / "tutorials" / f"{name}.md", SHORTER)


@pytest.mark.parametrize("page", EXECUTED, ids=lambda page: page.stem)
def test_the_code_of_a_page_runs(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys) -> None:
    monkeypatch.chdir(tmp_path)
    execute(page)
    assert not re.search(r"\bnan\b", capsys.readouterr().out), "a page shows a number that is none"


def hook(name: str) -> Any:
    spec = importlib.util.spec_from_file_location(f"{name}_hook", DOCS / "hooks" / f"{name}.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_tables_of_results_come_from_the_files() -> None:
    pytest.importorskip("mkdocs")
    text = hook("results").fill_in((DOCS / "results.md").read_text("utf-8"))
    assert "| seconds | Epilepsy |" in text and "| natvi gva | 0.00747 |" in text and "141 / 141" in text
    text = hook("all_results").fill_in(text)
    assert "<!-- results" not in text and "[table2](all-results.md#experiments-table2)" in text


def test_every_file_of_results_is_on_the_page_even_new_ones(tmp_path: Path) -> None:
    pytest.importorskip("mkdocs")
    module = hook("all_results")
    text = module.fill_in((DOCS / "all-results.md").read_text("utf-8"))
    files = [path for folder in module.FOLDERS.values() for path in folder.glob("*.json")]
    assert len(files) > 30 and [path.name for path in files if f"results/{path.name}`" not in text] == []
    cell = {"row": "r", "column": "c", "metric": "seconds", "paper": None, "ours": 1.5}
    (tmp_path / "brand-new.json").write_text(json.dumps({"label": "brand_new", "cells": [cell]}), "utf-8")
    (tmp_path / "empty.json").write_text("{}", "utf-8")
    folders = {"experiments": tmp_path, "benchmarks": tmp_path / "none"}
    found = module.everything(folders)
    assert "### brand-new" in found and "| r | 1.5 |" in found and "empty" not in found
    assert "[brand-new](all-results.md#experiments-brand-new)" in module.index(folders)


def test_every_public_name_is_on_the_page_of_names() -> None:
    text = (DOCS / "api.md").read_text("utf-8")
    assert all(f"natvi.{room}" in text for room in natvi.ROOMS)
    assert [f"{m}.{n}" for m, names in natvi.NAMES.items() for n in names if not re.search(rf"\b{n}\b", text)] == []


def test_links_between_pages_lead_somewhere() -> None:
    wrong = []
    for page in [*DOCS.rglob("*.md"), REPOSITORY / "README.md", REPOSITORY / "CONTRIBUTING.md"]:
        for target in re.findall(r"\]\(([^)#\s]+)(?:#[^)]*)?\)", page.read_text("utf-8")):
            if not target.startswith(("http", "mailto")) and not (page.parent / target).exists():
                wrong.append(f"{page.name}: {target}")
    assert wrong == []


def test_workflows_and_templates_name_what_is_there() -> None:
    yaml = pytest.importorskip("yaml")
    found = sorted((REPOSITORY / ".github").rglob("*.yml"))
    assert len(found) >= 5 and all(yaml.safe_load(path.read_text("utf-8")) for path in found)
    text = "\n".join(path.read_text("utf-8") for path in found)
    targets = set(re.findall(r"^(\w+):", (REPOSITORY / "Makefile").read_text("utf-8"), re.MULTILINE))
    assert set(re.findall(r"run: make (\w+)", text)) <= targets
    assert all((REPOSITORY / path).exists() for path in re.findall(r"tests/\w+\.py", text))


def test_one_version_everywhere() -> None:
    for name, pattern in (("pyproject.toml", r'^version = "(.+)"'), ("CITATION.cff", r"^version: (.+)")):
        found = re.search(pattern, (REPOSITORY / name).read_text("utf-8"), re.MULTILINE)
        assert found is not None and found[1] == natvi.__version__
    assert f"## {natvi.__version__} " in (REPOSITORY / "CHANGELOG.md").read_text("utf-8")


def test_no_merge_was_left_half_done() -> None:
    pages = [*DOCS.rglob("*.md"), *REPOSITORY.glob("*.md")]
    assert [page.name for page in pages if re.search(r"^(<{7}|>{7}) ", page.read_text("utf-8"), re.MULTILINE)] == []
