"""Figure 7, logistic regression: test log-likelihood, and for German credit the lower bound, on the way."""

import numpy as np

from experiments import drawing
from experiments.algorithms import ESTIMATED, STRUCTURES
from experiments.curves import draw_curves, legend_below
from experiments.regression_runs import EXACT_ROW, KEPT
from experiments.report import Report
from experiments.table8 import all_runs

ORDERS = {1: "first derivatives", 2: "second derivatives"}
SHARES = (0.1, 0.25, 0.5, 1.0)


def run(report: Report) -> None:
    """Draw a row of panels for each data set; cells hold the curves at a few points."""
    done = all_runs(report)
    panels = [(structure, order) for structure in STRUCTURES for order in ORDERS]
    figure, axes = drawing.new_figure(len(done), len(panels), 3.3 * len(panels), 3.0 * len(done))
    for line, (name, (problem, found)) in zip(axes.reshape(len(done), -1), done.items(), strict=True):
        full_batch = problem.batch_size is None
        x = np.arange(problem.chunks + 1) * (problem.steps if full_batch else 1)
        metric = "elbo" if problem.test is None else "tll"
        for ax, (structure, order) in zip(line, panels, strict=True):
            rows = [row for row in ESTIMATED if row.endswith(str(order)) or row == "VOGN"]
            curves = {row: found[row, structure]["curve"] for row in rows}
            draw_curves(ax, x, curves, float(found[EXACT_ROW, structure][metric]))
            what = {"tll": "test log-likelihood", "elbo": "lower bound"}[metric]
            drawing.label(
                ax, f"{name}: {structure}, {ORDERS[order]}", "epoch", what if (structure, order) == panels[0] else ""
            )
            for row in rows:
                if order == 1 or row != "VOGN":
                    for k in sorted({round(share * problem.chunks) for share in SHARES}):
                        if k < len(curves[row]):
                            report.cell(row, f"{name}, {structure}, epoch {x[k]}", metric, curves[row][k])
    legend_below(figure, axes[0])
    report.note("The paper prints the curves only as a picture. The dashed line is the maximiser of the exact bound.")
    report.note(
        "Test log-likelihoods on the way have infinitely many draws, by quadrature over each row's Gaussian predictor; "
        "bounds are exact. A full-batch step is an epoch. VOGN stands in both columns of a structure."
    )
    report.note(KEPT)
    report.figure = figure
