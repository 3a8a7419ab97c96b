"""Whether a density falls off fast enough for sds to exist, asked far away from where its mass is.

Where log p falls like -(nu + 1) log r along one coordinate, or like -(nu + d) log r in all directions at once, the tail
is that of a t distribution with nu degrees of freedom: no sd exists for nu up to 2, and no density for nu up to 0. The
radial derivative -x'grad log p tells nu + 1, or nu + d; it grows without end where tails are lighter than any power.
Draws that are moved near the middle do not see this.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
from jaxtyping import Float

from natvi.judge.trust import CARE, REFUSE, Trust

FAR = 40.0  # sds, and as many times sqrt(d) sds in all directions at once
DIRECTIONS = 8  # and their mirror images
MOST_ALONE = 300  # dimensions, in which every coordinate is moved alone
NO_SD, IMPROPER = 2.2, 0.05  # degrees of freedom


def judge_tail_powers(
    look: Callable[[Float[np.ndarray, "s d"]], Any], gaussian: Any, names: list[str], rng: np.random.Generator
) -> tuple[Trust, ...]:
    """Say where a density falls off so slowly that an sd, or the density, does not exist.

    Args:
        look: From points to what has their gradients.
        gaussian: Around the mass.
        names: Of the coordinates.
        rng: For directions.
    """
    d, sds = len(gaussian.mean), gaussian.sds
    z = rng.standard_normal((DIRECTIONS, d))
    around = gaussian.spread(FAR * np.sqrt(d) * z / np.linalg.norm(z, axis=1, keepdims=True))
    away = np.concatenate([around, -around])
    with np.errstate(all="ignore"):
        everywhere = -np.sum(away * _slopes(look, gaussian.mean + away), axis=1) - d
        alone = d <= MOST_ALONE
        sides = (
            [_along(look, gaussian.mean, sign * FAR * sds) for sign in (1.0, -1.0)] if alone else [np.full(d, np.inf)]
        )
    everywhere = np.where(np.isnan(everywhere), np.inf, everywhere)
    along = np.where(np.isnan(sides), np.inf, sides).min(axis=0) - 1.0
    # in all directions alike: a wall on one side, or one direction that is no tail, is no power law
    least, worst = float(np.median(everywhere)), int(np.argmin(along))
    where = names[worst] if along[worst] <= least else "all parameters at once"
    power = min(float(along[worst]), least)
    if power > NO_SD:
        return ()
    number = (("degrees of freedom of the tail", power),)
    if power <= IMPROPER:
        text = f"the density does not fall off along {where}, or too slowly to be one: give a proper prior"
        return (Trust(REFUSE, (text,), number),)
    text = (
        f"the tails along {where} fall off like those of a t distribution with {max(power, 0.0):.1f} degrees of "
        "freedom: sds hardly exist, and quantiles are to be read in their place; a narrower prior would end the tails"
    )
    return (Trust(CARE, (text,), number),)


def _along(look: Callable[..., Any], mean: np.ndarray, steps: np.ndarray) -> np.ndarray:
    """Return -x_j times the slope in x_j, each coordinate moved alone."""
    found = np.empty(len(mean))
    for first in range(0, len(mean), 128):
        at = np.arange(first, min(first + 128, len(mean)))
        theta = np.repeat(mean[None], len(at), axis=0)
        theta[np.arange(len(at)), at] += steps[at]
        found[at] = -steps[at] * _slopes(look, theta)[np.arange(len(at)), at]
    return found


def _slopes(look: Callable[..., Any], theta: np.ndarray) -> np.ndarray:
    """Return gradients; NaN beyond a wall or the range of numbers, where nothing is a tail."""
    seen = look(theta)
    sound = np.isfinite(seen.values)[:, None] & np.isfinite(seen.gradients)
    return np.where(sound, seen.gradients, np.nan)
