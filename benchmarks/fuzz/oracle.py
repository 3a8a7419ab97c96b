"""A second method for generalized linear models: the mode by damped Newton steps, then weighted draws about it.

Plain NumPy. All that is taken from the library is the description of the model: rows and prior.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from benchmarks.fuzz.densities import row_log_density
from benchmarks.fuzz.priors import log_prior

NUM_DRAWS, ROUNDS, DEGREES = 6000, 3, 5.0
LEAST_EFFECTIVE = 600
STEP = 1e-4  # of the differences that stand for derivatives


class Moments(NamedTuple):
    """Posterior means and sds of the coefficients, and how many independent draws they are worth."""

    mean: np.ndarray
    sd: np.ndarray
    effective: float


def posterior_moments(model: Any, seed: int = 0) -> Moments | None:
    """Return the posterior of the coefficients of a model without groups, or None where the draws are worth little."""
    prior, rows = model.prior, model.rows  # the columns of the rows are those of the prior's coordinates
    (n, p), d = rows.X.shape, len(prior.mean)
    offset = np.zeros(n) if rows.offset is None else rows.offset
    weight = np.ones(n) if rows.weight is None else rows.weight
    scale = np.where(np.isfinite(prior.sd), prior.sd, 1.0)  # theta = mean + scale u

    def log_density(u: np.ndarray) -> np.ndarray:
        theta = prior.mean + scale * u
        eta = offset + theta[:, :p] @ rows.X.T
        log_p = row_log_density(model.family.name, model.family.link, rows.y, eta, theta[:, p:] if d > p else 0.0)
        return log_p @ weight + log_prior(prior, theta)

    with np.errstate(all="ignore"):
        found = _mode(log_density, d)
        if found is None:
            return None
        mode, H = found
        root = np.linalg.inv(np.linalg.cholesky(H)).T
        u, weights = weighted_draws(log_density, mode, root, np.random.default_rng(seed))
    effective = 1.0 / np.sum(weights**2)
    if not effective > LEAST_EFFECTIVE:
        return None
    beta = prior.coordinates.coefficients((prior.mean + scale * u)[:, :p])
    mean = weights @ beta
    return Moments(mean, np.sqrt(weights @ (beta - mean) ** 2), float(effective))


Density = Callable[[np.ndarray], np.ndarray]


def _mode(log_density: Density, d: int) -> tuple[np.ndarray, np.ndarray] | None:
    """Return the mode and minus the Hessian there, by Newton steps with differences for derivatives."""
    u, damping = np.zeros(d), 1.0
    value = float(log_density(u[None])[0])
    if not np.isfinite(value):
        return None
    H = np.eye(d)
    for _ in range(200):
        gradient, H = _derivatives(log_density, u)
        if not (np.all(np.isfinite(gradient)) and np.all(np.isfinite(H))):
            return None
        eigenvalues, vectors = np.linalg.eigh(H)
        while True:
            step = vectors @ ((vectors.T @ gradient) / (np.maximum(np.abs(eigenvalues), 1e-8) + damping))
            candidate = float(log_density((u + step)[None])[0])
            if candidate >= value or damping > 1e12:
                break
            damping = max(4.0 * damping, 1e-6)
        if damping > 1e12:
            break
        gain, u, value, damping = candidate - value, u + step, candidate, damping / 8
        if gain < 1e-9 * (1 + abs(value)) and np.max(np.abs(step)) < 1e-4:
            break
    positive = np.all(np.isfinite(H)) and np.all(np.linalg.eigvalsh(H) > 0)
    return (u, H) if positive else None


def _derivatives(log_density: Density, u: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the gradient and minus the Hessian by central differences, with steps that suit the curvature."""
    d, unit = len(u), np.eye(len(u))
    centre = float(log_density(u[None])[0])
    size = np.full(d, STEP)
    for _ in range(3):  # a step changes the log-density by about 1e-3
        pair = log_density(np.concatenate([u + unit * size[:, None], u - unit * size[:, None]]))
        bend = np.abs(pair[:d] + pair[d:] - 2 * centre) / size**2
        size = np.clip(np.sqrt(1e-3 / np.maximum(bend, 1e-3)), 1e-14, 0.1)
    steps = unit * size[:, None]
    plus, minus = log_density(u + steps), log_density(u - steps)
    H = np.diag((2 * centre - plus - minus) / size**2)
    rows, columns = np.triu_indices(d, 1)
    if len(rows):
        both = log_density(u + steps[rows] + steps[columns]) + log_density(u - steps[rows] - steps[columns])
        sides = plus[rows] + minus[rows] + plus[columns] + minus[columns] - 2 * centre
        H[rows, columns] = -(both - sides) / (2 * size[rows] * size[columns])
        H[columns, rows] = H[rows, columns]
    return (plus - minus) / (2 * size), H


def weighted_draws(
    log_density: Density, centre: np.ndarray, root: np.ndarray, rng: np.random.Generator, num_draws: int = NUM_DRAWS
) -> tuple[np.ndarray, np.ndarray]:
    """Return draws of a t distribution with their importance weights.

    Args:
        log_density: Of many points `(s, d)`.
        centre: Of the first round; the next ones take mean and covariance of the weighted draws.
        root: A root of its scale matrix.
        rng: Where chance comes from.
        num_draws: Of each round; the last is returned.
    """
    d = len(centre)
    for _ in range(ROUNDS):
        z = rng.standard_normal((num_draws, d))
        z *= np.sqrt(DEGREES / rng.chisquare(DEGREES, (num_draws, 1)))
        u = centre + z @ root.T
        log_q = -0.5 * (DEGREES + d) * np.log1p(np.sum(z**2, axis=1) / DEGREES)
        log_p = np.concatenate([log_density(part) for part in np.array_split(u, 12)])
        ratio = np.where(np.isfinite(log_p), log_p, -np.inf) - log_q
        weights = np.exp(ratio - ratio.max())
        weights /= weights.sum()
        if not 1.0 / np.sum(weights**2) < 0.3 * num_draws:
            break
        centre = weights @ u
        errors = u - centre
        covariance = (errors * weights[:, None]).T @ errors + 1e-3 * root @ root.T
        root = np.linalg.cholesky(covariance)
    return u, weights
