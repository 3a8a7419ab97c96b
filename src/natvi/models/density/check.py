"""Hold a Gaussian against the density by weighted draws; `moving.py` has the short chains where these leave doubt."""

from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Bool, Float

from natvi.judge.proposals import draw_pairs, together
from natvi.judge.shape import Shape, weigh
from natvi.models.density.evaluator import LooksAtPoints

FIRST_DRAWS, MOST_DRAWS = 512, 2048
HOPELESS = 0.1  # share of the draws that are effective, below which more of them would not help


class Weighed(NamedTuple):
    """A Gaussian held against the density by weighted draws.

    Attributes:
        shape: What was found; None where the density is nowhere finite.
        theta: The draws.
        weights: Their weights.
    """

    shape: Shape | None
    theta: np.ndarray
    weights: np.ndarray

    @property
    def promise(self) -> float:
        """The share of the draws that are effective."""
        return 0.0 if self.shape is None else self.shape.effective / self.shape.num_draws

    @property
    def hopeless(self) -> bool:
        """Whether the dimensions are too many for weights."""
        return self.promise < HOPELESS


def weigh_gaussian(
    evaluator: LooksAtPoints,
    gaussian: Any,
    B: Float[np.ndarray, "k d"],
    varies: Bool[np.ndarray, " k"],
    rng: np.random.Generator,
) -> Weighed:
    """Draw from the Gaussian and around it until it is clear whether it is right, at most some thousand times.

    Args:
        evaluator: The log-density.
        gaussian: With a full covariance.
        B: For everything read, the combination of whitened coordinates with which it moves most.
        varies: What of it is no constant.
        rng: For the draws.
    """
    d, B = len(gaussian.mean), B[varies]
    B = B / np.maximum(np.linalg.norm(B, axis=1, keepdims=True), 1e-300)
    z: list[list[np.ndarray]] = [[], []]
    seen: list[list[Any]] = [[], [], [], []]  # narrow, wide, and their mirror images
    size = FIRST_DRAWS // 4
    while True:
        for kind in range(2):
            new = draw_pairs(size, d, rng, wide=bool(kind))
            z[kind].append(new)
            for sign, place in ((1.0, kind), (-1.0, kind + 2)):
                seen[place].append(evaluator(gaussian.at(sign * new)))
        points = together(*(np.concatenate(part) for part in z))
        values = np.concatenate([one.values for part in seen for one in part])
        read = np.concatenate([one.read[:, varies] for part in seen for one in part])
        shape = weigh(values, points, gaussian.mean, gaussian.root, B, lambda _, read=read: read)
        total = len(values)
        done = shape is None or shape.clearly_off or (shape.reliable and shape.clearly_right)
        hopeless = shape is not None and shape.effective < HOPELESS * total
        if done or hopeless or total >= MOST_DRAWS:
            break
        size = (min(4 * total, MOST_DRAWS) - total) // 4
    if shape is None:
        return Weighed(None, gaussian.at(points.z), np.full(total, 1.0 / total))
    return Weighed(shape, shape.draws, shape.weights)
