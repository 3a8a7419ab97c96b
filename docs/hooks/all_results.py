"""The page of all results: every committed JSON file, its tables, remarks and picture, whatever it is called."""

import json
import sys
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File

REPOSITORY = Path(__file__).parents[2]
sys.path.append(str(REPOSITORY))

from benchmarks.report import markdown_tables  # noqa: E402
from experiments.report import table  # noqa: E402

FOLDERS = {"experiments": REPOSITORY / "experiments" / "results", "benchmarks": REPOSITORY / "benchmarks" / "results"}
INDEX, ALL = "<!-- results: index -->", "<!-- results: all -->"


def on_files(files: Any, config: Any) -> Any:
    """Bring the pictures of the experiments into the site."""
    for path in sorted(FOLDERS["experiments"].glob("*.png")):
        files.append(File.generated(config, f"pictures/{path.name}", abs_src_path=str(path)))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Fill the two places in, as mkdocs calls it."""
    return fill_in(markdown) if page.file.src_uri in ("results.md", "all-results.md") else markdown


def fill_in(markdown: str, folders: dict[str, Path] = FOLDERS) -> str:
    if INDEX in markdown:
        markdown = markdown.replace(INDEX, index(folders))
    return markdown.replace(ALL, everything(folders)) if ALL in markdown else markdown


def index(folders: dict[str, Path] = FOLDERS) -> str:
    """Return a table of the files: what was asked, how many figures, when."""
    lines = ["| file | what it holds | figures | made |", "|---|---|---:|---|"]
    for package, path, document in documents(folders):
        link = f"[{path.stem}](all-results.md#{anchor(package, path)})"
        what = title(path, document).replace("|", "\\|")
        lines.append(f"| {link} | {what} | {len(figures(document))} | {date(document)} |")
    return "\n".join(lines)


def everything(folders: dict[str, Path] = FOLDERS) -> str:
    """Return a folded section for every file."""
    heads = {"experiments": "## Experiments", "benchmarks": "## Benchmarks"}
    parts: list[str] = []
    for package, path, document in documents(folders):
        if package in heads:
            parts.append(heads.pop(package))
        parts.append(section(package, path, document))
    return "\n\n".join(parts)


def section(package: str, path: Path, document: dict[str, Any]) -> str:
    quick = " (quick: too few runs to judge by)" if document.get("quick") else ""
    head = f"### {path.stem}{quick} {{ #{anchor(package, path)} }}\n\n{title(path, document)}"
    picture = f'![{title(path, document)}](pictures/{path.stem}.png){{ loading="lazy" }}\n\n'
    picture = picture if package == "experiments" and path.with_suffix(".png").is_file() else ""
    body = f"{tables(document)}\n\n{remarks(document)}"
    folded = "\n".join(f"    {line}" if line else "" for line in body.splitlines())
    made = f"`python -m {package} {document.get('label') or document.get('name') or path.stem}`"
    where = f"`{package}/results/{path.name}`, {date(document)}, {machine(document)}"
    return f'{head}\n\n{picture}??? note "{len(figures(document))} figures"\n\n{folded}\n\n{made}; {where}.'


def documents(folders: dict[str, Path]) -> list[tuple[str, Path, dict[str, Any]]]:
    """Return package, path and contents of every file that holds figures."""
    found = []
    for package, folder in folders.items():
        for path in sorted(folder.glob("*.json"), key=lambda path: natural(path.stem)):
            document = json.loads(path.read_text("utf-8"))
            if isinstance(document, dict) and figures(document):
                found.append((package, path, document))
    return found


def tables(document: dict[str, Any]) -> str:
    if "rows" in document:
        return markdown_tables(document["rows"])
    if "figures" in document:
        return before_and_after(document["figures"])
    metrics = list(dict.fromkeys(cell["metric"] for cell in document["cells"]))
    parts = [table(metric, [cell for cell in document["cells"] if cell["metric"] == metric]) for metric in metrics]
    in_brackets = any(cell.get("paper") is not None for cell in document["cells"])
    return "\n\n".join(parts + (["In parentheses: the paper."] if in_brackets else []))


def before_and_after(figures: list[dict[str, Any]]) -> str:
    """Return a table of what two checkouts took."""
    lines = ["| whole call or step | before, s | after, s | after / before |", "|---|---:|---:|---:|"]
    for figure in figures:
        before, after = figure["seconds"]
        lines.append(f"| {figure['name']} | {before:.4g} | {after:.4g} | {figure['ratio']:.2f} |")
    return "\n".join(lines)


def remarks(document: dict[str, Any]) -> str:
    notes = document.get("notes") or document.get("settings", {}).get("notes") or []
    return "\n".join(f"- {note}" for note in notes)


def title(path: Path, document: dict[str, Any]) -> str:
    """Return what an experiment is about: the first line of the page beside its file."""
    page = path.with_suffix(".md")
    if page.is_file():
        first = page.read_text("utf-8").partition("\n")[0]
        return first.lstrip("# ").partition(": ")[2] or first.lstrip("# ")
    if "figures" in document:
        return "natvi in two checkouts, call by call in turns"
    problems = list(dict.fromkeys(row.get("problem", "") for row in document.get("rows", [])))
    return ", ".join(problems[:4]) + (" and more" if len(problems) > 4 else "") or path.stem


def figures(document: dict[str, Any]) -> list[Any]:
    return document.get("rows") or document.get("cells") or document.get("figures") or []


def date(document: dict[str, Any]) -> str:
    return str(document.get("date") or document.get("settings", {}).get("date") or "")[:10]


def machine(document: dict[str, Any]) -> str:
    about = document.get("machine") or document.get("settings", {}).get("machine") or {}
    return f"{about.get('cpu', 'machine not noted')}, {about.get('cores', '?')} cores"


def anchor(package: str, path: Path) -> str:
    return f"{package}-{path.stem}"


def natural(name: str) -> tuple[str, int]:
    """Return a key that puts figure10 after figure9."""
    letters = name.rstrip("0123456789")
    return letters, int(name[len(letters) :] or 0)
