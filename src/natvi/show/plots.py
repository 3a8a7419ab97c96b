"""Plots of a fit; every function takes an axis or makes one, and returns it."""

from typing import Any

import numpy as np
import pandas as pd

INK, SHADE = "#1f4e79", "#9db8d2"
MOST_GROUPS, MOST_EFFECTS = 400, 4
MOST_COEFFICIENTS, MOST_PANELS, SHARED_AXIS = 40, 5, 12.0  # of a forest; intervals up to 12 times as long share an axis
MOST_LABELS = 40  # groups whose names are written beside their effects
MOST_IN_A_COLUMN = 20  # of them, where there is room beside it
NOISY = 0.1  # of the steps of an exact bound, fewer go down
LONGEST_NAME = 40


def new_axis(width: float = 6.0, height: float = 3.5) -> Any:
    """Return the axis of a figure that no window manages."""
    from matplotlib.figure import Figure

    ax = Figure(figsize=(width, height), layout="constrained").subplots()
    ax.spines[["top", "right"]].set_visible(False)
    return ax


def label(name: object) -> str:
    """Return a name that fits beside a picture and is no mathematics to matplotlib."""
    text = str(name)
    text = text if len(text) <= LONGEST_NAME else text[: LONGEST_NAME - 1] + "…"
    return text.replace("$", r"\$")


def trace(elbo: np.ndarray, ax: Any = None) -> Any:
    """Plot the distance of the bound from its last value, on a log scale, to the last one; a noisy one as it is."""
    ax = ax or new_axis()
    if len(elbo) > 2 and np.mean(np.diff(elbo) < 0) > NOISY:
        return _noisy_trace(elbo, ax)
    gap = np.maximum(elbo[-1] - elbo[:-1], 1e-12) if len(elbo) > 1 else np.array([])
    gap = np.where(np.isfinite(gap), gap, np.nan)
    at = np.arange(1, len(elbo) + 1)
    ax.semilogy(at[:-1], gap, color=INK, marker="o", markersize=3, linewidth=1)
    if len(gap) and np.isfinite(gap).any():
        # the last value is zero nats below itself, which no log scale has: it stands on the floor, as an open circle
        floor = np.nanmin(gap) / 10
        ax.semilogy([at[-2], at[-1]], [gap[-1], floor], color=INK, linewidth=1, linestyle=":")
        ax.semilogy([at[-1]], [floor], "o", color=INK, markersize=6, fillstyle="none", label="arrived")
        ax.legend(frameon=False, fontsize=8)
    ax.set(xlabel="iteration", ylabel="nats below the final ELBO", title="convergence")
    ax.xaxis.get_major_locator().set_params(integer=True)
    return ax


