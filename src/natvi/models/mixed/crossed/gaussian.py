"""A crossed model whose posterior is one Gaussian of effects and shared coordinates together."""

from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import jax
import numpy as np
import pandas as pd

from natvi.gaussian.blocked_precision import BlockedPrecision
from natvi.linalg import ArrowVector
from natvi.linalg.crossed.blocked import BlockedFactor, CrossPattern
from natvi.models.mixed.crossed.posterior import CrossedFit
from natvi.models.mixed.draws import draw_in_batches
from natvi.models.regression.family.extras import shown_row
from natvi.models.regression.names import shown_names
from natvi.models.regression.tables import gaussian_table, interval_table, lognormal_row
from natvi.x64 import float64

NUM_DRAWS = 4000


class Source(NamedTuple):
    """What draws of the Gaussian need, its levels in the order of the data."""

    mean: ArrowVector
    factor: BlockedFactor
    pattern: CrossPattern

    @classmethod
    def of(cls, q: BlockedPrecision, place: np.ndarray) -> "Source":
        """Bring the levels of the largest factor from the target's order to the data's."""
        level = np.empty(len(place), dtype=np.int32)
        level[place] = np.arange(len(place), dtype=np.int32)
        of_pair = level[np.asarray(q.pattern.level)]
        order = np.argsort(of_pair, kind="stable")
        local, cross, pairs, shared = (np.asarray(part) for part in q.factor)
        nothing = np.zeros(0, dtype=np.int32)
        pattern = CrossPattern(of_pair[order], np.asarray(q.pattern.coordinate)[order], nothing, nothing)  # type: ignore[arg-type]
        factor = BlockedFactor(local[..., place], cross[..., place], pairs[:, order], shared)  # type: ignore[arg-type]
        return cls(ArrowVector(np.asarray(q.mean.local)[..., place], np.asarray(q.mean.shared)), factor, pattern)  # type: ignore[arg-type]


@dataclass(frozen=True, eq=False, kw_only=True)
class GaussianCrossedFit(CrossedFit):
    """The Gaussian, with the covariance of coefficients, dispersion and omega."""

    source: Source
    shared_covariance: np.ndarray

    def shared_moments(self) -> tuple[np.ndarray, np.ndarray]:
        """Return mean and covariance of the shared coordinates (beta, dispersion, omega)."""
        return np.asarray(self.source.mean.shared)[: len(self.shared_covariance)], self.shared_covariance

    def tables(self, prob: float) -> dict[str, pd.DataFrame]:
        """Return the fixed effects, exactly, and the variance components."""
        p = len(self.fixed_names)
        mean, covariance = self.shared_moments()
        fixed = self.coordinates.fixed_moments(mean[:p], covariance[:p, :p])
        table = gaussian_table(list(self.fixed_names), fixed[0], np.sqrt(np.diag(fixed[1])), prob)
        return {"coefficients": table, "variance_components": self._components(prob)}

    def _components(self, prob: float) -> pd.DataFrame:
        """Lone sds and the dispersion are lognormal; what depends on several coordinates comes from draws."""
        mean, covariance = self.shared_moments()
        shared = np.random.default_rng(0).multivariate_normal(mean, covariance, NUM_DRAWS, method="cholesky")
        values, tail = self.component_draws(shared), 0.5 - prob / 2
        quantiles = np.quantile(values, [tail, 1 - tail], axis=0)
        table = interval_table(self.component_names(), (values.mean(0), values.std(0, ddof=1), *quantiles), prob)
        M = self.coordinates.random
        exact = {}
        names = shown_names(self.family, self.fixed_names)
        for at, (name, extra) in enumerate(zip(names, self.family.extras, strict=True), len(self.fixed_names)):
            table.loc[name] = shown_row(extra, float(mean[at]), float(covariance[at, at]), tail)
        for term in self.terms:
            if term.r == 1 or not term.correlated:
                for k, (name, at) in enumerate(term.log_sd_positions().items()):
                    unit = 1.0 if M is None else abs(M[term.first + k, term.first + k])
                    exact[name] = (at, -1.0, np.log(unit))
        for name, (at, power, unit) in exact.items():
            table.loc[name] = lognormal_row(power * mean[at] + unit, power**2 * float(covariance[at, at]), tail)
        return table

    def joint_draws(self, num_samples: int, seed: int, keep_effects: bool) -> tuple[np.ndarray, np.ndarray]:
        """Draw all effects `(s, u)` and the shared coordinates `(s, g)`."""
        with float64():
            draw = partial(_draw, jax.device_put(self.source))
        local, shared = draw_in_batches(draw, num_samples, seed, max(len(self.effect_mean), 1), keep_effects)
        b = len(self.shared_covariance)
        flat = np.concatenate([local.reshape(len(shared), -1), shared[:, b:]], axis=1) if keep_effects else local
        return flat, shared[:, :b]

    def store(self) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
        """Return arrays and a JSON document from which the model can be rebuilt."""
        arrays, document = super().store()
        mean, factor, pattern = self.source
        own = {
            "mean_local": mean.local,
            "mean_shared": mean.shared,
            **{f"factor_{name}": part for name, part in factor._asdict().items()},
            "pattern_level": pattern.level,
            "pattern_coordinate": pattern.coordinate,
            "shared_covariance": self.shared_covariance,
        }
        return {**arrays, **{name: np.asarray(array) for name, array in own.items()}}, document


@jax.jit
def _draw(source: Source, keys: jax.Array) -> ArrowVector:
    mean, factor, pattern = source

    def one(key: jax.Array) -> ArrowVector:
        local, shared = jax.random.split(key)
        z = ArrowVector(jax.random.normal(local, mean.local.shape), jax.random.normal(shared, mean.shared.shape))
        move = pattern.solve_transposed(factor, z)
        return ArrowVector(mean.local + move.local, mean.shared + move.shared)

    return jax.lax.map(one, keys, batch_size=16)
