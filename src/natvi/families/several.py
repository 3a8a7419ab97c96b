"""Expectations over a row's predictor and one or two numbers that rows share, or have of their own, jointly Gaussian.

With a ~ N(m_a, L L') the shared numbers and eta given a = m_a + L z normal with mean m + w'z and variance v - w'w,
L w = Cov(a, eta), nodes for z stand outside and nodes for the predictor inside. Both have a narrow rule, Gauss-Hermite,
and a wide one, the trapezoidal rule, whose step follows the width of the strip |Im eta| < strip in which the function
is analytic; the widest row decides for all. Derivatives in the means are expectations of derivatives (Bonnet, Price).
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from natvi.families.rows import PredictorMoments, RowExpectation

LOG_ACCURACY, LARGEST_STEP, REACH = 22.0, 0.95, 6.8
NARROW, WIDEST = 0.3, 40.0  # of an sd over the strip: up to the first few nodes do, beyond the second no more are taken
INNER = np.polynomial.hermite_e.hermegauss(7)
FEWEST, OUTER = np.polynomial.hermite_e.hermegauss(3), np.polynomial.hermite_e.hermegauss(5)
TINY_SHARED = 0.06  # up to this sd three nodes err by 1e-9
NARROW_SHARED = 0.2  # up to this sd five nodes err by 1e-9
WIDE_STEP, WIDE_COUNT = 0.4, 33  # of the shared numbers: one of them takes the trapezoidal rule, two nine nodes each
MODERATE = 0.6  # up to this sd nine nodes err by 1e-8
WIDER = np.polynomial.hermite_e.hermegauss(9)

Rows = Float[Array, "*rows"]
PerRow = Callable[[Rows, Any], RowExpectation]


def small_root(S: Float[Array, "q q ..."]) -> Float[Array, "q q ..."]:
    """Return the lower Cholesky factor of a small covariance, zeros where a number has no variance.

    Example:
        >>> small_root(jnp.array([[4.0, 2.0], [2.0, 1.0]])).tolist()
        [[2.0, 0.0], [1.0, 0.0]]
    """
    q = S.shape[0]
    zero = jnp.zeros(S.shape[2:])
    L = [[zero for _ in range(q)] for _ in range(q)]
    for j in range(q):
        rest = S[j, j] - sum((L[j][k] ** 2 for k in range(j)), zero)
        L[j][j] = jnp.sqrt(jnp.maximum(rest, 0.0))
        for i in range(j + 1, q):
            entry = S[i, j] - sum((L[i][k] * L[j][k] for k in range(j)), zero)
            L[i][j] = jnp.where(L[j][j] > 0, entry / jnp.where(L[j][j] > 0, L[j][j], 1.0), 0.0)
    return jnp.stack([jnp.stack(row) for row in L])


def whitened(x: PredictorMoments) -> tuple[Float[Array, "q ..."], Float[Array, "q q ..."], Float[Array, "q ..."], Rows]:
    """Return m_a, L, w, and the sd of the predictor given the shared numbers."""
    assert x.disp_mean is not None and x.disp_variance is not None and x.covariance is not None
    # one number has no axis of its own: shared it is a scalar, of every row its own it has the axes of rows
    single = x.covariance.ndim == x.mean.ndim
    mean = x.disp_mean[None] if single else x.disp_mean
    q = mean.shape[0]
    # the last number stands alone on its axis, which may be a wide one: the root is upper triangular
    back = slice(None, None, -1)
    S = jnp.reshape(x.disp_variance, (q, q, *mean.shape[1:]))[back, back]
    L, covariance = small_root(S), jnp.reshape(x.covariance, (q, *x.mean.shape))[back]
    w: list[Array] = []
    for k in range(q):
        entry = covariance[k] - sum((L[k, j] * w[j] for j in range(k)), jnp.zeros(()))
        w.append(jnp.where(L[k, k] > 0, entry / jnp.where(L[k, k] > 0, L[k, k], 1.0), 0.0))
    rest = x.variance - sum(each**2 for each in w)
    return mean, L[back, back], jnp.stack(w[::-1]), jnp.sqrt(jnp.maximum(rest, 0.0))


def expected_over_several(f: PerRow, x: PredictorMoments, strip: Float[Array, "..."] | float) -> RowExpectation:
    """Return the expectation of a function with its derivatives.

    Args:
        f: (predictors, shared numbers as the family takes them) -> value and derivatives at that point.
        x: Moments of both.
        strip: The width of the strip around the real line in which f is analytic in the predictor; for every row its
            own where its numbers are.
    """
    mean, L, w, s = whitened(x)
    q = mean.shape[0]
    z_outer, weights, num_outer = outer_rule(L, jnp.max(jnp.abs(w) / strip))
    ratio = jnp.max(jnp.where(jnp.isnan(s), 0.0, s) / strip)
    narrow = ratio <= NARROW
    a = 1.0 / jnp.clip(ratio, 1.0 / 6.0, WIDEST)
    h = jnp.minimum(LARGEST_STEP, 2 * jnp.pi * a / (LOG_ACCURACY + 0.5 * a**2))
    few = len(INNER[0])
    count = jnp.where(narrow, few, jnp.ceil(2 * REACH / h).astype(jnp.int32) + 1)
    nodes, node_weights = (jnp.asarray(part, x.mean.dtype) for part in (INNER[0], INNER[1] / INNER[1].sum()))

    def numbers(z: Array) -> Array:
        """Return the numbers at a node, with axes of rows; of one without an axis of its own."""
        found = mean + jnp.tensordot(L, z, axes=([1], [0]))
        found = jnp.reshape(found, (*found.shape, *(1,) * (1 + x.mean.ndim - found.ndim)))
        return found[0] if q == 1 else found

    def outer(j: Array, total: Any) -> Any:
        z = z_outer[j]
        here = numbers(z)
        centre = x.mean + jnp.tensordot(z, w, axes=1)

        def inner(k: Array, total: Any) -> Any:
            t = h * (k - 0.5 * (count - 1))
            place = jnp.minimum(k, few - 1)
            at = jnp.where(narrow, nodes[place], t)
            weight = jnp.where(narrow, node_weights[place], h / jnp.sqrt(2 * jnp.pi) * jnp.exp(-0.5 * t**2))
            return jax.tree.map(lambda a, b: a + weights[j] * weight * b, total, _apart(f(centre + s * at, here)))

        return jax.lax.fori_loop(0, count, inner, total)

    shape = jax.eval_shape(f, x.mean, numbers(jnp.zeros(q)))
    zeros = jax.tree.map(lambda a: jnp.zeros(a.shape, a.dtype), shape)
    found = jax.lax.fori_loop(0, num_outer, outer, _apart(zeros))
    return _together(found, q)


def _apart(found: RowExpectation) -> Any:
    """Return the parts of an expectation row by row: stacks in a loop would be copied, not added to."""
    n = found.value.ndim
    return RowExpectation(*(list(part.reshape(-1, *part.shape[part.ndim - n :])) for part in found))  # type: ignore[union-attr]


def _together(found: Any, q: int) -> RowExpectation:
    """Return the parts stacked again."""
    first, second, third, d, mixed, bend = found
    if q == 1:
        return RowExpectation(*(part[0] for part in found))
    square = jnp.stack(bend).reshape(q, q, *bend[0].shape)
    return RowExpectation(first[0], second[0], third[0], jnp.stack(d), jnp.stack(mixed), square)


def outer_rule(L: Float[Array, "q q ..."], drift: Array) -> tuple[Float[Array, "j q"], Float[Array, " j"], Array]:
    """Return nodes and weights for the shared numbers, and how many are in use: few where their sds are small.

    `drift` is how far the predictor moves with them, an sd over its strip.

    For three and more it is the rule of McNamee and Stenger of degree five, whatever the sds.
    """
    q = L.shape[0]
    if q > 2:
        nodes, weights = _degree_five(q)
        return jnp.asarray(nodes), jnp.asarray(weights), jnp.asarray(len(weights), jnp.int32)
    t = WIDE_STEP * (np.arange(WIDE_COUNT) - 0.5 * (WIDE_COUNT - 1))
    trapezoid = t, np.exp(-0.5 * t**2)
    variances = jnp.sum(L**2, axis=1)
    widest = jnp.max(variances)
    rules = [_product(*[FEWEST] * q), _product(*[OUTER] * q)]
    still = (widest <= TINY_SHARED**2) & (drift <= TINY_SHARED)
    level = jnp.where(still, 0, jnp.where(widest <= NARROW_SHARED**2, 1, 2))
    if q == 1:
        rules.append(_product(trapezoid))
    else:
        # the second may be wide where every row has its own, such as the logit of a zero
        rules += [_product(WIDER, WIDER), _product(WIDER, trapezoid)]
        level = jnp.where(jnp.max(variances[1]) > MODERATE**2, 3, level)
    size = max(len(weights) for _, weights in rules)
    z, weights = (
        jnp.stack([np.concatenate([part, np.zeros((size - len(part), *part.shape[1:]))]) for part in parts])[level]
        for parts in zip(*rules, strict=True)
    )
    return z, weights, jnp.asarray([len(weights) for _, weights in rules], jnp.int32)[level]


def _degree_five(q: int) -> tuple[np.ndarray, np.ndarray]:
    """Return 2 q^2 + 1 points: zero, (+-sqrt 3, 0, ...) and (+-sqrt 3, +-sqrt 3, 0, ...) in all orders."""
    points, weights = [np.zeros(q)], [(q * q - 7 * q + 18) / 18]
    unit = np.sqrt(3.0) * np.eye(q)
    for k in range(q):
        for sign in (1.0, -1.0):
            points.append(sign * unit[k])
            weights.append((4 - q) / 18)
            for other in range(k):
                points += [sign * unit[k] + unit[other], sign * unit[k] - unit[other]]
                weights += [1 / 36, 1 / 36]
    return np.array(points), np.array(weights)


def _product(*rules: tuple[np.ndarray, np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    grids = np.meshgrid(*[nodes for nodes, _ in rules], indexing="ij")
    weights = np.meshgrid(*[own / own.sum() for _, own in rules], indexing="ij")
    return np.stack([g.ravel() for g in grids], axis=1), np.prod([g.ravel() for g in weights], axis=0)


def with_derivatives(log_density: Callable[[Rows, Any], Rows]) -> PerRow:
    """Return a function of a point that gives the log-density of every row with its derivatives, by the chain rule.

    Args:
        log_density: (predictors, shared numbers with axes of rows) -> log p of every row; of several a stack.
    """

    def point(eta: Rows, shared: Any) -> RowExpectation:
        single = shared.ndim == eta.ndim
        own = jnp.broadcast_to(shared, eta.shape if single else (shared.shape[0], *eta.shape))

        def slopes(eta: Array, own: Array) -> tuple[Array, tuple[Array, Array]]:
            value, pull = jax.vjp(log_density, eta, own)
            return value, pull(jnp.ones_like(value))

        zero_eta, zero_own = jnp.zeros_like(eta), jnp.zeros_like(own)
        (value, (d_eta, d_disp)), (_, (d_eta_eta, d_eta_disp)) = jax.jvp(
            slopes, (eta, own), (jnp.ones_like(eta), zero_own)
        )
        if single:
            bend = jax.jvp(slopes, (eta, own), (zero_eta, jnp.ones_like(own)))[1][1][1]
        else:
            units = [zero_own.at[k].set(1.0) for k in range(own.shape[0])]
            bend = jnp.stack([jax.jvp(slopes, (eta, own), (zero_eta, unit))[1][1][1] for unit in units])
        return RowExpectation(value, d_eta, d_eta_eta, d_disp, d_eta_disp, bend)

    return point
