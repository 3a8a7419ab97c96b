"""Linear response: the covariance that the optimum of the bound implies, wider than the optimum's own.

KL makes a Gaussian too narrow where the posterior bends. How the optimal mean answers to a small tilt of the density,
log p + t'theta, is the covariance of p to first order (Giordano, Broderick and Jordan 2018). In whitened coordinates
w = (m, x) with K = minus the Hessian of the bound,

    Sigma_LR = C [K^-1]_mm C'.

K is found on a small space by Lanczos steps from several directions of the mean at once, each a difference of
gradients, and is the identity outside it, as it is for a Gaussian density.

At the optimum K_mm = I: the mean answers otherwise only along directions v that are tied to the covariance,
K_xm v = E[(u'v)(z z' - I)] by Stein's identity, with whitened gradients u. With the even part of u at m independent
points and w_ab = (z_a'z_b)^2 - |z_a|^2 - |z_b|^2 + d, the matrix

    Q = m^-2 sum_{a != b} u_a u_b' w_ab,      v'Q v = |E[(u'v)(z z' - I)]|^2 in expectation,

tells from one look along which directions; in a hundred dimensions eight taken at random see little of them.
"""

from typing import NamedTuple, cast

import numpy as np
from jaxtyping import Float

from natvi.models.density.climbing.polish import Slope

STEP = 1e-4  # of the differences, in sds
LEAST, MOST = 0.05, 20.0  # eigenvalues are kept within
FEW, DIRECTIONS, PRODUCTS = 8, 4, 24
COUPLED = 0.02  # with what is known, relative: what is less changes the covariance by its square


class Response(NamedTuple):
    """[K^-1]_mm, and the smallest eigenvalue of K that was met."""

    S: np.ndarray
    smallest: float


def linear_response(
    slope: Slope, w: Float[np.ndarray, " n"], gradient: Float[np.ndarray, " n"], directions: Float[np.ndarray, "d k"]
) -> Response:
    """Return the covariance of the mean in whitened coordinates.

    Args:
        slope: Of the bound, around the optimum.
        w: Coordinates of the optimum.
        gradient: There.
        directions: Of the mean, which are the first d coordinates; orthonormal.
    """
    d = len(directions)
    new = np.zeros((len(w), directions.shape[1]))
    new[:d] = directions
    basis = np.zeros((len(w), 0))
    images = np.zeros((len(w), 0))
    while new.shape[1] and basis.shape[1] < min(PRODUCTS, len(w)):
        found = [(gradient - slope(w + STEP * v)[1]) / STEP for v in new.T]
        if not all(np.all(np.isfinite(column)) for column in found):
            break
        basis, images = np.concatenate([basis, new], axis=1), np.concatenate([images, np.stack(found, axis=1)], axis=1)
        new = _fresh(images[:, -new.shape[1] :], basis)
    T = basis.T @ images
    values, vectors = np.linalg.eigh(0.5 * (T + T.T))
    inside = basis[:d] @ vectors
    S = np.eye(d) + (inside * (1.0 / np.clip(values, LEAST, MOST) - 1.0)) @ inside.T
    return Response(S, float(np.min(values, initial=1.0)))


def any_directions(d: int, rng: np.random.Generator) -> Float[np.ndarray, "d k"]:
    """Return orthonormal directions taken at random: all there are, or some."""
    return np.linalg.qr(rng.standard_normal((d, min(d, FEW))))[0]


def telling_directions(u: Float[np.ndarray, "m d"], z: Float[np.ndarray, "m d"]) -> Float[np.ndarray, "d k"]:
    """Return the directions of the mean that are tied most to the covariance.

    Args:
        u: Whitened gradients at the optimum.
        z: The points, whose second half mirrors the first.

    Example:
        >>> half = np.random.default_rng(0).standard_normal((256, 20))
        >>> z = np.concatenate([half, -half])
        >>> u = -z
        >>> u[:, 3] += z[:, 0] ** 2 - 1.0
        >>> bool(np.abs(telling_directions(u, z)[3, 0]) > 0.9)
        True
    """
    half = len(z) // 2
    even, z = 0.5 * (u[:half] + u[half:]), z[:half]
    square = np.sum(z**2, axis=1)
    tie = (z @ z.T) ** 2 - square[:, None] - square + z.shape[1]
    np.fill_diagonal(tie, 0.0)
    return np.linalg.eigh(even.T @ tie @ even)[1][:, : -DIRECTIONS - 1 : -1]


def _fresh(vectors: np.ndarray, basis: np.ndarray) -> np.ndarray:
    """Return an orthonormal basis of what the vectors hold beyond the basis."""
    size = np.linalg.norm(vectors, axis=0)
    from scipy.linalg import qr  # takes time to import

    for _ in range(2):
        vectors = vectors - basis @ (basis.T @ vectors)
    Q, R, _ = cast("tuple[np.ndarray, np.ndarray, np.ndarray]", qr(vectors, mode="economic", pivoting=True))
    kept = np.abs(np.diagonal(R)) > COUPLED * max(float(size.max(initial=0.0)), 1e-300)
    return Q[:, : int(np.sum(kept))]
