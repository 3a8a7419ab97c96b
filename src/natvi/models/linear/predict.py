"""New rows of a generalized linear model, and predictions for them."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
from scipy.special import ndtr, ndtri

from natvi.families.table import Family
from natvi.formula.columns import as_frame
from natvi.formula.design import Formula, build_design, parse_formula
from natvi.models.linear.rows import GlmRows, encode, gather, read_matrix, rows_of_arrays
from natvi.models.regression.tables import interval_names
from natvi.x64 import float64

if TYPE_CHECKING:
    from natvi.models.linear.posterior import GlmFit

KINDS = ("response", "link")
# Trapezoidal rules: in z = (eta - m) / s where s is small, in eta, over the bend of the curve, where it is large.
# The error is exp(-2 pi a / step) with a = pi/2 (cloglog; pi for the logit) in eta, pi/(2s) in z: below 1e-11.
WIDE = 3.0
Z_STEP, Z_NODES = 0.125, np.linspace(-7.5, 7.5, 121)
ETA_STEP, ETA_NODES = 0.25, np.linspace(-40.0, 40.0, 321)


def predict_rows(fit: "GlmFit", new_data: Any, kind: str, prob: float) -> pd.DataFrame:
    """Return mean, sd and interval of the linear predictor or the expected response, row by row.

    Of a binomial response the expected response is the probability of success.
    """
    check_kind(kind)
    X, offset, index = covariates(fit, new_data)
    m, s = predictor_moments(fit, X, offset)
    z = ndtri(0.5 + prob / 2)
    columns = [m, s, m - z * s, m + z * s]
    if kind == "response":
        mean, sd = response_moments(fit.family, m, s)
        # the mean is an increasing function of the predictor, so quantiles go through it
        columns = [mean, sd, *(apply_mean(fit.family, edge) for edge in columns[2:])]
    return pd.DataFrame(dict(zip(("mean", "sd", *interval_names(prob)), columns, strict=True)), index=index)


def check_kind(kind: str) -> None:
    """Refuse an unknown kind of prediction."""
    if kind not in KINDS:
        raise ValueError(f"kind must be one of {', '.join(map(repr, KINDS))}, not {kind!r}.")


def predictor_moments(fit: "GlmFit", X: np.ndarray, offset: np.ndarray | None) -> tuple[np.ndarray, np.ndarray]:
    """Return mean and sd of eta = x'beta + offset for every row: x'mu and |C'x|."""
    p = len(fit.names)
    mean = X @ fit.mean[:p] if offset is None else X @ fit.mean[:p] + offset
    if fit.is_diagonal:
        return mean, np.sqrt(X**2 @ fit.factor[:p] ** 2)
    return mean, np.sqrt(np.sum((X @ fit.factor[:p]) ** 2, axis=1))


