"""A second method for mixed models: random effects integrated out in plain NumPy, shared coordinates by weighted draws.

With one random effect a group its integral is taken by Gauss-Hermite quadrature about its mode; Gaussian responses have
a closed form with any number of them. The first draws come from the library's own answer, widened: a wrong answer makes
a poor proposal, and the next rounds leave it.
"""

from typing import Any

import numpy as np

from benchmarks.fuzz.densities import LOG_2PI, row_log_density
from benchmarks.fuzz.oracle import Moments, weighted_draws
from benchmarks.fuzz.priors import log_prior

NUM_DRAWS, LEAST_EFFECTIVE = 2000, 400
NODES, NEWTON_STEPS, DIFFERENCE = 25, 12, 1e-3


def mixed_moments(model: Any, fit: Any, seed: int = 0) -> Moments | None:
    """Return the posterior of fixed effects and sds of random effects, or None where it cannot be found this way."""
    r = model.design.Z.shape[1]
    gaussian = model.family.name == "gaussian"
    if r > 2 or (r == 2 and not gaussian):
        return None
    marginal = _gaussian_marginal if gaussian else _quadrature_marginal
    mean, covariance = fit.shared_moments()
    try:
        root = np.linalg.cholesky(1.2 * covariance + 1e-12 * np.diag(np.diag(covariance)))
    except np.linalg.LinAlgError:
        return None

    def log_density(theta: np.ndarray) -> np.ndarray:
        return marginal(model, theta) + log_prior(model.prior, theta)

    with np.errstate(all="ignore"):
        theta, weights = weighted_draws(log_density, mean, root, np.random.default_rng(seed), NUM_DRAWS)
    effective = 1.0 / np.sum(weights**2)
    if not effective > LEAST_EFFECTIVE:
        return None
    fixed = model.prior.coordinates.coefficients(theta[:, : model.design.X.shape[1]])
    values = np.concatenate([fixed, _sds(model, theta)], axis=1)
    mean = weights @ values
    return Moments(mean, np.sqrt(weights @ (values - mean) ** 2), float(effective))


def _covariances(model: Any, theta: np.ndarray) -> np.ndarray:
    """Return the covariances `(s, r, r)` of the random effects inside: (W W')^-1."""
    r, start = model.design.Z.shape[1], model.design.X.shape[1] + int(model.family.has_dispersion)
    omega = theta[:, start:]
    W = np.zeros((len(theta), r, r))
    if r == 1 or not model.design.correlated:
        for k in range(r):
            W[:, k, k] = np.exp(omega[:, k])
    else:
        W[:, 0, 0], W[:, 1, 0], W[:, 1, 1] = np.exp(omega[:, 0]), omega[:, 1], np.exp(omega[:, 2])
    inverse = np.linalg.inv(W)
    return np.swapaxes(inverse, 1, 2) @ inverse


def _sds(model: Any, theta: np.ndarray) -> np.ndarray:
    """Return the sds `(s, r)` in the user's units, at the user's zero."""
    covariances, M = _covariances(model, theta), model.prior.coordinates.random
    if M is not None:
        covariances = M @ covariances @ M.T
    return np.sqrt(np.einsum("skk->sk", covariances))


def _parts(model: Any, theta: np.ndarray) -> tuple[np.ndarray, np.ndarray | float, np.ndarray]:
    """Return fixed predictors `(s, n)`, the log dispersion `(s, 1)` or 0, and the weights of the rows."""
    design, p = model.design, model.design.X.shape[1]
    disp = theta[:, p : p + 1] if model.family.has_dispersion else 0.0
    weight = np.ones(len(model.y)) if model.weight is None else model.weight
    return design.offset + theta[:, :p] @ design.X.T, disp, weight


def _sum_groups(values: np.ndarray, codes: np.ndarray, num_groups: int) -> np.ndarray:
    """Sum the last axis by group."""
    order = np.argsort(codes, kind="stable")
    starts = np.searchsorted(codes[order], np.arange(num_groups))
    return np.add.reduceat(values[..., order], starts, axis=-1)


def _quadrature_marginal(model: Any, theta: np.ndarray) -> np.ndarray:
    """Return log p(y | theta) with one random effect sigma t a group, t ~ N(0, 1)."""
    base, disp, weight = _parts(model, theta)
    codes, num_groups = model.design.group_codes, len(model.design.group_labels)
    size = np.sqrt(_covariances(model, theta)[:, :, 0]) * model.design.Z[:, 0]  # (s, n)

    def joint(t: np.ndarray) -> np.ndarray:
        rows = row_log_density(model.family.name, model.family.link, model.y, base + size * t[:, codes], disp)
        return _sum_groups(weight * rows, codes, num_groups) - 0.5 * t**2

    t, bend = np.zeros((len(theta), num_groups)), np.ones((len(theta), num_groups))
    for _ in range(NEWTON_STEPS):
        middle, up, down = joint(t), joint(t + DIFFERENCE), joint(t - DIFFERENCE)
        bend = np.clip((2 * middle - up - down) / DIFFERENCE**2, 1.0, None)
        t = t + np.clip((up - down) / (2 * DIFFERENCE) / bend, -2.0, 2.0)
    x, w = np.polynomial.hermite.hermgauss(NODES)
    parts = [joint(t + np.sqrt(2 / bend) * node) + node**2 + np.log(mass) for node, mass in zip(x, w, strict=True)]
    integral = np.logaddexp.reduce(parts, axis=0) + 0.5 * np.log(2 / bend) - 0.5 * LOG_2PI
    return integral.sum(axis=1)


def _gaussian_marginal(model: Any, theta: np.ndarray) -> np.ndarray:
    """Return log p(y | theta) of Gaussian responses; A = Sigma^-1 + Z'Z / sigma^2 for each group."""
    base, disp, weight = _parts(model, theta)
    assert isinstance(disp, np.ndarray)
    Z, codes, num_groups = model.design.Z, model.design.group_codes, len(model.design.group_labels)
    precision = np.exp(-2 * disp)  # (s, 1)
    error = model.y - base
    rows = 0.5 * weight * (2 * -disp - LOG_2PI) - 0.5 * precision * weight * error**2
    inverse = np.linalg.inv(_covariances(model, theta))
    r = Z.shape[1]
    products = [[_sum_groups(weight * Z[:, k] * Z[:, m], codes, num_groups) for m in range(r)] for k in range(r)]
    A = inverse[:, None] + precision[:, :, None, None] * np.transpose(np.array(products), (2, 0, 1))
    b = np.stack([_sum_groups(weight * Z[:, k] * error, codes, num_groups) for k in range(r)], axis=-1)
    b = precision[..., None] * b
    gain = np.einsum("sgk,sgk->sg", b, np.linalg.solve(A, b[..., None])[..., 0])
    each = 0.5 * gain - 0.5 * np.linalg.slogdet(A)[1] + 0.5 * np.linalg.slogdet(inverse)[1][:, None]
    return rows.sum(axis=1) + each.sum(axis=1)
