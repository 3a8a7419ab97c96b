"""From omega to what people read: sds and correlations of the random effects, and the dispersion parameter."""

from abc import ABC, abstractmethod
from itertools import combinations

import numpy as np
import pandas as pd

from natvi.families.table import Family
from natvi.models.regression.family.extras import natural, shown, shown_row
from natvi.models.regression.names import extra_names, shown_names
from natvi.models.regression.prior.choice import Prior
from natvi.models.regression.tables import gaussian_table, interval_table, lognormal_row
from natvi.target.mixed.random_effects import omega_positions

NUM_DRAWS = 4000


class SharedCoordinates(ABC):
    """The shared coordinates (beta, log dispersion, omega) of a fitted mixed model, and what people read of them."""

    family: Family
    prior: Prior
    fixed_names: tuple[str, ...]
    random_names: tuple[str, ...]
    group_name: str
    correlated: bool

    @property
    def omega_start(self) -> int:
        """Position of omega among the shared coordinates."""
        return len(self.fixed_names) + self.family.num_extras

    def shared_names(self) -> list[str]:
        """Return a readable name of every shared coordinate."""
        effects, group = self.random_names, self.group_name
        names = [*self.fixed_names, *self.dispersion_position()]
        for row, column in omega_positions(len(effects), self.correlated):
            kind = f"sd({effects[row]}|{group})" if row == column else f"corr({effects[column]},{effects[row]}|{group})"
            names.append(kind)
        return names

    def log_sd_positions(self) -> dict[str, int]:
        """Return where the log sds of the random effects stand among the shared coordinates."""
        positions = omega_positions(len(self.random_names), self.correlated)
        return {
            f"sd({effect}|{self.group_name})": self.omega_start + positions[k, k]
            for k, effect in enumerate(self.random_names)
        }

    def dispersion_position(self) -> dict[str, int]:
        """Return where dispersions stand among the shared coordinates, by their names; empty without one."""
        names = extra_names(self.family, self.fixed_names)
        return {name: len(self.fixed_names) + k for k, name in enumerate(names)}

    @abstractmethod
    def shared_moments(self) -> tuple[np.ndarray, np.ndarray]:
        """Return mean and covariance of the shared coordinates."""

    def tables(self, prob: float) -> dict[str, pd.DataFrame]:
        """Return the fixed effects and the variance components."""
        p = len(self.fixed_names)
        mean, covariance = self.shared_moments()
        mean, covariance = self.prior.coordinates.fixed_moments(mean[:p], covariance[:p, :p])
        fixed = gaussian_table(list(self.fixed_names), mean, np.sqrt(np.diag(covariance)), prob)
        return {"coefficients": fixed, "variance_components": component_table(self, prob)}

    def shared_draws(self, num_draws: int, rng: np.random.Generator) -> np.ndarray:
        """Draw the shared coordinates `(s, g)`."""
        return rng.multivariate_normal(*self.shared_moments(), num_draws, method="cholesky")

    def readings(self, shared: np.ndarray) -> np.ndarray:
        """Map draws of the shared coordinates to what the tables show: fixed effects and variance components."""
        fixed = self.prior.coordinates.coefficients(shared[:, : len(self.fixed_names)])
        return np.concatenate([fixed, component_draws(self, shared)], axis=1)

    def inner_readings(self, shared: np.ndarray) -> np.ndarray:
        """Map draws as `readings` does, but to what no shift and no unit of a variable changes."""
        return np.concatenate([shared[:, : len(self.fixed_names)], component_draws(self, shared, inside=True)], axis=1)

    def named(self, shared: np.ndarray) -> dict[str, np.ndarray]:
        """Return draws of fixed effects and variance components, and of the dispersion itself, by name."""
        named = dict(zip([*self.fixed_names, *component_names(self)], self.readings(shared).T, strict=True))
        places = self.dispersion_position().items()
        own = zip(self.family.extras, places, strict=True)
        return named | {name: natural(extra, shared[:, at]) for extra, (name, at) in own}


