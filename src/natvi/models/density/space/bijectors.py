"""Constraints of parameters as maps from all real numbers: x = f(y) with log |det df/dy|.

    positive            x = e^y
    lower, upper        x = a + e^y,  x = b - e^y
    interval            x = a + (b - a) / (1 + e^-y)
    simplex             the last axis sums to one: shares of what is left, one after the other; y = 0 gives equal shares
    ordered             the last axis rises: x_1 = y_1, x_k = x_{k-1} + e^{y_k}
    correlation_factor  L with L L' a correlation matrix, from partial correlations tanh y (Lewandowski et al. 2009)
    covariance_factor   L with L L' a covariance matrix: lower triangular, its diagonal e^y

The determinant is that of the free numbers of x: of all but the last share of a simplex, of the entries below the
diagonal of a correlation factor.
"""

from typing import NamedTuple, Protocol, runtime_checkable

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float


@runtime_checkable
class Bijector(Protocol):
    """A constraint on one array of parameters."""

    @property
    def name(self) -> str:
        """What the user calls it, with its limits."""
        ...

    def free_shape(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        """Return the shape of y where x has this shape."""
        ...

    def forward(self, y: Float[Array, "..."]) -> tuple[Float[Array, "..."], Float[Array, ""]]:
        """Return x and log |det dx/dy|."""
        ...

    def inverse(self, x: np.ndarray) -> np.ndarray:
        """Return y, not finite where x does not keep the constraint."""
        ...


class Real(NamedTuple):
    """No constraint."""

    name: str = "real"

    def free_shape(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        """Return the shape of y where x has this shape."""
        return shape

    def forward(self, y: Float[Array, "..."]) -> tuple[Float[Array, "..."], Float[Array, ""]]:
        """Return x and log |det dx/dy|."""
        return y, jnp.zeros((), y.dtype)

    def inverse(self, x: np.ndarray) -> np.ndarray:
        """Return y."""
        return x


class HalfLine(NamedTuple):
    """x = end + sign e^y."""

    name: str
    end: float = 0.0
    sign: float = 1.0

    def free_shape(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        """Return the shape of y where x has this shape."""
        return shape

    def forward(self, y: Float[Array, "..."]) -> tuple[Float[Array, "..."], Float[Array, ""]]:
        """Return x and log |det dx/dy|."""
        return self.end + self.sign * jnp.exp(y), jnp.sum(y)

    def inverse(self, x: np.ndarray) -> np.ndarray:
        """Return y."""
        return np.asarray(np.log(self.sign * (x - self.end)))


class Interval(NamedTuple):
    """x = low + (high - low) sigmoid(y)."""

    name: str
    low: float
    high: float

    def free_shape(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        """Return the shape of y where x has this shape."""
        return shape

    def forward(self, y: Float[Array, "..."]) -> tuple[Float[Array, "..."], Float[Array, ""]]:
        """Return x and log |det dx/dy|."""
        width = self.high - self.low
        slopes = jnp.log(width) - jax.nn.softplus(y) - jax.nn.softplus(-y)
        return self.low + width * jax.nn.sigmoid(y), jnp.sum(slopes)

    def inverse(self, x: np.ndarray) -> np.ndarray:
        """Return y."""
        return np.asarray(np.log(x - self.low) - np.log(self.high - x))


class Simplex(NamedTuple):
    """Shares along the last axis, by breaking a stick."""

    name: str = "simplex"

    def free_shape(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        """Return the shape of y where x has this shape."""
        return (*shape[:-1], shape[-1] - 1)

    def forward(self, y: Float[Array, "*batch k"]) -> tuple[Float[Array, "*batch m"], Float[Array, ""]]:
        """Return x and log |det dx/dy|."""
        shifted = y - jnp.log(jnp.arange(y.shape[-1], 0, -1, dtype=y.dtype))  # y = 0: equal shares
        log_taken, log_left = -jax.nn.softplus(-shifted), -jax.nn.softplus(shifted)
        before = jnp.cumsum(log_left, axis=-1) - log_left  # what is left before each break
        x = jnp.exp(jnp.concatenate([before + log_taken, before[..., -1:] + log_left[..., -1:]], axis=-1))
        return x, jnp.sum(before + log_taken + log_left)

    def inverse(self, x: np.ndarray) -> np.ndarray:
        """Return y."""
        left = np.flip(np.cumsum(np.flip(x, -1), axis=-1), -1)[..., 1:]
        off = np.abs(x.sum(axis=-1, keepdims=True) - 1.0) > 1e-6
        y = np.log(x[..., :-1]) - np.log(left) + np.log(np.arange(x.shape[-1] - 1, 0, -1))
        return np.where(off, np.nan, y)


class Ordered(NamedTuple):
    """Rising numbers along the last axis."""

    name: str = "ordered"

    def free_shape(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        """Return the shape of y where x has this shape."""
        return shape

    def forward(self, y: Float[Array, "*batch k"]) -> tuple[Float[Array, "*batch k"], Float[Array, ""]]:
        """Return x and log |det dx/dy|."""
        steps = jnp.concatenate([y[..., :1], jnp.exp(y[..., 1:])], axis=-1)
        return jnp.cumsum(steps, axis=-1), jnp.sum(y[..., 1:])

    def inverse(self, x: np.ndarray) -> np.ndarray:
        """Return y."""
        return np.concatenate([x[..., :1], np.log(np.diff(x, axis=-1))], axis=-1)


class CorrelationFactor(NamedTuple):
    """The Cholesky factor of a correlation matrix `(k, k)`."""

    name: str = "correlation_factor"

    def free_shape(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        """Return the shape of y where x has this shape."""
        return (shape[-1] * (shape[-1] - 1) // 2,)

    def forward(self, y: Float[Array, " m"]) -> tuple[Float[Array, "k k"], Float[Array, ""]]:
        """Return x and log |det dx/dy|."""
        k = _side(y.shape[0])
        partial = jnp.zeros((k, k), y.dtype).at[np.tril_indices(k, -1)].set(jnp.tanh(y))
        # log sqrt of what is left of each row before every entry
        log_left = 0.5 * jnp.cumsum(jnp.log1p(-(partial**2)), axis=1)
        before = jnp.concatenate([jnp.zeros((k, 1), y.dtype), log_left[:, :-1]], axis=1)
        L = (partial + jnp.eye(k, dtype=y.dtype)) * jnp.exp(before)
        log_slopes = 2.0 * (jnp.log(2.0) - y - jax.nn.softplus(-2.0 * y))  # log(1 - tanh^2 y)
        return jnp.tril(L), jnp.sum(log_slopes) + jnp.sum(before[np.tril_indices(k, -1)])

    def inverse(self, x: np.ndarray) -> np.ndarray:
        """Return y."""
        k = x.shape[-1]
        left = np.sqrt(np.maximum(1.0 - np.concatenate([np.zeros((k, 1)), np.cumsum(x**2, axis=1)[:, :-1]], axis=1), 0))
        below = np.tril_indices(k, -1)
        off = np.any(np.abs(np.sum(np.tril(x) ** 2, axis=1) - 1.0) > 1e-6) or np.any(np.triu(x, 1) != 0)
        return np.full(len(below[0]), np.nan) if off else np.arctanh(x[below] / left[below])


class CovarianceFactor(NamedTuple):
    """The Cholesky factor of a covariance matrix `(k, k)`."""

    name: str = "covariance_factor"

    def free_shape(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        """Return the shape of y where x has this shape."""
        return (shape[-1] * (shape[-1] + 1) // 2,)

    def forward(self, y: Float[Array, " m"]) -> tuple[Float[Array, "k k"], Float[Array, ""]]:
        """Return x and log |det dx/dy|."""
        k = _side(y.shape[0]) - 1
        raw = jnp.zeros((k, k), y.dtype).at[np.tril_indices(k)].set(y)
        logs = jnp.diagonal(raw)
        return jnp.tril(raw, -1) + jnp.diag(jnp.exp(logs)), jnp.sum(logs)

    def inverse(self, x: np.ndarray) -> np.ndarray:
        """Return y."""
        raw = np.tril(x, -1) + np.diag(np.log(np.diagonal(x)))
        return raw[np.tril_indices(x.shape[-1])] if not np.any(np.triu(x, 1) != 0) else np.full(_count(x), np.nan)


def _side(free: int) -> int:
    """Return k with k (k - 1) / 2 free numbers."""
    return round((1 + np.sqrt(1 + 8 * free)) / 2)


def _count(x: np.ndarray) -> int:
    return x.shape[-1] * (x.shape[-1] + 1) // 2


real, positive, simplex, ordered = Real(), HalfLine("positive"), Simplex(), Ordered()
correlation_factor, covariance_factor = CorrelationFactor(), CovarianceFactor()


def lower(end: float) -> HalfLine:
    """Return the constraint x > end."""
    return HalfLine(f"lower({float(end)!r})", float(end), 1.0)


def upper(end: float) -> HalfLine:
    """Return the constraint x < end."""
    return HalfLine(f"upper({float(end)!r})", float(end), -1.0)


def interval(low: float, high: float) -> Interval:
    """Return the constraint low < x < high.

    Example:
        >>> x, log_det = interval(-1.0, 1.0).forward(jnp.zeros(2))
        >>> x.tolist()
        [0.0, 0.0]
    """
    if not low < high:
        raise ValueError(f"an interval needs low < high; got interval({low!r}, {high!r}).")
    return Interval(f"interval({float(low)!r}, {float(high)!r})", float(low), float(high))


BY_NAME: dict[str, Bijector] = {
    found.name: found for found in (real, positive, simplex, ordered, correlation_factor, covariance_factor)
}


def bijector_by_name(name: str) -> Bijector:
    """Return the constraint that has this name, limits included, as a saved fit holds it.

    Example:
        >>> bijector_by_name("interval(0.0, 2.0)").high
        2.0
    """
    if name in BY_NAME:
        return BY_NAME[name]
    kind, _, rest = name.partition("(")
    makers = {"lower": lower, "upper": upper, "interval": interval}
    try:
        return makers[kind](*map(float, rest.removesuffix(")").split(",")))
    except (KeyError, TypeError, ValueError) as error:
        raise ValueError(f"{name!r} is no constraint that this natvi knows") from error
