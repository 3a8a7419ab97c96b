"""Draws from many densities of one variable at once, by the inverse of their distribution functions on a grid."""

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

REACH, POINTS = 10.0, 241  # around the mode, in its widths


def draw_on_grid(
    key: PRNGKeyArray, log_density: Callable[[Float[Array, " n"]], Float[Array, " n"]], n: int
) -> Float[Array, " n"]:
    """Draw once from each of n densities, taken as straight between the points of a grid.

    Args:
        key: The source of randomness.
        log_density: Takes one point per density and gives the logarithms, up to constants; their mode is near zero and
            their width about one.
        n: The number of densities.

    Returns:
        One draw from each.
    """
    grid = jnp.linspace(-REACH, REACH, POINTS)
    values = jax.lax.map(lambda z: log_density(jnp.full(n, z)), grid)
    density = jnp.exp(values - jnp.max(values, axis=0))
    pieces = 0.5 * (density[1:] + density[:-1])
    reached = jnp.cumsum(pieces, axis=0)
    u = jax.random.uniform(key, (n,)) * reached[-1]
    at = jnp.clip(jnp.sum(reached < u, axis=0), 0, POINTS - 2)
    column = jnp.arange(n)
    left, right, mass = density[at, column], density[at + 1, column], pieces[at, column]
    rest = jnp.clip((u - (reached[at, column] - mass)) / jnp.maximum(mass, 1e-300), 0.0, 1.0)
    # the share t of the piece with (left t + (right - left) t^2 / 2) = rest * mass
    root = jnp.sqrt(jnp.maximum(left**2 + (right - left) * 2.0 * rest * mass, 0.0))
    t = 2.0 * rest * mass / jnp.maximum(left + root, 1e-300)
    return grid[at] + jnp.clip(t, 0.0, 1.0) * (grid[1] - grid[0])
