"""What people read of crossed terms: sds and correlations of every term, and effects in the user's units."""

from itertools import combinations
from typing import Any, NamedTuple

import numpy as np

from natvi.models.mixed.variance import precision_factors
from natvi.models.regression.names import sd_names
from natvi.target.mixed.random_effects import omega_positions


class FittedTerm(NamedTuple):
    """One random term of a fitted model.

    Attributes:
        group: The name of its factor.
        columns: The columns whose combinations are its levels.
        names: Of its effects.
        labels: Of its levels.
        correlated: Whether its effects may be correlated.
        first: Its first column of Z.
        place: Where its effects begin in the flat vector of all effects, effect after effect.
        omega: Where its omega begins among the shared coordinates.
    """

    group: str
    columns: tuple[str, ...]
    names: tuple[str, ...]
    labels: np.ndarray
    correlated: bool
    first: int
    place: int
    omega: int

    @property
    def r(self) -> int:
        """The number of effects per level."""
        return len(self.names)

    @property
    def num_levels(self) -> int:
        """The number of levels."""
        return len(self.labels)

    @property
    def own(self) -> slice:
        """Where its effects lie in the flat vector."""
        return slice(self.place, self.place + self.r * self.num_levels)

    @property
    def columns_of_Z(self) -> slice:
        """Its columns of Z."""
        return slice(self.first, self.first + self.r)

    @property
    def num_omega(self) -> int:
        """How many numbers its covariance has."""
        return len(omega_positions(self.r, self.correlated))

    @property
    def sds(self) -> tuple[str, ...]:
        """The names of its sds."""
        return sd_names(self.r, self.names, self.group)

    @property
    def pairs(self) -> list[tuple[int, int]]:
        """The pairs of effects whose correlation is a parameter."""
        return list(combinations(range(self.r), 2)) if self.correlated else []

    @property
    def component_names(self) -> list[str]:
        """The names of its sds and correlations."""
        return [*self.sds, *(f"corr({self.names[k]},{self.names[j]}|{self.group})" for k, j in self.pairs)]

    def shared_names(self) -> list[str]:
        """Return a readable name of every number of omega."""
        found = []
        for row, column in omega_positions(self.r, self.correlated):
            together = f"corr({self.names[column]},{self.names[row]}|{self.group})"
            found.append(self.sds[row] if row == column else together)
        return found

    def log_sd_positions(self) -> dict[str, int]:
        """Return where minus the log sds stand among the shared coordinates."""
        at = omega_positions(self.r, self.correlated)
        return {name: self.omega + at[k, k] for k, name in enumerate(self.sds)}

    def roots(self, shared: np.ndarray) -> np.ndarray:
        """Return W `(s, r, r)` from draws of the shared coordinates."""
        omega = shared[:, self.omega : self.omega + self.num_omega]
        return precision_factors(self.r, omega, self.correlated)

    def covariances(self, shared: np.ndarray) -> np.ndarray:
        """Return the covariance of its effects `(s, r, r)`, in the coordinates of the fit: (W W')^-1."""
        inverse = np.linalg.inv(self.roots(shared))
        return np.swapaxes(inverse, 1, 2) @ inverse

    def components(self, shared: np.ndarray, M: np.ndarray | None) -> np.ndarray:
        """Return sds and correlations `(s, k)` of draws, in the user's units where M maps there."""
        inverse = np.linalg.inv(self.roots(shared))
        if M is not None:
            inverse = inverse @ M[self.columns_of_Z, self.columns_of_Z].T
        covariance = np.swapaxes(inverse, 1, 2) @ inverse
        sds = np.sqrt(np.diagonal(covariance, axis1=1, axis2=2))
        columns = [sds[:, k] for k in range(self.r)]
        columns += [covariance[:, k, j] / (sds[:, k] * sds[:, j]) for k, j in self.pairs]
        return np.stack(columns, axis=1)

    def fresh(self, shared: np.ndarray, num_levels: int, rng: np.random.Generator) -> np.ndarray:
        """Draw effects of new levels `(s, r * num_levels)`: theta = W^-T z."""
        W = self.roots(shared)
        z = rng.standard_normal((len(shared), self.r, num_levels))
        return np.linalg.solve(np.swapaxes(W, 1, 2), z).reshape(len(shared), -1)

    def effects(self, flat: np.ndarray, M: np.ndarray | None) -> np.ndarray:
        """Return its effects `(..., r, n)` in the user's units, from the flat vector."""
        found = flat[..., self.own].reshape(*flat.shape[:-1], self.r, self.num_levels)
        return found if M is None else np.einsum("kl,...ln->...kn", M[self.columns_of_Z, self.columns_of_Z], found)

    def flat_codes(self, codes: np.ndarray, after: int, num_new: int) -> np.ndarray:
        """Return where rows find its effects `(N, r)`: levels never seen stand from `after` on."""
        n, k = self.num_levels, np.arange(self.r)
        known = self.place + codes[:, None] + n * k
        return np.where(codes[:, None] < n, known, after + (codes[:, None] - n) + num_new * k)

    def store(self) -> dict[str, Any]:
        """Return the term as JSON values, but for its labels."""
        return {
            "group": self.group,
            "columns": list(self.columns),
            "names": list(self.names),
            "correlated": self.correlated,
            "first": self.first,
            "place": self.place,
            "omega": self.omega,
        }
