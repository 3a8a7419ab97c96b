"""A fitted mixed model against data: replicated responses, log-likelihoods, cross-validation, residuals.

Every row is seen given its own group's random effects. Groups that the fit has not seen get fresh effects, one draw for
each draw of the parameters.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
from jaxtyping import Array, Float
from scipy.special import ndtri

from natvi.families.table import Family
from natvi.formula.columns import as_frame
from natvi.formula.design import Formula, build_design, parse_formula
from natvi.judge.predictive import Replicated
from natvi.judge.replicate import CHECK_DRAWS, even_rows
from natvi.metrics.loo import leave_rows_out
from natvi.models.linear.criticism import (
    CHUNK_CELLS,
    LARGEST_TABLE,
    RESIDUAL_DRAWS,
    SHOWN_ROWS,
    Loo,
    Residuals,
    replicate,
    summarise_loo,
)
from natvi.models.linear.rows import encode
from natvi.models.mixed.predict import draw_predictors, fresh_effects, group_codes, plain_labels
from natvi.models.regression.response import row_weights
from natvi.x64 import float64

if TYPE_CHECKING:
    from natvi.models.mixed.posterior import MixedFit


LARGEST_DRAW, PIECE_BYTES = 2_000_000_000, 2**27  # of random effects; bytes


class MixedRows(NamedTuple):
    """Covariates, groups and responses of the rows in use.

    Attributes:
        X: Columns of the fixed effects `(N, p)`.
        Z: Columns of the random effects `(N, r)`.
        offset: A known part of the predictor.
        codes: The group of every row; from the number of known groups on, groups never seen.
        y: Responses; for trials the proportion of successes.
        weight: How often each row counts, weight times trials, or None.
        trials: Trials of every row of a binomial response, or None.
        constants: What the weighted log-density of each row lacks, or None.
    """

    X: np.ndarray
    Z: np.ndarray
    offset: np.ndarray
    codes: np.ndarray
    y: np.ndarray
    weight: np.ndarray | None = None
    trials: np.ndarray | None = None
    constants: np.ndarray | None = None

    def responses(self) -> np.ndarray:
        """Return the responses; of trials the successes."""
        return self.y if self.trials is None else np.round(self.y * self.trials)


def observed(fit: "MixedFit", data: Any = None) -> np.ndarray:
    """Return the responses; of trials the successes."""
    return find_rows(fit, data).responses()


def posterior_predictive(fit: "MixedFit", num_draws: int, seed: int, data: Any = None) -> np.ndarray:
    """Draw responses of every row, each draw with its own parameters; of trials the successes."""
    return _replicate(fit, find_rows(fit, data, with_response=data is None), num_draws, seed)


def log_likelihood(fit: "MixedFit", num_draws: int, seed: int, data: Any = None) -> np.ndarray:
    """Return log p(y | theta) of every row under every draw, times the row's weight, constants included."""
    rows = find_rows(fit, data)
    parts = []
    with float64():
        fixed = tuple(None if a is None else jnp.asarray(a) for a in (rows.y, rows.weight, rows.constants))
        for eta, disp in _predictors(fit, rows, num_draws, seed):
            parts.append(np.asarray(_row_values(fit.family, *fixed, eta, disp)))
    return np.concatenate(parts)[:num_draws]


def loo(fit: "MixedFit", num_draws: int, seed: int, data: Any = None) -> Loo:
    """Return leave-one-out cross-validation by Pareto-smoothed importance sampling, one row at a time.

    The draws count as draws of the posterior: a correction of the Gaussian over thousands of random effects would have
    useless weights. A row that is alone in its group moves that group's effect much, and its k says so.
    """
    rows = find_rows(fit, data)
    codes, local, shared = _all_effects(fit, rows, num_draws, seed)
    effects = np.ascontiguousarray(np.moveaxis(local, 0, -1))  # (r, groups, s): a row's draws side by side
    beta, disp = shared[:, : len(fit.fixed_names)].T, shared[:, len(fit.fixed_names)]

    def values(own: slice) -> np.ndarray:
        part = MixedRows(*(None if a is None else a[own] for a in rows))  # type: ignore[arg-type]
        eta = part.X @ beta + part.offset[:, None]
        for effect, z in zip(effects, part.Z.T, strict=True):
            eta += effect[codes[own]] * z[:, None]
        with float64():
            return np.asarray(_values_by_row(fit.family, *part[4:6], part.constants, eta, disp))

    found = leave_rows_out(values, len(rows.y), num_draws)
    return summarise_loo(
        found.elpd, found.lppd, found.k, found.effective, num_draws, ", often the effect of a small group"
    )


