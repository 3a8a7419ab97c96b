"""A fitted regression against data: replicated responses, log-likelihoods, cross-validation, residuals."""

from collections.abc import Iterator
from functools import partial
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from natvi.families.rows import take_extras
from natvi.families.table import Family
from natvi.judge.own_draws import OWN_DRAWS
from natvi.judge.predictive import Replicated
from natvi.judge.replicate import draw_responses
from natvi.linalg.buckets import bucket
from natvi.metrics.loo import leave_rows_out
from natvi.models.regression.family.responses import TIMES
from natvi.models.regression.rows import Covariates, Rows
from natvi.run.compiled_code import quick_jit, thorough_jit
from natvi.special import ndtri
from natvi.x64 import float64

LARGEST_TABLE = 2_000_000_000  # bytes of a table of draws by rows
CHUNK_CELLS = 2_000_000
RESIDUAL_DRAWS = 400


class Loo(NamedTuple):
    """Leave-one-out cross-validation.

    Attributes:
        elpd: The expected log predictive density of new data, summed over the rows.
        se: Its standard error.
        p_loo: The effective number of parameters.
        elpd_each: The part of every row.
        pareto_k: The tail of every row's weights: below 0.7 its part is reliable.
        effective: How many equally weighted draws every row's draws are worth; where that is most of them, its part
            is reliable whatever the tail.
        warning: What to know about unreliable rows, or an empty text.
        unit: What was left out at a time: "rows" or "groups".
    """

    elpd: float
    se: float
    p_loo: float
    elpd_each: np.ndarray
    pareto_k: np.ndarray
    effective: np.ndarray
    warning: str
    unit: str = "rows"

    def __repr__(self) -> str:
        many = f"{len(self.pareto_k):,} {self.unit}"
        text = f"elpd_loo {self.elpd:.2f} (se {self.se:.2f}), p_loo {self.p_loo:.2f}, {many}"
        return f"{text}\n{self.warning}" if self.warning else text


class Residuals(NamedTuple):
    """Fitted values, Pearson residuals, and quantile residuals: standard normal if the model is right."""

    fitted: np.ndarray
    pearson: np.ndarray
    quantile: np.ndarray


