"""Figure 3, Adam, natural Adam and Snngm with exact gradients on the intercept-only model."""

import math
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax

from experiments import drawing
from experiments.crabs import SETTINGS, STARTS, intercept_only, on_grid, optimum
from experiments.report import Report
from natvi.optimize.rule import normalize_jointly
from natvi.paper.largest_step import TOLERANCE
from natvi.paper.loglinear import Loglinear

ALPHA = 0.001
LENGTH = 8_000  # iterations computed; all runs end before
LIMITS = ((-0.15, 2.2), (2e-4, 0.108))
TITLES = {
    "adam": "Adam, Euclidean gradient",
    "nadam": "Adam, natural gradient (nAdam)",
    "snngm": "Snngm, natural gradient",
}


class Run(NamedTuple):
    """Points (mu, sigma^2) from the start to the end, and how it ended."""

    points: np.ndarray
    outcome: str  # "converged" or "negative variance"

    @property
    def iterations(self) -> int:
        """The number of iterations, the one that failed included."""
        return len(self.points) - 1


def rules() -> dict[str, tuple[optax.GradientTransformation, bool]]:
    """Return the update rules of Table 5 on the vector (mu, sigma^2), and whether their gradient is natural."""
    adam = optax.chain(optax.scale_by_adam(0.9, 0.999, 1e-8), optax.scale(ALPHA))
    return {"adam": (adam, False), "nadam": (adam, True), "snngm": (snngm(ALPHA * math.sqrt(2)), True)}


def snngm(alpha: Any, beta: float = 0.9) -> optax.GradientTransformation:
    """Return Snngm of Table 5 for natural gradients that are computed already."""
    return optax.chain(normalize_jointly(), optax.ema(beta, debias=True), optax.scale(alpha))


def climb(model: Loglinear, rule: optax.GradientTransformation, natural: bool) -> dict[str, Run]:
    """Follow a rule from the three starts, and cut where the stopping rule or a negative variance says so."""

    def step(carry: tuple[jax.Array, Any], _: None) -> tuple[tuple[jax.Array, Any], tuple[jax.Array, jax.Array]]:
        kappa, state = carry
        q = (kappa[:1], kappa[1:, None])
        gradient = jnp.concatenate([model.grad_mu(*q), model.grad_Sigma(*q)[0]])
        # the inverse Fisher information of (mu, sigma^2) is diagonal: sigma^2 and 2 sigma^4
        gradient *= jnp.stack([kappa[1], 2 * kappa[1] ** 2]) if natural else 1.0
        updates, state = rule.update(gradient, state)
        return (optax.apply_updates(kappa, updates), state), (kappa, model.elbo(*q))  # type: ignore[return-value]

    @jax.jit
    def follow(start: jax.Array) -> tuple[jax.Array, jax.Array]:
        return jax.lax.scan(step, (start, rule.init(start)), length=LENGTH)[1]

    return {name: _cut(*map(np.asarray, follow(jnp.array(start)))) for name, start in STARTS.items()}


def _cut(points: np.ndarray, elbos: np.ndarray) -> Run:
    still = np.abs(np.diff(elbos)) < TOLERANCE * np.abs(elbos[:-1])
    negative = ~(points[1:, 1] > 0)
    ends = np.flatnonzero(still | negative)
    if not len(ends):
        raise RuntimeError(f"{LENGTH} iterations were not enough.")
    return Run(points[: ends[0] + 2], "negative variance" if negative[ends[0]] else "converged")


def run(report: Report) -> None:
    """Run three rules from three starts and draw them; `--quick` changes nothing."""
    model = intercept_only()
    done = {name: climb(model, *rule) for name, rule in rules().items()}
    report.settings |= SETTINGS | {
        "adam": {"alpha": ALPHA, "beta1": 0.9, "beta2": 0.999, "epsilon": 1e-8},
        "snngm": {"alpha": "0.001 sqrt(2)", "beta": 0.9},
        "parameter": "kappa = (mu, sigma^2)",
    }
    for start in STARTS:
        for name in done:
            failed = (start, name) == ("(2, 0.01)", "nadam")
            report.cell(start, name, "iterations", done[name][start].iterations)
            report.cell(
                start, name, "outcome", done[name][start].outcome, "negative variance" if failed else "converged"
            )
        ratio = done["adam"][start].iterations / done["snngm"][start].iterations
        report.cell(start, "adam / snngm", "ratio_of_iterations", ratio, "about 3")
    report.note("The paper prints its counts only inside the picture; its text says what is in parentheses here.")
    report.note("An iteration that makes sigma^2 negative is counted.")
    report.figure = _draw(model, done)


def _draw(model: Loglinear, done: dict[str, dict[str, Run]]):
    best = optimum(model)
    peak = on_grid(model, *(np.array([value]) for value in best))[0][0]
    figure, axes = drawing.new_figure(1, 3, 13.5, 4.3)
    for ax, (name, runs) in zip(axes, done.items(), strict=True):

        def field(mu: np.ndarray, s: np.ndarray, name: str = name) -> tuple[np.ndarray, np.ndarray]:
            _, by_mu, by_s = on_grid(model, mu, s)
            return (by_mu, by_s) if name == "adam" else (s * by_mu, 2 * s**2 * by_s)

        drawing.landscape(ax, LIMITS, lambda mu, s: peak - on_grid(model, mu, s)[0], field)
        for colour, (start, run) in zip(drawing.COLOURS, runs.items(), strict=True):
            end = f"{run.iterations} iterations" if run.outcome == "converged" else f"σ² < 0 at step {run.iterations}"
            drawing.trajectory(ax, run.points, colour, f"{start}: {end}", dots=False)
            if run.outcome != "converged":
                ax.plot(run.points[-1, 0], LIMITS[1][0], "X", color=colour, markersize=8, clip_on=False, zorder=7)
        drawing.goal(ax, best)
        drawing.label(ax, TITLES[name], "μ", "σ²")
        drawing.legend(ax)
    return figure
