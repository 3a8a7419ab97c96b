"""A fitted log-density: names, tables and draws around its Gaussian."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from natvi.models.density.parameters import Parameters
from natvi.models.regression.tables import gaussian_table


@dataclass(frozen=True, eq=False)
class DensityFit:
    """The posterior N(mean, C C') of the parameters of a log-density."""

    parameters: Parameters
    mean: np.ndarray
    factor: np.ndarray
    num_points: int
    notes: tuple[str, ...] = ()

    @property
    def headline(self) -> tuple[tuple[str, str], ...]:
        """Label and text of each line that says what was fitted."""
        count = len(self.mean)
        lines = [("model", f"a log-density of {count:,} parameter{'s' if count > 1 else ''}")]
        lines.append(("means", f"expectations over {self.num_points:,} fixed points; the bound is exact for these"))
        return (*lines, *(("note", note) for note in self.notes))

    @property
    def sds(self) -> np.ndarray:
        """The sd of every parameter."""
        return np.sqrt(np.sum(self.factor**2, axis=1))

    def tables(self, prob: float) -> dict[str, pd.DataFrame]:
        """Return every parameter."""
        return {"Parameters": gaussian_table(self.parameters.entries, self.mean, self.sds, prob)}

    def random_effects(self, prob: float) -> pd.DataFrame:
        """Say that there are none."""
        raise ValueError("A log-density has no random effects that natvi knows of: its parameters are in summary().")

    def sample(self, num_samples: int, seed: int, random_effects: bool) -> dict[str, np.ndarray]:
        """Draw the parameters by the names of their leaves, each `(num_samples, *shape)`."""
        z = np.random.default_rng(seed).standard_normal((num_samples, len(self.mean)))
        return self.parameters.split(self.mean + z @ self.factor.T)

    def dimensions(self) -> tuple[dict[str, list[Any]], dict[str, list[str]]]:
        """Leave coordinates to ArviZ."""
        return {}, {}

    def predict(self, new_data: Any, kind: str, groups: str, prob: float) -> pd.DataFrame:
        """Say that a log-density alone does not predict."""
        raise ValueError("A log-density does not say how to predict: apply your own function to sample().")

    def store(self) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
        """Return arrays and a JSON document from which the model can be rebuilt; the function is not among them."""
        document = {
            "model": "density",
            "leaves": list(self.parameters.names),
            "shapes": [list(shape) for shape in self.parameters.shapes],
            "num_points": self.num_points,
            "notes": list(self.notes),
        }
        return {"mean": self.mean, "factor": self.factor}, document

    @classmethod
    def restore(cls, arrays: dict[str, np.ndarray], document: dict[str, Any]) -> "DensityFit":
        """Rebuild the model from its stored form."""
        parameters = Parameters(tuple(document["leaves"]), tuple(tuple(shape) for shape in document["shapes"]))
        d = len(parameters.entries)
        if arrays["mean"].shape != (d,) or arrays["factor"].shape != (d, d):
            raise ValueError(f"the arrays do not hold {d} parameters")
        return cls(parameters, arrays["mean"], arrays["factor"], document["num_points"], tuple(document["notes"]))