class Drawn(NamedTuple):
    """Draws of the parameters, with the rows they are for.

    Attributes:
        family: The response distribution.
        covariates: Of the rows; their codes say where `local` holds the effects of a row's group.
        shared: Draws of coefficients, log dispersion and what there is more `(s, g)`.
        local: Draws of random effects `(s, r, m)`, or None in a model without groups.
    """

    family: Family
    covariates: Covariates
    shared: np.ndarray
    local: np.ndarray | None = None

    @property
    def log_dispersion(self) -> np.ndarray | None:
        """The log dispersion of every draw, which stands after the coefficients, or None; of several `(q, s)`."""
        return take_extras(self.family, self.shared.T, self.covariates.X.shape[1])  # type: ignore[return-value]

    def pieces(self) -> Iterator[tuple[Array, Array | None]]:
        """Yield eta `(b, n)` and log dispersion `(..., b)`, some draws at a time, the last ones filled up."""
        num_draws, disp = len(self.shared), self.log_dispersion
        size = int(min(num_draws, max(1, CHUNK_CELLS // max(self.covariates.num_rows, 1))))
        last = np.minimum(np.arange(-(-num_draws // size) * size), num_draws - 1)
        for at in range(0, len(last), size):
            own = last[at : at + size]
            eta = self.covariates.predictors(self.shared[own], None if self.local is None else self.local[own])
            yield jnp.asarray(eta), None if disp is None else jnp.asarray(disp[..., own])


def check_size(num_draws: int, num_rows: int) -> None:
    """Refuse a table of draws by rows that would fill the memory."""
    if num_draws < 1:
        raise ValueError(f"num_draws must be at least 1, not {num_draws}.")
    if 8 * num_draws * num_rows > LARGEST_TABLE:
        raise ValueError(
            f"{num_draws:,} draws of {num_rows:,} rows need {8 * num_draws * num_rows / 2**30:.1f} GiB. Take "
            f"num_draws={max(1, LARGEST_TABLE // (8 * num_rows)):,} or fewer, or give part of the rows as data."
        )


def replicate_responses(drawn: Drawn, trials: np.ndarray | None, seed: int) -> np.ndarray:
    """Draw responses of every row, each draw with its own parameters; of trials the successes."""
    family, rng = drawn.family, np.random.default_rng(seed)
    with float64():
        parts = [
            draw_rows(family, np.asarray(eta), None if disp is None else np.asarray(disp), trials, rng)
            for eta, disp in drawn.pieces()
        ]
    return np.concatenate(parts)[: len(drawn.shared)]


def log_likelihoods(drawn: Drawn, rows: Rows) -> np.ndarray:
    """Return log p(y_i | theta) of every row under every draw, times the row's weight, constants included."""
    with float64():
        fixed = tuple(map(_device, (rows.y, rows.weight, rows.constants)))
        parts = [np.asarray(_row_values(drawn.family, *fixed, *piece)) for piece in drawn.pieces()]
    return np.concatenate(parts)[: len(drawn.shared)]


def leave_one_out(drawn: Drawn, rows: Rows, log_ratios: np.ndarray | None, cause: str) -> Loo:
    """Return leave-one-out cross-validation by Pareto-smoothed importance sampling, one row at a time.

    Args:
        drawn: Draws of the parameters.
        rows: The rows, in the order of the draws' covariates.
        log_ratios: log p(y, theta) - log q(theta) of the draws, where they come from q and not from the posterior.
        cause: Why leaving a row out may change much, for the warning.
    """
    num_draws = len(drawn.shared)
    beta, disp = drawn.shared[:, : rows.X.shape[1]].T, drawn.log_dispersion
    disp = disp if disp is None or disp.ndim == 1 else disp[:, None]
    # (r, groups, s): a row's draws side by side
    effects = None if drawn.local is None else np.ascontiguousarray(np.moveaxis(drawn.local, 0, -1))

    def values(own: slice) -> np.ndarray:
        X, offset, Z, codes = drawn.covariates.take(own)
        part = rows.take(own)
        eta = X @ beta
        if offset is not None:
            eta += offset[:, None]
        if effects is not None and Z is not None and codes is not None:
            for k, z in enumerate(Z.T):
                own = effects[k][codes] if codes.ndim == 1 else effects[0][codes[:, k]]
                eta += own * z[:, None]
        with float64():
            columns = (None if a is None else jnp.asarray(a)[:, None] for a in (part.y, part.weight, part.constants))
            return np.asarray(_values_by_row(drawn.family, *columns, jnp.asarray(eta), _device(disp)))

    found = leave_rows_out(values, len(rows.y), num_draws, log_ratios)
    bad = int(np.sum(~(found.k < 0.7) & (found.effective < 0.5 * num_draws)))
    warning = (
        f"{bad:,} of {len(found.k):,} rows have a Pareto k above 0.7: leaving one of them out changes much{cause}, and "
        "their part of elpd is not reliable"
        if bad
        else ""
    )
    se = float(np.sqrt(len(found.k) * np.var(found.elpd)))
    p_loo = float(np.sum(found.lppd - found.elpd))
    return Loo(float(found.elpd.sum()), se, p_loo, found.elpd, found.k, found.effective, warning)


def find_residuals(
    drawn: Drawn, rows: Rows, fitted: np.ndarray, log_dispersion: np.ndarray | None, seed: int
) -> Residuals:
    """Return residuals about the fitted values.

    Pearson: (y - mean) / sqrt(variance / weight). Quantile (Dunn and Smyth): the normal quantile of where y lies among
    responses replicated from one draw of the posterior, ties broken at random. Under the model y and a posterior draw
    are distributed as y and the truth, so that these are standard normal; about averages over the posterior they would
    be too small wherever many random effects were fitted to few rows.
    """
    variance = typical_variance(drawn, fitted, log_dispersion)
    weight = 1.0 if rows.weight is None else rows.weight
    pearson = (np.abs(rows.y) if rows_are_cut(drawn.family, rows) is not None else rows.y) - fitted
    pearson *= np.sqrt(weight / np.maximum(variance, 1e-300))
    replicated, y = replicate_responses(_one_draw(drawn), rows.trials, seed), rows.responses()
    cut = rows_are_cut(drawn.family, rows)
    y = y if cut is None else np.abs(y)
    below, equal = np.sum(replicated < y, axis=0), np.sum(replicated == y, axis=0)
    # a time that was cut short lies anywhere beyond
    equal = equal if cut is None else np.where(cut, len(replicated) - below, equal)
    uniform = np.random.default_rng(seed).uniform(size=len(y))
    return Residuals(fitted, pearson, ndtri((below + uniform * (equal + 1)) / (len(drawn.shared) + 1)))


def _one_draw(drawn: Drawn) -> Drawn:
    """Return the first draw as often as there are draws."""
    first = np.zeros(len(drawn.shared), dtype=int)
    return drawn._replace(shared=drawn.shared[first], local=None if drawn.local is None else drawn.local[first])


def rows_are_cut(family: Family, rows: Rows) -> np.ndarray | None:
    """Return which waiting times were cut short, or None where none can be."""
    return rows.y < 0 if family.name in TIMES else None


def replicate_rows(drawn: Drawn, rows: Rows, seed: int) -> Replicated:
    """Return the responses with replicated ones, their means and variances."""
    family, disp = drawn.family, drawn.log_dispersion
    eta = drawn.covariates.predictors(drawn.shared, drawn.local)
    n = eta.shape[1]
    with float64():
        filled = np.pad(eta, ((0, 0), (0, bucket(n) - n)), mode="edge")
        found = _mean_and_variance(family, filled, None if disp is None else np.asarray(disp)[..., None])
        mean, variance = (np.broadcast_to(np.asarray(a), filled.shape)[:, :n] for a in found)
    responses = draw_rows(family, eta, disp, rows.trials, np.random.default_rng(seed))
    if rows.trials is not None:
        mean, variance = mean * rows.trials, variance * rows.trials
    by = None if drawn.local is None else drawn.covariates.predictors(drawn.shared, None).mean(axis=0)
    return Replicated(rows.responses(), responses, mean, variance, by)


def draw_rows(
    family: Family,
    eta: Float[np.ndarray, "s n"],
    disp: Float[np.ndarray, "*q s"] | None,
    trials: np.ndarray | None,
    rng: np.random.Generator,
) -> Float[np.ndarray, "s n"]:
    """Draw a response for every draw of the parameters and every row."""
    if family.name in OWN_DRAWS:
        return OWN_DRAWS[family.name](family, eta, None if disp is None else disp[..., None], rng)
    with float64():
        mean = np.asarray(_mean(family, np.asarray(eta)))
    return draw_responses(family.name, mean, disp, trials, rng)


def typical_variance(drawn: Drawn, fitted: np.ndarray, log_dispersion: np.ndarray | None) -> np.ndarray:
    """Return the variance of every row's response about its fitted value, at typical values of the parameters."""
    family = drawn.family
    with float64():
        disp = _device(log_dispersion)
        if family.variance_given is None:
            return np.asarray(family.variance(jnp.asarray(fitted), disp))
        eta = drawn.covariates.predictors(drawn.shared, drawn.local).mean(axis=0)
        own = disp if disp is None or disp.ndim == 0 else disp[:, None]
        return np.asarray(family.variance_given(jnp.asarray(eta), own))


@partial(quick_jit, static_argnums=0)
def _mean_and_variance(family: Family, eta: Array, disp: Array | None) -> tuple[Array, Array]:
    return family.response_mean(eta, disp), family.response_variance(eta, disp)


def weighted_log_density(family: Family, y: Any, weight: Any, constants: Any, eta: Array, disp: Any) -> Array:
    """Return w log p(y | eta, dispersion) + w log C(n, y), all arrays of shapes that go together."""
    each = family.log_density(y, eta, disp)
    each = each if weight is None else weight * each
    return each if constants is None else each + constants


def _device(values: Any) -> Any:
    return None if values is None else jnp.asarray(values)


@partial(thorough_jit, static_argnums=0)
def _row_values(
    family: Family, y: Any, weight: Any, constants: Any, eta: Float[Array, "s n"], disp: Any
) -> Float[Array, "s n"]:
    return weighted_log_density(family, y, weight, constants, eta, None if disp is None else disp[..., None])


@partial(thorough_jit, static_argnums=0)
def _values_by_row(
    family: Family, y: Any, weight: Any, constants: Any, eta: Float[Array, "n s"], disp: Any
) -> Float[Array, "n s"]:
    return weighted_log_density(family, y, weight, constants, eta, disp)


@partial(thorough_jit, static_argnums=0)
def _mean(family: Family, eta: Float[Array, "s n"]) -> Float[Array, "s n"]:
    return family.mean(eta)