def residuals(fit: "MixedFit", seed: int, data: Any = None) -> Residuals:
    """Return residuals of the rows, of very many an even selection.

    Pearson: (y - mean) / sqrt(variance / weight). Quantile (Dunn and Smyth): the normal quantile of where y lies among
    replicated responses, ties broken at random.
    """
    rows = find_rows(fit, data)
    if len(rows.y) > SHOWN_ROWS:
        at = np.linspace(0, len(rows.y) - 1, SHOWN_ROWS).astype(int)
        rows = MixedRows(*(None if part is None else part[at] for part in rows))  # type: ignore[arg-type]
    total, count = np.zeros(len(rows.y)), 0
    with float64():
        for eta, _ in _predictors(fit, rows, RESIDUAL_DRAWS, seed):
            values = np.asarray(fit.family.mean(eta))
            total, count = total + values.sum(axis=0), count + len(values)
        fitted = total / count
        mean, _ = fit.shared_moments()
        disp = jnp.asarray(mean[len(fit.fixed_names)]) if fit.family.has_dispersion else None
        variance = np.asarray(fit.family.variance(jnp.asarray(fitted), disp))
    weight = 1.0 if rows.weight is None else rows.weight
    pearson = (rows.y - fitted) * np.sqrt(weight / np.maximum(variance, 1e-300))
    replicated, y = _replicate(fit, rows, RESIDUAL_DRAWS, seed), rows.responses()
    below, equal = np.sum(replicated < y, axis=0), np.sum(replicated == y, axis=0)
    uniform = np.random.default_rng(seed).uniform(size=len(y))
    return Residuals(fitted, pearson, ndtri((below + uniform * (equal + 1)) / (RESIDUAL_DRAWS + 1)))


def replicate_rows(fit: "MixedFit", seed: int = 0) -> Replicated:
    """Return the training responses, of very many an even selection, with replicated ones."""
    rows = find_rows(fit, None)
    at = even_rows(len(rows.y))
    if at is not None:
        rows = MixedRows(*(None if part is None else part[at] for part in rows))  # type: ignore[arg-type]
    with float64():
        parts = [(np.asarray(eta), disp) for eta, disp in _predictors(fit, rows, CHECK_DRAWS, seed)]
    eta = np.concatenate([part for part, _ in parts])[:CHECK_DRAWS]
    disp = None
    if fit.family.has_dispersion:
        disp = np.concatenate([np.asarray(part) for _, part in parts])[:CHECK_DRAWS]
    return replicate(fit.family, rows.responses(), eta, disp, rows.trials, seed)


# --- rows ----------------------------------------------------------------------------------------------------


def find_rows(fit: "MixedFit", data: Any, with_response: bool = True) -> MixedRows:
    """Return the training rows, or new rows with their responses, weights and trials."""
    if data is None:
        if fit.rows is None:
            raise ValueError(
                "a fit that was loaded from a file does not hold its training data. Pass them as data=: a data frame "
                "with the columns of the formula."
            )
        return fit.rows
    frame = as_frame(data)
    X, Z, offset = fit.covariates(frame)
    codes = group_codes(fit, frame)
    unseen = codes < 0
    if unseen.any():
        fresh, _ = pd.factorize(pd.Index(plain_labels(frame[fit.group_name].to_numpy()[unseen])))
        codes = codes.copy()
        codes[unseen] = len(fit.group_labels) + fresh
    if not with_response:
        return MixedRows(X, Z, offset, codes, np.zeros(len(X)), trials=fit.columns.apply_trials(frame))
    left = parse_formula(fit.formula).response  # refuses all but known functions
    design = build_design(Formula(f"{left} ~ 1", left, "1", "0", None), frame, "error")
    response = encode(design.response, design.response_name, fit.family.name, design.trials, learning=False)
    weights, constants = fit.columns.apply_weights(frame), response.log_choose
    if constants is not None and weights is not None:
        constants = weights * constants
    weight = row_weights(weights, response.trials)
    return MixedRows(X, Z, offset, codes, response.values, weight, response.trials, constants)


# --- draws by rows, in pieces --------------------------------------------------------------------------------


