"""What every deep fit shares: the optimizer by its word with its usual step size, epochs, and the loop."""

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import PRNGKeyArray

from natvi import optimize
from natvi.derivatives.first_order import BoundGradient
from natvi.gaussian import CovarianceGaussian
from natvi.optimize import Cosine, Rule
from natvi.run.algorithm import Algorithm, State, compose
from natvi.run.batches.row_batches import ArrayBatches, Batches
from natvi.run.fitted import Fitted
from natvi.run.settings import check_count, is_real
from natvi.run.stochastic.loop import wander

# where the paper names one, the paper's; the others did well on LeNet-5 and small perceptrons
STEP_SIZES = {
    **{"adam": 0.001, "pga": 0.001, "nadam": 0.001},
    **{"snngm": 0.0005, "nagm": 0.01, "vogn": 0.01, "ivon": 0.1, "point": 0.001},
}
POINT = "point"
IVON_CURVATURE = 0.1  # per row, of the authors: h_0


class Annealing(NamedTuple):
    """How often every row counts: `first` times at step 0, once from step `steps` on.

    Shrinkage follows the weights as they are, and Xavier weights know nothing of the data yet: of few rows the prior
    pulls them to zero before the net has found anything, and a net of zeros, its shrinkage without end, is a place of
    rest that no step leaves. So the likelihood of a deep GLM counts more at first,

        weight_t = first^(1 - t / steps)  for t < steps,  1 from there on,

    which is the same as a weight of the Kullback-Leibler term that rises from 1 / first to 1 (Bowman et al. 2016,
    Sonderby et al. 2016). The last steps are those of the bound itself.

    A normal response has a variance to estimate too: weighty rows are fitted closely, which makes them weightier still,
    until the net runs through every row. So weight times E(1/v) stays below `first` on the way, with responses of
    variance one.

    Attributes:
        steps: The number of steps with a weight of their own; 0 for none.
        first: The weight at step 0.

    Example:
        >>> [round(float(Annealing(100)(t)), 2) for t in (0, 50, 100, 200)]
        [10.0, 3.16, 1.0, 1.0]
    """

    steps: int = 0
    first: float = 10.0

    def __call__(self, count: Any, precision: Any = 1.0) -> Any:
        """Return the weight at a step count from 0, where the response has this expected precision."""
        if self.steps == 0:
            return 1.0
        weight = self.first ** (1.0 - jnp.minimum(count / self.steps, 1.0))
        return jnp.where(count < self.steps, jnp.minimum(weight, self.first / precision), 1.0)

    @property
    def start(self) -> float:
        """The weight at step 0."""
        return self.first if self.steps else 1.0


class Training(NamedTuple):
    """How a net is trained.

    Attributes:
        optimizer: `ivon`, `adam`, `nadam`, `snngm`, `nagm`, `pga`, `vogn`, or `point` for Adam on the weights alone.
        step_size: The largest step size; None for the optimizer's usual one.
        schedule: `cosine` or `constant`.
        warmup: The share of all steps over which the step size rises first.
        epochs: Passes over the data.
        batch_size: Examples per step.
        num_samples: Draws of the weights per step.
        start_sd: The sd of every weight before the first step; None for 1 / sqrt(n), of IVON 1 / sqrt(0.1 n).
        patience: Evaluations on the validation set without a rise after which training stops.
        seed: The same seed gives the same bits.
        beta2: Of IVON, how slowly the curvature's average forgets; 0.999 for runs of few thousand steps.
        annealing: Of deep GLMs, the share of all steps in which rows weigh more than once (`Annealing`).
    """

    optimizer: str = "ivon"
    step_size: float | None = None
    schedule: str = "cosine"
    warmup: float = 0.0
    epochs: int = 20
    batch_size: int = 128
    num_samples: int = 1
    start_sd: float | None = None
    patience: int | None = None
    seed: int = 0
    beta2: float = 0.9999
    annealing: float = 0.0

    def steps_per_epoch(self, num_rows: int) -> int:
        """Return the number of whole batches in the data."""
        return num_rows // self.batch_size

    def first_sd(self, num_rows: float) -> float:
        """Return the sd of every weight before the first step."""
        if self.start_sd is not None:
            return self.start_sd
        return 1.0 / math.sqrt(num_rows * (IVON_CURVATURE if self.optimizer == "ivon" else 1.0))

    def annealing_of(self, num_rows: int) -> Annealing:
        """Return how often rows count, step by step."""
        return Annealing(int(self.annealing * self.epochs * self.steps_per_epoch(num_rows)))

    def rule(self, num_rows: int) -> Rule:
        """Return the update rule with its schedule."""
        size = STEP_SIZES[self.optimizer] if self.step_size is None else self.step_size
        steps = self.epochs * self.steps_per_epoch(num_rows)
        schedule = Cosine(size, steps, int(self.warmup * steps)) if self.schedule == "cosine" else size
        if self.optimizer == "ivon":
            return optimize.ivon(schedule, beta2=self.beta2)
        return getattr(optimize, "adam" if self.optimizer == POINT else self.optimizer)(schedule)


