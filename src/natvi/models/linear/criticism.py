"""A fitted generalized linear model against data: replicated responses, log-likelihoods, cross-validation."""

from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float
from scipy.special import ndtri

from natvi.families.table import Family
from natvi.judge.predictive import Replicated
from natvi.judge.replicate import CHECK_DRAWS, draw_responses, even_rows
from natvi.metrics.loo import leave_rows_out
from natvi.models.linear.predict import covariates, predictor_moments, response_moments, rows_with_response
from natvi.models.linear.rows import GlmRows
from natvi.models.regression.prior.log_density import log_prior
from natvi.x64 import float64

if TYPE_CHECKING:
    from natvi.models.linear.posterior import GlmFit

LARGEST_TABLE = 2_000_000_000  # bytes of a table of draws by rows
CHUNK_CELLS = 2_000_000
JOINT_DRAWS = 128  # worked on together: one size compiles once, however many a check takes
SHOWN_ROWS, RESIDUAL_DRAWS = 2000, 400


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
    """

    elpd: float
    se: float
    p_loo: float
    elpd_each: np.ndarray
    pareto_k: np.ndarray
    effective: np.ndarray
    warning: str

    def __repr__(self) -> str:
        text = f"elpd_loo {self.elpd:.2f} (se {self.se:.2f}), p_loo {self.p_loo:.2f}, {len(self.pareto_k):,} rows"
        return f"{text}\n{self.warning}" if self.warning else text


class Residuals(NamedTuple):
    """Fitted values, Pearson residuals, and quantile residuals: standard normal if the model is right."""

    fitted: np.ndarray
    pearson: np.ndarray
    quantile: np.ndarray


def observed(fit: "GlmFit", data: Any = None) -> np.ndarray:
    """Return the responses; of trials the successes."""
    return _responses(rows_with_response(fit, data))


def _responses(rows: GlmRows) -> np.ndarray:
    return rows.y if rows.trials is None else np.round(rows.y * rows.trials)


def posterior_predictive(fit: "GlmFit", num_draws: int, seed: int, data: Any = None) -> np.ndarray:
    """Draw responses of every row, each draw with its own parameters; of trials the successes."""
    X, offset, _ = covariates(fit, data)
    trials = _trials(fit, data)
    return _replicate(fit, X, offset, trials, num_draws, seed)


def _trials(fit: "GlmFit", data: Any) -> np.ndarray | None:
    if fit.family.name != "binomial":
        return None
    if data is None or fit.columns is None:
        return rows_with_response(fit, data).trials
    return fit.columns.apply_trials(data)


def _replicate(
    fit: "GlmFit", X: np.ndarray, offset: np.ndarray | None, trials: np.ndarray | None, num_draws: int, seed: int
) -> np.ndarray:
    _check_size(num_draws, len(X))
    with float64():
        key = jax.random.key(seed)
        fixed = (jnp.asarray(X), _device(offset), _device(trials))
        parts = []
        for at, theta in _chunks(fit.draws(num_draws, seed), len(X)):
            parts.append(np.asarray(_draw(fit.family, *fixed, jnp.asarray(theta), jax.random.fold_in(key, at))))
    return np.concatenate(parts)[:num_draws]


def log_likelihood(fit: "GlmFit", num_draws: int, seed: int, data: Any = None) -> np.ndarray:
    """Return log p(y_i | theta) of every row under every draw, times the row's weight, constants included."""
    rows = rows_with_response(fit, data)
    _check_size(num_draws, len(rows.y))
    return _log_likelihood(fit, rows, fit.draws(num_draws, seed))


def log_joint(fit: "GlmFit", rows: GlmRows, theta: np.ndarray) -> np.ndarray:
    """Return log p(y, theta) of every draw, but for a summand of (d/2) log 2 pi."""
    with float64():
        arrays = tuple(map(_device, rows))
        sums = [
            np.asarray(_row_sums(fit.family, *arrays, jnp.asarray(part)))
            for _, part in _chunks(theta, len(rows.y), JOINT_DRAWS)
        ]
    likelihood = np.concatenate(sums)[: len(theta)]
    prior = log_prior(fit.prior, theta) + 0.5 * theta.shape[1] * np.log(2 * np.pi)
    return likelihood + prior


