"""The last passes over rows that do not fit into memory: an exact step of the mean, and the exact bound."""

import math
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from natvi.gaussian import CovarianceGaussian
from natvi.judge.trust import CARE, GOOD, Trust
from natvi.models.linear.batches.source import RowSource, cut, scaled
from natvi.target.design_rows import DesignRows, Observations

BLOCK_ROWS = 4096
SMALL_SHIFT = 0.25  # in posterior sds


class Ending(NamedTuple):
    """The Gaussian, its exact bound, and how far one exact natural-gradient step would move the mean, in sds too."""

    gaussian: CovarianceGaussian
    elbo: float
    step: np.ndarray
    shift: np.ndarray


def finish(source: RowSource, target: DesignRows, scales: np.ndarray, gaussian: CovarianceGaussian) -> Ending:
    """Take one exact step of the mean, Sigma grad_mu L, where that raises the bound: the noise of the batches goes."""
    before = sum_rows(source, target, scales, gaussian)
    if not np.all(np.isfinite(before.step)):
        return before
    moved = CovarianceGaussian(gaussian.mean + jnp.asarray(before.step), gaussian.factor)
    after = sum_rows(source, target, scales, moved)
    return after if after.elbo > before.elbo else before


def sum_rows(source: RowSource, target: DesignRows, scales: np.ndarray, gaussian: CovarianceGaussian) -> Ending:
    """Sum the rows' part of the bound and of its gradient, block by block, and add prior and entropy.

    L = sum_i E log p(y_i | eta_i) + E log p(theta) + H(q); the step of the mean is Sigma grad_mu L.
    """
    prior = target.prior.expected(gaussian)
    values, grad = [], np.asarray(prior.grad)
    for rows in source.read():
        for block in cut(scaled(rows, scales), BLOCK_ROWS):
            value, more = sum_block(target, gaussian, jax.tree.map(jnp.asarray, padded(block, BLOCK_ROWS)))
            values.append(float(value))
            grad = grad + np.asarray(more)
    sds = np.asarray(gaussian.marginal_sds())
    elbo = math.fsum([*values, float(target.constant), float(prior.value), float(gaussian.entropy())])
    step = np.asarray(gaussian.covariance_product(jnp.asarray(grad)))
    return Ending(gaussian, elbo, step, step / sds)


def padded(rows: Observations, size: int) -> Observations:
    """Return `size` rows, those that are added being copies of the first with weight zero: one shape to compile."""
    weight = np.ones(len(rows.y)) if rows.weight is None else rows.weight
    more = size - len(rows.y)

    def fill(a: Any) -> np.ndarray:
        return np.concatenate([a, np.repeat(a[:1], more, axis=0)])

    filled: Observations = jax.tree.map(fill, rows)
    return filled._replace(weight=np.append(weight, np.zeros(more)))


@jax.jit
def sum_block(
    target: DesignRows, gaussian: CovarianceGaussian, rows: Observations
) -> tuple[Float[Array, ""], Float[Array, " d"]]:
    """Return the expected log-likelihood of the rows and its gradient in the mean, X' E psi'."""
    here = target.with_rows(rows)
    each = here.each_row(here.moments(gaussian))
    grad = each.d_eta @ rows.X
    if each.d_disp is None:
        return jnp.sum(each.value), grad
    return jnp.sum(each.value), jnp.append(grad, jnp.sum(each.d_disp.reshape(target.family.num_extras, -1), axis=1))


def judge_shift(shift: np.ndarray) -> tuple[Trust, ...]:
    """Say how far the means are from where the exact gradient would take them, and what was not checked."""
    largest = float(np.max(np.abs(shift)))
    level = GOOD if largest <= SMALL_SHIFT else CARE
    cure = "" if level == GOOD else ": go on with a smaller step_size or larger batches"
    reason = f"an exact step over all rows would move no mean by more than {largest:.2f} sds{cure}"
    return (Trust(level, (reason, "the rows are not kept: whether the posterior is Gaussian was not checked")),)
