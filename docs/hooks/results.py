"""Tables of the page of results, made from the committed JSON files when the documentation is built."""

import json
import re
from pathlib import Path
from typing import Any

REPOSITORY = Path(__file__).parents[2]
PLACE = re.compile(r"<!-- results: (\w+) -->")
SPEED = (
    "default.json",
    "glmm-epilepsy-sleepstudy-toenail-hers.json",
    "glmm-diabetes.json",
    "crossed-speed.json",
    "glm.json",
)
OLDER = ("natvi auto", "natvi marginal")  # in files made before the default became faster; `default.json` has it anew
TABLES = ("table2", "table7", "table8", "table9", "table10", "table11")
WIDE = ("table11",)  # more cases than methods: they go down the page
SHARES = {
    "trusted but off, of all": "called good, but a mean is off by over 0.2 posterior sds or an sd by over 15%",
    "alarmed but right, of all": "an alarm, although the answer is right",
    "the Gaussian fit is off": "where the Gaussian alone would have been off",
    "escalated, of those whose Gaussian fit is off": "of those, how many went on to the marginal method",
}
MEASURES = {"table2": "iterations", "table7": "tll", "table8": "tll", "table9": "tll", "table10": "tll", "table11": "M"}


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Fill the places of a page in, as mkdocs calls it."""
    return fill_in(markdown) if page.file.src_uri == "results.md" else markdown


def fill_in(markdown: str) -> str:
    return PLACE.sub(lambda found: MAKERS[found[1]]() if found[1] in MAKERS else found[0], markdown)


def speed() -> str:
    parts = []
    for name in SPEED:
        path = REPOSITORY / "benchmarks" / "results" / name
        if not path.is_file():
            continue
        document = json.loads(path.read_text("utf-8"))
        best: dict[tuple[str, str], float] = {}
        for row in document["rows"]:
            if row["metric"] == "seconds" and isinstance(row["value"], int | float):
                key = (row["problem"], row["tool"])
                best[key] = min(best.get(key, float("inf")), row["value"])
        tools = [tool for tool in dict.fromkeys(tool for _, tool in best) if name == SPEED[0] or tool not in OLDER]
        problems = list(dict.fromkeys(problem for problem, _ in best))
        lines = [[tool, *(number(best.get((problem, tool)), 3) for problem in problems)] for tool in tools]
        cores, day = document.get("machine", {}).get("cores", "?"), document.get("date", "")[:10]
        made = f"`benchmarks/results/{name}`, {day}, {cores} cores, each tool at its better number of threads"
        parts.append(f"{table(['seconds', *problems], lines)}\n\n{made}\n")
    return "\n".join(parts)


def verdicts() -> str:
    cells = read("verdicts")["cells"]
    shares = {c["row"]: c["ours"] for c in cells if c["metric"] == "rate"}
    return table(["of the data sets", "share"], [[words, f"{shares[row]:.1%}"] for row, words in SHARES.items()])


def calibration() -> str:
    cells = [c for c in read("calibration")["cells"] if c["metric"] == "coverage of 90% intervals, pooled"]
    return pivot([c for c in cells if not str(c["column"]).startswith("within")], "ours", "parameter")


def responses() -> str:
    found = read("responses")
    beside = pivot(
        [c for c in found["cells"] if c["metric"] == "beside NUTS" and c["column"] != "of"], "ours", "family"
    )
    checks = [c for c in found["cells"] if "verdict on the model" in str(c["column"])]
    lines = [[str(c["row"]), str(c["column"]).rpartition(", ")[2], str(c["ours"])] for c in checks]
    return "\n\n".join([beside, table(["data", "family", "verdict on the model"], lines)])


def tables() -> str:
    parts = []
    for label in TABLES:
        measure = MEASURES[label]
        cells = [c for c in read(label)["cells"] if c["metric"] == measure and c["paper"] is not None]
        cells = [{**c, "row": c["column"], "column": c["row"]} for c in cells] if label in WIDE else cells
        both = [{**c, "both": f"{number(c['paper'])} / {number(c['ours'])}"} for c in cells]
        parts.append(
            f"### Table {label.removeprefix('table')}: {measure}, paper / ours\n\n{pivot(both, 'both', 'case')}\n"
        )
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


def number(value: Any, digits: int = 4) -> str:
    if value is None:
        return ""
    if isinstance(value, int | float):
        return f"{value:,.0f}" if abs(value) >= 10 ** (digits - 1) else f"{value:.{digits}g}"
    return str(value)


def read(label: str) -> dict[str, Any]:
    return json.loads((REPOSITORY / "experiments" / "results" / f"{label}.json").read_text("utf-8"))


def posteriors() -> str:
    path = REPOSITORY / "benchmarks" / "results" / "posteriors.md"
    if not path.is_file():
        return "Not run yet."
    page = path.read_text("utf-8")
    return page.partition("\n")[2].replace("\n## ", "\n### ").strip()


def hosts() -> str:
    path = REPOSITORY / "benchmarks" / "results" / "hosts.json"
    if not path.is_file():
        return "Not run yet."
    document = json.loads(path.read_text("utf-8"))
    found: dict[tuple[str, str], dict[str, str]] = {}
    for row in document["rows"]:
        found.setdefault((row["problem"], row["tool"]), {})[row["metric"]] = number(row["value"])
    kinds: dict[tuple[str, ...], list[list[str]]] = {}
    for (problem, tool), cells in found.items():
        if not re.fullmatch(r"kill \d+", problem):  # each of them is in the file
            kinds.setdefault(tuple(cells), []).append([problem, tool.removeprefix("natvi, "), *cells.values()])
    parts = [table(["", "", *(name.replace("_", " ") for name in names)], lines) for names, lines in kinds.items()]
    return "\n\n".join([*parts, "\n".join(f"- {note}" for note in document["notes"])])


MAKERS = {
    **{"posteriors": posteriors, "speed": speed, "verdicts": verdicts, "calibration": calibration, "tables": tables},
    "hosts": hosts,
    "responses": responses,
}
