"""The page of the suite: what was asked, what was found, member by member, and the peers beside it."""

from statistics import median
from typing import Any

from benchmarks.report import show

WHOLE = ("all", "a Gaussian can serve", "a Gaussian cannot serve")
ASKED = (
    ("accurate where a Gaussian can serve", WHOLE[1], "accurate_share", "at least 95%"),
    ("called good where a Gaussian can serve", WHOLE[1], "good_share", "at least 90%"),
    ("accurate where it cannot", WHOLE[2], "accurate_share", "at least 75%"),
    ("called good and far off (modes beyond 6 sds apart)", WHOLE[0], "silent", "0"),
    ("alarms on accurate fits", WHOLE[0], "alarm_share_of_accurate", "at most 10%"),
    ("largest CPU seconds alone, up to 250 dimensions", WHOLE[0], "largest_alone_cpu_seconds_d_to_250", "at most 2"),
    ("the same, all compiled", WHOLE[0], "largest_alone_warm_cpu_seconds_d_to_250", "below 0.3"),
    ("largest CPU seconds beside other programs", WHOLE[0], "largest_cpu_seconds_d_to_250", ""),
)
COLUMNS = {
    "dimensions": "d",
    "gaussian_can_serve": "a Gaussian can serve",
    "accurate": "accurate",
    "good": "good",
    "silent": "silently off",
    "worst_mean_in_sds": "worst mean, sds",
    "worst_sd_share": "worst sd, share",
    "method": "method",
    "cpu_seconds": "CPU s",
    "alone_cpu_seconds": "CPU s, alone",
    "alone_warm_cpu_seconds": "CPU s, alone, warm",
}
Cells = dict[tuple[str, str], dict[str, Any]]


def page(document: dict[str, Any]) -> str:
    """Return the page as Markdown, made from the rows of the JSON file."""
    cells: Cells = {}
    for row in document["rows"]:
        cells.setdefault((row["problem"], row["tool"]), {})[row["metric"]] = row["value"]
    members = [problem for problem, tool in cells if tool == "natvi" and problem not in WHOLE]
    machine = document["machine"]
    settings = ", ".join(f"{name.replace('_', ' ')} {value}" for name, value in document["settings"].items())
    versions = ", ".join(f"{name} {version}" for name, version in document["versions"].items())
    parts = [
        "# Log-densities: natvi beside other ways to a posterior in one call",
        f"`python -m benchmarks posteriors`, {document['date']}, commit {document['commit']}; {machine['cpu']}, one "
        f"core of {machine['cores']}, {machine['memory_gib']:.0f} GiB; {settings}. Accurate: every mean within 0.1 "
        "posterior sds and every sd within 10%, in the user's space, held against NUTS or exact draws. Far off: beyond "
        "0.25 sds or 25%. CPU seconds hold tracing and compilation; warm ones are those of the same fit once more. "
        "Runs shared the machine with other programs, which raises CPU seconds; one fit of every member (`--times`) "
        "had it alone.",
        _asked(cells),
        "## Member by member",
        _members(cells, members),
        "## Beside others",
        "Each at its usual settings, once for each member, on the first data set; from the same start, in double "
        "precision, and beside the same other programs. An empty cell: no answer, as the notes say, or not run.",
        _peers(cells, members),
        "## Notes",
        "\n".join(f"- {note}" for note in document["notes"]) or "None.",
        f"Versions: {versions}.",
    ]
    return "\n\n".join(parts) + "\n"


def _asked(cells: Cells) -> str:
    lines = []
    for words, part, metric, wanted in ASKED:
        found = cells.get((part, "natvi"), {})
        value = found.get(metric)
        text = f"{100 * value:.1f}%" if metric.endswith(("share", "accurate")) and value is not None else show(value)
        lines.append([words, wanted, text, show(found.get("runs"))])
    apart = cells.get((WHOLE[0], "natvi"), {}).get("separated_modes_not_seen")
    lines.append(["modes beyond 6 sds apart that were not seen", "counted apart", show(apart), ""])
    return _table(["", "asked", "found", "runs"], lines)


def _members(cells: Cells, members: list[str]) -> str:
    lines = [[name, *(show(cells[name, "natvi"].get(column)) for column in COLUMNS)] for name in members]
    return _table(["member", *COLUMNS.values()], lines)


def _peers(cells: Cells, members: list[str]) -> str:
    tools = list(dict.fromkeys(tool for _, tool in cells if tool != "natvi"))
    lines = []
    for name in members:
        if not any((name, tool) in cells for tool in tools):
            continue
        ours = cells[name, "natvi"]
        own = f"{show(ours.get('accurate'))} of {show(ours.get('runs'))}, {show(ours.get('cpu_seconds'))} s"
        lines.append([name, own, *(_peer(cells.get((name, tool))) for tool in tools)])
    last = ["accurate; median CPU seconds"]
    runs = [cells[name, "natvi"] for name in members]
    share = sum(r.get("accurate") or 0 for r in runs) / max(sum(r.get("runs") or 0 for r in runs), 1)
    seconds = [r["cpu_seconds"] for r in runs if r.get("cpu_seconds") is not None]
    last.append(f"{100 * share:.0f}%; {show(median(seconds)) if seconds else ''}")
    for tool in tools:
        found = [cells[name, tool] for name in members if (name, tool) in cells]
        right = sum(bool(r["accurate"]) for r in found)
        last.append(f"{right} of {len(found)}; {show(median(r['cpu_seconds'] for r in found)) if found else ''}")
    return _table(["member", "natvi", *tools], [*lines, last])


def _peer(found: dict[str, Any] | None) -> str:
    if found is None:
        return ""
    words = "accurate" if found["accurate"] else f"off ({show(found['mean_in_sds'])} sds, {show(found['sd_share'])})"
    return f"{words}, {show(found['cpu_seconds'])} s"


def _table(head: list[str], lines: list[list[str]]) -> str:
    rule = ["---", *["---:"] * (len(head) - 1)]
    return "\n".join(f"| {' | '.join(line)} |" for line in (head, rule, *lines))
