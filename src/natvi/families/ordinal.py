"""Ordered categories: cumulative logit and probit. A response is its code, from `first` on; y below runs from 1 to K.

With thresholds T_1 = 0 < T_2 < ... < T_{K-1}, P(y > k) = F(eta - T_k). The intercept stands for minus the first
threshold; the others follow by the widths of the categories between, e^{d_k} = T_k - T_{k-1}, k = 2..K-1, which are
the numbers d that all rows share. For the logit

    log P(y = k) = log(1 - e^{-width_k}) - softplus(T_{k-1} - eta) - softplus(eta - T_k),

three functions of one number each, given the other widths; end categories have one of them.
"""

from collections.abc import Callable
from functools import cache
from typing import Any

import jax
import jax.numpy as jnp
from jax.scipy.special import log_ndtr, logit, ndtr, ndtri
from jaxtyping import Array

from natvi.families.family import Extra, Family, no_normaliser
from natvi.families.rows import PredictorMoments, RowExpectation
from natvi.families.several import expected_over_several, outer_rule, whitened, with_derivatives
from natvi.quadrature.binary_losses import cloglog_loss, expected_cloglog_loss
from natvi.quadrature.softplus import expected_softplus, softplus
from natvi.quadrature.softplus_ladder import LARGEST_SHIFT, softplus_ladder

AWAY = 1e3  # where a threshold that does not exist stands
FAR = 30.0  # beyond it Phi is 0 or 1
LEAST_SHARE = 1e-3
PROBIT_STRIP = 1.5
TAILS = {"logit": jax.nn.sigmoid, "probit": ndtr}
QUANTILES = {"logit": logit, "probit": ndtri}


@jax.custom_jvp
def _log_width_term(d: Array) -> Array:
    """Return log(1 - e^{-e^d})."""
    return -cloglog_loss(-d)[0]


@jax.custom_jvp
def _log_width_slope(d: Array) -> Array:
    return cloglog_loss(-d)[1]


_log_width_term.defjvp(lambda at, moves: (_log_width_term(*at), _log_width_slope(*at) * moves[0]))
_log_width_slope.defjvp(lambda at, moves: (_log_width_slope(*at), -cloglog_loss(-at[0])[2] * moves[0]))


def _widths(disp: Array, q: int) -> list[Array]:
    """Return the widths of the categories 2..K-1; one shared number comes without an axis of its own."""
    return [jnp.exp(disp)] if q == 1 else [jnp.exp(disp[k]) for k in range(q)]


def _thresholds(y: Array, disp: Array, K: int) -> tuple[Array, Array]:
    """Return T_{k-1} and T_k of every row of category k, far away where there is none."""
    widths = _widths(disp, K - 2)
    lower = sum((jnp.where(k <= y - 1, width, 0.0) for k, width in enumerate(widths, 2)), jnp.zeros(()))
    upper = sum((jnp.where(k <= y, width, 0.0) for k, width in enumerate(widths, 2)), jnp.zeros(()))
    return jnp.where(y < 1.5, -AWAY, lower), jnp.where(y > K - 0.5, AWAY, upper)


# --- logit -------------------------------------------------------------------------------------------------


def _logit_kernel(K: int) -> Callable[..., Array]:
    def kernel(y: Array, eta: Array, disp: Array | None) -> Array:
        assert disp is not None
        lower, upper = _thresholds(y, disp, K)
        return -softplus(lower - eta) - softplus(eta - upper)

    return kernel


def _logit_normaliser(K: int) -> Callable[..., Array]:
    def normaliser(y: Array, disp: Array | None) -> Array:
        assert disp is not None
        each = [disp] if K == 3 else [disp[k] for k in range(K - 2)]
        shape = jnp.broadcast_shapes(y.shape, each[0].shape)
        terms = (jnp.where(y == k, _log_width_term(d), 0.0) for k, d in enumerate(each, 2))
        return jnp.broadcast_to(sum(terms, jnp.zeros(())), shape)

    return normaliser


