"""What a row asks of a response distribution: moments of its predictor in, an expectation with derivatives out."""

from collections.abc import Callable
from typing import NamedTuple, Protocol, runtime_checkable

from jaxtyping import Array, Float


class RowExpectation(NamedTuple):
    """E log p of each row and its derivatives in E eta (and in the mean of the dispersion parameter)."""

    value: Float[Array, "*rows"]
    d_eta: Float[Array, "*rows"]
    d_eta_eta: Float[Array, "*rows"]
    d_disp: Float[Array, "*rows"] | None = None
    d_eta_disp: Float[Array, "*rows"] | None = None
    d_disp_disp: Float[Array, "*rows"] | None = None


class PredictorMoments(NamedTuple):
    """Marginal moments of a row's predictor, and of the dispersion parameter where the family has one."""

    mean: Float[Array, "*rows"]
    variance: Float[Array, "*rows"]
    disp_mean: Float[Array, ""] | None = None
    disp_variance: Float[Array, ""] | None = None
    covariance: Float[Array, "*rows"] | None = None


@runtime_checkable
class RowFamily(Protocol):
    """What the rows ask of a response distribution."""

    @property
    def has_dispersion(self) -> bool:
        """Whether there is a dispersion parameter."""
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
