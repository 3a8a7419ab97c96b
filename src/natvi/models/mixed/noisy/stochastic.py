"""Stochastic fits of mixed models in the paper's three ways (Section 8.5, Table 11).

    gva    Algorithm 2S: the model as it is, arrow-shaped precision factor T
    rvb1   Algorithm 1S: the model reparametrized about the data, block-diagonal covariance factor C
    rvb2   Algorithm 1S: the model reparametrized about the modes of the random effects

Each is a recipe; here are the starts of the paper, the loop over a fixed number of steps, and the way back to the
original scale. Lower bounds have all constants, the Jacobian included, so that they can be compared.
"""

from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, Key, PRNGKeyArray

from natvi.gaussian import arrow_precision, local_global_covariance
from natvi.linalg import ArrowVector, vector
from natvi.models.mixed.noisy.row_expansion import canonical_slopes, data_predictor
from natvi.models.mixed.noisy.states import OwnedStep, open_state, sign_state
from natvi.models.regression.options import find_rule
from natvi.optimize.rule import Rule, StepSize
from natvi.recipes import algorithm_1s, algorithm_2s
from natvi.run import Outcome
from natvi.run.algorithm import Algorithm
from natvi.run.interrupt import Interruption
from natvi.run.progress import StepProgress
from natvi.target import SumOfTerms
from natvi.target.mixed.marginal import mixed_parts
from natvi.target.mixed.rvb import ReparametrizedEffects, group_likelihood, rvb1, rvb2
from natvi.x64 import float64, to_host

WAYS = ("gva", "rvb1", "rvb2")
CELLS_AT_ONCE = 4096  # rows times draws worked on together


class StochasticRun(NamedTuple):
    """Everything the next step needs: the recipe's state, the number of steps, and of those that were not finite."""

    algorithm: Any  # the recipe's `State`; an `OwnedStep` around it in the state of a fit
    count: Int[Array, ""]
    skipped: Int[Array, ""]


@dataclass(frozen=True, eq=False)
class MixedStochasticFit:
    """A fitted Gaussian of (theta, theta_g) or of (tilde, theta_g), with the way back to the original scale.

    Attributes:
        way: "gva", "rvb1" or "rvb2".
        gaussian: The Gaussian after the last step, in the coordinates of `target`.
        target: The log-density it approximates.
        trace: The mean of the estimated bounds over every window of steps.
        elbo: The bound at the end, estimated from `elbo_draws` draws.
        elbo_se: Its standard error.
        outcome: `max_steps`, `interrupted`, or `nonfinite` when no step of the last window could be taken.
        skipped: Steps that were not taken because they were not finite.
        state: To go on from.
    """

    way: str
    gaussian: Any
    target: SumOfTerms | ReparametrizedEffects = field(repr=False)
    trace: np.ndarray
    elbo: float
    elbo_se: float
    outcome: Outcome
    skipped: int
    state: StochasticRun = field(repr=False)

    def sample(self, num_samples: int, seed: int = 0) -> ArrowVector:
        """Draw on the original scale: random effects `(s, r, n)` in the target's order of groups, theta_g `(s, g)`."""
        with float64():
            return to_host(_draw(self.target, jax.device_put(self.gaussian), *_keys(self.target, num_samples, seed)))