def _logit_expected(K: int) -> Callable[[Array, PredictorMoments], RowExpectation]:
    q = K - 2

    def expected(y: Array, x: PredictorMoments) -> RowExpectation:
        mean, L, w, s = whitened(x)
        nodes, weights, count = outer_rule(L, jnp.max(jnp.abs(w)) / jnp.pi)
        first, last = y < 1.5, y > K - 0.5
        k = jnp.arange(2, K).reshape(-1, *(1,) * y.ndim)
        below = jnp.stack([k <= y - 1, k <= y], axis=1).astype(y.dtype)  # (q, 2, *rows)
        there = jnp.stack([~first, ~last])
        spread = jnp.stack([s, s])

        def moved(z: Array) -> tuple[Array, Array]:
            """Return the widths at a node, and where both functions of every row are taken."""
            width = jnp.exp(mean + L @ z)
            eta = x.mean + jnp.tensordot(z, w, axes=1)
            lower, upper = jnp.tensordot(width, below, axes=1)
            return width, jnp.where(there, jnp.stack([lower - eta, eta - upper]), -AWAY)

        _, centre = moved(jnp.zeros(q))

        def far(j: Array, most: Array) -> Array:
            return jnp.maximum(most, jnp.max(jnp.abs(moved(nodes[j])[1] - centre)))

        def add_node(j: Array, total: tuple[Array, ...], losses: Callable[..., tuple[Array, Array, Array]]) -> Any:
            width, places = moved(nodes[j])
            loss, slope, bend = losses(places)
            # by width: T_{k-1} - eta rises, eta - T_k falls with the widths below
            pull = below * jnp.stack([slope[0], -slope[1]])
            firm = below * bend
            by_width = width.reshape(-1, *(1,) * (pull.ndim - 1))
            outer = jnp.outer(width, width).reshape(q, q, *(1,) * y.ndim)
            both = jnp.stack([jnp.stack([jnp.sum(firm[a] * below[b], axis=0) for b in range(q)]) for a in range(q)])
            new = (
                jnp.sum(loss, axis=0),
                slope[1] - slope[0],
                jnp.sum(bend, axis=0),
                jnp.sum(by_width * pull, axis=1),
                -jnp.sum(by_width * firm, axis=1),
                outer * both,
            )
            return tuple(a + weights[j] * b for a, b in zip(total, new, strict=True))

        def close(start: tuple[Array, ...]) -> tuple[Array, ...]:
            ladder = softplus_ladder(centre, spread)
            return jax.lax.fori_loop(
                0, count, lambda j, t: add_node(j, t, lambda at: ladder.shifted(at - centre)), start
            )

        def apart(start: tuple[Array, ...]) -> tuple[Array, ...]:
            return jax.lax.fori_loop(
                0, count, lambda j, t: add_node(j, t, lambda at: expected_softplus(at, spread**2)), start
            )

        zero = jnp.zeros_like(y)
        many, square = jnp.zeros((q, *y.shape), y.dtype), jnp.zeros((q, q, *y.shape), y.dtype)
        near = jax.lax.fori_loop(0, count, far, jnp.zeros(())) <= LARGEST_SHIFT
        found = jax.lax.cond(near, close, apart, (zero, zero, zero, many, many, square))
        value, d_eta, d_eta_eta, d_disp, d_eta_disp, d_disp_disp = (-part for part in found)
        # log(1 - e^{-e^d}) of a row's own width
        term, slope, bend = expected_cloglog_loss(-mean, jnp.sum(L**2, axis=1))
        own = (k == y).astype(y.dtype)
        diagonal = d_disp - own * bend.reshape(k.shape)
        at = jnp.arange(q)
        found = RowExpectation(
            value=value - jnp.tensordot(term, own, axes=1),
            d_eta=d_eta,
            d_eta_eta=d_eta_eta,
            d_disp=d_disp + own * slope.reshape(k.shape),
            d_eta_disp=d_eta_disp,
            d_disp_disp=d_disp_disp.at[at, at].add(diagonal),
        )
        return found if q > 1 else _single(found)

    return expected


def _single(found: RowExpectation) -> RowExpectation:
    """Return an expectation over one shared number without the axis of such numbers."""
    assert found.d_disp is not None and found.d_eta_disp is not None and found.d_disp_disp is not None
    return found._replace(d_disp=found.d_disp[0], d_eta_disp=found.d_eta_disp[0], d_disp_disp=found.d_disp_disp[0, 0])


# --- probit ------------------------------------------------------------------------------------------------


