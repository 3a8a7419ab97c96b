"""Figure 1, gradient vector fields and trajectories from three starting points."""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from experiments import drawing
from experiments.crabs import SETTINGS, STARTS, UPDATES, ascents, intercept_only, on_grid, optimum, path
from experiments.report import Report

Pair = tuple[np.ndarray, np.ndarray]


class Coordinates(NamedTuple):
    """A parametrization of N(mu, sigma^2): there and back, and the direction of its update."""

    title: str
    names: tuple[str, str]
    to: Callable[..., Pair]  # from (mu, sigma^2)
    back: Callable[..., Pair]
    field: Callable[..., Pair]  # from mu, sigma^2 and the Euclidean gradients in them
    limits: tuple[tuple[float, float], tuple[float, float]]


KAPPA = ((-0.15, 2.2), (5e-4, 0.108))
PANELS = {
    "euclidean-kappa": Coordinates(
        "Euclidean gradient, κ",
        ("μ", "σ²"),
        lambda mu, s: (mu, s),
        lambda mu, s: (mu, s),
        lambda mu, s, by_mu, by_s: (by_mu, by_s),
        KAPPA,
    ),
    "natural-kappa": Coordinates(
        "natural gradient, κ",
        ("μ", "σ²"),
        lambda mu, s: (mu, s),
        lambda mu, s: (mu, s),
        lambda mu, s, by_mu, by_s: (s * by_mu, 2 * s**2 * by_s),
        KAPPA,
    ),
    "natural-xi": Coordinates(
        "natural gradient, ξ",
        ("μ", "1/σ²"),
        lambda mu, s: (mu, 1 / s),
        lambda mu, p: (mu, 1 / p),
        lambda mu, s, by_mu, by_s: (s * by_mu, -2 * by_s),
        ((-0.15, 2.2), (2.0, 620.0)),
    ),
    "natural-lambda": Coordinates(
        "natural gradient, λ (natural parameter)",
        ("μ/σ²", "−1/(2σ²)"),
        lambda mu, s: (mu / s, -0.5 / s),
        lambda a, b: (-0.5 * a / b, -0.5 / b),
        lambda mu, s, by_mu, by_s: (by_mu - 2 * by_s * mu, by_s),
        ((-60.0, 1900.0), (-760.0, -1.0)),
    ),
}


def run(report: Report) -> None:
    """Draw four panels, each in the coordinates of its parametrization."""
    model = intercept_only()
    best = optimum(model)
    peak = on_grid(model, *(np.array([value]) for value in best))[0][0]
    report.settings |= SETTINGS | {"coordinates": {name: list(panel.names) for name, panel in PANELS.items()}}
    report.cell("optimum", "mu", "value", best[0], 1.07)
    report.cell("optimum", "sigma^2", "value", best[1], 0.002)
    report.figure, axes = drawing.new_figure(2, 2, 10.5, 8.2)
    for ax, (name, panel) in zip(axes, PANELS.items(), strict=True):

        def gap(x: np.ndarray, y: np.ndarray, panel: Coordinates = panel) -> np.ndarray:
            return peak - on_grid(model, *panel.back(x, y))[0]

        def field(x: np.ndarray, y: np.ndarray, panel: Coordinates = panel) -> Pair:
            mu, s = panel.back(x, y)
            return panel.field(mu, s, *on_grid(model, mu, s)[1:])

        drawing.landscape(ax, panel.limits, gap, field)
        for colour, (start, done) in zip(drawing.COLOURS, ascents(UPDATES[name]).items(), strict=True):
            points = np.column_stack(panel.to(*path(done).T))
            drawing.trajectory(ax, points, colour, f"{start}: {done.iterations} iterations")
            report.cell(start, name, "bound_below_maximum", peak - done.elbos[-1])
        if name == "euclidean-kappa":
            drawing.closer_look(ax, ((0.78, 1.09), (2e-4, 0.0068)), (0.525, 0.2, 0.27, 0.42))
        drawing.goal(ax, np.array(panel.to(*best)))
        drawing.label(ax, panel.title, *panel.names)
        drawing.legend(ax)
    assert set(PANELS) == set(UPDATES) and len(STARTS) == len(drawing.COLOURS)
    report.note("Every panel is drawn in its own coordinates; squares are starts, the circle is the optimum.")
    report.note("From (2, 0.01) the Euclidean path leaves the panel, up to sigma^2 = 0.42, and comes back.")
    report.note("Shades: how far the bound lies below its maximum, on a log scale. Arrows: direction only.")
