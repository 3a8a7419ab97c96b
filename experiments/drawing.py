"""What the pictures share: a plain style, colours that are told apart, and the landscape under a trajectory."""

from collections.abc import Callable
from typing import Any

import numpy as np
from matplotlib.colors import LogNorm
from matplotlib.figure import Figure

INK = "#1b2733"
COLOURS = ("#c1272d", "#0b6e4f", "#7b2d8b")  # for three starting points
PAIR = ("#b3541e", "#1f4e79")  # for two methods
STYLE = {"linewidth": 1.3, "alpha": 0.95}


def new_figure(rows: int, columns: int, width: float, height: float) -> tuple[Figure, np.ndarray]:
    """Return a figure that no window manages, and its axes."""
    figure = Figure(figsize=(width, height), layout="constrained")
    axes = np.atleast_1d(figure.subplots(rows, columns)).ravel()
    for ax in axes:
        ax.tick_params(labelsize=8, colors=INK)
        ax.spines[["top", "right"]].set_visible(False)
    return figure, axes


def label(ax: Any, title: str, x: str, y: str) -> None:
    """Name a panel and its axes."""
    ax.set_title(title, fontsize=10, color=INK)
    ax.set_xlabel(x, fontsize=9, color=INK)
    ax.set_ylabel(y, fontsize=9, color=INK)


def landscape(
    ax: Any,
    limits: tuple[tuple[float, float], tuple[float, float]],
    gap: Callable[[np.ndarray, np.ndarray], np.ndarray],
    field: Callable[[np.ndarray, np.ndarray], tuple[np.ndarray, np.ndarray]],
    arrows: tuple[int, int] = (17, 13),
) -> None:
    """Draw how far the bound lies below its maximum, in shades, and the directions of a vector field.

    Arrows show the direction as the eye sees it in this panel, all of one length: magnitudes span many decades.
    """
    (left, right), (bottom, top) = limits
    x, y = np.meshgrid(np.linspace(left, right, 240), np.linspace(bottom, top, 240))
    levels = np.logspace(-1, 4, 16)
    shades = np.clip(gap(x, y), levels[0], levels[-1])
    ax.contourf(x, y, shades, levels, cmap="Blues", norm=LogNorm(levels[0], 1e4 * levels[-1]), zorder=0)
    ax.contour(x, y, shades, levels[1:-1], colors="white", linewidths=0.4, alpha=0.7, zorder=1)
    x, y = np.meshgrid(*(middles(low, high, k) for (low, high), k in zip(limits, arrows, strict=True)))
    u, v = field(x, y)
    u, v = u / (right - left), v / (top - bottom)
    length = np.hypot(u, v)
    ax.quiver(
        *(x, y, u / length, v / length),
        **{"color": INK, "alpha": 0.45, "pivot": "middle", "zorder": 2},
        **{"scale": 28, "width": 0.0028, "headwidth": 4, "headlength": 4.5, "headaxislength": 4},
    )
    ax.set(xlim=(left, right), ylim=(bottom, top))


def middles(low: float, high: float, k: int) -> np.ndarray:
    """Return the middles of k equal cells."""
    return low + (np.arange(k) + 0.5) * (high - low) / k


def trajectory(ax: Any, points: np.ndarray, colour: str, text: str, dots: bool = True) -> None:
    """Draw a path, its start as a square."""
    ax.plot(*points.T, color=colour, zorder=4, label=text, marker="o" if dots else "", markersize=2.2, **STYLE)
    ax.plot(*points[0], "s", color=colour, markersize=7, markeredgecolor="white", zorder=6, clip_on=False)


def closer_look(ax: Any, limits: tuple[tuple[float, float], tuple[float, float]], place: tuple[float, ...]) -> None:
    """Show all lines drawn so far once more, magnified, in a corner of the panel."""
    inset = ax.inset_axes(place, zorder=8)
    for line in ax.get_lines():
        inset.plot(*line.get_data(), color=line.get_color(), marker=line.get_marker(), markersize=1.8, linewidth=0.9)
    inset.set(xlim=limits[0], ylim=limits[1])
    inset.yaxis.tick_right()
    inset.locator_params(nbins=4)
    inset.tick_params(labelsize=6.5, colors=INK, length=2)
    ax.indicate_inset_zoom(inset, edgecolor=INK, alpha=0.8)


def goal(ax: Any, point: np.ndarray) -> None:
    """Mark the optimum by a circle."""
    ax.plot(*point, "o", markersize=8, markerfacecolor="none", markeredgecolor=INK, markeredgewidth=1.6, zorder=7)


def legend(ax: Any, **options: Any) -> None:
    """Add a legend that leaves the picture readable."""
    ax.legend(**{"fontsize": 8, "framealpha": 0.9, "edgecolor": "none", "loc": "upper right"} | options)
