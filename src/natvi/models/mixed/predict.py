"""Predictions of a mixed model: known groups, new groups, the population."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
from jaxtyping import Array, Float, Int
from scipy.special import ndtri

from natvi.families.table import Family
from natvi.formula.columns import as_frame, read_column
from natvi.formula.raw_columns import plain_level
from natvi.gaussian import ArrowPrecision
from natvi.linalg import ArrowFactor, ArrowVector, GroupedRows
from natvi.models.linear.predict import WIDE, apply_mean, response_moments
from natvi.models.mixed.variance import precision_factors
from natvi.models.regression.tables import interval_names
from natvi.x64 import float64

if TYPE_CHECKING:
    from natvi.models.mixed.posterior import MixedFit

KINDS = ("response", "link")
GROUPS = ("known", "new", "population")
NUM_DRAWS = 2000
CHUNK_ROWS = 2_000  # worked on together; times draws 32 MB


def predict_rows(fit: "MixedFit", new_data: Any, kind: str, groups: str, prob: float) -> pd.DataFrame:
    """Return mean, sd and interval of the linear predictor or the expected response, row by row.

    The expected response of a binomial model is the proportion of successes, so new rows need no trials. With
    groups="known" the rows of a group that the fit has not seen are averaged over fresh random effects, as all rows are
    with groups="new"; the labels of these groups are listed in `table.attrs["new_groups"]`, which is empty if all are
    known.

    Args:
        fit: The fitted model.
        new_data: A data frame with the columns of the formula; None for the training rows.
        kind: "response" or "link", the linear predictor.
        groups: "known", "new" or "population", whose random effects are zero.
        prob: The probability of the interval.

    Returns:
        A table with a line for every row.
    """
    for name, value, allowed in (("kind", kind, KINDS), ("groups", groups, GROUPS)):
        if value not in allowed:
            raise ValueError(f"{name} must be one of {', '.join(map(repr, allowed))}, not {value!r}.")
    X, Z, offset, codes, index, new_groups = _covariates(fit, new_data, groups == "known")
    if groups == "population":
        Z = np.zeros_like(Z)
    seen = (codes >= 0) | (groups == "population")
    columns = np.empty((4, len(X)))
    if seen.any():
        at = np.maximum(codes[seen], 0)
        columns[:, seen] = fit.known_columns(X[seen], Z[seen], offset[seen], at, kind, prob)
    if not seen.all():
        columns[:, ~seen] = _averaged_columns(fit, X[~seen], Z[~seen], offset[~seen], kind, prob)
    table = pd.DataFrame(dict(zip(("mean", "sd", *interval_names(prob)), columns, strict=True)), index=index)
    table.attrs["new_groups"] = new_groups
    return table


def _covariates(
    fit: "MixedFit", new_data: Any, known: bool
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, pd.Index, list[Any]]:
    """Return columns, offset, groups (-1 unless known), labels of rows and labels of new groups."""
    if new_data is None:
        if fit.rows is None:
            raise ValueError(
                "a fit that was loaded from a file does not hold its training data. Pass them as new_data: a data "
                "frame with the columns of the formula."
            )
        X, Z, offset, codes = fit.rows[:4]
        return X, Z, offset, codes if known else np.full(len(X), -1), pd.RangeIndex(len(X)), []
    frame = as_frame(new_data)
    X, Z, offset = fit.covariates(frame)
    if not known:
        return X, Z, offset, np.full(len(X), -1), frame.index, []
    codes = group_codes(fit, frame)
    return X, Z, offset, codes, frame.index, _unseen_labels(fit, frame, codes)


def group_codes(fit: "MixedFit", frame: pd.DataFrame) -> np.ndarray:
    """Return each row's group, -1 for groups never seen."""
    labels = read_column(frame, fit.group_name)
    if labels.isna().any():
        raise ValueError(
            f"{int(labels.isna().sum())} rows have no value of the group {fit.group_name!r}. Fill it in, or predict "
            "with groups='new' or groups='population'."
        )
    known, asked = pd.Index(plain_labels(fit.group_labels)), pd.Index(plain_labels(labels))
    codes = known.get_indexer(asked)
    if (codes < 0).any():
        _refuse_look_alikes(fit.group_name, known, asked[codes < 0].unique())
    return codes


def _unseen_labels(fit: "MixedFit", frame: pd.DataFrame, codes: np.ndarray) -> list[Any]:
    """Return the labels of groups never seen, each once, in the order of the rows."""
    if (codes >= 0).all():
        return []
    return pd.unique(pd.Series(plain_labels(read_column(frame, fit.group_name)))[codes < 0]).tolist()


def plain_labels(labels: Any) -> np.ndarray:
    """Return group labels as numbers or text, which a file can hold; dates, intervals and the like become text."""
    index = pd.Index(labels, tupleize_cols=False)
    if pd.api.types.is_numeric_dtype(index.dtype):
        return index.to_numpy()
    return np.array([plain_level(label) for label in index], dtype=object)


def _refuse_look_alikes(group: str, known: pd.Index, unseen: pd.Index) -> None:
    """Raise if a group counts as new only because its label is text and the known one a number, or the reverse."""
    texts = {str(label): label for label in known}
    for label in unseen:
        twin = texts.get(str(label))
        if twin is not None:
            cure = f"data[{group!r}].astype(str)" if isinstance(twin, str) else f"pd.to_numeric(data[{group!r}])"
            raise ValueError(
                f"the group {group!r} holds {plain_level(label)!r}, and the model was fitted to {plain_level(twin)!r}: "
                f"the same label as another type. Convert the column with {cure}."
            )


