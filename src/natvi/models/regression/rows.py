"""The rows of a regression as arrays: covariates, groups, responses, and how often each row counts."""

from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from natvi.families.family import Family
from natvi.families.parts import join_extras, part_slices
from natvi.families.rows import take_extras
from natvi.models.regression.response import Response, row_weights


class Covariates(NamedTuple):
    """What the linear predictor of every row is made of: eta = offset + x'beta + z'theta_i.

    Attributes:
        X: Columns of the coefficients `(n, p)`.
        offset: A known part of the predictor, or None.
        Z: Columns of the random effects `(n, r)`, or None in a model without groups.
        codes: The group of every row; from the number of known groups on, groups never seen. With several random terms
            `(n, t)`: the level of every term, or, where draws are at hand, `(n, r)`: the place of every effect among
            all, `local` then being `(s, 1, m)`.
    """

    X: np.ndarray
    offset: np.ndarray | None = None
    Z: np.ndarray | None = None
    codes: np.ndarray | None = None

    @property
    def num_rows(self) -> int:
        """The number of rows."""
        return len(self.X)

    def take(self, at: slice | np.ndarray) -> "Covariates":
        """Return some of the rows."""
        return Covariates(*(None if part is None else part[at] for part in self))  # type: ignore[arg-type]

    def predictors(
        self, shared: Float[np.ndarray, "s g"], local: Float[np.ndarray, "s r m"] | None = None
    ) -> Float[np.ndarray, "s n"]:
        """Return eta of every draw and row; `shared` begins with the coefficients."""
        eta = shared[:, : self.X.shape[1]] @ self.X.T
        if self.offset is not None:
            eta += self.offset
        if local is not None and self.Z is not None:
            for k, z in enumerate(self.Z.T):
                eta += effects_of(local, k, self.codes) * z
        return eta


def part_of(family: Family, rows: Covariates, at: int) -> Covariates:
    """Return the rows as the predictor of the mean (0), or that of a part, sees them: zeros in the others' columns."""
    if not family.parts:
        return rows
    columns, effects = part_slices(family, rows.X.shape[1], 0 if rows.Z is None else rows.Z.shape[1])[at]
    X, Z = np.zeros_like(rows.X), None if rows.Z is None else np.zeros_like(rows.Z)
    X[:, columns] = rows.X[:, columns]
    if Z is not None and rows.Z is not None:
        Z[:, effects] = rows.Z[:, effects]
    offset = rows.offset if at == 0 or rows.offset is None else np.zeros_like(rows.offset)
    return rows._replace(X=X, Z=Z, offset=offset)


def predictors_of(
    family: Family, rows: Covariates, shared: Float[np.ndarray, "s g"], local: Float[np.ndarray, "s r m"] | None = None
) -> tuple[Float[np.ndarray, "s n"], Float[np.ndarray, "*q s k"] | None]:
    """Return eta of every draw and row, and the dispersion as the family's functions take it.

    Its last axis is that of the rows, of length one where all rows share it.
    """
    disp = take_extras(family, shared.T, rows.X.shape[1])
    disp = None if disp is None else disp[..., None]
    own = [part_of(family, rows, at).predictors(shared, local) for at in range(1, 1 + len(family.parts))]
    eta = part_of(family, rows, 0).predictors(shared, local)
    return eta, join_extras(family, disp, own)


def effects_of(local: np.ndarray, k: int, codes: np.ndarray | None) -> np.ndarray:
    """Return the k-th effect of every row: from its group's effects, or by its own place among all."""
    assert codes is not None
    return local[:, k, codes] if codes.ndim == 1 else local[:, 0, codes[:, k]]


class Rows(NamedTuple):
    """Covariates and responses of the rows in use, in float64.

    Attributes:
        X: As in `Covariates`.
        y: Responses; for trials the proportion of successes.
        offset: As in `Covariates`.
        weight: How often each row counts, weight times trials, or None.
        trials: Trials of every row of a binomial response, or None.
        constants: What the weighted log-density of each row lacks, log C(n, y) times the weight; or None.
        Z: As in `Covariates`.
        codes: As in `Covariates`.
    """

    X: np.ndarray
    y: np.ndarray
    offset: np.ndarray | None = None
    weight: np.ndarray | None = None
    trials: np.ndarray | None = None
    constants: np.ndarray | None = None
    Z: np.ndarray | None = None
    codes: np.ndarray | None = None

    @property
    def covariates(self) -> Covariates:
        """The rows without their responses."""
        return Covariates(self.X, self.offset, self.Z, self.codes)

    @property
    def constant(self) -> float:
        """The sum of the constants."""
        return 0.0 if self.constants is None else float(np.sum(self.constants))

    def responses(self) -> np.ndarray:
        """Return the responses; of trials the successes."""
        return self.y if self.trials is None else np.round(self.y * self.trials)

    def take(self, at: slice | np.ndarray) -> "Rows":
        """Return some of the rows."""
        return Rows(*(None if part is None else part[at] for part in self))  # type: ignore[arg-type]

    def counted(self, weights: np.ndarray | None) -> "Rows":
        """Return the rows, each counted as often as its weight says: constants, and trials, are multiplied by it."""
        if weights is None:
            return self
        constants = None if self.constants is None else weights * self.constants
        return self._replace(weight=row_weights(weights, self.weight), constants=constants)


def gather(covariates: Covariates, response: Response, weights: np.ndarray | None) -> Rows:
    """Put covariates and an encoded response together."""
    X, offset, Z, codes = covariates
    rows = Rows(X, response.values, offset, response.trials, response.trials, response.log_choose, Z, codes)
    return rows.counted(weights)
