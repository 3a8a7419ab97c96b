"""A fitted log-density: names, tables and draws in the user's space."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from natvi.models.density.space.bijectors import bijector_by_name
from natvi.models.density.space.parameters import Parameters
from natvi.models.density.structures.arrow import Arrow
from natvi.models.regression.tables import gaussian_table, interval_table
from natvi.x64 import float64

ARROW = Arrow._fields[1:]  # the mean is there already


@dataclass(frozen=True, eq=False)
class DensityFit:
    """The posterior of the parameters of a log-density.

    Attributes:
        parameters: What the user reads.
        free: The unconstrained numbers.
        bijectors: Names of the constraints of the leaves; empty where a function of the user's takes their place.
        mean: Of the Gaussian in the free space.
        factor: Its root C; the sds alone for independent coordinates and for an arrow.
        num_points: On which expectations were taken; 0 for noisy steps.
        draws: Draws in the user's space `(s, k)`: the answer itself where the Gaussian was corrected, else what tables
            of constrained parameters are made of; empty where the user reads the free numbers.
        corrected: Whether the draws are the answer.
        notes: What the user should know.
        meaning: The user's function from many free vectors to what is read, where there is one.
        labels: Coordinates and dimensions of the leaves.
        arrow: The Gaussian whose precision lies on an arrow, where that is its structure.
    """

    parameters: Parameters
    free: Parameters
    bijectors: tuple[str, ...]
    mean: np.ndarray
    factor: np.ndarray
    num_points: int
    draws: np.ndarray
    corrected: bool = False
    notes: tuple[str, ...] = ()
    meaning: Callable[[np.ndarray], np.ndarray] | None = None
    labels: tuple[dict[str, list[Any]], dict[str, list[str]]] = ({}, {})
    arrow: Arrow | None = None

    @property
    def headline(self) -> tuple[tuple[str, str], ...]:
        """Label and text of each line that says what was fitted."""
        count = len(self.mean)
        lines = [("model", f"a log-density of {count:,} parameter{'s' if count > 1 else ''}")]
        points = (
            f"expectations over {self.num_points:,} fixed points" if self.num_points else "noisy steps on minibatches"
        )
        lines.append(("means", f"{points}, in double precision"))
        return (*lines, *(("note", note) for note in self.notes))

    @property
    def sds(self) -> np.ndarray:
        """The sd of every free number under the Gaussian."""
        return np.abs(self.factor) if self.factor.ndim == 1 else np.sqrt(np.sum(self.factor**2, axis=1))

    @property
    def is_plain(self) -> bool:
        """Whether the user reads the free numbers themselves."""
        return bool(self.bijectors) and all(name == "real" for name in self.bijectors)

    def tables(self, prob: float) -> dict[str, pd.DataFrame]:
        """Return every parameter."""
        names = self.parameters.entries
        if self.is_plain and not self.corrected:
            return {"parameters": gaussian_table(names, self.mean, self.sds, prob)}
        low, high = np.quantile(self.draws, [0.5 - prob / 2, 0.5 + prob / 2], axis=0)
        columns = (self.draws.mean(axis=0), self.draws.std(axis=0), low, high)
        return {"parameters": interval_table(names, columns, prob)}

    def sample(self, num_samples: int, seed: int, random_effects: bool) -> dict[str, np.ndarray]:
        """Draw the parameters by the names of their leaves, each `(num_samples, *shape)`."""
        rng = np.random.default_rng(seed)
        if self.corrected or (not self.bijectors and self.meaning is None):
            few = num_samples <= len(self.draws)
            return self.parameters.split(self.draws[rng.choice(len(self.draws), num_samples, replace=not few)])
        z = rng.standard_normal((num_samples, len(self.mean)))
        return self.parameters.split(self.read(self.mean + self._spread(z)))

    def _spread(self, z: np.ndarray) -> np.ndarray:
        if self.arrow is not None:
            return self.arrow.spread(z)
        return z * self.factor if self.factor.ndim == 1 else z @ self.factor.T

    def read(self, theta: np.ndarray) -> np.ndarray:
        """Return the user's numbers `(s, k)` at free vectors `(s, d)`."""
        if self.is_plain:
            return theta
        if self.meaning is not None:
            return self.meaning(theta)
        import jax

        parts = np.split(theta, np.cumsum(self.free.sizes)[:-1], axis=1)
        found = []
        with float64():
            for part, shape, name in zip(parts, self.free.shapes, self.bijectors, strict=True):
                forward = bijector_by_name(name).forward
                leaf = jax.vmap(lambda y, forward=forward: forward(y)[0])(part.reshape(len(theta), *shape))
                found.append(np.asarray(leaf).reshape(len(theta), -1))
        return np.concatenate(found, axis=1)

    def constraints(self) -> dict[str, str]:
        """Return the name of every parameter's constraint; empty where a function of the user's takes their place."""
        return dict(zip(self.free.names, self.bijectors, strict=False))

    def dimensions(self) -> tuple[dict[str, list[Any]], dict[str, list[str]]]:
        """Return coordinates and dimensions, where the model has named them."""
        return self.labels

    def store(self) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
        """Return arrays and a JSON document from which the model can be rebuilt; no function is among them."""
        document = {
            "model": "density",
            "leaves": list(self.parameters.names),
            "shapes": [list(shape) for shape in self.parameters.shapes],
            "free_leaves": list(self.free.names),
            "free_shapes": [list(shape) for shape in self.free.shapes],
            "bijectors": list(self.bijectors),
            "corrected": self.corrected,
            "num_points": self.num_points,
            "coords": {name: [_plain(v) for v in values] for name, values in self.labels[0].items()},
            "dims": self.labels[1],
            "notes": list(self.notes),
        }
        arrays = {"mean": self.mean, "factor": self.factor, "read_draws": self.draws}
        if self.arrow is not None:
            arrays |= {f"arrow_{name}": np.asarray(getattr(self.arrow, name)) for name in ARROW}
        return arrays, document

    @classmethod
    def restore(cls, arrays: dict[str, np.ndarray], document: dict[str, Any]) -> "DensityFit":
        """Rebuild the model from its stored form."""
        parameters = Parameters(tuple(document["leaves"]), tuple(map(tuple, document["shapes"])))
        free = Parameters(tuple(document["free_leaves"]), tuple(map(tuple, document["free_shapes"])))
        d, k, bijectors = sum(free.sizes), sum(parameters.sizes), tuple(document["bijectors"])
        draws = arrays["read_draws"]
        if arrays["mean"].shape != (d,) or arrays["factor"].shape not in ((d, d), (d,)):
            raise ValueError(f"the arrays do not hold {d} parameters")
        if draws.ndim != 2 or draws.shape[1] != k:
            raise ValueError(f"the draws do not hold {k} parameters")
        for name in bijectors:
            bijector_by_name(name)
        needs_draws = document["corrected"] or not bijectors or any(name != "real" for name in bijectors)
        if (bijectors and len(bijectors) != len(free.names)) or (needs_draws and not len(draws)):
            raise ValueError("the constraints do not fit the parameters")
        arrow = None
        if "arrow_local" in arrays:
            arrow = Arrow(arrays["mean"], *(arrays[f"arrow_{name}"] for name in ARROW))
            (r, n), g = arrow.at_local.shape, len(arrow.at_shared)
            if arrow.local.shape != (r, r, n) or arrow.cross.shape != (g, r, n) or arrow.layout.dimension != d:
                raise ValueError("the arrow does not fit the parameters")
        return cls(
            *(parameters, free, bijectors, arrays["mean"], arrays["factor"], document["num_points"], draws),
            corrected=document["corrected"],
            notes=tuple(document["notes"]),
            labels=(dict(document["coords"]), dict(document["dims"])),
            arrow=arrow,
        )


def _plain(value: Any) -> Any:
    """Return a coordinate as a JSON document holds it."""
    value = value.item() if isinstance(value, np.generic) else value
    return value if isinstance(value, str | int | float) else str(value)
