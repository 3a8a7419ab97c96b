"""Figure 8, LeNet-5: test log-likelihood and accuracy against epochs."""

import numpy as np

from experiments import drawing
from experiments.curves import COLOURS, DASHES, legend_below
from experiments.report import Report
from experiments.table9 import COLUMNS, all_runs

EXTRA = {"IVON": "#111111", "plain Adam": "#8c8c8c"}


def run(report: Report) -> None:
    """Draw a panel for each data set and measure; cells hold the curves at their ends."""
    done = all_runs(report)
    figure, axes = drawing.new_figure(2, len(COLUMNS), 4.6 * len(COLUMNS), 6.4)
    for k, (key, text) in enumerate((("tll", "test log-likelihood"), ("acc", "accuracy, %"))):
        for j, (name, title) in enumerate(COLUMNS.items()):
            ax, ends, tops = axes[k * len(COLUMNS) + j], [], []
            for (of, row), found in done.items():
                points = [(p["epoch"], p[key]) for p in found["curve"] if key in p]
                if of != name or not points:
                    continue
                x, y = np.array(points).T
                style = {"color": COLOURS.get(row, EXTRA.get(row)), "linestyle": DASHES.get(row, ":")}
                ax.plot(x, y, linewidth=1.4, label=row, marker="o" if len(x) == 1 else "", markersize=4, **style)
                ends.append(float(y[-1]))
                tops.append(float(y.max()))
                report.cell(row, f"{title}, epoch {int(x[-1])}", key, float(y[-1]))
            drawing.label(ax, title if k == 0 else "", "epoch", text if j == 0 else "")
            if ends:
                low, high = float(np.median(ends)), max(tops)  # a net that overfits ends below its best
                room = max(2.5 * (high - low), 0.02 * abs(high))
                ax.set_ylim(high - room, high + 0.12 * room)
    if axes[0].get_legend_handles_labels()[0]:
        legend_below(figure, axes[0])
    report.note("Curves average over few draws of the weights, fewer than the table; axes are cut below the slow ones.")
    report.figure = figure
