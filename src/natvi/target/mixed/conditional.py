"""Exact draws of the random effects given everything else: theta_i | theta_g, y_i, group by group.

Given theta_g the groups are independent, and log p(y_i, theta_i | theta_g) is concave in theta_i. One effect per group
is drawn by rejection below three tangents. For two, the integral over the second is log-concave in the first
(Prekopa), so the first is drawn below three tangents of that integral, which quadrature gives to many digits, then the
second given the first. Gaussian rows make theta_i Gaussian. Whatever the tangents touch, the draws are exact; good
points of contact only make rejections rare. Where rows are not log-concave (`Family.log_concave`), the same densities
are drawn from on a grid around the mode, by interpolation.
"""

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from natvi.linalg import small_blocks
from natvi.target.mixed.grid_draws import draw_on_grid
from natvi.target.mixed.log_concave import draw_log_concave
from natvi.target.mixed.marginal import mixed_parts
from natvi.target.mixed.modes import RowLikelihood, group_modes, is_log_concave
from natvi.target.term import SumOfTerms

MOST_EFFECTS = 2  # per group, unless rows are Gaussian
INNER_NODES = 20
INNER_STEPS = 6
CELLS_AT_ONCE, MOST_AT_ONCE = (
    4096,
    64,
)  # rows times draws worked on together: small models would waste time on very short loops


def can_draw(target: SumOfTerms) -> bool:
    """Whether `draw_conditional` knows how to draw the random effects of this mixed model."""
    likelihood, effects = mixed_parts(target)
    return _is_gaussian(likelihood.family) or effects.r <= MOST_EFFECTS


@jax.jit
def draw_conditional(
    target: SumOfTerms, shared: Float[Array, "s g"], near: Float[Array, "r n"], key: PRNGKeyArray
) -> Float[Array, "s r n"]:
    """Draw the random effects of all groups, once for every draw of theta_g.

    Args:
        target: A mixed model with at most two random effects per group; any number if its rows are Gaussian.
        shared: Draws of theta_g.
        near: A guess of the random effects, e.g. their approximate means; it decides nothing but the time needed.
        key: The source of randomness.

    Returns:
        Exact draws of theta_i given theta_g and y, the groups in the order of the target.
    """
    if not can_draw(target):
        raise ValueError(
            f"{near.shape[0]} random effects per group came; exact conditional draws need at most {MOST_EFFECTS} "
            "unless the response is Gaussian. Use fewer random effects, or draws of the Gaussian approximation."
        )
    likelihood, _ = mixed_parts(target)
    s = shared.shape[0]
    size = int(np.clip(CELLS_AT_ONCE // likelihood.y.size, 1, min(MOST_AT_ONCE, s)))
    # whole batches, the last one filled up: a rest would be a second copy of the program
    short = -s % size
    filled = jnp.concatenate([shared, jnp.broadcast_to(shared[-1], (short, shared.shape[1]))])
    keys = jax.random.split(key, s + short)
    batches = (filled.reshape(-1, size, shared.shape[1]), keys.reshape(-1, size))
    draw = jax.vmap(lambda theta_g, own: draw_given(target, theta_g, near, own))
    return jax.lax.map(lambda batch: draw(*batch), batches).reshape(s + short, *near.shape)[:s]


def draw_given(
    target: SumOfTerms, shared: Float[Array, " g"], near: Float[Array, "r n"], key: PRNGKeyArray
) -> Float[Array, "r n"]:
    """Draw the random effects of all groups given one theta_g."""
    likelihood, effects = mixed_parts(target)
    rows = RowLikelihood(likelihood, shared)
    W = effects.precision_factor(shared)
    mode, root = group_modes(rows, W @ W.T, near)

    # theta = mode + root^-T z: curvature one at the mode, in every direction
    def at(z: Float[Array, "r n"]) -> Float[Array, "r n"]:
        return mode + small_blocks.solve_upper(root, z)

    def log_density(z: Float[Array, "r n"]) -> Float[Array, " n"]:
        theta = at(z)
        return rows.by_group(theta) - 0.5 * jnp.sum((W.T @ theta) ** 2, axis=0)

    if _is_gaussian(likelihood.family):
        return at(jax.random.normal(key, mode.shape))
    draw = draw_log_concave if is_log_concave(likelihood) else draw_on_grid
    if effects.r == 1:
        return at(draw(key, lambda z: log_density(z[None]), mode.shape[1])[None])
    first, second = jax.random.split(key)
    z1 = draw(first, lambda z: _integrate_second(log_density, z)[0], mode.shape[1])
    _, centre, scale = _integrate_second(log_density, z1)
    z2 = draw(second, lambda z: log_density(jnp.stack([z1, centre + scale * z])), mode.shape[1])
    return at(jnp.stack([z1, centre + scale * z2]))


def _is_gaussian(family: object) -> bool:
    return bool(getattr(family, "quadratic", False))


def _integrate_second(
    log_density: Callable[[Float[Array, "2 n"]], Float[Array, " n"]], z1: Float[Array, " n"]
) -> tuple[Float[Array, " n"], Float[Array, " n"], Float[Array, " n"]]:
    """Return log of the integral over z2 of the density at (z1, z2), and the mode and scale of z2 given z1."""
    fixed = jax.lax.stop_gradient(z1)

    def slope(z2: Float[Array, " n"]) -> Float[Array, " n"]:
        return jax.jvp(lambda z: log_density(jnp.stack([fixed, z])), (z2,), (jnp.ones_like(z2),))[1]

    def newton(_: Array, z2: Float[Array, " n"]) -> Float[Array, " n"]:
        gradient, bend = jax.jvp(slope, (z2,), (jnp.ones_like(z2),))
        return z2 + jnp.clip(gradient / jnp.maximum(-bend, 1e-3), -2.0, 2.0)

    centre = jax.lax.fori_loop(0, INNER_STEPS, newton, jnp.zeros_like(fixed))
    bend = jax.jvp(slope, (centre,), (jnp.ones_like(centre),))[1]
    centre, scale = jax.lax.stop_gradient((centre, 1.0 / jnp.sqrt(jnp.maximum(-bend, 1e-3))))
    x, w = np.polynomial.hermite_e.hermegauss(INNER_NODES)

    def add(total: Float[Array, " n"], node: tuple[Array, Array]) -> tuple[Float[Array, " n"], None]:
        value = log_density(jnp.stack([z1, centre + scale * node[0]]))
        return jnp.logaddexp(total, node[1] + value), None

    start = jnp.full_like(z1, -jnp.inf)
    total, _ = jax.lax.scan(add, start, (jnp.asarray(x), jnp.asarray(np.log(w) + 0.5 * x**2)))
    return total + jnp.log(scale), centre, scale
