"""Tables of the page of results, made from the committed JSON files when the documentation is built."""

import json
import re
from pathlib import Path
from typing import Any

REPOSITORY = Path(__file__).parents[2]
PLACE = re.compile(r"<!-- results: (\w+) -->")
SPEED = ("glmm-epilepsy-sleepstudy-toenail-hers.json", "glmm-diabetes.json", "glm.json")
TABLES = ("table2", "table7", "table8", "table10", "table11")
MEASURES = {"table2": "iterations", "table7": "tll", "table8": "tll", "table10": "tll", "table11": "M"}


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Fill the places of a page in, as mkdocs calls it."""
    return fill_in(markdown) if page.file.src_uri == "results.md" else markdown


def fill_in(markdown: str) -> str:
    return PLACE.sub(lambda found: MAKERS[found[1]](), markdown)


def speed() -> str:
    parts = []
    for name in SPEED:
        document = json.loads((REPOSITORY / "benchmarks" / "results" / name).read_text("utf-8"))
        best: dict[tuple[str, str], float] = {}
        for row in document["rows"]:
            if row["metric"] == "seconds" and isinstance(row["value"], int | float):
                key = (row["problem"], row["tool"])
                best[key] = min(best.get(key, float("inf")), row["value"])
        tools = list(dict.fromkeys(tool for _, tool in best))
        problems = list(dict.fromkeys(problem for problem, _ in best))
        lines = [[problem, *(number(best.get((problem, tool))) for tool in tools)] for problem in problems]
        made = f"`benchmarks/results/{name}`, {document.get('date', '')}, each tool at its better number of threads"
        parts.append(f"{table(['data', *tools], lines)}\n\n{made}\n")
    return "\n".join(parts)


def verdicts() -> str:
    cells = read("verdicts")["cells"]
    return table(["of the data sets", "share"], [[c["row"], number(c["ours"])] for c in cells if c["metric"] == "rate"])


def calibration() -> str:
    cells = [c for c in read("calibration")["cells"] if c["metric"] == "coverage of 90% intervals, pooled"]
    return pivot(cells, "ours", "parameter")


def tables() -> str:
    parts = []
    for label in TABLES:
        measure = MEASURES[label]
        cells = [c for c in read(label)["cells"] if c["metric"] == measure and c["paper"] is not None]
        both = [{**c, "both": f"{number(c['paper'])} / {number(c['ours'])}"} for c in cells]
        parts.append(f"### Table {label.removeprefix('table')}: {measure}, paper / ours\n\n{pivot(both, 'both', '')}\n")
    return "\n".join(parts)


def pivot(cells: list[dict[str, Any]], value: str, corner: str) -> str:
    columns = list(dict.fromkeys(str(cell["column"]) for cell in cells))
    rows = list(dict.fromkeys(str(cell["row"]) for cell in cells))
    found = {(str(cell["row"]), str(cell["column"])): cell[value] for cell in cells}
    lines = [[row, *(number(found.get((row, column))) for column in columns)] for row in rows]
    return table([corner, *columns], lines)


def table(head: list[str], lines: list[list[str]]) -> str:
    rule = ["---", *["---:"] * (len(head) - 1)]
    return "\n".join(f"| {' | '.join(line)} |" for line in (head, rule, *lines))


def number(value: Any) -> str:
    if value is None:
        return ""
    return f"{value:.4g}" if isinstance(value, int | float) else str(value)


def read(label: str) -> dict[str, Any]:
    return json.loads((REPOSITORY / "experiments" / "results" / f"{label}.json").read_text("utf-8"))


def posteriors() -> str:
    page = (REPOSITORY / "benchmarks" / "results" / "posteriors.md").read_text("utf-8")
    return page.partition("\n")[2].replace("\n## ", "\n### ").strip()


MAKERS = {"posteriors": posteriors, "speed": speed, "verdicts": verdicts, "calibration": calibration, "tables": tables}
