"""Figure 10, mixed models: average lower bounds on the way."""

import numpy as np

from experiments import drawing
from experiments.curves import draw_curves, legend_below
from experiments.mixed_problems import PROBLEMS
from experiments.mixed_runs import RULES, WAYS
from experiments.report import Report
from experiments.table11 import EXACT_ROW, MARGINAL_ROW, fits, names, natvi_fits

SHARES = (0.1, 0.25, 0.5, 1.0)


def run(report: Report) -> None:
    """Draw a row of panels for each data set; cells hold the curves at a few points."""
    shown = names(report.quick)
    figure, axes = drawing.new_figure(len(shown), len(WAYS), 3.9 * len(WAYS), 2.7 * len(shown) + 0.4)
    for line, name in zip(axes.reshape(len(shown), -1), shown, strict=True):
        found, own = fits(PROBLEMS[name], report), natvi_fits(PROBLEMS[name])
        best, evidence = (float(own[row]["elbo"]) for row in (EXACT_ROW, MARGINAL_ROW))
        for ax, column in zip(line, WAYS, strict=True):
            window = int(found[next(iter(RULES)), column]["window"])
            curves = {row: found[row, column]["trace"] for row in RULES}
            x = np.arange(1, 1 + max(map(len, curves.values()))) * window / 1000
            draw_curves(ax, x, curves, best)
            ax.axhline(evidence, color=drawing.INK, linewidth=0.9, linestyle=":", alpha=0.8)
            drawing.label(ax, f"{name}: {column}", "", "average lower bound" if column == "GVA" else "")
            for row, curve in curves.items():
                for k in sorted({round(share * len(x)) for share in SHARES}):
                    if 1 <= k <= len(curve):
                        report.cell(row, f"{name}, {column}, step {k * window}", "elbo", curve[k - 1])
    for ax in axes[-len(WAYS) :]:
        ax.set_xlabel("thousand steps", fontsize=9, color=drawing.INK)
    for text, dashes in (("natvi exact GVA", (0, (4, 3))), ("log p(y), natvi marginal", ":")):
        axes[0].plot([], [], color=drawing.INK, linewidth=0.9, linestyle=dashes, label=text)
    legend_below(figure, axes[0])
    for text in NOTES:
        report.note(text)
    report.figure = figure


NOTES = (
    "The paper prints the curves only as a picture. A point is the mean of the bounds estimated in 1000 steps, with "
    "one draw each. Dashed: the exact bound of natvi's exact GVA; dotted: log p(y) from natvi's marginal method, which "
    "no bound can exceed (on Toenail it is -647, above the panels).",
    "The vertical axis is cut where it would hide what the better curves do. Runs are those of Table 11, with its "
    "learning rates.",
)
