"""The one currency of the ascent: an expectation with its derivatives, from wherever it comes."""

from typing import NamedTuple

from jaxtyping import Array, Float

from natvi.typing import Hessian, Vector


class Expected(NamedTuple):
    """E f under a Gaussian with E grad f and E hess f, the latter on the structure's pattern.

    They are the first and second derivative of E f in the mean (Bonnet's and Price's theorems). f is a log-density, one
    term of it, or with the entropy added to `value` the lower bound.
    """

    value: Float[Array, ""]
    grad: Vector
    hess: Hessian
