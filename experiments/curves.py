"""Curves of several algorithms in one panel, on an axis that keeps the slow ones in sight without hiding the rest."""

from typing import Any

import numpy as np

from experiments.drawing import INK

COLOURS = {
    "Adam": "#c1272d",
    "PGA": "#e08e0b",
    "nAdam": "#7b2d8b",
    "Snngm": "#0b6e4f",
    "Nagm": "#1f4e79",
    "VOGN": "#5d9bd3",
}
DASHES = {"Adam": "-", "PGA": "--", "nAdam": "-", "Snngm": "-", "Nagm": "--", "VOGN": "-."}


def draw_curves(ax: Any, x: np.ndarray, curves: dict[str, np.ndarray], best: float) -> None:
    """Draw curves against x, and the best value as a dashed line.

    Curves begin far below where they end: the axis reaches down a quarter beyond the worst end (ends below the start
    count as the start), at least an eighth of the way back.
    """
    for row, curve in curves.items():
        name = row.rstrip("12")
        ax.plot(x[: len(curve)], curve, DASHES[name], color=COLOURS[name], linewidth=1.4, label=name)
    ax.axhline(best, color=INK, linewidth=0.9, linestyle=(0, (4, 3)), alpha=0.7)
    start = max(curve[0] for curve in curves.values())
    ends = [curve[np.isfinite(curve)][-1] for curve in curves.values()]
    worst = min(max(end, start) for end in ends)
    depth = max(1.25 * (best - worst), 0.12 * (best - start))
    top = max(best, *(float(np.nanmax(curve)) for curve in curves.values()))
    ax.set_ylim(best - depth, top + 0.06 * depth)
    ax.set_xlim(0, x[-1])


def legend_below(figure: Any, ax: Any) -> None:
    """Name the curves of one panel, which stand for those of all, under the picture."""
    handles, labels = ax.get_legend_handles_labels()
    options = {"fontsize": 9, "edgecolor": "none", "handlelength": 2.6}
    figure.legend(handles, labels, loc="outside lower center", ncols=len(labels), **options)