def _predictors(fit: "MixedFit", rows: MixedRows, num_draws: int, seed: int) -> Iterator[tuple[Array, Array | None]]:
    """Yield eta `(b, N)` and the log dispersion `(b,)` of the draws of `sample`, piece by piece, each of one size."""
    if num_draws < 1:
        raise ValueError(f"num_draws must be at least 1, not {num_draws}.")
    n = max(len(rows.y), 1)
    if 8 * num_draws * n > LARGEST_TABLE:
        raise ValueError(
            f"{num_draws:,} draws of {n:,} rows need {8 * num_draws * n / 2**30:.1f} GiB. Take "
            f"num_draws={max(1, LARGEST_TABLE // (8 * n)):,} or fewer, or give part of the rows as data."
        )
    codes, local, shared = _all_effects(fit, rows, num_draws, seed)
    size = int(min(num_draws, max(1, CHUNK_CELLS // n)))
    last = np.minimum(np.arange(-(-num_draws // size) * size), num_draws - 1)
    for at in range(0, len(last), size):
        own = last[at : at + size]
        eta = draw_predictors(rows.X, rows.Z, rows.offset, codes, shared[own], local[own])
        disp = jnp.asarray(shared[own, len(fit.fixed_names)]) if fit.family.has_dispersion else None
        yield jnp.asarray(eta), disp


def _all_effects(
    fit: "MixedFit", rows: MixedRows, num_draws: int, seed: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return what `_draw_effects` returns, with fresh effects of groups that the fit has not seen."""
    codes, local, shared = _draw_effects(fit, rows.codes, num_draws, seed)
    fresh = int(rows.codes.max(initial=-1)) + 1 - len(fit.group_labels)
    if fresh > 0:
        rng = np.random.default_rng(seed)
        more = [fresh_effects(fit, shared, rng) for _ in range(fresh)]
        local = np.concatenate([local, np.stack(more, axis=-1)], axis=-1)
    return codes, local, shared


def _draw_effects(
    fit: "MixedFit", codes: np.ndarray, num_draws: int, seed: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return where each row finds its effects, and draws of random effects `(s, r, m)` and shared coordinates.

    They are the draws of `sample`, unless those of all groups would be too large: then some are drawn at a time, and
    only the groups at hand are kept.
    """
    r, n = fit.local_sds.shape
    if 8 * num_draws * r * n <= LARGEST_DRAW:
        return codes, *fit.joint_draws(num_draws, seed, True)
    used = np.unique(codes[codes < n])
    kept = np.where(codes < n, np.searchsorted(used, codes), len(used) + codes - n)
    size = max(1, PIECE_BYTES // (8 * r * n))
    seeds = np.random.SeedSequence(seed).generate_state(-(-num_draws // size))
    local, shared = [], []
    for own in seeds:
        effects, parameters = fit.joint_draws(size, int(own), True)
        local.append(effects[..., used])
        shared.append(parameters)
    return kept, np.concatenate(local)[:num_draws], np.concatenate(shared)[:num_draws]


def _replicate(fit: "MixedFit", rows: MixedRows, num_draws: int, seed: int) -> np.ndarray:
    parts = []
    with float64():
        key = jax.random.key(seed)
        trials = None if rows.trials is None else jnp.asarray(rows.trials)
        for at, (eta, disp) in enumerate(_predictors(fit, rows, num_draws, seed)):
            parts.append(np.asarray(_draw(fit.family, eta, disp, trials, jax.random.fold_in(key, at))))
    return np.concatenate(parts)[:num_draws]


@jax.jit(static_argnums=0)
def _row_values(
    family: Family, y: Any, weight: Any, constants: Any, eta: Float[Array, "s n"], disp: Any
) -> Float[Array, "s n"]:
    each = jax.vmap(family.log_density, (None, 0, None if disp is None else 0))(y, eta, disp)
    each = each if weight is None else weight * each
    return each if constants is None else each + constants


@jax.jit(static_argnums=0)
def _values_by_row(
    family: Family, y: Any, weight: Any, constants: Any, eta: Float[Array, "n s"], disp: Any
) -> Float[Array, "n s"]:
    each = family.log_density(y[:, None], eta, disp if family.has_dispersion else None)
    each = each if weight is None else weight[:, None] * each
    return each if constants is None else each + constants[:, None]


@jax.jit(static_argnums=0)
def _draw(family: Family, eta: Float[Array, "s n"], disp: Any, trials: Any, key: Any) -> Float[Array, "s n"]:
    if trials is not None:
        return jax.random.binomial(key, trials, family.mean(eta), shape=eta.shape)
    return family.draw(key, eta, None if disp is None else jnp.broadcast_to(disp[:, None], eta.shape))