def fit_mixed_stochastic(
    target: SumOfTerms,
    way: str = "gva",
    optimizer: Rule | str = "snngm",
    *,
    step_size: StepSize | None = None,
    order: int = 1,
    steps: int = 40_000,
    seed: int = 0,
    num_samples: int = 1,
    antithetic: bool = False,
    window: int = 1000,
    start: Any = None,
    state: StochasticRun | None = None,
    elbo_draws: int = 1000,
    progress: bool = False,
) -> MixedStochasticFit:
    """Fit a mixed model with a fixed number of stochastic steps.

    Args:
        target: A mixed model, made by `build_target` inside `float64()`.
        way: "gva", "rvb1" or "rvb2".
        optimizer: A name among adam, nadam, nagm, pga, snngm, vogn, or a rule of `natvi.optimize` with its settings.
        step_size: For an optimizer given by name; by default its own.
        order: 1 for first derivatives, as in the paper; 2 for second derivatives.
        steps: The number of steps, those of `state` included.
        seed: The same seed gives the same bits.
        num_samples: Draws per step.
        antithetic: Whether draws come in pairs z, -z.
        window: Steps whose bounds are averaged for the trace.
        start: A Gaussian to start from; by default mean 0 and the identity over sqrt(n) as covariance factor, n the
            number of groups, with local diagonals 1 for RVB (paper, Section 8).
        state: The state of an earlier fit by the same way and optimizer, to go on from.
        elbo_draws: Draws for the estimate of the bound at the end.
        progress: Whether to show progress.

    Returns:
        The fit.
    """
    for name, count in (("steps", steps), ("window", window), ("elbo_draws", elbo_draws)):
        if isinstance(count, bool) or not isinstance(count, int | np.integer) or count < 1:
            raise ValueError(f"{name} must be a whole number of at least 1; got {count!r}.")
    with float64():
        rule = find_rule(optimizer, step_size)
        algorithm = mixed_algorithm(target, way, rule, order=order, num_samples=num_samples, antithetic=antithetic)
        name = rule.name.split("(")[0]
        if state is not None and isinstance(state.algorithm, OwnedStep):  # one made by hand has no owner
            state = open_state(state, StochasticRun, way, name)
        run = _begin(algorithm, start or default_start(target, way)) if state is None else state
        run, trace, outcome = _run(algorithm, jax.device_put(run), steps, window, jax.random.key(seed), progress)
        elbo, elbo_se = estimate_elbo(algorithm.target, run.algorithm.gaussian, elbo_draws, seed)
        run = to_host(run)
    return MixedStochasticFit(
        way=way,
        gaussian=run.algorithm.gaussian,
        target=algorithm.target,
        trace=trace,
        elbo=elbo,
        elbo_se=elbo_se,
        outcome=outcome,
        skipped=int(run.skipped),
        state=sign_state(run, way, name),
    )


def mixed_algorithm(target: SumOfTerms, way: str, rule: Rule, **estimate: Any) -> Algorithm:
    """Return the recipe of a way; options `order`, `num_samples` and `antithetic` as for the recipes."""
    if way not in WAYS:
        raise ValueError(f"way must be one of {', '.join(map(repr, WAYS))}, not {way!r}.")
    if way == "gva":
        return algorithm_2s(target, rule, **estimate)
    return algorithm_1s(reparametrize(target, way), rule, **estimate)


def reparametrize(target: SumOfTerms, way: str) -> ReparametrizedEffects:
    """Return the model of (tilde, theta_g) for "rvb1" or "rvb2", with the predictors and slopes of its family."""
    rows, change = group_likelihood(target).likelihood, rvb1 if way == "rvb1" else rvb2
    return change(target, data_predictor(rows), canonical_slopes(rows.family))


def default_start(target: SumOfTerms, way: str) -> Any:
    """Return the paper's start: mu = 0, C = I / sqrt(n), and ones for the local diagonals of RVB."""
    rows, effects = mixed_parts(target)
    n = rows.design.X.shape[-1] - rows.design.extra.shape[0]
    mean = ArrowVector(jnp.zeros((effects.r, n)), jnp.zeros(effects.stop))
    return arrow_precision(mean, n**-0.5) if way == "gva" else local_global_covariance(mean, n**-0.5, local_sd=1.0)


def estimate_elbo(target: Any, gaussian: Any, num_draws: int = 1000, seed: int = 0) -> tuple[float, float]:
    """Estimate the lower bound E log p - E log q, all constants and the Jacobian included.

    Args:
        target: The log-density, of a mixed model or reparametrized.
        gaussian: The approximation in the same coordinates.
        num_draws: Independent draws.
        seed: For the draws; they differ from those of a fit with the same seed.

    Returns:
        The estimate and its standard error, NaN where a draw was not finite.
    """
    with float64():
        values = np.asarray(_bounds(target, jax.device_put(gaussian), *_keys(target, num_draws, seed)))
    if num_draws < 2 or not np.all(np.isfinite(values)):
        return float(np.mean(values)), np.nan
    return float(np.mean(values)), float(np.std(values, ddof=1)) / num_draws**0.5


