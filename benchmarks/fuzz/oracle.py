"""A second method for generalized linear models: the mode by damped Newton steps, then weighted draws about it.

Plain NumPy. All that is taken from the library is the description of the model: rows and prior.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from benchmarks.fuzz.densities import row_log_density
from benchmarks.fuzz.priors import read_prior

NUM_DRAWS, DEGREES = 6000, 5.0
LEAST_EFFECTIVE = 600
STEP = 1e-4  # of the differences that stand for derivatives


class Moments(NamedTuple):
    """Posterior means and sds of the coefficients, and how many independent draws they are worth."""

    mean: np.ndarray
    sd: np.ndarray
    effective: float


def posterior_moments(model: Any, seed: int = 0) -> Moments | None:
    """Return the posterior of the coefficients of a model without groups, or None where the draws are worth little."""
    prior = read_prior(model)
    rows, d = model.rows, len(prior.mean)
    X = rows.X @ prior.map * prior.sd[: rows.X.shape[1]]  # theta = mean + sd u
    base = rows.X @ (prior.map @ prior.mean[: X.shape[1]])
    base = base if rows.offset is None else base + rows.offset
    weight = np.ones(len(rows.y)) if rows.weight is None else rows.weight

    def likelihood(eta: np.ndarray, disp: np.ndarray) -> np.ndarray:
        return weight * row_log_density(model.family.name, model.family.link, rows.y, eta, disp)

    def log_density(u: np.ndarray) -> np.ndarray:
        p = X.shape[1]
        disp = prior.mean[-1] + prior.sd[-1] * u[:, -1:] if d > p else np.zeros((len(u), 1))
        total = np.sum(likelihood(base + u[:, :p] @ X.T, disp), axis=1) - 0.5 * np.sum(u[:, :p] ** 2, axis=1)
        return total + prior.log_dispersion(disp[:, 0]) if d > p else total

    with np.errstate(all="ignore"):
        found = _mode(log_density, d)
        if found is None:
            return None
        u, weights = _weighted_draws(log_density, *found, np.random.default_rng(seed))
    effective = 1.0 / np.sum(weights**2)
    if not effective > LEAST_EFFECTIVE:
        return None
    p = X.shape[1]
    beta = (prior.mean[:p] + prior.sd[:p] * u[:, :p]) @ prior.map.T
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
    return (u, H) if np.all(np.linalg.eigvalsh(H) > 0) else None


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


def _weighted_draws(
    log_density: Density, mode: np.ndarray, H: np.ndarray, rng: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
    """Return draws of a t distribution about the mode with their importance weights; a second round learns."""
    centre, root = mode, np.linalg.inv(np.linalg.cholesky(H)).T
    for _ in range(3):
        z = rng.standard_normal((NUM_DRAWS, len(mode)))
        z *= np.sqrt(DEGREES / rng.chisquare(DEGREES, (NUM_DRAWS, 1)))
        u = centre + z @ root.T
        log_q = -0.5 * (DEGREES + len(mode)) * np.log1p(np.sum(z**2, axis=1) / DEGREES)
        log_p = np.concatenate([log_density(part) for part in np.array_split(u, 12)])
        ratio = np.where(np.isfinite(log_p), log_p, -np.inf) - log_q
        weights = np.exp(ratio - ratio.max())
        weights /= weights.sum()
        if 1.0 / np.sum(weights**2) > 0.3 * NUM_DRAWS:
            break
        centre = weights @ u
        errors = u - centre
        covariance = (errors * weights[:, None]).T @ errors + 1e-12 * root @ root.T
        try:
            root = np.linalg.cholesky(covariance)
        except np.linalg.LinAlgError:
            break
    return u, weights
