"""The coordinates that a model is fitted in: columns centred and scaled, coefficients mapped back exactly.

With X' = X M the predictor X beta is X' beta' for beta = M beta'; likewise Z' = Z M_z for the random effects. The bound
is the same in both, since density and entropy change by the same log |M|.
"""

from typing import NamedTuple

import numpy as np


class Coordinates(NamedTuple):
    """M for the fixed effects and M_z for the random effects; None is the identity."""

    fixed: np.ndarray | None = None
    random: np.ndarray | None = None

    def columns(self, X: np.ndarray) -> np.ndarray:
        """Return X' = X M."""
        return X if self.fixed is None else transform(X, self.fixed)

    def random_columns(self, Z: np.ndarray) -> np.ndarray:
        """Return Z' = Z M_z."""
        return Z if self.random is None else transform(Z, self.random)

    def coefficients(self, draws: np.ndarray) -> np.ndarray:
        """Return beta `(..., p)` from beta'."""
        return draws if self.fixed is None else draws @ self.fixed.T

    def fixed_moments(self, mean: np.ndarray, covariance: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return mean and covariance of beta from those of beta'."""
        if self.fixed is None:
            return mean, covariance
        return self.fixed @ mean, self.fixed @ covariance @ self.fixed.T

    def effects(self, local: np.ndarray) -> np.ndarray:
        """Return random effects `(..., r, n)` from those inside."""
        return local if self.random is None else np.einsum("kl,...ln->...kn", self.random, local)

    def effect_sds(self, covariance: np.ndarray) -> np.ndarray:
        """Return the sds `(r, n)` of the random effects from the covariances `(r, r, n)` of those inside."""
        if self.random is not None:
            covariance = np.einsum("ka,abn,lb->kln", self.random, covariance, self.random)
        return np.sqrt(np.maximum(np.einsum("kkn->kn", covariance), 0.0))

    def store(self) -> dict[str, np.ndarray]:
        """Return the maps that there are, by the names under which a file holds them."""
        named = {"map_fixed": self.fixed, "map_random": self.random}
        return {name: matrix for name, matrix in named.items() if matrix is not None}

    @classmethod
    def restore(cls, arrays: dict[str, np.ndarray], p: int, r: int) -> "Coordinates":
        """Read what `store` wrote."""
        found = arrays.get("map_fixed"), arrays.get("map_random")
        for name, matrix, size in zip(("map_fixed", "map_random"), found, (p, r), strict=True):
            if matrix is not None and (matrix.shape != (size, size) or not np.all(np.isfinite(matrix))):
                raise ValueError(f"the array {name!r} must hold {size} x {size} finite numbers")
        return cls(*found)


def transform(columns: np.ndarray, matrix: np.ndarray) -> np.ndarray:
    """Return columns times a matrix of few entries: a product with all of them would cost n p^2.

    Example:
        >>> transform(np.array([[1.0, 5.0], [1.0, 7.0]]), np.array([[1.0, -6.0], [0.0, 1.0]])).tolist()
        [[1.0, -1.0], [1.0, 1.0]]
    """
    found = columns * np.diag(matrix)
    others = matrix - np.diag(np.diag(matrix))
    for source in np.flatnonzero(others.any(axis=1)):
        column, into = columns[:, source, None], np.flatnonzero(others[source])
        if 4 * len(into) > len(matrix):  # one pass over all, as where a constant column takes every mean away
            found += column * others[source]
        else:
            found[:, into] += column * others[source, into]
    return found


def block_diagonal(blocks: list[np.ndarray | None], sizes: list[int]) -> np.ndarray:
    """Return one matrix with the blocks along its diagonal; None stands for an identity.

    Example:
        >>> block_diagonal([None, np.array([[2.0]])], [1, 1]).tolist()
        [[1.0, 0.0], [0.0, 2.0]]
    """
    whole, at = np.zeros((sum(sizes), sum(sizes))), 0
    for block, size in zip(blocks, sizes, strict=True):
        whole[at : at + size, at : at + size] = np.eye(size) if block is None else block
        at += size
    return whole
