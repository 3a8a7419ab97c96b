"""Table 8, what is newer than its file: German credit with standard errors of M, VOGN on a4a with the longer grid.

`table8` needs draws of NUTS from a4a, 40 minutes of two cores. German credit's take one minute, and a learning rate is
chosen by the bound, without any: so the columns of German credit and the grid of VOGN are made here anew.
"""

import numpy as np

from experiments import problems
from experiments.algorithms import ESTIMATED, FIXED, GRID, PILOT_SEED, STRUCTURES, UNIT_START
from experiments.nuts_reference import describe, reference
from experiments.paper_table8 import paper
from experiments.regression_runs import EXACT_ROW, KEPT, exact, grids, one, run_all
from experiments.report import Report
from experiments.scores import DRAWS
from experiments.table8 import METRICS, column, flat

VOGN = {row: method for row, method in (ESTIMATED | UNIT_START).items() if method.rule == "vogn"}


def run(report: Report) -> None:
    """Fill the columns of German credit, and the rows of VOGN on a4a as far as they need no draws of NUTS."""
    german = problems.german(report.quick)
    sampled = reference(german, report.quick)
    done = {"German": run_all(german, ESTIMATED | UNIT_START, flat(sampled["draws"]), report.say)}
    if not report.quick:
        a4a = problems.a4a(False)
        done["a4a"] = {}
        for structure in STRUCTURES:
            for row, method in VOGN.items():
                done["a4a"][row, structure] = one(a4a, structure, method, None)
            done["a4a"][EXACT_ROW, structure] = exact(a4a, structure, None)
    report.settings |= {"nuts": {"German": describe(sampled)}, "alpha": FIXED, "alpha_grid": list(GRID)}
    report.settings |= {"pilot_seed": PILOT_SEED, "draws_for_tll": DRAWS}
    report.settings["grid"] = {name: grids(found) for name, found in done.items()}
    report.settings["M_standard_error"] = {
        f"German, {structure}": float(done["German"][EXACT_ROW, structure]["mmd_se"]) for structure in STRUCTURES
    }
    for metric, key in METRICS.items():
        for name, found in done.items():
            for structure in STRUCTURES:
                for row, kept in column(found, structure, {}).items():
                    if np.isfinite(ours := float(kept.get(key, np.nan))):
                        report.cell(row, f"{name}, {structure}", metric, ours, paper(row, name, structure, metric))
    report.note(
        "M is the paper's measure of discrepancy from NUTS; of natvi exact it is the mean over six sets of draws."
    )
    report.note("Its standard error is under settings.M_standard_error; learning rates tried are under settings.grid.")
    report.note(KEPT)
