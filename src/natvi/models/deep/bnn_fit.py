"""A net with Gaussian weights: predictions that know what the net does not."""

from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd

from natvi.metrics import accuracy, calibration_error
from natvi.models.deep.likelihoods import check_response
from natvi.models.deep.net_rows import NetRows
from natvi.models.deep.predictive import Sums, entropy, over_draws, weight_draws
from natvi.models.regression.tables import interval_names
from natvi.run.settings import check_count
from natvi.show.plots import validation_picture
from natvi.special import ndtri
from natvi.x64 import float32

WEIGHTS = ("posterior", "mean", "draw")


@dataclass(frozen=True, eq=False)
class BnnFit:
    """Independent Gaussians over the parameters of a net, and the predictive they make.

    Attributes:
        net: The function and its likelihood.
        mean: Of every parameter, flat.
        sds: Likewise.
        columns: The net's outputs.
        example_shape: The shape of one example.
        num_rows: Of the training data.
        prior_sd: Of every parameter.
        validation: Log-likelihood of the validation set after every epoch.
        notes: Remarks for the summary.
    """

    net: NetRows
    mean: np.ndarray
    sds: np.ndarray
    columns: int
    example_shape: tuple[int, ...]
    num_rows: int
    prior_sd: float
    validation: np.ndarray
    notes: tuple[str, ...] = ()

    @property
    def headline(self) -> tuple[tuple[str, str], ...]:
        """Label and text of each line that says what was fitted."""
        lines = [
            ("model", f"a net of {len(self.mean):,} parameters, {self.net.likelihood.name} response"),
            ("data", f"{self.num_rows:,} examples of shape {self.example_shape}"),
            ("prior", f"N(0, {self.prior_sd:g}²) on every parameter"),
        ]
        if np.isfinite(self.validation).any():
            last = self.validation[np.isfinite(self.validation)]
            lines.append(
                ("validation", f"log-likelihood {last[-1]:.4f} per example at the end, {last.max():.4f} at best")
            )
        return (*lines, *(("note", note) for note in self.notes))

    @property
    def params(self) -> Any:
        """The net's parameters at the mean, in the shape that apply takes."""
        return jax.tree.map(np.asarray, self.net.layout.unravel(jnp.asarray(self.mean)))

    def tables(self, prob: float) -> dict[str, pd.DataFrame]:
        """Return a row for every array of parameters: averages over its entries of mean, sd and interval."""
        ends = np.cumsum(self.net.layout.sizes)[:-1]
        z = ndtri(0.5 + prob / 2)
        parts = zip(np.split(self.mean, ends), np.split(self.sds, ends), strict=True)
        rows = [(m.mean(), s.mean(), (m - z * s).mean(), (m + z * s).mean()) for m, s in parts]
        columns = ["mean", "sd", *interval_names(prob)]
        return {"arrays": pd.DataFrame(rows, list(self.net.layout.names), columns)}

    def pictures(self) -> list[Any]:
        """Return the validation curve where there is one."""
        return validation_picture(self.validation)

    def sample(self, num_samples: int, seed: int, random_effects: bool) -> dict[str, np.ndarray]:
        """Draw the parameters, by the names of their arrays."""
        with float32():
            draws = np.stack([np.asarray(d) for d in weight_draws(self.mean, self.sds, num_samples, seed)])
        layout = self.net.layout
        parts = np.split(draws, np.cumsum(layout.sizes)[:-1], axis=1)
        shaped = zip(layout.names, parts, layout.shapes, strict=True)
        return {name: part.reshape(num_samples, *shape) for name, part, shape in shaped}

    def dimensions(self) -> tuple[dict[str, list[Any]], dict[str, list[str]]]:
        """Arrays of parameters have no names for their axes."""
        return {}, {}

    # --- predictions -------------------------------------------------------------------------------------------

    def probabilities(self, X: Any, num_draws: int = 100, seed: int = 0, weights: str = "posterior") -> np.ndarray:
        """Return the predictive probability of every class, or the expected response.

        Args:
            X: Examples, as in training.
            num_draws: Draws of the weights that are averaged over.
            seed: The same seed gives the same draws.
            weights: "posterior" averages over draws, "mean" takes the weights at their mean, "draw" a single draw.
        """
        sums = self._sums(X, None, num_draws, seed, weights)
        return sums.mean / sums.num_draws

    def evaluate(
        self, X: Any, y: Any, num_draws: int = 100, seed: int = 0, weights: str = "posterior"
    ) -> dict[str, float]:
        """Return `log_likelihood` per example, and of classes `accuracy`, `calibration_error`, `entropy` as well."""
        sums = self._sums(X, y, num_draws, seed, weights)
        found = {"log_likelihood": float(np.mean(sums.log_density - np.log(sums.num_draws)))}
        if self.net.likelihood.has_classes:
            table, labels = sums.mean / sums.num_draws, np.asarray(y).astype(int)
            found |= {
                "accuracy": accuracy(table, labels),
                "calibration_error": calibration_error(table, labels),
                "entropy": float(entropy(table).mean()),
            }
        return found

    def uncertainty(self, X: Any, num_draws: int = 100, seed: int = 0) -> pd.DataFrame:
        """Return what the net does not know about each example, in nats (classes) or as variances (numbers).

        Columns: `total`, the entropy or variance of the predictive; `noise`, what would remain if the weights were
        known; `weights`, the difference: how far draws of the weights disagree.
        """
        sums = self._sums(X, None, num_draws, seed, "posterior")
        mean, draws = sums.mean / sums.num_draws, sums.num_draws
        if self.net.likelihood.has_classes:
            total, noise = entropy(mean), sums.entropy / draws
        else:
            spread = np.maximum(sums.square / draws - mean**2, 0.0)
            noise = sums.variance / draws
            total = noise + spread
        return pd.DataFrame({"total": total, "noise": noise, "weights": np.maximum(total - noise, 0.0)})

    def ood_score(self, X: Any, num_draws: int = 100, seed: int = 0) -> np.ndarray:
        """Return a score of every example, larger the less it looks like the training data: `uncertainty`'s total."""
        return self.uncertainty(X, num_draws, seed)["total"].to_numpy()

    def predict(self, new_data: Any, kind: str, groups: str, prob: float) -> pd.DataFrame:
        """Return class probabilities with the most likely class, or mean, sd and interval of the response."""
        if new_data is None:
            raise ValueError("A net keeps no training data: give the examples to predict.")
        sums = self._sums(new_data, None, 100, 0, "posterior")
        mean = sums.mean / sums.num_draws
        if self.net.likelihood.has_classes:
            table = np.column_stack([1 - mean, mean]) if mean.ndim == 1 else mean
            return pd.DataFrame(table).assign(label=table.argmax(axis=1), entropy=entropy(mean))
        sd = np.sqrt(np.maximum(sums.square / sums.num_draws - mean**2, 0) + sums.variance / sums.num_draws)
        low, high = interval_names(prob)
        z = ndtri(0.5 + prob / 2)
        return pd.DataFrame({"mean": mean, "sd": sd, low: mean - z * sd, high: mean + z * sd})

    def _sums(self, X: Any, y: Any, num_draws: int, seed: int, weights: str) -> Sums:
        X = check_examples(X, self.example_shape)
        if weights not in WEIGHTS:
            raise ValueError(f"weights must be one of {', '.join(map(repr, WEIGHTS))}, not {weights!r}.")
        check_count("num_draws", num_draws)
        y = None if y is None else check_response(y, len(X), self.net.likelihood, self.columns)
        with float32():
            draws = weight_draws(self.mean, self.sds, 1 if weights == "draw" else num_draws, seed)
            return over_draws(self.net, [self.mean] if weights == "mean" else draws, X, y)

    # --- storage -----------------------------------------------------------------------------------------------

    def store(self) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
        """Return arrays and a JSON document; the net's function is not among them."""
        arrays = {"mean": self.mean, "sds": self.sds, "validation": self.validation}
        document = {
            "model": "bnn",
            "likelihood": self.net.likelihood.name,
            "names": list(self.net.layout.names),
            "shapes": [list(shape) for shape in self.net.layout.shapes],
            "columns": self.columns,
            "example_shape": list(self.example_shape),
            "num_rows": self.num_rows,
            "prior_sd": self.prior_sd,
            "notes": list(self.notes),
        }
        return arrays, document


def check_examples(X: Any, example_shape: tuple[int, ...] | None = None) -> np.ndarray:
    """Return examples as an array, or say what is wrong with them."""
    X = np.asarray(X)
    if X.dtype.kind not in "biuf" or X.ndim < 2 or not len(X):
        raise ValueError(
            f"X must be an array of numbers with examples along the first axis, e.g. (n, 28, 28, 1); got {X.dtype} of "
            f"shape {X.shape}."
        )
    if example_shape is not None and X.shape[1:] != example_shape:
        raise ValueError(
            f"Each example has shape {X.shape[1:]}, and the net was trained on {example_shape}. Images must come in "
            "the layout of training, e.g. (n, height, width, channels); np.moveaxis puts axes into another order."
        )
    if X.dtype.kind == "f":
        if not np.isfinite(X).all():
            raise ValueError(
                f"X holds {int((~np.isfinite(X)).sum()):,} values that are NaN or infinite. Impute or remove them."
            )
        X = X.astype(np.float32, copy=False)
    return X
