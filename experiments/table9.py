"""Table 9, LeNet-5 on MNIST and CIFAR-10: test log-likelihood, accuracy, and calibration error."""

import os
from typing import Any

from experiments import net_runs
from experiments.kept import is_kept
from experiments.net_extras import ENSEMBLE, LAST_LAYER, ensemble, last_layer
from experiments.net_runs import CURVE_DRAWS, DRAWS, HELD_OUT, LABEL, ROWS, SETS, run_name
from experiments.report import Report

KEPT_ONLY = "NATVI_KEPT_ONLY"
COLUMNS = {"mnist": "MNIST", "cifar10": "CIFAR-10"}
PAPER_ROWS = ("Adam", "PGA", "nAdam", "Snngm", "Nagm", "VOGN")
SHOWN = (*PAPER_ROWS, "IVON", "IVON, warm-up", "plain Adam", ENSEMBLE, LAST_LAYER)
# tll, accuracy, seconds: MNIST, then CIFAR-10
PAPER = {
    "Adam": "-0.057 98.7 76.3 -1.347 52.6 160.6",
    "PGA": "-0.130 96.5 78.7 -2.303 10.0 162.8",
    "nAdam": "-0.048 98.8 77.7 -1.298 53.4 162.3",
    "Snngm": "-0.070 98.7 77.6 -1.263 55.6 165.1",
    "Nagm": "-0.043 98.7 78.2 -1.162 59.7 161.7",
    "VOGN": "-0.120 96.5 83.5 -1.474 46.1 141.6",
}
METRICS = {"tll": "tll", "accuracy": "acc", "calibration error": "ece", "CPU seconds": "cpu_seconds"}


def paper(row: str, name: str, metric: str) -> float | None:
    """Return the paper's figure, or None."""
    places = {"tll": 0, "accuracy": 1}
    if row not in PAPER or metric not in places:
        return None
    return float(PAPER[row].split()[3 * list(COLUMNS).index(name) + places[metric]])


def found(name: str, row: str, quick: bool, say: Any) -> dict[str, Any] | None:
    """Return what a row found; None where only what is kept is asked for and there is none."""
    special = {ENSEMBLE: (f"{name}-ensemble", ensemble), LAST_LAYER: (f"{name}-last-layer", last_layer)}
    label = special[row][0] if row in special else run_name(name, row)
    if not is_kept(LABEL, label) and (quick or os.environ.get(KEPT_ONLY)):
        return None
    return special[row][1](name) if row in special else net_runs.run(name, row, say)


def all_runs(report: Report) -> dict[tuple[str, str], dict[str, Any]]:
    """Return all runs by data set and row; missing ones are made, hours of them, unless `NATVI_KEPT_ONLY` is set."""
    done = {}
    for name in COLUMNS:
        for row in SHOWN:
            if (one := found(name, row, report.quick, report.say)) is not None:
                done[name, row] = one
    report.settings |= {
        "batch": {"VOGN": 16, "others": 128},
        "epochs": {name: {"VOGN": s.vogn_epochs, "others": s.epochs} for name, s in SETS.items()},
        "pilot": {"epochs": {name: s.pilot_epochs for name, s in SETS.items()}, "held_out": HELD_OUT},
        "grid": {row: list(spec.grid) for row, spec in ROWS.items()},
        "schedule": {row: spec.schedule for row, spec in ROWS.items()},
        "runs": {f"{row}, {COLUMNS[name]}": one["settings"] for (name, row), one in done.items()},
        "draws_for_tll": DRAWS,
        "draws_for_curves": CURVE_DRAWS,
        "prior_sd": 10.0,
    }
    missing = [f"{row} on {COLUMNS[name]}" for name in COLUMNS for row in SHOWN if (name, row) not in done]
    if missing:
        report.settings["missing"] = missing
        report.note(
            f"{len(missing)} cells are not run yet, listed under settings.missing; `python -m experiments.net_runs "
            "mnist` and `cifar10` go on with them."
        )
    return done


def run(report: Report) -> None:
    """Fill the table."""
    done = all_runs(report)
    for title, key in METRICS.items():
        for row in SHOWN:
            for name, column in COLUMNS.items():
                if (name, row) in done:
                    report.cell(row, column, title, done[name, row].get(key), paper(row, name, title))
    report.note(
        "Nets are LeNet-5 with ReLU and max-pooling, the first convolution padded by 2: d = 61,706 and 83,126. Pixels "
        "divided by 255, no augmentation. Prior N(0, 10^2), Xavier means, first sd 1/sqrt(n) (IVON: 1/sqrt(0.1 n))."
    )
    report.note(
        "The paper's rows have constant step sizes; Adam, PGA and nAdam 0.001, the others by pilots on all but the "
        "last 5,000 training images. IVON and plain Adam (a point estimate) come down along a cosine."
    )
    report.note(
        "Nagm diverges at the rates its pilots prefer, when the sds of weights that the data leave loose have grown: "
        "files named diverged-*; one along a cosine is among them, and was not gone on with. On MNIST its 0.01 had "
        "reached a tll of -0.046 at epoch 8, before it diverged at 15; the row is the next smaller rate, 0.002, which "
        "is too slow. VOGN made a single pass (MNIST) at batches of 16."
    )
    report.note(
        "Best of all is an ensemble of three point estimates; its calibration error on CIFAR-10 is a fifth of one "
        "net's. IVON with steps that rise first learns on CIFAR-10 where IVON stood still, and is overconfident."
    )
    report.note("Every run is a file under experiments/runs/table9, with its versions, machine and learning curve.")
