"""What a row asks of a response distribution: moments of its predictor in, an expectation with derivatives out."""

from collections.abc import Callable
from typing import Any, NamedTuple, Protocol, runtime_checkable

from jaxtyping import Array, Float


class RowExpectation(NamedTuple):
    """E log p of each row and its derivatives in E eta, and in the means of the dispersion's coordinates.

    A dispersion of several coordinates has axes of its own before those of the rows.
    """

    value: Float[Array, "*rows"]
    d_eta: Float[Array, "*rows"]
    d_eta_eta: Float[Array, "*rows"]
    d_disp: Float[Array, "*q_rows"] | None = None
    d_eta_disp: Float[Array, "*q_rows"] | None = None
    d_disp_disp: Float[Array, "*qq_rows"] | None = None


class PredictorMoments(NamedTuple):
    """Marginal moments of a row's predictor, and of the dispersion where the family has one.

    Of several coordinates `disp_variance` is their covariance matrix, and `covariance` has an axis before the rows'.
    """

    mean: Float[Array, "*rows"]
    variance: Float[Array, "*rows"]
    disp_mean: Float[Array, "*q"] | None = None
    disp_variance: Float[Array, "*qq"] | None = None
    covariance: Float[Array, "*q_rows"] | None = None


@runtime_checkable
class RowFamily(Protocol):
    """What the rows ask of a response distribution."""

    @property
    def has_dispersion(self) -> bool:
        """Whether there is a dispersion parameter."""
        ...

    @property
    def num_extras(self) -> int:
        """How many coordinates it has."""
        ...

    @property
    def log_density(self) -> Callable[..., Float[Array, "..."]]:
        """The function (y, eta, dispersion or None) -> log p of every row, kernel and normaliser."""
        ...

    @property
    def log_kernel(self) -> Callable[..., Float[Array, "*rows"]]:
        """The function (y, eta, dispersion or None) -> what of log p depends on eta."""
        ...

    @property
    def log_normaliser(self) -> Callable[..., Float[Array, "*rows"]]:
        """The function (y, dispersion or None) -> what of log p does not."""
        ...

    @property
    def start(self) -> Callable[..., Float[Array, "*rows"]]:
        """The function y -> a rough predictor of every row, to start from."""
        ...

    @property
    def expected(self) -> Callable[..., RowExpectation]:
        """The function (y, PredictorMoments) -> E log p of every row with its derivatives."""
        ...


def take_extras(family: RowFamily, shared: Any, p: int) -> Any:
    """Return the dispersion as the family's functions take it, from coordinates that begin with p coefficients.

    The coordinates run along the first axis of an array of either kind.

    Example:
        >>> import jax.numpy as jnp
        >>> from natvi.families.table import FAMILIES
        >>> float(take_extras(FAMILIES["gaussian"], jnp.array([1.0, 2.0, 3.0]), 1))
        2.0
    """
    q = family.num_extras
    return None if q == 0 else shared[p] if q == 1 else shared[p : p + q]
