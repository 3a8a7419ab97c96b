"""Natural-gradient recipes on the pattern of a crossed model, which is not closed: they end where the ascent ends."""

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
import pytest

import natvi
from natvi import optimize, recipes
from natvi.gaussian import PrecisionGaussian
from natvi.linalg import ArrowVector, ClosedPattern, OpenFactor, OpenPattern
from natvi.models.mixed.crossed.start import crossed_start
from natvi.optimize.structured.blocked_system import BlockedSystem
from natvi.run import climb
from natvi.target.function import FunctionTarget
from natvi.x64 import float64

LEVELS, OTHERS = 6, 4


@pytest.fixture(scope="module")
def model():
    rng = np.random.default_rng(2)
    a = np.repeat(np.arange(LEVELS), 8)
    b = (a + rng.integers(0, 2, len(a))) % OTHERS  # a level meets two of the four
    y = rng.poisson(np.exp(1.0 + 0.5 * rng.normal(size=LEVELS)[a] + 0.5 * rng.normal(size=OTHERS)[b]))
    frame = pd.DataFrame({"y": y, "a": a, "b": b})
    return natvi.glmm("y ~ 1 + (1 | a) + (1 | b)", frame, family="poisson")


def mask_of(target) -> np.ndarray:
    """Levels of the largest factor first: a diagonal, rows of all shared coordinates, pairs that meet, a corner."""
    b, m = target.b, target.design.num_coordinates
    mask = np.eye(LEVELS + b + m, dtype=bool)
    mask[LEVELS : LEVELS + b, :LEVELS] = True
    mask[LEVELS + b + np.asarray(target.pattern.coordinate), np.asarray(target.pattern.level)] = True
    mask[LEVELS:, LEVELS:] = True
    return np.tril(mask)


def test_recipes_run_on_the_pattern_of_a_crossed_model(model):
    with float64():
        target = jax.device_put(model.build().target)
        start = crossed_start(target, *map(jnp.asarray, model.rough_values()))
        best = jax.device_put(climb(BlockedSystem.around(target, target.pattern, start), start).gaussian)
        sds = jax.tree.map(np.asarray, best.marginal_sds())
        mask = mask_of(target)
        with pytest.raises(ValueError, match="OpenPattern"):
            ClosedPattern.from_array(mask)

        def log_density(theta):
            return target.value(ArrowVector(theta[None, :LEVELS], theta[LEVELS:]))

        rough = np.concatenate([np.zeros(LEVELS), np.asarray(model.rough_values()[0]), np.zeros(OTHERS)])
        factor = OpenFactor(3.0 * jnp.eye(len(mask)), OpenPattern.from_array(mask))
        q = PrecisionGaussian(jnp.asarray(rough), factor)
        rule = optimize.plain(lambda count: 0.2 / (1.0 + count / 100), natural=True)
        algorithm = recipes.algorithm_2n(FunctionTarget(log_density), rule, order=2, num_samples=8)
        keys = jax.random.split(jax.random.key(0), 1500)
        run = jax.jit(lambda s: jax.lax.scan(lambda s, key: (algorithm.step(s, key), None), s, keys)[0])
        found = run(algorithm.init(q)).gaussian
        matrix = np.asarray(found.factor.matrix)
    assert not np.any(matrix[~mask])
    sd = np.concatenate([np.ravel(sds.local), sds.shared])
    mean = np.concatenate([np.ravel(best.mean.local), best.mean.shared])
    assert np.max(np.abs((np.asarray(found.mean) - mean) / sd)) < 0.1
    np.testing.assert_allclose(np.sqrt(np.diag(np.linalg.inv(matrix @ matrix.T))) / sd, 1.0, atol=0.1)