def log_ratios(fit: "GlmFit", rows: GlmRows, theta: np.ndarray) -> np.ndarray:
    """Return log p(y, theta) - log q(theta) of every draw, up to rounding on all constants."""
    # log q up to the same -(d/2) log 2 pi as the joint density
    if fit.is_diagonal:
        z, log_root = (theta - fit.mean) / fit.factor, np.sum(np.log(np.abs(fit.factor)))
    else:
        z = np.linalg.solve(fit.factor, (theta - fit.mean).T).T
        log_root = np.sum(np.log(np.abs(np.diagonal(fit.factor))))
    return log_joint(fit, rows, theta) + 0.5 * np.sum(z**2, axis=1) + log_root


def loo(fit: "GlmFit", num_draws: int, seed: int, data: Any = None) -> Loo:
    """Return leave-one-out cross-validation by Pareto-smoothed importance sampling.

    The draws come from q, not from the posterior, so the weights hold log p(y, theta) - log q(theta) as well.
    """
    rows = rows_with_response(fit, data)
    theta = fit.draws(num_draws, seed)
    ratio = np.zeros(num_draws) if fit.is_corrected else log_ratios(fit, rows, theta)

    def values(own: slice) -> np.ndarray:
        part = GlmRows(*(None if a is None else a[own] for a in rows))  # type: ignore[arg-type]
        return _log_likelihood(fit, part, theta).T

    found = leave_rows_out(values, len(rows.y), num_draws, ratio)
    return summarise_loo(found.elpd, found.lppd, found.k, found.effective, num_draws)


def summarise_loo(
    elpd_each: np.ndarray, lppd: np.ndarray, k: np.ndarray, effective: np.ndarray, num_draws: int, cause: str = ""
) -> Loo:
    """Return the sums over rows, with a warning about rows whose weights are not reliable and its likely cause."""
    bad = int(np.sum(~(k < 0.7) & (effective < 0.5 * num_draws)))
    warning = (
        f"{bad:,} of {len(k):,} rows have a Pareto k above 0.7: leaving one of them out changes much{cause}, and their "
        "part of elpd is not reliable"
        if bad
        else ""
    )
    se = float(np.sqrt(len(k) * np.var(elpd_each)))
    return Loo(float(elpd_each.sum()), se, float(np.sum(lppd - elpd_each)), elpd_each, k, effective, warning)


def residuals(fit: "GlmFit", seed: int, data: Any = None) -> Residuals:
    """Return residuals of the rows, of very many an even selection.

    Pearson: (y - mean) / sqrt(variance / weight). Quantile (Dunn and Smyth): the normal quantile of where y lies among
    replicated responses, ties broken at random.
    """
    rows = rows_with_response(fit, data)
    if len(rows.y) > SHOWN_ROWS:
        at = np.linspace(0, len(rows.y) - 1, SHOWN_ROWS).astype(int)
        rows = GlmRows(*(None if part is None else part[at] for part in rows))  # type: ignore[arg-type]
    fitted, _ = response_moments(fit.family, *predictor_moments(fit, rows.X, rows.offset))
    with float64():
        disp = jnp.asarray(fit.mean[-1]) if fit.family.has_dispersion else None
        variance = np.asarray(fit.family.variance(jnp.asarray(fitted), disp))
    weight = 1.0 if rows.weight is None else rows.weight
    pearson = (rows.y - fitted) * np.sqrt(weight / np.maximum(variance, 1e-300))
    replicated = _replicate(fit, rows.X, rows.offset, rows.trials, RESIDUAL_DRAWS, seed)
    y = _responses(rows)
    below, equal = np.sum(replicated < y, axis=0), np.sum(replicated == y, axis=0)
    uniform = np.random.default_rng(seed).uniform(size=len(y))
    return Residuals(fitted, pearson, ndtri((below + uniform * (equal + 1)) / (RESIDUAL_DRAWS + 1)))


