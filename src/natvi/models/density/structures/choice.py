"""Which shape the Gaussian has: chosen from the number of dimensions and the sparsity of the Hessian, and said."""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float

from natvi.models.density.structures.arrow import Arrow
from natvi.models.density.structures.dense import Dense
from natvi.models.density.structures.diagonal import Diagonal
from natvi.models.density.structures.layout import Layout, find_arrow
from natvi.quadrature.fixed_points import sobol_points

STRUCTURES = ("auto", "dense", "arrow", "diagonal")
SMALL = 300  # dimensions up to which a full covariance is quick, and nothing else is looked for
LARGEST = 1000  # dimensions of a full covariance
CLIMB_POINTS, POLISH_POINTS = 128, 512  # of a full covariance at least; two and four for every dimension
MANY = 64  # dimensions, from which two points for each are too few
SPARSE_POINTS = 256  # where no column of the factor is long


class Structure(NamedTuple):
    """The shape of the Gaussian.

    Attributes:
        name: "dense", "arrow" or "diagonal".
        why: In words for the user; empty where there is nothing to explain.
        layout: Of the arrow.
    """

    name: str
    why: str = ""
    layout: Layout | None = None

    def narrow(self, mean: Float[np.ndarray, " d"], sd: float) -> Any:
        """Return N(mean, sd^2 I)."""
        if self.name == "diagonal":
            return Diagonal(mean, np.full(len(mean), sd))
        if self.layout is None:
            return Dense.narrow(mean, sd)
        (r, n), g = self.layout.local.shape, len(self.layout.shared)
        scale = np.where(self.layout.local >= 0, 1.0 / sd, 1.0)
        local = np.eye(r)[..., None] * scale[:, None]
        return Arrow(mean, local, np.zeros((g, r, n)), np.eye(g) / sd, *self.layout)

    def points(self, kind: str, d: int, seed: int) -> Float[np.ndarray, "m d"]:
        """Return fixed points to "climb", to "polish", for the "response" or to "judge"."""
        if self.name == "dense":
            counts = {"climb": max(CLIMB_POINTS, 2 * d if d <= MANY else 4 * d), "polish": max(POLISH_POINTS, 4 * d)}
            counts |= {"response": counts["polish"] if d <= MANY else 2 * d, "judge": max(POLISH_POINTS, 2 * d)}
            return sobol_points(d, counts[kind], seed)
        shared = 0 if self.layout is None else len(self.layout.shared) + len(self.layout.local)
        count = max(SPARSE_POINTS, 4 * shared)
        half = np.random.default_rng([seed, 5]).standard_normal((count // 2, d))
        z = _whitened(half, self.layout)
        return np.concatenate([z, -z])


def _whitened(z: Float[np.ndarray, "m d"], layout: Layout | None) -> Float[np.ndarray, "m d"]:
    """Return points whose groups have covariance one and are orthogonal to the shared numbers."""
    if layout is None:
        return z / np.sqrt(np.mean(z**2, axis=0))
    m = len(z)
    local, shared = layout.split(z)
    shared = np.linalg.qr(shared)[0] * np.sqrt(m) if shared.shape[1] else shared
    local = local + np.where(layout.local < 0, 1e-3 * np.random.default_rng(0).standard_normal(local.shape), 0.0)
    local = local - np.einsum("mg,gin->min", shared, np.einsum("mg,min->gin", shared, local)) / m
    L = np.linalg.cholesky(np.einsum("min,mjn->nij", local, local) / m)
    local = np.moveaxis(np.linalg.solve(L, np.moveaxis(local, -1, 0).swapaxes(1, 2)), 0, -1).swapaxes(0, 1)
    return layout.join(local, shared)


def choose_structure(asked: str, density: Callable[..., Any], start: Float[np.ndarray, " d"]) -> Structure:
    """Choose the shape of the Gaussian, or check that the one asked for can be had.

    Args:
        asked: "auto", "dense", "arrow" or "diagonal".
        density: The log-density of the free vector.
        start: Where it is finite.

    Raises:
        ValueError: For a shape that cannot be had, with what to do.
    """
    d = len(start)
    if asked not in STRUCTURES:
        raise ValueError(f"structure must be one of {', '.join(map(repr, STRUCTURES))}, not {asked!r}.")
    if asked == "dense" and d > LARGEST:
        raise ValueError(
            f"{d:,} parameters are too many for a full covariance, which is possible up to {LARGEST:,}. Leave "
            "structure at 'auto', which looks for groups, or give structure='diagonal'."
        )
    if asked == "diagonal":
        return Structure("diagonal", "independent coordinates, as asked for")
    if asked == "dense" or (asked == "auto" and d <= SMALL):
        return Structure("dense")
    layout = find_arrow(density, start)
    if layout is not None:
        (r, n), g = layout.local.shape, len(layout.shared)
        return Structure("arrow", f"{n:,} groups of up to {r}, and {g} shared, by the sparsity of the Hessian", layout)
    if asked == "arrow":
        raise ValueError(
            "the Hessian of the log-density shows no groups that only shared parameters tie together. Leave structure "
            "at 'auto', or give 'dense' or 'diagonal'."
        )
    if d <= LARGEST:
        return Structure("dense", "no groups were found in the sparsity of the Hessian")
    why = f"{d:,} parameters without groups are too many for a full covariance: sds of correlated ones are too small"
    return Structure("diagonal", why)
