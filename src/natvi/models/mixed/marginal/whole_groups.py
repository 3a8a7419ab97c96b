"""The likelihood of whole groups, their random effects integrated out: what leaving a group out needs.

Given draws of its own effects a group predicts itself too well, and the weights 1 / p(y_i | theta_i) that would take
it out again have no variance. With the effects integrated out, log p(y_i | theta_g) depends on theta_g alone.
"""

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from natvi.linalg import GroupedRows, layout_rows
from natvi.models.mixed.variance import SharedCoordinates
from natvi.models.regression.criticism import Drawn
from natvi.models.regression.questions.leave_groups import sum_blocks
from natvi.models.regression.rows import Rows
from natvi.run.compiled_code import thorough_jit
from natvi.target import LikelihoodRows, RandomEffectsPrior, SumOfTerms
from natvi.target.mixed.marginal import can_integrate, group_log_likelihoods
from natvi.x64 import float64

AT_ONCE = 16  # draws per compiled call


def whole_groups(
    fit: SharedCoordinates, rows: Rows, drawn: Drawn, codes: np.ndarray, num_blocks: int
) -> Float[np.ndarray, "s b"]:
    """Return the log-likelihood of every block of rows; a block holds whole groups of the model."""
    assert rows.codes is not None and rows.Z is not None
    labels, group = np.unique(rows.codes, return_inverse=True)
    block = np.zeros(len(labels), dtype=int)
    block[group] = codes
    if np.any(block[group] != codes):
        raise ValueError(
            f"by cuts through groups of {fit.group_name}: its rows share a random effect, so that those left in would "
            f"tell about those left out. Name {fit.group_name!r}, or a column that is constant within it."
        )
    each = group_values(fit, rows, drawn.shared, group, len(labels))
    if rows.constants is not None:
        each += np.bincount(group, rows.constants, len(labels))
    return sum_blocks(each, block, num_blocks)


def group_values(
    fit: SharedCoordinates, rows: Rows, shared: Float[np.ndarray, "s g"], group: np.ndarray, num_groups: int
) -> Float[np.ndarray, "s n"]:
    """Return log p(y_i | theta_g) for every draw and group, but for the constants of the rows."""
    layout = layout_rows(group, num_groups, fill_up=True)
    assert rows.Z is not None

    def place(values: np.ndarray) -> Array:
        return jnp.asarray(layout.place(values))

    with float64():
        offset = np.zeros(len(rows.y)) if rows.offset is None else rows.offset
        filled = jnp.asarray(layout.place(np.ones(len(rows.y), dtype=bool), fill=False))
        design = GroupedRows(
            place(rows.X.T), place(rows.Z.T), place(offset), filled, jnp.asarray(layout.extra), layout.num_simple
        )
        weight = None if rows.weight is None else place(rows.weight)
        effects = RandomEffectsPrior(rows.Z.shape[1], fit.omega_start, fit.correlated)
        target = SumOfTerms((LikelihoodRows(design, place(rows.y), fit.family, weight=weight), effects), ())
        if not can_integrate(target):
            raise ValueError(
                f"{rows.Z.shape[1]} random effects of a group cannot be integrated out; up to 3 can. Leave groups out "
                "by hand: update(data=...) without one, then log_likelihood(data=...)."
            )
        near = jnp.zeros((rows.Z.shape[1], layout.num_places))
        full = np.concatenate([shared, np.repeat(shared[-1:], -len(shared) % AT_ONCE, axis=0)])
        parts = [
            np.asarray(_values(target, jnp.asarray(full[at : at + AT_ONCE]), near))
            for at in range(0, len(full), AT_ONCE)
        ]
    return np.concatenate(parts)[: len(shared)][:, layout.place_of_group]


@thorough_jit
def _values(target: SumOfTerms, shared: Float[Array, "s g"], near: Float[Array, "r n"]) -> Float[Array, "s n"]:
    return jax.vmap(lambda point: group_log_likelihoods(target, point, near))(shared)
