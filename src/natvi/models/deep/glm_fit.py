"""A fitted deep GLM: predictions, relevance of inputs, tables, and itself as plain data."""

from collections.abc import Iterator
from dataclasses import dataclass, fields
from functools import cached_property, partial
from itertools import pairwise
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
from scipy.stats import invgamma

from natvi.models.deep.deep_glm import deep_glm_net
from natvi.models.deep.layout import Layout
from natvi.models.deep.likelihoods import LIKELIHOODS
from natvi.models.deep.net_rows import NetRows
from natvi.models.deep.nets import mlp
from natvi.models.deep.predictive import Sums, over_draws, weight_draws
from natvi.models.deep.shrinkage import relevance
from natvi.models.regression.tables import interval_names
from natvi.result.file_check import check_contents, is_count, is_number, is_text, is_texts
from natvi.show.plots import relevance_bars, validation_picture
from natvi.x64 import float32

ARRAYS = ("mean", "sds", "gamma", "x_mean", "x_scale", "validation")


def with_noise(params: Any, X: Any) -> Any:
    """Return a perceptron's output beside the log sd of the response."""
    eta = mlp(params["net"], X)
    return jnp.column_stack([eta[:, 0], jnp.full(len(X), params["log_sd"])])


@partial(jax.jit, static_argnums=0)
def _output(net: NetRows, theta: Any, X: Any) -> Any:
    return net.output(theta, X)


FIELDS = {
    "response": is_text,
    "sizes": lambda value: isinstance(value, list) and len(value) > 2 and all(map(is_count, value)),
    "names": is_texts,
    "num_rows": is_count,
    **dict.fromkeys(("gamma_w", "shape", "scale", "y_mean", "y_scale"), is_number),
}


