"""Figure 2, step sizes of Theorem 1 and Corollary 1 in (mu, T) on two regressions of the crabs."""

import math
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from matplotlib.ticker import MaxNLocator

from experiments import drawing
from experiments.crabs import PRIOR_SD
from experiments.report import Report
from natvi.data import load_crabs
from natvi.gaussian import dense_precision
from natvi.optimize.deterministic import FactorGradient, natural_factor, natural_factor_corollary
from natvi.paper.largest_step import TOLERANCE, Ascent, ascend
from natvi.paper.loglinear import Loglinear

MODELS = ("Sa ~ Width", "Sa ~ Color + Width")
UPDATES = {"theorem1": natural_factor, "corollary1": natural_factor_corollary}
NAMES = {"theorem1": "Theorem 1: μ with the old T", "corollary1": "Corollary 1: μ with the new T"}


class Start(NamedTuple):
    """mu = 0, C = sd I, None for I / sqrt(n) with n the number of crabs; `drawn` is its row in the picture."""

    sd: float | None
    centred: bool = False
    drawn: int | None = None


STARTS = {
    "": Start(None, drawn=0),
    "; C = 0.1 I": Start(0.1),
    "; C = 0.01 I": Start(0.01),
    "; width centred": Start(None, centred=True, drawn=1),
}


def run(report: Report) -> None:
    """Climb by both updates from the drawn start and, for the table, from others; `--quick` changes nothing."""
    report.settings |= {
        "data": "satellites of 173 female horseshoe crabs, Poisson regression; color as a factor of four levels",
        "prior_sd": PRIOR_SD,
        "start": "mu = 0, C = I / sqrt(n), width in cm; rows with ';' say what differs",
        "steps": "largest of 1, 0.1, 0.01, ... that raises the bound",
        "stop": f"relative change of the complete lower bound below {TOLERANCE:g}",
    }
    report.figure, axes = drawing.new_figure(2, 2, 9.5, 6.0)
    faster, longer = [], []
    for k, name in enumerate(MODELS):
        for text, start in STARTS.items():
            done = climb(design(name, start.centred), start.sd)
            for column, ascent in done.items():
                report.cell(f"{name}{text}", column, "iterations", ascent.iterations)
                report.cell(f"{name}{text}", column, "smallest_step", ascent.steps.min())
            if start.drawn is not None:
                _draw(axes[2 * start.drawn + k], f"{name}   (width {'centred' if start.centred else 'in cm'})", done)
            old, new = done["theorem1"], done["corollary1"]
            faster.append(np.sign(old.iterations - new.iterations))
            longer.append(np.sign(new.steps.min() - old.steps.min()))
    for ax in axes[::2]:
        ax.set_ylabel("step ρ", fontsize=9, color=drawing.INK)
    drawing.legend(axes[0], loc="lower right")
    report.note(
        "The paper gives neither starts nor the coding of colour, and prints no numbers. mu = 0, C = I / sqrt(n) is "
        "the start of its Section 8; the rows show how much depends on it and on the origin of width."
    )
    report.note(f"Corollary 1 against Theorem 1: its smallest step is {_tally(longer, 'longer', 'shorter')}.")
    report.note(
        f"Its iterations are {_tally(faster, 'fewer', 'more')}: more where the start is so wide that the first full "
        "step makes T far too large, after which T can at most halve in each iteration."
    )


def _tally(signs: list[int], more: str, less: str) -> str:
    counts = {more: signs.count(1), "equal": signs.count(0), less: signs.count(-1)}
    return ", ".join(f"{word} in {count}" for word, count in counts.items()) + f" of {len(signs)} rows"


def design(name: str, centred: bool = False) -> tuple[np.ndarray, np.ndarray]:
    """Return covariates and counts of one of the two models."""
    crabs = load_crabs()
    width = crabs["width"].to_numpy(dtype=float)
    width = width - width.mean() if centred else width
    colour = crabs["color"].to_numpy()
    dummies = [(colour == level).astype(float) for level in (2, 3, 4)] if "Color" in name else []
    return np.column_stack([np.ones(len(crabs)), *dummies, width]), crabs["sat"].to_numpy(dtype=float)


def climb(data: tuple[np.ndarray, np.ndarray], sd: float | None) -> dict[str, Ascent]:
    """Climb by Theorem 1 and by Corollary 1 from mu = 0, C = sd I."""
    X, y = map(jnp.asarray, data)
    model, (n, d) = Loglinear(X, y, PRIOR_SD), X.shape
    start = dense_precision(jnp.zeros(d), sd or 1 / math.sqrt(n))
    bound = jax.jit(lambda q: model.bound(q))
    return {
        name: ascend(start, jax.jit(update), lambda q: FactorGradient(*bound(q)[1:]), lambda q: bound(q).elbo)
        for name, update in UPDATES.items()
    }


def _draw(ax, title: str, done: dict[str, Ascent]) -> None:
    styles = ({"marker": "o", "markersize": 7, "markerfacecolor": "white"}, {"marker": "s", "markersize": 3.5})
    for colour, style, (column, ascent) in zip(drawing.PAIR, styles, done.items(), strict=True):
        at = np.arange(1, ascent.iterations + 1)
        ax.semilogy(at, ascent.steps, color=colour, linewidth=1.2, label=NAMES[column], **style)
    ax.xaxis.set_major_locator(MaxNLocator(integer=True))
    ax.set_ylim(3e-5, 2)
    ax.grid(axis="y", color="0.9", linewidth=0.8)
    ax.set_axisbelow(True)
    drawing.label(ax, title, "iteration", "")