def draw_original(target: Any, gaussian: Any, keys: Key[Array, " s"]) -> ArrowVector:
    """Draw once for each key and map back to the original scale; to be called inside `float64()`."""
    return _draw(target, gaussian, keys, _draws_at_once(target))


def _begin(algorithm: Algorithm, start: Any) -> StochasticRun:
    zero = jnp.zeros((), jnp.int32)
    run = StochasticRun(algorithm.init(jax.tree.map(jnp.asarray, start)), zero, zero)
    # weakly typed numbers would make the second call another program to compile
    return jax.tree.map(lambda a: jax.lax.convert_element_type(a, jnp.asarray(a).dtype), run)


def _run(
    algorithm: Algorithm, run: StochasticRun, steps: int, window: int, key: PRNGKeyArray, progress: bool
) -> tuple[StochasticRun, np.ndarray, Outcome]:
    """Step window by window, one compiled call each."""
    trace: list[float] = []
    with StepProgress(progress) as line, Interruption() as interruption:
        while (count := int(run.count)) < steps:
            stop = min(count + window, steps)
            run, elbos = _take_steps(algorithm.move, algorithm.target, run, key, jnp.asarray(stop, jnp.int32), window)
            finite = np.isfinite(elbos := np.asarray(elbos))
            trace.append(float(np.mean(elbos[finite])) if finite.any() else np.nan)
            line.update(stop, trace[-1])
            if not finite.any():
                return run, np.array(trace), Outcome.NONFINITE
            if interruption.asked:
                return run, np.array(trace), Outcome.INTERRUPTED
    return run, np.array(trace), Outcome.MAX_STEPS


@partial(jax.jit, static_argnums=(0, 5))
def _take_steps(
    move: Any, target: Any, run: StochasticRun, key: PRNGKeyArray, stop: Int[Array, ""], window: int
) -> tuple[StochasticRun, Float[Array, " w"]]:
    """Step up to count `stop`; a step that is not finite leaves everything where it was, its bound is NaN."""
    first = run.count

    def body(_: Array, carry: tuple[StochasticRun, Array]) -> tuple[StochasticRun, Array]:
        run, elbos = carry
        moved = move(target, run.algorithm, jax.random.fold_in(key, run.count))
        checks = [moved.elbo, moved.gaussian.factor.log_determinant(), *map(jnp.sum, jax.tree.leaves(moved.gaussian))]
        finite = jnp.all(jnp.isfinite(jnp.stack(checks)))
        kept = jax.tree.map(lambda a, b: jnp.where(finite, b, a), run.algorithm, moved)
        elbos = elbos.at[run.count - first].set(jnp.where(finite, moved.elbo, jnp.nan))
        return StochasticRun(kept, run.count + 1, run.skipped + ~finite), elbos

    return jax.lax.fori_loop(first, stop, body, (run, jnp.full(window, jnp.nan)))


def _keys(target: Any, num_draws: int, seed: int) -> tuple[Key[Array, " s"], int]:
    """Return a key for each draw, and how many draws to work on at once."""
    # a fit folds its counts into the key itself
    return jax.random.split(jax.random.split(jax.random.key(seed))[1], num_draws), _draws_at_once(target)


def _draws_at_once(target: Any) -> int:
    return int(np.clip(CELLS_AT_ONCE // max(target.grouped[0].y.size, 1), 1, 64))


@partial(jax.jit, static_argnums=3)
def _draw(target: Any, gaussian: Any, keys: Key[Array, " s"], at_once: int) -> ArrowVector:
    return jax.lax.map(lambda key: target.to_original(gaussian.sample(key)), keys, batch_size=at_once)


@partial(jax.jit, static_argnums=3)
def _bounds(target: Any, gaussian: Any, keys: Key[Array, " s"], at_once: int) -> Float[Array, " s"]:
    def one(key: PRNGKeyArray) -> Float[Array, ""]:
        z = vector.standard_normal(key, gaussian.mean)
        return target.value(gaussian.push(z)) - gaussian.log_prob_at(z)

    return jax.lax.map(one, keys, batch_size=at_once)
