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

    @property
    def in_small_blocks(self) -> bool:
        """Whether each entry meets few others in products and solves."""
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

    def multiply_half_outer(self: Self, u: Vector, z: Vector) -> Self:
        """Return `F half(u z')`; `natvi.linalg.half_outer` has a default."""
        ...

    def row_norms(self) -> Vector:
        """Return the norm of every row: the marginal sds where F is C."""
        ...

    def inverse_column_norms(self) -> Vector:
        """Return the norm of every column of `F^-1`: the marginal sds where F is T."""
        ...

    def restrict(self, matrix: Any) -> Hessian:
        """Return a symmetric matrix on the pattern, from one that may be larger or not yet formed."""
        ...

    def gram(self, rows: Any) -> Hessian:
        """Return `sum_i a_i a_i'` over rows a_i on the pattern."""
        ...

    def add_diagonal(self, matrix: Hessian, amounts: Vector) -> Hessian:
        """Add a diagonal matrix to a symmetric one on the pattern."""
        ...

    def square(self) -> Hessian:
        """Return `F F'`, the precision where F is T; where F is C, the Gaussian asks for `inverse_square`."""
        ...

    def root_of(self: Self, matrix: Hessian) -> Self:
        """Return the F with `F F'` a given matrix; where F is C, the Gaussian asks for `inverse_root_of`."""
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

    def whiten(self, grad: Vector) -> Vector:
        """Return the gradient in z of a function of theta."""
        ...

    def unwhiten(self, white: Vector) -> Vector:
        """Return the direction in theta that belongs to one in z."""
        ...

    def natural_outer(self, white: Vector, z: Vector) -> Any:
        """Return the natural direction of the factor from one draw's whitened gradient."""
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