def check_training(training: Training, num_rows: int) -> None:
    """Say what is wrong with the options, before any work is done."""
    if training.optimizer not in STEP_SIZES:
        raise ValueError(f"optimizer must be one of {', '.join(map(repr, STEP_SIZES))}, not {training.optimizer!r}.")
    if training.schedule not in ("cosine", "constant"):
        raise ValueError(f"schedule must be 'cosine' or 'constant', not {training.schedule!r}.")
    for name in ("epochs", "batch_size", "num_samples"):
        check_count(name, getattr(training, name))
    if training.batch_size > num_rows:
        raise ValueError(
            f"batch_size={training.batch_size:,} is larger than the data, {num_rows:,} examples. Give at most that."
        )
    if not is_real(training.warmup) or not 0 <= training.warmup < 1:
        raise ValueError(
            f"warmup is the share of steps with a rising step size, from 0 to below 1; got {training.warmup!r}."
        )
    if not is_real(training.annealing) or not 0 <= training.annealing <= 1:
        raise ValueError(
            f"annealing is the share of steps in which rows weigh more than once, 0 to 1; got {training.annealing!r}."
        )
    for name in ("step_size", "start_sd"):
        value = getattr(training, name)
        if value is not None and (not is_real(value) or not 0 < value < math.inf):
            raise ValueError(f"{name} must be positive and finite, or None; got {value!r}.")
    if training.patience is not None:
        check_count("patience", training.patience)


class PointMove(NamedTuple):
    """A step of a point estimate: the gradient at the mean, and a factor that stays as it is."""

    rule: Rule

    def __call__(self, target: Any, state: State, key: PRNGKeyArray) -> State:
        """Differentiate and move."""
        value, grad = jax.value_and_grad(target.value)(state.gaussian.mean)
        still = jax.tree.map(jnp.zeros_like, state.gaussian.factor)
        gaussian, rule_state = self.rule.step(state.gaussian, state.rule, BoundGradient(value, grad, still))
        return State(gaussian, rule_state, value)


def recipe_of(target: Any, training: Training) -> Algorithm:
    """Put the target, the rule and its estimate together."""
    rule = training.rule(target.num_rows)
    recipe = compose(target, rule, CovarianceGaussian, num_samples=training.num_samples)
    return recipe._replace(move=PointMove(rule)) if training.optimizer == POINT else recipe


def train(
    target: Any,
    start: CovarianceGaussian,
    rows: Any,
    training: Training,
    *,
    watch: Callable[[Any], float] | None = None,
    algorithm: Algorithm | None = None,
    batches: Batches | None = None,
    **keeping: Any,
) -> Fitted:
    """Run the loop for all epochs; a window is an epoch.

    Args:
        target: The log-density of rows.
        start: The Gaussian to start from.
        rows: All examples, a pytree of arrays.
        training: How to train.
        watch: The value of the algorithm's state on a validation set.
        algorithm: Where it is more than a rule on the target.
        batches: Where each step's examples come from; by default from all of them at random.
        keeping: `state`, `progress`, `checkpoint`, `checkpoint_seconds`, `mark`, `parts` of the loop.
    """
    num_rows = target.num_rows
    per_epoch = training.steps_per_epoch(num_rows)
    recipe = algorithm or recipe_of(target, training)
    return wander(
        recipe,
        start,
        batches=batches or ArrayBatches(rows, training.batch_size, seed=training.seed),
        seed=training.seed,
        max_steps=training.epochs * per_epoch,
        window=per_epoch,
        settle=False,
        watch=watch,
        patience=training.patience,
        watch_from=-(-training.annealing_of(num_rows).steps // per_epoch),
        **keeping,
    )
