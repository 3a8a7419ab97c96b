"""Figure 9, deep GLMs: test log-likelihood against time, and the shrinkage of every input."""

import numpy as np

from experiments import drawing
from experiments.curves import COLOURS, DASHES, legend_below
from experiments.deep_glm_problems import problem
from experiments.report import Report
from experiments.table10 import COLUMNS, SHOWN, all_runs

INKS = COLOURS | {"IVON": "#8c8c8c", "IVON, warm-up": "#111111"}


def run(report: Report) -> None:
    """Draw curves in the first row of panels and gamma_j in the second; cells hold the inputs ranked first."""
    done = all_runs(report)
    figure, axes = drawing.new_figure(2, len(COLUMNS), 3.6 * len(COLUMNS), 6.2)
    for j, (name, title) in enumerate(COLUMNS.items()):
        above, below = axes[j], axes[len(COLUMNS) + j]
        tops, early = [], []
        for row in SHOWN:
            runs = done.get((name, row))
            if not runs:
                continue
            curve = np.array([np.nan if v is None else v for v in runs[0]["curve"]])
            seconds = (runs[0]["cpu_seconds"] or np.nan) * np.arange(1, len(curve) + 1) / len(curve)
            style = {"color": INKS[row], "linestyle": DASHES.get(row, "-"), "label": row}
            above.plot(seconds, curve, linewidth=1.3, **style)
            below.plot(np.arange(1, len(runs[0]["gamma"]) + 1), runs[0]["gamma"], linewidth=1.0, **style)
            tops.append(float(np.nanmax(curve)))
            early.append(float(curve[min(4, len(curve) - 1)]))
            report.cell(row, title, "inputs ranked first", ", ".join(map(str, runs[0]["first_inputs"])))
        drawing.label(above, title, "CPU seconds", "test log-likelihood" if j == 0 else "")
        drawing.label(below, "", "input", "shrinkage, gamma_j" if j == 0 else "")
        below.set_yscale("log")
        if tops:
            bottom = min(np.median(early), max(tops) - 0.02)
            above.set_ylim(bottom, max(tops) + 0.08 * (max(tops) - bottom))
        if (known := problem(name, report.quick).relevant) > 0:
            below.axvspan(0.5, known + 0.5, color="#e9edf2", zorder=0)
    legend_below(figure, max(axes[: len(COLUMNS)], key=lambda ax: len(ax.get_legend_handles_labels()[0])))
    report.note(
        "Curves are log-likelihoods of 5,000 test rows with eight draws, of the first seed. Relevant inputs have a "
        "small gamma_j. Shaded: the inputs that the simulated responses depend on."
    )
    report.figure = figure
