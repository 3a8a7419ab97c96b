"""What the deterministic ascent needs of a model and its structure: one map, and how far a point moves under it.

A system lays its parameters into two arrays, per group and shared, and knows the way from there to a Gaussian. All that
depends on a pattern, or on where expectations come from, is behind `evaluate`.
"""

from typing import Any, ClassVar, NamedTuple, Protocol, runtime_checkable

from jaxtyping import Array, Float


class Packed(NamedTuple):
    """Several objects in two arrays, per group and shared: few arrays make few kernels to compile."""

    local: Float[Array, "*past m n"]
    shared: Float[Array, "*past k"]


class Evaluated(NamedTuple):
    """What a system says at a point.

    Attributes:
        x: The point, or a better one that was cheap to find.
        G: The full natural-gradient step from it.
        residual: That step in units of posterior sds.
        bound: The lower bound at x; not finite where there is no Gaussian.
    """

    x: Packed
    G: Packed
    residual: Packed
    bound: Float[Array, ""]


@runtime_checkable
class System(Protocol):
    """A target with a structure, ready for the ascent.

    Attributes:
        memory: How many past steps the mixing remembers.
        whole_residual: Whether the residual holds the whole step, so that half its square is the rise that is left.
    """

    memory: ClassVar[int]
    whole_residual: ClassVar[bool]

    @property
    def compiles_quickly(self) -> bool:
        """Whether its program is better compiled quickly than run quickly."""
        ...

    def start(self, start: Any) -> Packed:
        """Return the first point, from what the model starts with."""
        ...

    def evaluate(self, x: Packed) -> Evaluated:
        """Return x, G(x), the residual and the bound."""
        ...

    def gaussian(self, x: Packed) -> Any:
        """Return the Gaussian at x."""
        ...
