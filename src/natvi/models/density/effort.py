"""What a fit will cost, estimated before it begins, and said where it is much."""

import time
import warnings

import numpy as np
from jaxtyping import Float

from natvi.models.density.evaluator import BATCH, LooksAtPoints
from natvi.models.density.moving import CHAINS, FEWEST_CHAINS
from natvi.models.density.structures.choice import Structure

LOOKS = {"climb": 60, "polish": 30, "response": 33}  # at sets of points, in fits of many kinds
STEPS_OF_CHAINS = 40
COPIES = 6  # of the largest set of points: z, theta, gradients, whitened ones, what is read, a spare
LONG, LARGE = 120.0, 2e9  # seconds and bytes from which the user is told


def warn_of_effort(
    look: LooksAtPoints, start: Float[np.ndarray, " d"], structure: Structure, seed: int
) -> tuple[float, float]:
    """Warn of a fit that will take long or much memory; return the estimated seconds and bytes."""
    d = len(start)
    theta = np.repeat(start[None], BATCH, axis=0)
    began = time.perf_counter()
    look(theta)
    one = (time.perf_counter() - began) / BATCH
    sizes = {kind: len(structure.points(kind, d, seed)) for kind in LOOKS}
    chains = next((found for limit, found in CHAINS.items() if d <= limit), FEWEST_CHAINS)
    points = sum(LOOKS[kind] * size for kind, size in sizes.items()) + STEPS_OF_CHAINS * chains
    seconds, memory = one * points, 8.0 * COPIES * max(sizes.values()) * d
    if seconds > LONG or memory > LARGE:
        warnings.warn(
            f"this fit will take about {seconds / 60:,.1f} minutes and {memory / 1e9:.1g} GB beside the log-density's "
            f"own: it looks some {points:,} times at a gradient, each of {1e3 * one:.3g} ms, in {d:,} dimensions. "
            "progress=True shows how far it is; Ctrl-C keeps what it has.",
            stacklevel=3,
        )
    return seconds, memory
