"""How a generalized linear model is fitted: exact ascent, or the paper's stochastic algorithms.

Columns of very different size are brought to a similar one inside. With beta' = s beta the prior's means and sds are
multiplied by s too; log s enters the prior's density and the entropy with opposite signs, so the bound does not change.
"""

from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from natvi.families.stacked import for_rows, interleave, kinds_of, stacked_columns
from natvi.families.table import Family
from natvi.gaussian import CovarianceGaussian, dense_covariance, diagonal_covariance
from natvi.linalg.buckets import bucket
from natvi.models.linear.centring import Centring, centred_prior, find_centring
from natvi.models.regression.options import find_rule
from natvi.models.regression.prior.choice import Prior
from natvi.models.regression.rows import Rows
from natvi.run import Fitted, wander
from natvi.run.algorithm import compose
from natvi.run.batches.row_batches import ArrayBatches, Batches
from natvi.run.compiled_code import quick_jit
from natvi.run.exact.rows import climb_rows
from natvi.target.design_rows import DesignRows, Observations
from natvi.target.flat import FlatPrior
from natvi.target.priors.independent_normal import IndependentNormal
from natvi.target.priors.regression_prior import RegressionPrior
from natvi.target.priors.scale_prior import ScalePrior
from natvi.x64 import to_host

LARGEST_RATIO = 1e3  # of the columns' sizes
START_SD = 0.1
WINDOW = 100


def column_scales(X: np.ndarray) -> np.ndarray | None:
    """Return a power of two near the root mean square of each column, or None where the columns are of similar size.

    Example:
        >>> column_scales(np.array([[1.0, 3e6], [1.0, -5e6]])).tolist()
        [1.0, 4194304.0]
    """
    sizes = np.sqrt(np.einsum("ij,ij->j", X, X) / max(len(X), 1))
    proper = np.isfinite(sizes) & (sizes > 0)
    if not proper.any() or sizes[proper].max() <= LARGEST_RATIO * sizes[proper].min():
        return None
    return np.where(proper, 2.0 ** np.round(np.log2(np.where(proper, sizes, 1.0))), 1.0)


def build_target(
    rows: Rows,
    family: Family,
    prior: Prior,
    scales: np.ndarray | None,
    centring: Centring | None = None,
    fill_up: bool = False,
) -> DesignRows:
    """Return the target of (beta, log dispersion), of columns centred already, the coefficients times the scales.

    `fill_up` adds rows that count for nothing, up to the next of few sizes, for which programs are compiled already.
    """
    X, mean, sd, n = rows.X, prior.mean, prior.sd, len(rows.y)
    if scales is not None:
        X = X / scales
        whole = np.append(scales, np.ones(len(mean) - len(scales)))
        mean, sd = mean * whole, sd * whole
    observations = _observations(X, rows, bucket(n) if fill_up and n > 2 * X.shape[1] else n, family)
    normal: FlatPrior = IndependentNormal(jnp.asarray(mean), jnp.asarray(sd))
    if centring is not None:
        normal = centred_prior(normal, centring, scales)
    for found in prior.scales.placed:  # the dispersion's, on which no scale acts
        normal = RegressionPrior(normal, ScalePrior.of(found.density, found.position, found.power))
    return DesignRows(observations, normal, for_rows(family), len(observations.y), rows.constant)


def _observations(X: np.ndarray, rows: Rows, size: int, family: Family) -> Observations:
    """Return the rows on the device, zeros in X and the last response over again in those that count for nothing."""
    n = len(rows.y)
    parts = [None if part is None else np.asarray(part) for part in (X, rows.y, rows.offset, rows.weight)]
    filled = None
    if size > n:
        parts = [None if part is None else _filled(part, size) for part in parts]
        parts[0][n:], filled = 0.0, np.arange(size) < n  # type: ignore[index]
    if family.parts:
        *parts, filled = _stacked(family, parts, filled)
    columns, y, offset, weight = jax.device_put(parts)
    return Observations(columns, y, offset, weight, None, None if filled is None else jax.device_put(filled))


