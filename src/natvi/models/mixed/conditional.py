"""The random effects of a fitted mixed model, drawn exactly given the shared coordinates.

The draws need the rows of the data, so a fit that offers them keeps its target, also in the file it is saved to.
"""

from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from natvi.families.table import Family
from natvi.linalg import GroupedRows
from natvi.models.mixed.filling import filled_points
from natvi.models.mixed.marginal.density import FEW_CELLS
from natvi.run.compiled_code import quick_jit, thorough_jit
from natvi.target import LikelihoodRows, RandomEffectsPrior, SumOfTerms
from natvi.target.mixed.conditional import draw_conditional
from natvi.target.mixed.marginal import mixed_parts
from natvi.x64 import float64, to_host

MOST_AT_ONCE, CELLS_AT_ONCE = 64, 2_000_000  # draws, and draws times effects, per compiled call


@dataclass(frozen=True, eq=False)
class ConditionalSampler:
    """Draws theta_i | theta_g, y for all groups, in the order of the data.

    Attributes:
        target: The mixed model, arrays on the host; terms of theta_g alone are not needed.
        near: A guess of the random effects, in the order of the target.
        place: Where each group of the data stands in the target, which may have empty places too.
    """

    target: SumOfTerms
    near: np.ndarray
    place: np.ndarray

    @classmethod
    def of(cls, target: SumOfTerms, near: np.ndarray, place: np.ndarray) -> "ConditionalSampler":
        """Keep what is needed of a target."""
        with float64():
            lean = to_host(SumOfTerms(target.grouped, ()))
        return cls(lean, np.where(np.isfinite(near), near, 0.0), place)

    def draw(self, shared: Float[np.ndarray, "s g"], seed: int) -> Float[np.ndarray, "s r n"]:
        """Draw the random effects once for every row of `shared`, in batches of one size."""
        (r, n), s = self.near.shape, len(shared)
        shared = filled_points(self.target, shared)
        size = 1 << int(np.log2(np.clip(CELLS_AT_ONCE / (r * n), 1, MOST_AT_ONCE)))
        filled = np.concatenate([shared, np.repeat(shared[-1:], -s % size, axis=0)])
        found = np.empty((s, r, len(self.place)))
        with float64():
            target, near = jax.device_put((self.target, self.near))
            draw = _quick_draws if mixed_parts(self.target)[0].y.size <= FEW_CELLS else _draws
            for at in range(0, s, size):
                part = draw(target, filled[at : at + size], near, np.int64(seed), np.int64(at // size))
                found[at : at + size] = np.asarray(part)[: s - at][..., self.place]
        return found

    def store(self) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
        """Return arrays and a JSON document from which the sampler can be rebuilt."""
        likelihood, _ = mixed_parts(self.target)
        design = likelihood.design
        arrays = {
            "rows_X": design.X,
            "rows_Z": design.Z,
            "rows_offset": design.offset,
            "rows_filled": design.filled,
            "rows_extra": design.extra,
            "rows_y": likelihood.y,
            "rows_near": self.near,
            "rows_place": self.place,
        }
        if likelihood.weight is not None:
            arrays["rows_weight"] = likelihood.weight
        return {name: np.asarray(array) for name, array in arrays.items()}, {"num_simple": design.num_simple}

    @classmethod
    def restore(
        cls, arrays: dict[str, np.ndarray], document: dict[str, Any], family: Family, correlated: bool
    ) -> "ConditionalSampler":
        """Rebuild the sampler from its stored form."""
        with float64():
            X, Z, offset, filled, extra, y = (
                jnp.asarray(arrays[f"rows_{name}"]) for name in ("X", "Z", "offset", "filled", "extra", "y")
            )
            weight = jnp.asarray(arrays["rows_weight"]) if "rows_weight" in arrays else None
            design = GroupedRows(X, Z, offset, filled, extra, num_simple=int(document["num_simple"]))
            rows = LikelihoodRows(design, y, family, weight=weight)
            effects = RandomEffectsPrior(Z.shape[0], X.shape[0] + family.num_extras, correlated)
            target = to_host(SumOfTerms((rows, effects), ()))
        (r, n), place = arrays["rows_near"].shape, arrays["rows_place"]
        unique = np.unique(place)
        within = len(unique) == len(place) and np.all((unique >= 0) & (unique < n))
        if r != Z.shape[0] or not within or Z.shape[-1] - len(extra) != n:
            raise ValueError("the stored rows do not fit together")
        return cls(target, arrays["rows_near"], place)


def _piece(
    target: SumOfTerms, shared: Float[Array, "s g"], near: Float[Array, "r n"], seed: Array, piece: Array
) -> Float[Array, "s r n"]:
    return draw_conditional(target, shared, near, jax.random.fold_in(jax.random.key(seed), piece))


_draws, _quick_draws = thorough_jit(_piece), quick_jit(_piece)
