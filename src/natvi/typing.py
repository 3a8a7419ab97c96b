"""Shapes and protocols shared by all rooms."""

from typing import Any, Protocol, TypeVar, runtime_checkable

from jaxtyping import Array, Float

Vector = Any  # theta in the form its structure works with: a flat array `(d,)`, or an ArrowVector
Hessian = Any  # a symmetric matrix on a structure's pattern

Self = TypeVar("Self", bound="Factor")


@runtime_checkable
class Factor(Protocol):
    """A lower triangular matrix F on a pattern that contains the diagonal and is closed under products."""

    @property
    def num_entries(self) -> int:
        """The number of free entries."""
        ...

    def product(self, x: Vector) -> Vector:
        """Return `F x`."""
        ...

    def solve(self, b: Vector) -> Vector:
        """Return `F^-1 b`."""
        ...

    def solve_transposed(self, b: Vector) -> Vector:
        """Return `F^-T b`."""
        ...

    def transposed_product(self, x: Vector) -> Vector:
        """Return `F' x`."""
        ...

    def log_determinant(self) -> Float[Array, ""]:
        """Return `log |det F|`."""
        ...

    def diagonal(self) -> Vector:
        """Return the diagonal."""
        ...

    def with_diagonal(self: Self, values: Vector) -> Self:
        """Return the factor with another diagonal."""
        ...

    def outer(self: Self, a: Vector, b: Vector) -> Self:
        """Return `a b'` on the pattern."""
        ...

    def half_transposed_product(self: Self, G: Self) -> Self:
        """Return half(F' G), the lower triangle on the pattern with the diagonal halved."""
        ...

    def multiply(self: Self, H: Self) -> Self:
        """Return `F H`."""
        ...


@runtime_checkable
class Target(Protocol):
    """A log-density, normalised or not; a pytree, so that compiled code is shared between data sets."""

    def value(self, theta: Vector) -> Float[Array, ""]:
        """Return the log-density at one point."""
        ...


@runtime_checkable
class Gaussian(Protocol):
    """A Gaussian by its mean and a factor of its covariance or precision."""

    @property
    def mean(self) -> Vector:
        """The mean."""
        ...

    @property
    def factor(self) -> Factor:
        """The factor, C or T."""
        ...

    def push(self, z: Vector) -> Vector:
        """Return theta from standard normals."""
        ...

    def score(self, z: Vector) -> Vector:
        """Return grad log q at push(z)."""
        ...

    def log_prob(self, theta: Vector) -> Float[Array, ""]:
        """Return log q(theta)."""
        ...

    def log_prob_at(self, z: Vector) -> Float[Array, ""]:
        """Return log q at push(z), which needs no solve."""
        ...

    def covariance_product(self, x: Vector) -> Vector:
        """Return Sigma x."""
        ...

    def first_order(self, z: Vector, grad: Vector) -> Any:
        """Return the factor gradient from a first derivative (Theorem 2)."""
        ...

    def second_order(self, hess: Hessian) -> Any:
        """Return the factor gradient from a second derivative (Theorem 2)."""
        ...

    def entropy_gradient(self) -> Any:
        """Return the gradient of the entropy in the factor."""
        ...