def response_moments(family: Family, m: np.ndarray, s: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return mean and sd of the expected response under a Gaussian predictor, to about 1e-8 for any sd."""
    if family.link == "identity":
        return m, s
    if family.link == "log":
        # E e^eta = e^{m + s^2/2}
        mean = np.exp(m + s**2 / 2)
        return mean, mean * np.sqrt(np.expm1(s**2))
    mean, variance = np.empty_like(m), np.empty_like(m)
    narrow = s <= WIDE
    for rows, moments in ((narrow, _narrow_moments), (~narrow, _wide_moments)):
        if rows.any():
            mean[rows], variance[rows] = moments(family, m[rows], s[rows])
    if family.link == "probit":
        mean = ndtr(m / np.hypot(1.0, s))  # E Phi(eta) = Phi(m / sqrt(1 + s^2))
    return mean, np.sqrt(np.maximum(variance, 0.0))


def _narrow_moments(family: Family, m: np.ndarray, s: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return mean and variance of g(eta), the inverse link: sums of g(m + s z) - g(m) over nodes z."""
    middle = apply_mean(family, m)
    first, second = np.zeros_like(m), np.zeros_like(m)
    for z in Z_NODES:
        weight = Z_STEP * np.exp(-0.5 * z**2) / np.sqrt(2 * np.pi)
        value = apply_mean(family, m + s * z) - middle
        first += weight * value
        second += weight * value**2
    return middle + first, second - first**2


def _wide_moments(family: Family, m: np.ndarray, s: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return mean and variance of g(eta), the inverse link of a probability, by nodes along its bend: for any large s.

    With p = E g and E Phi(eta) = Phi(m / sqrt(1 + s^2)),

        p = Phi(m / sqrt(1 + s^2)) + E (g - Phi)(eta),     Var g = p (1 - p) - E g (1 - g)(eta),

    and g - Phi and g (1 - g) are zero far from the bend.
    """
    g = apply_mean(family, ETA_NODES)
    gap, bend = np.zeros_like(m), np.zeros_like(m)
    for eta, value in zip(ETA_NODES, g, strict=True):
        weight = ETA_STEP * np.exp(-0.5 * ((eta - m) / s) ** 2) / (s * np.sqrt(2 * np.pi))
        gap += weight * (value - ndtr(eta))
        bend += weight * value * (1.0 - value)
    middle = m / np.hypot(1.0, s)
    p, q = (np.clip(ndtr(sign * middle) + sign * gap, 0.0, 1.0) for sign in (1.0, -1.0))
    return p, p * q - bend


def apply_mean(family: Family, eta: np.ndarray) -> np.ndarray:
    """Return the mean of the response at given predictors."""
    with float64():
        return np.asarray(_mean(family, jnp.asarray(eta)))


@jax.jit(static_argnums=0)
def _mean(family: Family, eta: jax.Array) -> jax.Array:
    return family.mean(eta)


# --- rows ----------------------------------------------------------------------------------------------------


def covariates(fit: "GlmFit", data: Any) -> tuple[np.ndarray, np.ndarray | None, pd.Index]:
    """Return covariates in the coordinates of the fit, offset and labels: of new rows, or of the training rows."""
    if data is None:
        rows = training_rows(fit)
        return rows.X, rows.offset, pd.RangeIndex(len(rows.y))
    if fit.columns is not None:
        frame = as_frame(data)
        X, _, offset = fit.columns.apply(frame)
        return fit.coordinates.columns(X), offset if fit.columns.offset else None, frame.index
    parts = _parts(data)
    X = _matrix(fit, parts["X"])
    index = parts["X"].index if isinstance(parts["X"], pd.DataFrame) else pd.RangeIndex(len(X))
    offset = parts.get("offset")
    if (offset is None) == fit.has_offset:
        came, cure = ("no offset", "Give") if fit.has_offset else ("an offset", "Leave it out; give")
        raise ValueError(
            f"the new data has {came}, unlike the data of the fit. {cure} "
            + ("{'X': X, 'offset': offset}." if fit.has_offset else "X alone.")
        )
    offset = None if offset is None else np.asarray(offset, dtype=np.float64)
    if offset is not None and offset.shape != (len(X),):
        raise ValueError(f"the offset must hold one number for each of the {len(X)} rows; got shape {offset.shape}.")
    return fit.coordinates.columns(X), offset, index


def rows_with_response(fit: "GlmFit", data: Any) -> GlmRows:
    """Return new rows with their responses, weights and trials; without data the training rows."""
    if data is None:
        return training_rows(fit)
    if fit.columns is None:
        parts = _parts(data)
        if "y" not in parts:
            raise ValueError(
                "the responses are needed too: give data={'X': X, 'y': y}, with 'offset', 'weights', 'trials'."
            )
        X, offset, _ = covariates(fit, data)
        extra = (offset, parts.get("weights"), parts.get("trials"))
        return rows_of_arrays(X, parts["y"], fit.family.name, *extra, learning=False)[0]
    frame = as_frame(data)
    X, offset, _ = covariates(fit, frame)
    assert fit.formula is not None
    left = parse_formula(fit.formula).response  # refuses all but known functions
    design = build_design(Formula(f"{left} ~ 1", left, "1", "0", None), frame, "error")
    response = encode(design.response, design.response_name, fit.family.name, design.trials, learning=False)
    return gather(X, response, offset, fit.columns.apply_weights(frame))


def training_rows(fit: "GlmFit") -> GlmRows:
    """Return the training rows, or say that they are not at hand."""
    if fit.rows is None:
        needed = "a data frame with the columns of the formula" if fit.columns else "{'X': X, 'y': y}"
        raise ValueError(
            "a fit that was loaded from a file, or made from batches, does not hold its training data. Pass them: "
            f"{needed}, as data= (in predict as new_data)."
        )
    return fit.rows


def _parts(data: Any) -> Mapping[str, Any]:
    return data if isinstance(data, Mapping) and "X" in data else {"X": data}


def _matrix(fit: "GlmFit", X: Any) -> np.ndarray:
    names = fit.names[1:] if fit.intercept else fit.names
    if isinstance(X, pd.DataFrame) and set(names) <= set(map(str, X.columns)):
        X = X.set_axis([str(name) for name in X.columns], axis=1)[list(names)]
    matrix, _ = read_matrix(X)
    if matrix.shape[1] != len(names):
        raise ValueError(
            f"the new rows have {matrix.shape[1]} columns, and the model was fitted to {len(names)}: "
            f"{', '.join(names[:8])}{', ...' if len(names) > 8 else ''}. Give the same columns in the same order."
        )
    return np.column_stack([np.ones(len(matrix)), matrix]) if fit.intercept else matrix
