"""A fit by noisy steps: a start from a sample of the rows, the paper's Algorithm 1N on batches, all rows at last.

The sample, each of its rows counted N / m times, is fitted as any log-density is. Its Gaussian whitens the coordinates
and is the start; the steps then see batches of all rows. Passes over all rows at the end move the mean by one exact
step, give the bound, and hold the Gaussian against the density where the rows are not too many.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from natvi.gaussian import CovarianceGaussian
from natvi.gaussian.starts import dense_covariance, diagonal_covariance
from natvi.judge import words
from natvi.judge.trust import CARE, GOOD, Trust
from natvi.models.density.batches.opening import open_function
from natvi.models.density.batches.rows import AllRows, WhitenedRows, scaled_up
from natvi.models.density.bound import bound_of
from natvi.models.density.check import weigh_gaussian
from natvi.models.density.climbing.fitting import Optimum, find_optimum
from natvi.models.density.hierarchy import Settings
from natvi.models.density.space.maps import Space
from natvi.models.density.start import open_density
from natvi.models.density.structures.choice import SMALL, Structure
from natvi.models.density.structures.dense import Dense
from natvi.models.density.structures.diagonal import Diagonal
from natvi.models.density.verdict import ONE_MODE, Answer
from natvi.models.regression.options import find_rule
from natvi.quadrature.fixed_points import sobol_points
from natvi.run import wander
from natvi.run.algorithm import compose
from natvi.run.batches.row_batches import ArrayBatches, common_length
from natvi.run.fitted import Fitted
from natvi.run.outcome import Outcome

SAMPLE_ROWS, ROWS_PER_PARAMETER = 1024, 20  # of the sample that gives the start
BATCH_ROWS = 1000
START_SD = 0.1  # of every whitened coordinate: the optimizers' usual step sizes are for numbers of that size
WINDOW = 100
OPTIMIZERS = ("snngm", "nagm", "adam", "nadam", "pga")
LAST_DRAWS = 64  # of the exact step
MOST_LOOKS = 5e8  # rows times draws, up to which the shape is checked against all rows
SHAPE_DRAWS = 2048
FAR = 0.1  # sds, of what is left to go for the mean


class BatchFit(NamedTuple):
    """What came of it.

    Attributes:
        answer: To hand out.
        found: The optimum that the answer is about.
        evaluator: The log-density of all rows.
        fitted: Of the loop; None where the sample has no optimum.
        structure: The shape of the Gaussian.
        notes: What the user should know.
    """

    answer: Answer
    found: Optimum
    evaluator: AllRows
    fitted: Fitted | None
    structure: Structure
    notes: tuple[str, ...]


def fit_rows(
    logdensity: Any,
    space: Space,
    rows: Any,
    settings: Settings,
    *,
    batch_size: int | None,
    optimizer: str,
    step_size: float | None,
    structure: str,
    **keeping: Any,
) -> BatchFit:
    """Fit a log-density of rows; inside `float64()`.

    Args:
        logdensity: (parameters, rows) -> log prior plus the sum over the rows.
        space: Of the parameters.
        rows: All of them.
        settings: Method, seed and tolerance.
        batch_size: Rows of a step.
        optimizer: "snngm", "nagm", "adam", "nadam" or "pga".
        step_size: By default the optimizer's own.
        structure: "auto", "dense" or "diagonal".
        keeping: State, progress and checkpoint of the loop.
    """
    n, d, seed = common_length(rows), len(space.start), settings.seed
    if optimizer not in OPTIMIZERS:
        raise ValueError(f"optimizer must be one of {', '.join(map(repr, OPTIMIZERS))}, not {optimizer!r}.")
    shape = _structure(structure, d)
    function = open_function(logdensity, space, rows)
    batches = ArrayBatches(rows, min(BATCH_ROWS, n) if batch_size is None else batch_size, seed=seed)
    size = min(n, max(SAMPLE_ROWS, ROWS_PER_PARAMETER * d))
    chosen = np.sort(np.random.default_rng([seed, 9]).choice(n, size, replace=False))
    sample = jax.tree.map(lambda a: jnp.asarray(a[chosen]), rows)
    opened = open_density(lambda tree: scaled_up(function, tree, sample, n), space, seed)
    first = find_optimum(
        *(opened.evaluator, opened.start, shape),
        seed=seed,
        max_steps=500,
        tolerance=settings.tolerance,
        state=None,
        watch=lambda state: False,
    )
    evaluator = AllRows(function, space, rows)
    notes = (*opened.notes, f"the start is a fit to {size:,} of {n:,} rows, each counted {n / size:.3g} times")
    notes = (*notes, f"structure: {shape.why}") if shape.why else notes
    if first.outcome in (Outcome.UNBOUNDED, Outcome.NONFINITE):
        answer = Answer("gaussian", first.gaussian, None, (), bound=(first.bound, 0.0))
        return BatchFit(answer, first, evaluator, None, shape, notes)
    here = first.gaussian
    root, make = (here.root, dense_covariance) if shape.name == "dense" else (here.sds, diagonal_covariance)
    constant = here.log_det - d * np.log(START_SD)
    arrays = (jnp.asarray(part) for part in (here.mean, root / START_SD, constant))
    target = WhitenedRows(function, space.tree, sample, n, *arrays)
    rule = find_rule(optimizer, step_size, shape.name)
    fitted = wander(
        compose(target, rule, CovarianceGaussian),
        make(jnp.zeros(d), START_SD),
        batches=batches,
        seed=seed,
        window=WINDOW,
        **keeping,
    )
    found = first._replace(gaussian=_exact_step(evaluator, _unwhitened(here, fitted.gaussian), space, seed))
    return BatchFit(_judge(evaluator, found, space, seed, fitted), found, evaluator, fitted, shape, notes)


def _structure(asked: str, d: int) -> Structure:
    if asked not in ("auto", "dense", "diagonal"):
        raise ValueError(f"structure of a fit in batches must be 'auto', 'dense' or 'diagonal', not {asked!r}.")
    if asked == "diagonal" or (asked == "auto" and d > SMALL):
        why = (
            "as asked for"
            if asked == "diagonal"
            else f"{d:,} parameters are many: sds of correlated ones are too small"
        )
        return Structure("diagonal", f"independent coordinates, {why}")
    return Structure("dense")


def _unwhitened(here: Any, gaussian: CovarianceGaussian) -> Any:
    """Return mean + C (m, F) / sd."""
    m, F = np.asarray(gaussian.mean) / START_SD, gaussian.factor
    mean = here.at(m[None])[0]
    if here.structure == "diagonal":
        return Diagonal(mean, here.sds * np.abs(np.asarray(F.values)) / START_SD)  # type: ignore[attr-defined]
    root = here.root @ (np.asarray(F.matrix) / START_SD)  # type: ignore[attr-defined]
    return Dense(mean, root, float(np.linalg.slogdet(root)[1]))


def _exact_step(evaluator: AllRows, here: Any, space: Space, seed: int) -> Any:
    """Move the mean by one step of the expected gradient over all rows, where that raises the bound."""
    z = _points(len(space.start), seed)
    now = here.expect(evaluator(here.at(z)), z)
    if not np.isfinite(now.bound):
        return here
    moved = here._replace(mean=here.at(now.g[None])[0])
    return moved if moved.expect(evaluator(moved.at(z)), z).bound > now.bound else here


def _points(d: int, seed: int) -> np.ndarray:
    return sobol_points(d, max(LAST_DRAWS, 2 * d), seed)


def _judge(evaluator: AllRows, found: Optimum, space: Space, seed: int, fitted: Fitted) -> Answer:
    rng, here, names = np.random.default_rng([seed, 3]), found.gaussian, space.parameters.entries
    z = _points(len(here.mean), seed)
    left = float(np.max(np.abs(here.expect(evaluator(here.at(z)), z).g), initial=0.0))
    gone = Trust(
        GOOD if left < FAR else CARE,
        (
            f"a step by the gradient of all rows would move the mean by {left:.2f} posterior sds"
            + ("" if left < FAR else "; go on with state=, larger batches or a smaller step_size"),
        ),
        (("largest step of a mean that is left, in posterior sds", left),),
    )
    concerns = [gone, Trust(GOOD, (ONE_MODE,))]
    small = evaluator.num_rows * SHAPE_DRAWS <= MOST_LOOKS
    if small and here.structure == "dense":
        looked = evaluator.read(here.at(z))
        varies = np.ptp(looked, axis=0) > 0
        B = np.where(varies[:, None], (looked - looked.mean(axis=0)).T @ z, 0.0)
        shape = weigh_gaussian(evaluator, here, B, varies, rng).shape
        kept = [name for name, flag in zip(names, varies, strict=True) if flag]
        cure = "leave data and batch_size out, so that the draws are corrected"
        concerns.insert(0, words.judge_shape(shape, kept, cure))
    else:
        text = f"the shape of the Gaussian was not held against all {evaluator.num_rows:,} rows, which are many"
        concerns.append(Trust(CARE, (text,)))
    bound = bound_of(evaluator, found, rng, SHAPE_DRAWS // 2 if small else LAST_DRAWS)
    return Answer("gaussian", here, None, tuple(concerns), bound=bound)