def exact_columns(
    fit: "MixedFit",
    X: np.ndarray,
    Z: np.ndarray,
    offset: np.ndarray,
    codes: np.ndarray,
    kind: str,
    prob: float,
) -> np.ndarray:
    """Return the columns for rows whose predictor is Gaussian under the posterior, in slices of one size."""
    m, s = _predictor_moments(fit.posterior, X, Z, offset, codes)
    z = ndtri(0.5 + prob / 2)
    columns = np.stack([m, s, m - z * s, m + z * s])
    return columns if kind == "link" else _response_columns(fit.family, columns)


def _predictor_moments(
    posterior: ArrowPrecision, X: np.ndarray, Z: np.ndarray, offset: np.ndarray, codes: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Return the exact mean and sd of eta = offset + x'beta + z'theta_i for every row."""
    moments = np.empty((2, len(X)))
    with float64():
        posterior = jax.device_put(posterior)
        for own in _slices(np.arange(len(X))):
            moments[:, own] = _exact_slice(posterior, X[own], Z[own], offset[own], codes[own])
    return moments[0], moments[1]


def _slices(rows: np.ndarray) -> Iterator[np.ndarray]:
    """Yield the rows in slices of one size, the last filled up with its last row: no new size to compile for."""
    for at in range(0, len(rows), CHUNK_ROWS):
        yield rows[np.minimum(np.arange(at, at + CHUNK_ROWS), len(rows) - 1)]


@jax.jit
def _exact_slice(
    posterior: ArrowPrecision,
    X: Float[Array, "k p"],
    Z: Float[Array, "k r"],
    offset: Float[Array, " k"],
    codes: Int[Array, " k"],
) -> Float[Array, "2 k"]:
    """Return mean and sd of the predictors of some rows: a design of one-row groups."""
    mean = ArrowVector(posterior.mean.local[:, codes], posterior.mean.shared)
    factor = ArrowFactor(
        posterior.factor.local[..., codes], posterior.factor.cross[..., codes], posterior.factor.shared
    )
    filled, extra = jnp.ones((1, len(X)), bool), jnp.zeros(0, jnp.int32)
    rows = GroupedRows(X.T[:, None], Z.T[:, None], offset[None], filled, extra, num_simple=len(X))
    moments = rows.moments(mean, factor, posterior.inverse_shared, ())
    return jnp.stack([moments.mean[0], jnp.sqrt(moments.variance[0])])


def _response_columns(family: Family, predictor: np.ndarray) -> np.ndarray:
    """Return the columns of the expected response from those of Gaussian predictors."""
    columns = np.empty_like(predictor)
    wide = predictor[1] > WIDE
    for rows in (np.flatnonzero(~wide), np.flatnonzero(wide)):  # each has its own rule
        for own in _slices(rows):
            m, s, low, high = predictor[:, own]
            # what is too large for a float is infinite, what comes from a failed fit is NaN
            with np.errstate(over="ignore", invalid="ignore"):
                columns[:2, own] = response_moments(family, m, s)
            # the inverse link is monotone: it takes quantiles to quantiles
            columns[2:, own] = apply_mean(family, low), apply_mean(family, high)
    return columns


def _averaged_columns(
    fit: "MixedFit", X: np.ndarray, Z: np.ndarray, offset: np.ndarray, kind: str, prob: float
) -> np.ndarray:
    """Return the columns for rows of groups never seen: draws of (beta, omega) and of fresh random effects."""
    rng = np.random.default_rng(0)
    shared = fit.shared_draws(NUM_DRAWS, rng)
    effects = fresh_effects(fit, shared, rng)
    none = np.zeros(len(X), dtype=int)
    return drawn_columns(fit, X, Z, offset, none, shared, effects[..., None], kind, prob)


def drawn_columns(
    fit: "MixedFit",
    X: np.ndarray,
    Z: np.ndarray,
    offset: np.ndarray,
    codes: np.ndarray,
    shared: np.ndarray,
    local: np.ndarray,
    kind: str,
    prob: float,
) -> np.ndarray:
    """Return the columns from draws `(s, g)` and `(s, r, n)`, some rows at a time."""
    tail = 0.5 - prob / 2
    parts = [np.empty((4, 0))]
    for at in range(0, len(X), CHUNK_ROWS):
        rows = slice(at, at + CHUNK_ROWS)
        eta = draw_predictors(X[rows], Z[rows], offset[rows], codes[rows], shared, local).T
        with float64():
            value = eta if kind == "link" else np.asarray(fit.family.mean(jnp.asarray(eta)))
        quantiles = np.quantile(value, [tail, 1 - tail], axis=1)
        parts.append(np.stack([value.mean(1), value.std(1, ddof=1), *quantiles]))
    return np.concatenate(parts, axis=1)


def draw_predictors(
    X: np.ndarray, Z: np.ndarray, offset: np.ndarray, codes: np.ndarray, shared: np.ndarray, local: np.ndarray
) -> np.ndarray:
    """Return eta = offset + x'beta + z'theta_i of every draw and row, `(s, N)`."""
    eta = offset + shared[:, : X.shape[1]] @ X.T
    for k in range(Z.shape[1]):
        eta += local[:, k, codes] * Z[:, k]
    return eta


def fresh_effects(fit: "MixedFit", shared: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Draw one vector of random effects per draw of the shared coordinates: theta = W^-T z."""
    W = precision_factors(len(fit.random_names), shared[:, fit.omega_start :], fit.correlated)
    z = rng.standard_normal((len(shared), W.shape[1], 1))
    return np.linalg.solve(np.swapaxes(W, 1, 2), z)[..., 0]