def _stacked(family: Family, parts: list[Any], filled: np.ndarray | None) -> tuple[np.ndarray | None, ...]:
    """Return rows of several predictors as several rows of one."""
    X, y, offset, weight = parts
    found = stacked_columns(family, X, np.zeros((len(X), 0)), offset)
    columns = interleave([columns for columns, _, _ in found])
    known = None if offset is None else interleave([np.asarray(each) for _, _, each in found])
    again = (None if part is None else np.repeat(part, len(kinds_of(family))) for part in (y, weight, filled))
    y, weight, filled = again
    return columns, y, known, weight, filled


def _filled(part: np.ndarray, size: int) -> np.ndarray:
    return np.concatenate([part, np.repeat(part[-1:], size - len(part), axis=0)])


def fit_exactly(rows: Rows, family: Family, prior: Prior, structure: str, **options: Any) -> Fitted:
    """Maximise the exact bound; the Gaussian comes back in the coordinates of the prior."""
    plain = prior.coordinates.fixed is None  # else the columns are centred and scaled already
    centring = find_centring(rows.X) if structure == "dense" and plain and not family.parts else None
    if centring is not None:
        rows = rows._replace(X=centring.columns(rows.X))
    scales = column_scales(rows.X) if plain else None
    fitted = climb_rows(build_target(rows, family, prior, scales, centring, fill_up=True), structure, **options)
    mean, factor = unscaled(fitted.gaussian, scales)
    if centring is not None:
        mean, factor = centring.undo(mean, factor)
    return fitted._replace(gaussian=CovarianceGaussian(mean, type(fitted.gaussian.factor)(factor)))


def fit_stochastically(
    rows: Rows,
    family: Family,
    prior: Prior,
    structure: str,
    *,
    batch_size: int | None,
    seed: int,
    **options: Any,
) -> Fitted:
    """Run one of the paper's algorithms in (mu, C) to convergence; the bound at its end is exact, on all rows."""
    scales = column_scales(rows.X) if prior.coordinates.fixed is None else None
    target = build_target(rows, family, prior, scales)
    make = {"dense": dense_covariance, "diagonal": diagonal_covariance}[structure]
    batches = None if batch_size is None else ArrayBatches(to_host(target.rows), batch_size, seed=seed)
    fitted = run_algorithm(target, make(target.prior.mean, START_SD), batches, seed=seed, **options)
    elbo = float(_exact_bound(target, jax.tree.map(jnp.asarray, fitted.gaussian)))
    mean, factor = unscaled(fitted.gaussian, scales)
    user_scale = CovarianceGaussian(mean, type(fitted.gaussian.factor)(factor))
    return fitted._replace(gaussian=user_scale, elbo=elbo, elbo_se=0.0)


def run_algorithm(
    target: DesignRows,
    start: CovarianceGaussian,
    batches: Batches | None,
    *,
    optimizer: str,
    order: int | str,
    step_size: float | None,
    num_samples: int,
    seed: int,
    max_steps: int,
    state: Any,
    progress: bool,
    checkpoint: str | Path | None,
    checkpoint_seconds: float,
) -> Fitted:
    """Run one of the paper's algorithms in (mu, C) from a start to convergence."""
    # a triangular factor with one entry for each coordinate is diagonal
    diagonal = start.factor.num_entries == start.mean.shape[0]
    rule = find_rule(optimizer, step_size, "diagonal" if diagonal else "dense")
    return wander(
        compose(target, rule, CovarianceGaussian, order=order, num_samples=num_samples),
        start,
        batches=batches,
        seed=seed,
        max_steps=max_steps,
        window=WINDOW,
        state=state,
        progress=progress,
        checkpoint=checkpoint,
        checkpoint_seconds=checkpoint_seconds,
    )


@quick_jit
def _exact_bound(target: DesignRows, gaussian: CovarianceGaussian) -> Float[Array, ""]:
    return target.expected(gaussian).value + gaussian.entropy()


def unscaled(gaussian: CovarianceGaussian, scales: np.ndarray | None) -> tuple[np.ndarray, np.ndarray]:
    """Return mean and factor of beta = beta' / s, whose factor is that of beta' with its rows divided by s."""
    mean, (factor,) = np.asarray(gaussian.mean), gaussian.factor
    if scales is None:
        return mean, np.asarray(factor)
    whole = np.append(scales, np.ones(len(mean) - len(scales)))
    return mean / whole, np.asarray(factor) / (whole if factor.ndim == 1 else whole[:, None])