@dataclass(frozen=True, eq=False)
class DeepGlmFit:
    """Independent Gaussians over the weights of a perceptron, shrinkage of its inputs, and q(v) of normal responses.

    The net works with standardised inputs, and normal responses; all that is handed out is on the user's scale.
    """

    response: str
    sizes: tuple[int, ...]
    names: tuple[str, ...]
    mean: np.ndarray
    sds: np.ndarray
    gamma: np.ndarray
    x_mean: np.ndarray
    x_scale: np.ndarray
    validation: np.ndarray
    gamma_w: float
    shape: float
    scale: float
    y_mean: float
    y_scale: float
    num_rows: int

    @property
    def headline(self) -> tuple[tuple[str, str], ...]:
        """Label and text of each line that says what was fitted."""
        layers = " - ".join(map(str, self.sizes))
        lines = [
            ("model", f"deep GLM, {self.response} response, layers {layers}, {len(self.mean):,} parameters"),
            ("data", f"{self.num_rows:,} rows"),
            ("prior", "shrinkage of every input (normal-Gamma), of later weights (normal), flat on biases"),
        ]
        if np.isfinite(self.validation).any():
            seen = self.validation[np.isfinite(self.validation)]
            lines.append(("validation", f"log-likelihood {seen[-1]:.4f} per row at the end, {seen.max():.4f} at best"))
        return tuple(lines)

    @property
    def relevance(self) -> pd.Series:
        """How much each input matters, the most relevant first and set to 1: 1 / gamma_j."""
        return pd.Series(relevance(self.gamma), list(self.names), name="relevance").sort_values(
            ascending=False, kind="stable"
        )

    def tables(self, prob: float) -> dict[str, pd.DataFrame]:
        """Return mean, sd and interval of every input's weights, and the noise sd of normal responses."""
        m = self.sizes[1]
        block = slice(m, m + self.sizes[0] * m)
        means, sds = (a[block].reshape(-1, m) for a in (self.mean, self.sds))
        # the length of an input's weights, |w_j|, by draws
        z = np.random.default_rng(0).standard_normal((500, *means.shape))
        length = np.sqrt(np.sum((means + sds * z) ** 2, axis=2))
        low, high = interval_names(prob)
        bounds = np.quantile(length, [0.5 - prob / 2, 0.5 + prob / 2], axis=0)
        table = pd.DataFrame(
            {"mean": length.mean(0), "sd": length.std(0), low: bounds[0], high: bounds[1]}, list(self.names)
        )
        tables = {"inputs": table.sort_values("mean", ascending=False)}
        if self.response == "normal":
            v = np.sqrt(self._variance_law.rvs(4000, random_state=0))
            row = [v.mean(), v.std(), *np.quantile(v, [0.5 - prob / 2, 0.5 + prob / 2])]
            tables["dispersion"] = pd.DataFrame([row], ["sigma"], ["mean", "sd", low, high])
        return tables

    @property
    def _variance_law(self) -> Any:
        return invgamma(self.shape, scale=self.scale * self.y_scale**2)

    def pictures(self) -> list[Any]:
        """Return the relevance of inputs, and the validation curve where there is one."""
        return [relevance_bars(self.relevance.head(20)), *validation_picture(self.validation)]

    def sample(self, num_samples: int, seed: int, random_effects: bool) -> dict[str, np.ndarray]:
        """Draw weights and biases by layer, and the noise sd of normal responses."""
        with float32():
            draws = np.stack([np.asarray(d) for d in weight_draws(self.mean, self.sds, num_samples, seed)])
        layout = deep_glm_net(self.sizes, self.response).layout
        parts = np.split(draws, np.cumsum(layout.sizes)[:-1], axis=1)
        named = {
            name: part.reshape(num_samples, *shape)
            for name, part, shape in zip(layout.names, parts, layout.shapes, strict=True)
        }
        if self.response == "normal":
            named["sigma"] = np.sqrt(self._variance_law.rvs(num_samples, random_state=seed))
        return named

    def dimensions(self) -> tuple[dict[str, list[Any]], dict[str, list[str]]]:
        """Arrays of weights have no names for their axes."""
        return {}, {}

    # --- predictions -------------------------------------------------------------------------------------------

    @cached_property
    def _net(self) -> NetRows:
        """The net that predictions take: of normal responses one with the noise sd as a further parameter."""
        net = deep_glm_net(self.sizes, self.response)
        if self.response != "normal":
            return net
        params = {"log_sd": jnp.zeros((), jnp.float32), "net": net.layout.unravel(jnp.zeros(len(self.mean)))}
        return NetRows(with_noise, Layout.of(params), LIKELIHOODS["normal"])

    def _draws(self, num_draws: int, seed: int) -> Iterator[Any]:
        thetas = weight_draws(self.mean, self.sds, num_draws, seed)
        if self.response != "normal":
            yield from thetas
            return
        log_sds = 0.5 * np.log(invgamma(self.shape, scale=self.scale).rvs(num_draws, random_state=seed))
        for theta, log_sd in zip(thetas, log_sds, strict=True):
            yield jnp.concatenate([jnp.asarray([log_sd], jnp.float32), theta])

    def _scaled(self, X: np.ndarray) -> np.ndarray:
        return ((X - self.x_mean) / self.x_scale).astype(np.float32)

    def sums(self, X: np.ndarray, y: np.ndarray | None, num_draws: int, seed: int) -> Sums:
        """Return sums over draws of weights and v, of responses on the net's scale."""
        with float32():
            y = None if y is None else ((y - self.y_mean) / self.y_scale).astype(np.float32)
            return over_draws(self._net, self._draws(num_draws, seed), self._scaled(X), y)

    def log_density(self, X: np.ndarray, y: np.ndarray, num_draws: int = 1000, seed: int = 0) -> np.ndarray:
        """Return log p(y_i | x_i, data) of every row: the mean over draws of weights and v, 1,000 as in the paper."""
        sums = self.sums(X, y, num_draws, seed)
        return sums.log_density - np.log(sums.num_draws) - np.log(self.y_scale)

    def expected(self, X: np.ndarray, num_draws: int = 200, seed: int = 0) -> np.ndarray:
        """Return the expected response, or the probability of every class."""
        sums = self.sums(X, None, num_draws, seed)
        return self.y_mean + self.y_scale * sums.mean / sums.num_draws

    def replicate(self, X: np.ndarray, num_draws: int = 400, seed: int = 0) -> np.ndarray:
        """Draw responses `(num_draws, n)` from the predictive."""
        rng, found = np.random.default_rng(seed), []
        with float32():
            scaled = jnp.asarray(self._scaled(X))
            for theta in self._draws(num_draws, seed):
                output = np.asarray(_output(self._net, theta, scaled))
                if self.response == "normal":
                    found.append(self.y_mean + self.y_scale * rng.normal(output[:, 0], np.exp(output[:, 1])))
                elif self.response == "poisson":
                    found.append(rng.poisson(np.exp(np.minimum(output[:, 0], 40.0))))
                else:
                    raise ValueError("Replicated responses are for numbers; of classes look at the probabilities.")
        return np.array(found)

    def predict(self, new_data: Any, kind: str, groups: str, prob: float) -> pd.DataFrame:
        """Return the expected response with the predictive's sd and interval, or class probabilities."""
        if new_data is None:
            raise ValueError("A deep GLM keeps no training data: give the rows to predict.")
        X = np.asarray(new_data, dtype=np.float64)
        if self.response in ("bernoulli", "categorical"):
            table = self.expected(X)
            return pd.DataFrame(np.column_stack([1 - table, table]) if table.ndim == 1 else table)
        draws = self.replicate(X)
        low, high = np.quantile(draws, [0.5 - prob / 2, 0.5 + prob / 2], axis=0)
        names = interval_names(prob)
        return pd.DataFrame({"mean": self.expected(X), "sd": draws.std(0), names[0]: low, names[1]: high})

    # --- storage -----------------------------------------------------------------------------------------------

    def store(self) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
        """Return arrays and a JSON document from which the model can be rebuilt."""
        document = {f.name: getattr(self, f.name) for f in fields(self) if f.name not in ARRAYS}
        arrays = {name: getattr(self, name) for name in ARRAYS}
        arrays["validation"] = self.validation[np.isfinite(self.validation)]
        return arrays, {"model": "deep_glm", "notes": []} | document

    @classmethod
    def restore(cls, arrays: dict[str, np.ndarray], document: dict[str, Any]) -> "DeepGlmFit":
        """Rebuild the model from its stored form."""
        parts: dict[str, Any] = {f.name: document[f.name] for f in fields(cls) if f.name not in ARRAYS}
        parts |= {"sizes": tuple(document["sizes"]), "names": tuple(document["names"])}
        parts.update({name: arrays[name] for name in ARRAYS})
        fit = cls(**parts)
        p, length = fit.sizes[0], sum(a * b + b for a, b in pairwise(fit.sizes))
        needed = {"mean": length, "sds": length, "gamma": p, "x_mean": p, "x_scale": p}
        for name, size in needed.items():
            if arrays[name].shape != (size,):
                raise ValueError(f"the array {name!r} has shape {arrays[name].shape}, and ({size},) is needed")
        return fit


def check(arrays: dict[str, np.ndarray], document: dict[str, Any]) -> None:
    """Raise unless the file holds what a fitted deep GLM stores."""
    check_contents(arrays, document, FIELDS)


def restore(arrays: dict[str, np.ndarray], document: dict[str, Any]) -> DeepGlmFit:
    """Rebuild the model."""
    return DeepGlmFit.restore(arrays, document)
