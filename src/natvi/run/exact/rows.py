"""The exact fit of a generalized linear model: where to start, which system to climb, and the Gaussian at the end."""

from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.linalg import cho_solve
from jaxtyping import Array, Float

from natvi.families.stacked import rows_each
from natvi.optimize.fixed_point import SYSTEMS, newton_start
from natvi.run.compiled_code import quick_jit
from natvi.run.exact.loop import LoopState, climb
from natvi.run.fitted import Fitted
from natvi.run.hosts import Hosts
from natvi.target.design_rows import DesignRows

SAMPLE_ROWS = 4096  # rows that the first Newton steps look at where there are very many
SAMPLE_STEPS, LAST_STEPS, WHOLE_STEPS = 5, 1, 2  # on the sample, after that on all rows, and where all are looked at
MANY_COLUMNS = 24


def climb_rows(
    target: DesignRows,
    structure: str = "dense",
    *,
    max_steps: int = 500,
    tolerance: float = 1e-8,
    state: LoopState | None = None,
    progress: bool = False,
    checkpoint: str | Path | None = None,
    checkpoint_seconds: float = 2.0,
    hosts: Hosts | None = None,
) -> Fitted:
    """Maximise the exact bound of a generalized linear model.

    Args:
        target: All rows with the prior.
        structure: "dense", the full covariance, or "diagonal", independent coordinates.
        max_steps: Iterations at most, those of earlier runs included.
        tolerance: The relative rise of the bound at which a step counts as nothing.
        state: The state of an earlier run, to go on from.
        progress: Whether to show progress on the standard error stream after a second.
        checkpoint: A file to keep the state in; if it exists the fit goes on from it.
        checkpoint_seconds: The least time between two writes.
        hosts: As for `climb`.

    Returns:
        The Gaussian with the last state, the outcome, the bound and its trace.
    """
    if structure not in SYSTEMS:
        raise ValueError(f"structure must be 'dense' or 'diagonal', not {structure!r}.")
    rows = _with_columns(target)
    return climb(
        SYSTEMS[structure](rows),
        _start(rows, _sample(target)),
        max_steps=max_steps,
        tolerance=tolerance,
        state=state,
        progress=progress,
        checkpoint=checkpoint,
        checkpoint_seconds=checkpoint_seconds,
        hosts=hosts,
    )


def _with_columns(target: DesignRows) -> DesignRows:
    """Return the target with its columns laid out one after the other, if they are many and fit into one block."""
    if target.in_blocks or target.p < MANY_COLUMNS:
        return target
    return target.with_rows(target.rows._replace(columns=_transposed(target.rows.X)))


@jax.jit
def _transposed(X: Float[Array, "n p"]) -> Float[Array, "p n"]:
    return X.T


def _sample(target: DesignRows) -> DesignRows | None:
    """Return rows spread evenly over the data that stand for all of them, where there are very many."""
    n, each = target.rows.X.shape[0], rows_each(target.family)
    if n < 4 * SAMPLE_ROWS:
        return None
    at = np.linspace(0, n // each - 1, max(SAMPLE_ROWS // each, 20 * target.p)).astype(np.int64)
    at = (each * at[:, None] + np.arange(each)).ravel()
    return target.with_rows(jax.tree.map(lambda a: a[at], target.rows))


@quick_jit
def _start(target: DesignRows, sample: DesignRows | None) -> Float[Array, " d"]:
    """Return a mean to start from: Newton steps towards the mode, the first ones on a sample of the rows."""
    if sample is None:
        return newton_start(target, rough_mean(target), WHOLE_STEPS)
    return newton_start(target, newton_start(sample, rough_mean(sample), SAMPLE_STEPS), LAST_STEPS)


def rough_mean(target: DesignRows) -> Float[Array, " d"]:
    """Return least squares on the scale of the link, and the dispersion that suits it best."""
    X, y, offset, weight, _, filled = target.rows
    w = jnp.ones_like(y) if weight is None else weight
    w = w if filled is None else jnp.where(filled, w, 0.0)
    rough = target.family.start(y) - (0.0 if offset is None else offset)
    prior = target.prior
    p = target.p
    gram = target.rows.gram(w) + jnp.diag(1e-8 * jnp.sum(w) + 1e-3 * prior.precision[:p])
    beta = cho_solve((jnp.linalg.cholesky(gram), True), (w * rough) @ X)
    if not target.family.has_dispersion:
        return beta
    start_extras = getattr(target.family, "start_extras", None)
    if start_extras is not None:
        return jnp.append(beta, start_extras(y, X @ beta + (0.0 if offset is None else offset), w))
    if target.rows.X.shape[0] <= p:
        # the rows can be met exactly, and the likelihood alone would let the dispersion vanish
        size = jnp.std(rough)
        return jnp.append(beta, jnp.where(size > 0, jnp.log(0.3 * size), prior.mean[-1]))
    spread = jnp.log(jnp.sqrt(jnp.sum(w * (rough - X @ beta) ** 2) / jnp.sum(w)) + 1e-300)
    tried = jnp.concatenate([spread + jnp.arange(-2.0, 3.0), jnp.linspace(-6.0, 10.0, 17)])
    values = jax.vmap(lambda a: target.value(jnp.append(beta, a)))(tried)
    return jnp.append(beta, tried[jnp.argmax(jnp.where(jnp.isfinite(values), values, -jnp.inf))])