def replicate_rows(fit: "GlmFit", seed: int = 0) -> Replicated:
    """Return the training responses, of very many an even selection, with replicated ones."""
    rows = rows_with_response(fit, None)
    at = even_rows(len(rows.y))
    if at is not None:
        rows = GlmRows(*(None if part is None else part[at] for part in rows))  # type: ignore[arg-type]
    theta = fit.draws(CHECK_DRAWS, seed)
    eta = theta[:, : rows.X.shape[1]] @ rows.X.T + (0.0 if rows.offset is None else rows.offset)
    disp = theta[:, -1] if fit.family.has_dispersion else None
    return replicate(fit.family, _responses(rows), eta, disp, rows.trials, seed)


def replicate(
    family: Family,
    y: np.ndarray,
    eta: np.ndarray,
    disp: np.ndarray | None,
    trials: np.ndarray | None,
    seed: int,
) -> Replicated:
    """Draw responses given predictors `(s, n)`, with their means and variances."""
    with float64():
        mean = np.asarray(family.mean(jnp.asarray(eta)))
        spread = family.variance(jnp.asarray(mean), None if disp is None else jnp.asarray(disp)[:, None])
        variance = np.broadcast_to(np.asarray(spread), mean.shape)
    drawn = draw_responses(family.name, mean, disp, trials, np.random.default_rng(seed))
    if trials is not None:
        mean, variance = mean * trials, variance * trials
    return Replicated(y, drawn, mean, variance)


# --- draws by rows, in pieces --------------------------------------------------------------------------------


def _check_size(num_draws: int, n: int) -> None:
    if num_draws < 1:
        raise ValueError(f"num_draws must be at least 1, not {num_draws}.")
    if 8 * num_draws * n > LARGEST_TABLE:
        most = max(1, LARGEST_TABLE // (8 * n))
        raise ValueError(
            f"{num_draws:,} draws of {n:,} rows need {8 * num_draws * n / 2**30:.1f} GiB. Take num_draws={most:,} or "
            "fewer, or give part of the rows as data."
        )


def _chunks(theta: np.ndarray, n: int, most: int | None = None) -> list[tuple[int, np.ndarray]]:
    """Cut draws into pieces of one size, the last one filled up: one size compiles once."""
    size = int(min(most or len(theta), max(1, CHUNK_CELLS // max(n, 1))))
    short = -len(theta) % size
    padded = np.concatenate([theta, np.repeat(theta[-1:], short, axis=0)]) if short else theta
    return [(at, padded[at : at + size]) for at in range(0, len(padded), size)]


def _device(values: np.ndarray | None) -> Any:
    return None if values is None else jnp.asarray(values)


def _log_likelihood(fit: "GlmFit", rows: GlmRows, theta: np.ndarray) -> np.ndarray:
    with float64():
        arrays = tuple(map(_device, rows))
        parts = [np.asarray(_row_values(fit.family, *arrays, jnp.asarray(t))) for _, t in _chunks(theta, len(rows.y))]
    return np.concatenate(parts)[: len(theta)]


def _predictors(
    family: Family, X: Float[Array, "n p"], offset: Any, theta: Float[Array, "s d"]
) -> tuple[Float[Array, "s n"], Any]:
    eta = theta[:, : X.shape[1]] @ X.T
    eta = eta if offset is None else eta + offset
    return eta, theta[:, -1] if family.has_dispersion else None


@jax.jit(static_argnums=0)
def _row_values(
    family: Family, X: Any, y: Any, offset: Any, weight: Any, trials: Any, constants: Any, theta: Float[Array, "s d"]
) -> Float[Array, "s n"]:
    eta, disp = _predictors(family, X, offset, theta)
    each = jax.vmap(family.log_density, (None, 0, None if disp is None else 0))(y, eta, disp)
    each = each if weight is None else weight * each
    return each if constants is None else each + constants


@jax.jit(static_argnums=0)
def _row_sums(family: Family, *arguments: Any) -> Float[Array, " s"]:
    return jnp.sum(_row_values(family, *arguments), axis=1)


@jax.jit(static_argnums=0)
def _draw(
    family: Family, X: Any, offset: Any, trials: Any, theta: Float[Array, "s d"], key: Any
) -> Float[Array, "s n"]:
    eta, disp = _predictors(family, X, offset, theta)
    if trials is not None:
        return jax.random.binomial(key, trials, family.mean(eta), shape=eta.shape)
    return family.draw(key, eta, None if disp is None else jnp.broadcast_to(disp[:, None], eta.shape))