def component_names(fit: SharedCoordinates) -> list[str]:
    """Return the names of the variance components, in the order of `component_draws`."""
    effects, group = fit.random_names, fit.group_name
    sds = [f"sd({effect}|{group})" for effect in effects]
    pairs = [f"corr({effects[k]},{effects[j]}|{group})" for k, j in _pairs(fit)]
    return [*sds, *pairs, *shown_names(fit.family, fit.fixed_names)]


def _pairs(fit: SharedCoordinates) -> list[tuple[int, int]]:
    """Return the pairs of effects whose correlation is a parameter."""
    return list(combinations(range(len(fit.random_names)), 2)) if fit.correlated else []


def precision_factors(r: int, omega: np.ndarray, correlated: bool = True) -> np.ndarray:
    """Return W `(s, r, r)` from draws of omega."""
    W = np.zeros((len(omega), r, r))
    for (row, column), position in omega_positions(r, correlated).items():
        W[:, row, column] = np.exp(omega[:, position]) if row == column else omega[:, position]
    return W


def fresh_effects(fit: SharedCoordinates, shared: np.ndarray, num_groups: int, rng: np.random.Generator) -> np.ndarray:
    """Draw random effects of new groups `(s, r, n)`, given draws of the shared coordinates: theta = W^-T z."""
    W = precision_factors(len(fit.random_names), shared[:, fit.omega_start :], fit.correlated)
    z = rng.standard_normal((num_groups, len(shared), W.shape[1], 1))
    return np.moveaxis(np.linalg.solve(np.swapaxes(W, 1, 2), z)[..., 0], 0, -1)


def component_draws(fit: SharedCoordinates, shared: np.ndarray, inside: bool = False) -> np.ndarray:
    """Map draws `(s, g)` of the shared coordinates to draws of the components `(s, k)`.

    `inside` gives sds and correlations of the centred, scaled random effects in place of those at the user's zero.
    """
    r = len(fit.random_names)
    inverse = np.linalg.inv(precision_factors(r, shared[:, fit.omega_start :], fit.correlated))
    if fit.prior.coordinates.random is not None and not inside:
        inverse = inverse @ fit.prior.coordinates.random.T  # the covariance of theta = M theta' is M (W W')^-1 M'
    covariance = np.swapaxes(inverse, 1, 2) @ inverse  # (W W')^-1
    sds = np.sqrt(np.diagonal(covariance, axis1=1, axis2=2))
    columns = [sds[:, k] for k in range(r)]
    columns += [covariance[:, k, j] / (sds[:, k] * sds[:, j]) for k, j in _pairs(fit)]
    own = shared[:, len(fit.fixed_names) : fit.omega_start]
    return np.concatenate([np.stack(columns, axis=1), shown(fit.family.extras, own)], axis=1)


def component_table(fit: SharedCoordinates, prob: float) -> pd.DataFrame:
    """Return mean, sd and central interval of every component.

    Components that are the exponential of a multiple of one coordinate are lognormal, so theirs are exact; the others
    come from 4000 draws with a fixed seed.
    """
    mean, covariance = fit.shared_moments()
    values = component_draws(fit, fit.shared_draws(NUM_DRAWS, np.random.default_rng(0)))
    tail = 0.5 - prob / 2
    quantiles = np.quantile(values, [tail, 1 - tail], axis=0)
    table = interval_table(component_names(fit), (values.mean(0), values.std(0, ddof=1), *quantiles), prob)
    exact = {}
    M = fit.prior.coordinates.random
    if len(fit.random_names) == 1 or not fit.correlated:  # sd = M_kk / W_kk
        units = np.ones(len(fit.random_names)) if M is None else np.abs(np.diagonal(M))
        exact = {
            name: (at, -1.0, np.log(u)) for (name, at), u in zip(fit.log_sd_positions().items(), units, strict=True)
        }
    names = shown_names(fit.family, fit.fixed_names)
    for at, (name, extra) in enumerate(zip(names, fit.family.extras, strict=True), len(fit.fixed_names)):
        table.loc[name] = shown_row(extra, float(mean[at]), float(covariance[at, at]), tail)
    for name, (at, power, log_unit) in exact.items():
        table.loc[name] = lognormal_row(power * mean[at] + log_unit, power**2 * float(covariance[at, at]), tail)
    return table
