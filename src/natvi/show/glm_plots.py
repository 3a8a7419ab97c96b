"""Plots of a regression: marginal posteriors, residuals, and replicated beside observed responses."""

from typing import Any

import numpy as np
import pandas as pd

from natvi.show.plots import INK, SHADE, label, new_axis
from natvi.special import ndtri

MOST_PANELS, ROW_PANELS = 12, 4
MOST_BARS = 25
SHOWN_CURVES = 50


def posteriors(
    table: pd.DataFrame,
    draws: dict[str, np.ndarray],
    names: Any = None,
    bounds: dict[str, tuple[float, float]] | None = None,
    columns: int = ROW_PANELS,
) -> Any:
    """Plot a density of each parameter with its mean and interval.

    Args:
        table: The summary: mean, sd and interval by name.
        draws: Draws by name.
        names: Which parameters; by default the first dozen.
        bounds: Between which numbers a parameter lies, by name: no density is shown outside.
        columns: Panels side by side at most.

    Returns:
        The axes, one for each parameter.
    """
    from matplotlib.figure import Figure

    known = [str(name) for name in table.index]
    chosen = known[:MOST_PANELS] if names is None else [names] if isinstance(names, str) else list(names)
    unknown = [name for name in chosen if name not in known]
    if unknown or not chosen:
        raise ValueError(
            f"There is no parameter {unknown[0] if unknown else '(none given)'!r}. Parameters: {', '.join(known[:20])}."
        )
    columns = min(len(chosen), columns)
    rows = -(-len(chosen) // columns)
    figure = Figure(figsize=(2.3 * columns + 0.4, 1.9 * rows + 0.3), layout="constrained")
    axes = np.ravel(figure.subplots(rows, columns, squeeze=False))
    for ax, name in zip(axes, chosen, strict=False):
        grid, density = smooth(draws[name], stretch=1.6, bounds=(bounds or {}).get(name, (-np.inf, np.inf)))
        low, high = (float(table.loc[name].iloc[j]) for j in (2, 3))
        inside = (grid >= low) & (grid <= high)
        ax.fill_between(grid[inside], density[inside], color=SHADE, alpha=0.6, linewidth=0)
        ax.plot(grid, density, color=INK, linewidth=1.3)
        ax.axvline(float(table.loc[name, "mean"]), color=INK, linewidth=0.9, linestyle=":")  # type: ignore[arg-type]
        if grid[0] < 0 < grid[-1]:
            ax.axvline(0, color="0.6", linewidth=0.8, zorder=0)
        ax.set_title(label(name), fontsize=9)
        ax.set_yticks([])
        ax.set_ylim(bottom=0)
        ax.tick_params(labelsize=8)
        ax.locator_params(axis="x", nbins=4)
        ax.spines[["top", "right", "left"]].set_visible(False)
    for ax in axes[len(chosen) :]:
        ax.remove()
    if names is None and len(known) > len(chosen):
        figure.supxlabel(f"the first {len(chosen)} of {len(known)} parameters", fontsize=8, color="0.4")
    return axes[: len(chosen)]


def residuals(fitted: np.ndarray, pearson: np.ndarray, quantile: np.ndarray, discrete: bool = False) -> Any:
    """Plot Pearson residuals against fitted values, averaged in bins, and quantile residuals against the normal.

    Args:
        fitted: Expected responses.
        pearson: (y - mean) / sd of each row.
        quantile: Residuals that are standard normal if the model is right.
        discrete: Whether single points fall on lines, so that only the averages of bins can be judged.

    Returns:
        The two axes.
    """
    from matplotlib.figure import Figure

    left, right = Figure(figsize=(7.6, 3.4), layout="constrained").subplots(1, 2)
    return np.array([against_fitted(fitted, pearson, discrete, left), against_normal(quantile, right)])


def against_fitted(fitted: np.ndarray, pearson: np.ndarray, discrete: bool = False, ax: Any = None) -> Any:
    """Plot Pearson residuals against fitted values, averaged in bins."""
    left = ax or new_axis(4.6, 3.4)
    centres, means, errors = bin_means(fitted, pearson)
    edge = residual_edge(pearson, np.abs(means) + 2 * errors)
    beyond = np.abs(pearson) > edge
    near, far = (fitted[~beyond], pearson[~beyond]), (fitted[beyond], np.clip(pearson[beyond], -edge, edge))
    left.plot(*near, ".", color=SHADE, markersize=4, alpha=0.5 if discrete else 0.8, label="rows")
    if beyond.any():
        left.plot(*far, "d", color=SHADE, markersize=4, label=f"{beyond.sum():,} beyond ±{edge:.2g}")
    left.errorbar(centres, means, 2 * errors, fmt="o", color=INK, markersize=4, linewidth=1.2, label="bins, ± 2 se")
    left.axhline(0, color="0.6", linewidth=0.8, zorder=0)
    left.set(xlabel="fitted", ylabel="Pearson residual", title="residuals")
    left.legend(frameon=False, fontsize=8)
    left.spines[["top", "right"]].set_visible(False)
    return left


def against_normal(quantile: np.ndarray, ax: Any = None) -> Any:
    """Plot quantile residuals against the quantiles of the normal distribution."""
    right = ax or new_axis(4.6, 3.4)
    ordered = np.sort(quantile)
    expected = ndtri((np.arange(1, len(ordered) + 1) - 0.5) / len(ordered))
    edge = 1.05 * max(np.abs(expected).max(), np.abs(ordered).max())
    right.plot([-edge, edge], [-edge, edge], color="0.6", linewidth=0.8, zorder=0)
    right.plot(expected, ordered, ".", color=INK, markersize=3)
    right.set(xlabel="standard normal quantile", ylabel="quantile residual", title="distribution")
    right.spines[["top", "right"]].set_visible(False)
    return right


def residual_edge(residuals: np.ndarray, bins: np.ndarray) -> float:
    """Return where the picture ends: at the largest residual, or earlier if a few far ones would squeeze the others.

    Example:
        >>> residual_edge(np.array([-1.0, 0.5, 2.0]), np.array([0.3]))
        2.0
    """
    largest = float(np.max(np.abs(residuals)))
    usual = max(4.0, 1.5 * float(np.quantile(np.abs(residuals), 0.99)), float(np.max(bins)))
    return usual if largest > 2 * usual else largest


def bin_means(x: np.ndarray, values: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return centre, mean and standard error of the values in bins of equally many x.

    Example:
        >>> bin_means(np.array([1.0, 2.0, 3.0, 4.0]), np.array([1.0, -1.0, 2.0, 0.0]))[1].tolist()
        [0.0, 1.0]
    """
    count = int(np.clip(np.sqrt(len(x)), 1, 25))
    parts = np.array_split(np.argsort(x, kind="stable"), count)
    centres = np.array([x[part].mean() for part in parts])
    means = np.array([values[part].mean() for part in parts])
    errors = np.array([values[part].std(ddof=1) / np.sqrt(len(part)) if len(part) > 1 else 0.0 for part in parts])
    return centres, means, errors


def predictive_bars(observed: np.ndarray, replicated: np.ndarray, ax: Any = None) -> Any:
    """Plot how often each count was observed beside how often it is replicated, with 95% intervals.

    Args:
        observed: Counts, or 0 and 1.
        replicated: Draws of them `(draws, n)`.
        ax: An axis to plot on.
    """
    ax = ax or new_axis()
    edges = count_edges(observed, min(float(observed.min()), float(replicated.min())))
    seen = np.histogram(observed, edges)[0]
    # counts beyond the last bar are collected in it
    clipped = np.clip(replicated, edges[0], edges[-1] - 1)
    again = np.stack([np.histogram(draw, edges)[0] for draw in clipped])
    low, middle, high = np.quantile(again, [0.025, 0.5, 0.975], axis=0)
    at = np.arange(len(seen))
    ax.bar(at, seen, color=SHADE, width=0.8, label="observed")
    ax.errorbar(at, middle, [middle - low, high - middle], fmt="o", color=INK, markersize=4, label="replicated, 95%")
    starts, stops = edges[:-1].astype(int), edges[1:].astype(int) - 1
    names = [str(a) if a == b else f"{a}–{b}" for a, b in zip(starts, stops, strict=True)]
    if replicated.max() >= edges[-1]:
        names[-1] = f"{starts[-1]}+"
    # counted from the last bar, which may stand for all larger counts
    room = 13 if max(map(len, names)) <= 3 else 8 * ax.figure.get_figwidth() / 6
    skip = int(-(-len(names) // room))
    ax.set_xticks(at[::-skip], names[::-skip], fontsize=8)
    top = 1.25 * max(float(high.max()), float(seen.max()))  # the legend has room above the bars
    ax.set(xlabel="response", ylabel="rows", title="posterior predictive check", ylim=(0, top))
    ax.legend(frameon=False, fontsize=8, ncols=2)
    return ax


def count_edges(observed: np.ndarray, least: float = 0.0) -> np.ndarray:
    """Return the edges of bars for counts: one for each, or wider ones of equal width where there are many.

    Args:
        observed: Counts.
        least: Where the bars begin, unless the counts are far above.

    Example:
        >>> count_edges(np.array([0.0, 1.0, 3.0])).tolist()
        [0.0, 1.0, 2.0, 3.0, 4.0]
    """
    low, high = float(observed.min()), float(observed.max())
    low = least if low <= MOST_BARS else low
    width = float(np.ceil((high - low + 1) / MOST_BARS))
    return np.arange(low, high + 1 + width, width)


def predictive_densities(observed: np.ndarray, replicated: np.ndarray, ax: Any = None) -> Any:
    """Plot the density of the responses over densities of replicated ones.

    Args:
        observed: Measurements.
        replicated: Draws of them `(draws, n)`.
        ax: An axis to plot on.
    """
    ax = ax or new_axis()
    # a replicate far outside would squeeze the picture
    low, high = np.quantile(replicated, [0.001, 0.999])
    low, high = min(low, observed.min()), max(high, observed.max())
    for j, draw in enumerate(replicated[:SHOWN_CURVES]):
        name = "replicated" if j == 0 else None
        ax.plot(*smooth(draw, low, high), color=SHADE, linewidth=0.7, alpha=0.6, label=name)
    ax.plot(*smooth(observed, low, high), color=INK, linewidth=2, label="observed")
    ax.set(xlabel="response", yticks=[], title="posterior predictive check")
    ax.set_ylim(bottom=0)
    ax.spines["left"].set_visible(False)
    ax.legend(frameon=False, fontsize=8)
    return ax


def smooth(
    values: np.ndarray,
    low: float | None = None,
    high: float | None = None,
    stretch: float = 1.0,
    bounds: tuple[float, float] = (-np.inf, np.inf),
) -> tuple[np.ndarray, np.ndarray]:
    """Return a grid and a kernel density estimate on it: a fine histogram smoothed with a Gaussian.

    The bandwidth is Silverman's, 0.9 min(sd, IQR/1.34) n^(-1/5), times `stretch`. What would fall beyond the bounds is
    reflected, so that the density of an sd neither reaches below zero nor falls towards it for lack of neighbours.

    Example:
        >>> grid, density = smooth(np.random.default_rng(0).exponential(size=4000), bounds=(0.0, np.inf))
        >>> bool(grid[0] >= 0), round(float(density[0]), 1)
        (True, 0.9)
    """
    low, high = float(values.min()) if low is None else low, float(values.max()) if high is None else high
    quartiles = np.quantile(values, [0.25, 0.75])
    sd = float(np.std(values))
    width = stretch * 0.9 * (min(sd, float(quartiles[1] - quartiles[0]) / 1.34) or sd) * len(values) ** -0.2
    width = max(width, (high - low) / 200) or 0.1
    edges = np.linspace(low - 3 * width, high + 3 * width, 400)
    step = edges[1] - edges[0]
    heights = np.histogram(values, edges)[0] / (len(values) * step)
    for bound in filter(np.isfinite, bounds):
        heights += np.histogram(2 * bound - values, edges)[0] / (len(values) * step)
    reach = min(int(np.ceil(4 * width / step)), 199)
    kernel = np.exp(-0.5 * (np.arange(-reach, reach + 1) * step / width) ** 2)
    grid, density = 0.5 * (edges[1:] + edges[:-1]), np.convolve(heights, kernel / kernel.sum(), mode="same")
    inside = (grid >= bounds[0]) & (grid <= bounds[1])
    return grid[inside], density[inside]
