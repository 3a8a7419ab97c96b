"""From omega to what people read: sds and correlations of the random effects, and the dispersion parameter."""

from itertools import combinations
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd
from scipy.special import ndtri

from natvi.families.table import Family
from natvi.models.regression.tables import interval_names
from natvi.target.random_effects import omega_positions

if TYPE_CHECKING:
    from natvi.models.mixed.posterior import MixedFit

NUM_DRAWS = 4000


def dispersion_name(family: Family, fixed_names: tuple[str, ...]) -> str | None:
    """Return the name of the dispersion parameter, kept apart from a covariate of that name.

    Example:
        >>> from natvi.families.table import FAMILIES
        >>> dispersion_name(FAMILIES["gamma"], ("Intercept",)), dispersion_name(FAMILIES["gaussian"], ("sigma",))
        ('shape', 'residual sigma')
    """
    if family.dispersion is None:
        return None
    name = family.dispersion.removeprefix("log(").removesuffix(")")
    return name if name not in fixed_names else f"residual {name}"


def component_names(fit: "MixedFit") -> list[str]:
    """Return the names of the variance components, in the order of `component_draws`."""
    effects, group = fit.random_names, fit.group_name
    sds = [f"sd({effect}|{group})" for effect in effects]
    pairs = [f"corr({effects[k]},{effects[j]}|{group})" for k, j in _pairs(fit)]
    dispersion = dispersion_name(fit.family, fit.fixed_names)
    return [*sds, *pairs, *([dispersion] if dispersion else [])]


def _pairs(fit: "MixedFit") -> list[tuple[int, int]]:
    """Return the pairs of effects whose correlation is a parameter."""
    return list(combinations(range(len(fit.random_names)), 2)) if fit.correlated else []


def precision_factors(r: int, omega: np.ndarray, correlated: bool = True) -> np.ndarray:
    """Return W `(s, r, r)` from draws of omega."""
    W = np.zeros((len(omega), r, r))
    for (row, column), position in omega_positions(r, correlated).items():
        W[:, row, column] = np.exp(omega[:, position]) if row == column else omega[:, position]
    return W


def component_draws(fit: "MixedFit", shared: np.ndarray) -> np.ndarray:
    """Map draws `(s, g)` of the shared coordinates to draws of the components `(s, k)`."""
    r = len(fit.random_names)
    inverse = np.linalg.inv(precision_factors(r, shared[:, fit.omega_start :], fit.correlated))
    covariance = np.swapaxes(inverse, 1, 2) @ inverse  # (W W')^-1
    sds = np.sqrt(np.diagonal(covariance, axis1=1, axis2=2))
    columns = [sds[:, k] for k in range(r)]
    columns += [covariance[:, k, j] / (sds[:, k] * sds[:, j]) for k, j in _pairs(fit)]
    if fit.family.has_dispersion:
        columns.append(np.exp(shared[:, len(fit.fixed_names)]))
    return np.stack(columns, axis=1)


def component_table(fit: "MixedFit", prob: float) -> pd.DataFrame:
    """Return mean, sd and central interval of every component.

    Components that are the exponential of one coordinate are lognormal, so theirs are exact; the others come
    from 4000 draws with a fixed seed.
    """
    mean, covariance = fit.shared_moments()
    values = component_draws(fit, fit.shared_draws(NUM_DRAWS, np.random.default_rng(0)))
    tail = 0.5 - prob / 2
    low, high = interval_names(prob)
    quantiles = np.quantile(values, [tail, 1 - tail], axis=0)
    table = pd.DataFrame(
        {"mean": values.mean(0), "sd": values.std(0, ddof=1), low: quantiles[0], high: quantiles[1]},
        index=pd.Index(component_names(fit)),
    )
    exact = {}
    if len(fit.random_names) == 1 or not fit.correlated:  # sd = 1 / W_kk
        exact = {name: (at, -1.0) for name, at in fit.log_sd_positions().items()}
    if dispersion := dispersion_name(fit.family, fit.fixed_names):
        exact[dispersion] = (len(fit.fixed_names), 1.0)
    for name, (at, sign) in exact.items():
        table.loc[name] = lognormal_row(sign * mean[at], float(covariance[at, at]), tail)
    return table


def lognormal_row(m: float, v: float, tail: float) -> tuple[float, float, float, float]:
    """Return mean, sd and quantiles of e^x for x ~ N(m, v)."""
    mean = float(np.exp(m + v / 2))
    z = ndtri(1 - tail) * np.sqrt(v)
    return mean, float(mean * np.sqrt(np.expm1(v))), float(np.exp(m - z)), float(np.exp(m + z))
