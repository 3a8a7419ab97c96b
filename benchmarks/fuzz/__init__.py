"""Random models and data, fitted with the defaults: what is right, refused, alarmed, and what must not be.

`python -m benchmarks fuzz --count 1000 --seed 1` runs the campaign in a worker process, which is started again after a
crash or a hang; `--case 17` runs one case alone and prints it. An answer counts as right when it was compared with a
second method or with itself in other units, and agrees.
"""

import re
from collections import Counter
from collections.abc import Sequence
from typing import Any

from benchmarks.fuzz.campaign import Campaign
from benchmarks.report import Report

NAMES: tuple[str, ...] = ()
COUNT, QUICK_COUNT = 1000, 20
MOST_WORDS = 12  # different alarms and refusals that are shown


def run(report: Report, only: Sequence[str] = (), *, count: int | None = None) -> None:
    """Run the campaign."""
    count = count or (QUICK_COUNT if report.quick else COUNT)
    report.settings |= {"count": count, "limit_seconds": Campaign.limit}
    outcomes = []
    with Campaign(report.seed) as campaign:
        for found in campaign.outcomes(range(count)):
            outcomes.append(found)
            mark = "" if found["outcome"] in ("right", "refused", "alarmed") else f": {found['words']}"
            report.say(f"{found['number']:4d} {found['outcome']:12s} {found['seconds']:6.1f} s  {found['case']}{mark}")
        tell(report, outcomes, campaign.versions)


def tell(report: Report, outcomes: list[dict[str, Any]], versions: dict[str, str]) -> None:
    """Write the counts, every case that must not be, and the words of alarms and refusals."""
    from benchmarks.fuzz.judge import BAD, OUTCOMES

    parts = {"all": outcomes, "models without groups": [o for o in outcomes if not o["mixed"]]}
    parts |= {"mixed models": [o for o in outcomes if o["mixed"]]}
    parts |= {"nothing odd": [o for o in outcomes if not o["odd"]], "something odd": [o for o in outcomes if o["odd"]]}
    for family in dict.fromkeys(o["family"] for o in outcomes):
        parts[family] = [o for o in outcomes if o["family"] == family]
    for problem, own in parts.items():
        counts = Counter(o["outcome"] for o in own)
        metrics = {"cases": len(own)} | {name: counts[name] for name in OUTCOMES}
        metrics["warned"] = sum(bool(o["warned"]) for o in own)
        report.add(problem, "natvi", metrics, versions=versions)
    for o in outcomes:
        if o["outcome"] in BAD:
            report.note(f"case {o['number']} ({o['case']}): {o['outcome']}: {o['words']}")
    for name in ("refused", "alarmed"):
        kinds = Counter(_kind(o["words"]) for o in outcomes if o["outcome"] == name)
        told = "; ".join(f"{count} x {words}" for words, count in kinds.most_common(MOST_WORDS))
        report.note(f"{name}: {told or 'none'}")
    sources = Counter(o["sources"] for o in outcomes)
    report.note(f"sources: {'; '.join(f'{count} cases with {digest}' for digest, count in sources.items())}")
    warned = Counter(o["warned"][:100] for o in outcomes if o["warned"])
    if warned:
        report.note(f"warnings: {'; '.join(f'{count} x {words}' for words, count in warned.most_common(5))}")


def _kind(words: str) -> str:
    """Return the words of an alarm or refusal without its numbers and names, cut short."""
    return re.sub(r"'[^']*'|[-+]?\d[\d,.e+-]*", "_", words)[:90]


def show_case(seed: int, number: int) -> None:
    """Run one case here and print all about it."""
    from benchmarks.fuzz.cases import draw_case
    from benchmarks.fuzz.judge import judge

    case = draw_case(seed, number)
    print(f"case {number} of seed {seed}: {case.words}")
    print(
        f"weights: {case.weights}; numeric columns: {', '.join(case.numeric) or 'none'}; may be shifted: {case.shift}"
    )
    print(case.frame.describe(include="all").to_string())
    print(case.frame.head(8).to_string())
    for name, value in judge(case)._asdict().items():
        print(f"{name}: {value}")