def _noisy_trace(elbo: np.ndarray, ax: Any) -> Any:
    """Plot a bound of which every value is an estimate; a rise from far below is cut off, as it would flatten all."""
    ax.plot(np.arange(1, len(elbo) + 1), elbo, color=INK, marker="o", markersize=3, linewidth=1)
    later = elbo[len(elbo) // 4 :][np.isfinite(elbo[len(elbo) // 4 :])]
    if len(later):
        low, high = float(later.min()), float(later.max())
        margin = max(0.3 * (high - low), 1e-3 * abs(high), 1e-12)
        ax.set_ylim(low - margin, high + margin)
    ax.set(xlabel="iterations recorded", ylabel="ELBO, an estimate each", title="convergence")
    ax.xaxis.get_major_locator().set_params(integer=True)
    return ax


def intervals(table: pd.DataFrame, ax: Any = None, title: str = "", zero: bool = True) -> Any:
    """Plot mean and interval of each row of a summary table, with a line at zero unless that would be far off."""
    ax = ax or new_axis(height=0.9 + 0.32 * len(table))
    at = np.arange(len(table))[::-1]
    low, high = table.iloc[:, 2].to_numpy(), table.iloc[:, 3].to_numpy()
    ax.hlines(at, low, high, color=SHADE, linewidth=4)
    ax.plot(table["mean"], at, "o", color=INK, markersize=5)
    if zero:
        ax.axvline(0, color="0.6", linewidth=0.8, zorder=0)
    ax.set_yticks(at, [label(name) for name in table.index])
    ax.set(title=title, ylim=(-0.6, len(table) - 0.4))
    return ax


def forest(table: pd.DataFrame, title: str = "", width: float = 4.6) -> Any:
    """Plot coefficients with intervals, the intercept left out, each order of magnitude on an axis of its own.

    Args:
        table: Mean, sd and interval by name.
        title: Above the first panel.
        width: Of the figure, in inches.

    Returns:
        The axes; of very many coefficients the first forty are shown.
    """
    from matplotlib.figure import Figure

    shown = table.drop(index="Intercept") if "Intercept" in table.index and len(table) > 1 else table
    groups = like_sized(shown.iloc[:MOST_COEFFICIENTS])
    heights = [0.55 + 0.34 * len(group) for group in groups]
    figure = Figure(figsize=(width, 0.35 + sum(heights)), layout="constrained")
    axes = np.ravel(figure.subplots(len(groups), 1, squeeze=False, height_ratios=heights))
    for ax, group in zip(axes, groups, strict=True):
        intervals(group, ax)
        ax.spines[["top", "right"]].set_visible(False)
        ax.locator_params(axis="x", nbins=5)
    axes[0].set_title(title)
    return axes


def like_sized(table: pd.DataFrame) -> list[pd.DataFrame]:
    """Split a table into parts whose intervals can share an axis, the first name's part first.

    Example:
        >>> ends = {"low": [-1.0, -90.0, -3.0], "high": [1.0, 80.0, 2.0]}
        >>> table = pd.DataFrame({"mean": 0.0, "sd": 1.0, **ends}, index=list("abc"))
        >>> [part.index.tolist() for part in like_sized(table)]
        [['a', 'c'], ['b']]
    """
    size = np.nan_to_num(np.abs(table.iloc[:, 2:4].to_numpy()).max(axis=1), posinf=1e300)
    code, left = np.zeros(len(table), dtype=int), np.arange(len(table))
    for part in range(MOST_PANELS):
        last = part == MOST_PANELS - 1
        own = left if last else left[size[left] * SHARED_AXIS >= size[left].max(initial=0.0)]
        code[own] = part
        left = np.setdiff1d(left, own)
    order = sorted(set(code.tolist()), key=lambda part: int(np.argmax(code == part)))
    return [table.loc[code == part] for part in order]


def averages(table: pd.DataFrame, title: str, nothing: float | None, ax: Any = None) -> Any:
    """Plot mean and interval of every line of a table of averages; `nothing` is the value that means no effect."""
    ends = table.columns[-4:]
    lines = [", ".join(map(str, line)) for line in table.drop(columns=ends).itertuples(index=False)]
    ax = intervals(pd.DataFrame(table[ends]).set_axis(lines), ax, title, zero=False)
    if nothing is not None:
        ax.axvline(nothing, color="0.6", linewidth=0.8, zorder=0)
    return ax


def relevance_bars(relevance: pd.Series, ax: Any = None) -> Any:
    """Plot how much each input matters, the most relevant at the top."""
    ax = ax or new_axis(height=0.9 + 0.22 * len(relevance))
    at = np.arange(len(relevance))[::-1]
    ax.hlines(at, 0, relevance, color=SHADE, linewidth=4)
    ax.plot(relevance, at, "o", color=INK, markersize=5)
    ax.set_yticks(at, [label(name) for name in relevance.index])
    ax.set(xlabel="relevance (largest = 1)", xlim=(0, 1.05), ylim=(-0.6, len(relevance) - 0.4), title="inputs")
    return ax


def validation_picture(values: np.ndarray) -> list[Any]:
    """Plot the log-likelihood of a validation set after every epoch; nothing where there is none."""
    if not np.isfinite(values).any():
        return []
    ax = new_axis()
    ax.plot(np.arange(1, len(values) + 1), values, color=INK, linewidth=1.2)
    ax.set(xlabel="epoch", ylabel="log-likelihood per example", title="validation")
    return [ax]


def caterpillar(effects: pd.DataFrame, ax: Any = None) -> Any:
    """Plot the effects of every group in ascending order; of very many groups an even selection.

    Args:
        effects: A row for every effect of every group; the first column names the group.
        ax: An axis for the first effect; without it every effect gets a panel of its own, up to four.

    Returns:
        The axis of the first effect; the others are in the same figure.
    """
    tables = by_factor(effects)
    if len(tables) > 1:
        named = [one.assign(effect=one["effect"] + " | " + one.columns[0]).set_axis(range(len(one))) for one in tables]
        effects = pd.concat([one.rename(columns={one.columns[0]: "level"}) for one in named], ignore_index=True)
    names = list(effects["effect"].unique())
    if ax is None:
        from matplotlib.figure import Figure

        shown = names[:MOST_EFFECTS]
        figure = Figure(figsize=(6.0 if len(shown) == 1 else 7.6, 3.5), layout="constrained")
        panels = figure.subplots(1, len(shown), squeeze=False)[0]
        for panel in panels:
            panel.spines[["top", "right"]].set_visible(False)
    else:
        shown, panels = names[:1], [ax]
    for name, panel in zip(shown, panels, strict=True):
        _ordered_effects(effects.loc[effects["effect"] == name].sort_values(by="mean"), name, panel)
    return panels[0]


def by_factor(effects: pd.DataFrame) -> list[pd.DataFrame]:
    """Return one table for every grouping factor, its first column named after the factor and holding its levels.

    Example:
        >>> table = pd.DataFrame({"group": ["a", "b"], "level": [1, 2], "effect": "Intercept", "mean": 0.0})
        >>> [list(one.columns) for one in by_factor(table)]
        [['a', 'effect', 'mean'], ['b', 'effect', 'mean']]
    """
    if list(effects.columns[:2]) != ["group", "level"]:
        return [effects]
    parts = effects.groupby("group", sort=False)
    return [own.drop(columns="group").rename(columns={"level": str(name)}) for name, own in parts]


def labelled_effects(effects: pd.DataFrame, width: float = 4.6, in_two: bool = False) -> list[Any]:
    """Plot the effects of few groups one below the other, with their names.

    Args:
        effects: A row for every effect of every group; the first column names the group.
        width: Of a figure, in inches.
        in_two: Whether a single effect of many groups gets two axes, side by side, rather than one long column.

    Returns:
        One axis for each effect, or two for the only one.
    """
    found, names = [], list(effects["effect"].unique())[:MOST_EFFECTS]
    for name in names:
        ordered = effects.loc[effects["effect"] == name].sort_values(by="mean", ascending=False)
        table = ordered.iloc[:, -4:].set_axis(ordered.iloc[:, 0].astype(str).tolist())
        two = in_two and len(names) == 1 and len(table) > MOST_IN_A_COLUMN
        half = (len(table) + 1) // 2 if two else len(table)
        low, high = table.iloc[:, 2].min(), table.iloc[:, 3].max()
        margin = 0.05 * (high - low)
        for at in range(0, len(table), half):
            ax = new_axis(width, 0.9 + 0.2 * half)
            intervals(table.iloc[at : at + half], ax, f"{label(name)}, by {label(ordered.columns[0])}")
            ax.set_xlim(min(low - margin, 0.0), max(high + margin, 0.0))
            ax.tick_params(axis="y", labelsize=8)
            found.append(ax)
    return found


def _ordered_effects(ordered: pd.DataFrame, name: str, ax: Any) -> None:
    if len(ordered) > MOST_GROUPS:
        ordered = ordered.iloc[np.linspace(0, len(ordered) - 1, MOST_GROUPS).astype(int)]
    at = np.arange(len(ordered))
    low, high = ordered.iloc[:, -2].to_numpy(), ordered.iloc[:, -1].to_numpy()
    ax.vlines(at, low, high, color=SHADE, linewidth=float(np.clip(120 / len(ordered), 0.5, 4.0)))
    ax.plot(at, ordered["mean"], ".", color=INK, markersize=4)
    ax.axhline(0, color="0.6", linewidth=0.8, zorder=0)
    ax.set(xlabel=f"{label(ordered.columns[0])}, ordered", ylabel=label(name), title="random effects")
    ax.set_xticks([])
