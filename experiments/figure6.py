"""Figure 6, loglinear model: test log-likelihood against epochs."""

import numpy as np

from experiments import drawing
from experiments.algorithms import EXACT, STRUCTURES
from experiments.curves import draw_curves, legend_below
from experiments.regression_runs import EXACT_ROW, KEPT
from experiments.report import Report
from experiments.table7 import all_runs

SHOWN = (1, 5, 20, 60)


def run(report: Report) -> None:
    """Draw a panel for each structure and dimension; cells hold the curves at a few epochs."""
    done = all_runs(report)
    figure, axes = drawing.new_figure(1, len(STRUCTURES) * len(done), 3.4 * len(STRUCTURES) * len(done), 3.6)
    panels = [(structure, d) for structure in STRUCTURES for d in done]
    for ax, (structure, d) in zip(axes, panels, strict=True):
        problem, found = done[d]
        curves = {row: found[row, structure]["curve"] for row in EXACT}
        best = float(found[EXACT_ROW, structure]["tll"])
        draw_curves(ax, np.arange(problem.chunks + 1), curves, best)
        drawing.label(ax, f"{structure} covariance, d = {d}", "epoch", "test log-likelihood" if ax is axes[0] else "")
        for row, curve in curves.items():
            for epoch in (epoch for epoch in SHOWN if epoch < len(curve)):
                report.cell(row, f"{structure}, d = {d}, epoch {epoch}", "tll", curve[epoch])
    legend_below(figure, axes[0])
    report.note("The paper prints the curves only as a picture. The dashed line is the maximiser of the exact bound.")
    report.note(
        "Curves are test log-likelihoods with infinitely many draws, by quadrature over each row's Gaussian predictor. "
        "The vertical axis is cut where it would hide what the better curves do."
    )
    report.note(KEPT)
    report.figure = figure