def _probit_kernel(K: int) -> Callable[..., Array]:
    def kernel(y: Array, eta: Array, disp: Array | None) -> Array:
        assert disp is not None
        lower, upper = _thresholds(y, disp, K)
        # log(Phi(b) - Phi(a)) from the side where both are small
        a, b = jnp.maximum(lower - eta, -FAR), jnp.minimum(upper - eta, FAR)
        a, b = jnp.minimum(a, FAR), jnp.maximum(b, -FAR)
        swap = a > 0
        a, b = jnp.where(swap, -b, a), jnp.where(swap, -a, b)
        top = log_ndtr(b)
        return top + jnp.log(-jnp.expm1(jnp.minimum(log_ndtr(a) - top, -1e-15)))

    return kernel


def _probit_expected(K: int) -> Callable[[Array, PredictorMoments], RowExpectation]:
    kernel = _probit_kernel(K)

    def expected(y: Array, x: PredictorMoments) -> RowExpectation:
        return expected_over_several(with_derivatives(lambda eta, disp: kernel(y, eta, disp)), x, PROBIT_STRIP)

    return expected


# --- both --------------------------------------------------------------------------------------------------


def category_probabilities(family: Family, eta: Array, disp: Array) -> Array:
    """Return P(y = k) of every category, last axis."""
    K = int(family.settings[0])
    reached = jnp.cumsum(jnp.stack([jnp.zeros_like(disp if K == 3 else disp[0]), *_widths(disp, K - 2)]), axis=0)
    above = jnp.stack([TAILS[family.link](eta - T) for T in reached], axis=-1)  # P(y > k)
    ones = jnp.ones_like(above[..., :1])
    whole = jnp.concatenate([ones, above, 0.0 * ones], axis=-1)
    return jnp.maximum(whole[..., :-1] - whole[..., 1:], 0.0)


def _moments(family_of: Callable[[], Family], below: int) -> tuple[Callable[..., Array], Callable[..., Array]]:
    def mean(eta: Array, disp: Array) -> Array:
        p = category_probabilities(family_of(), eta, disp)
        return below + p @ jnp.arange(1.0, p.shape[-1] + 1)

    def variance(eta: Array, disp: Array) -> Array:
        p = category_probabilities(family_of(), eta, disp)
        k = jnp.arange(1.0, p.shape[-1] + 1)
        return p @ k**2 - (p @ k) ** 2

    return mean, variance


def ordinal(K: int, first: int = 1, link: str = "logit") -> Family:
    """Return the cumulative model of K ordered categories with the codes first, first + 1, ...

    Example:
        >>> [extra.name for extra in ordinal(4).extras]
        ['width(2)', 'width(3)']
    """
    return _ordinal(K, first, link)


@cache
def _ordinal(K: int, first: int, link: str) -> Family:
    below = first - 1

    def draw(key: Array, eta: Array, disp: Array | None) -> Array:
        assert disp is not None
        p = category_probabilities(whole(), eta, disp)
        return first + jax.random.categorical(key, jnp.log(jnp.maximum(p, 1e-300)), axis=-1).astype(eta.dtype)

    def start_extras(y: Array, eta: Array, w: Array) -> Array:
        above = jnp.stack([jnp.sum(w * (y > below + k)) for k in range(1, K)]) / jnp.sum(w)
        T = -QUANTILES[link](jnp.clip(above, LEAST_SHARE, 1.0 - LEAST_SHARE))
        return jnp.log(jnp.maximum(jnp.diff(T), 0.05))

    def whole() -> Family:
        return ordinal(K, first, link)

    mean, variance = _moments(whole, below)
    parts = {
        "logit": (_logit_kernel, _logit_normaliser, _logit_expected),
        "probit": (_probit_kernel, lambda K: no_normaliser, _probit_expected),
    }[link]
    kernel, normaliser, expected = (part(K) for part in parts)
    return Family(
        name="ordinal",
        link=link,
        extras=tuple(Extra(f"width({k})") for k in range(2, K)),
        log_kernel=lambda y, eta, disp: kernel(y - below, eta, disp),
        log_normaliser=lambda y, disp: normaliser(y - below, disp),
        expected=lambda y, x: expected(y - below, x),
        mean=TAILS[link],
        variance=no_normaliser,
        start=lambda y: y - below - 1.5,
        draw=draw,
        mean_given=mean,
        variance_given=variance,
        start_extras=start_extras,
        discrete=True,
        settings=(K, first),
    )
