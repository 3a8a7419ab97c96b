"""How long each family takes beside the negative binomial: the Gaussian fit, warm, on the same rows."""

import time
import traceback

from experiments.report import Report
from experiments.response_data import PROBLEMS, model_of, simulate

GROUPS, ROWS_EACH, SEED, REPEATS = 200, 20, 5, 7


def run(report: Report) -> None:
    """Time all families, the shortest of some fits each."""
    report.settings |= {"groups": GROUPS, "rows": GROUPS * ROWS_EACH, "repeats": REPEATS, "method": "gva"}
    base = None
    for name in PROBLEMS:
        model = model_of(name, simulate(name, GROUPS, ROWS_EACH, SEED))
        try:
            model.fit(method="gva")
        except Exception as error:  # one family that fails must not hide the others
            report.note(f"{name} failed: {type(error).__name__}")
            report.say(f"{name}: {traceback.format_exc(limit=-8)}")
            continue
        seconds = []
        for _ in range(2 if report.quick else REPEATS):
            began = time.perf_counter()
            result = model.fit(method="gva")
            seconds.append(time.perf_counter() - began)
        best = min(seconds)
        base = best if base is None else base
        report.cell(name, "seconds", "warm fit", round(best, 4))
        report.cell(name, "over the negative binomial", "warm fit", round(best / base, 2))
        report.cell(name, "steps", "warm fit", len(result.trace))
        report.say(f"{name}: {best:.4f} s, {best / base:.2f}, {len(result.trace)} steps, {result.outcome}")
