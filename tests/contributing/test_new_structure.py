"""The guide's skeleton of a structure climbs, moves by every rule and recipe, is saved and resumed as it stands.

The laws of densities, pattern algebra, estimators and natural directions, and VOGN, meet it through the dictionary in
tests/structures.py; nothing in natvi knows it.
"""

from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from new_structure import TwoBlocks, two_block_covariance, two_block_precision

import structures as st
from natvi import optimize, recipes
from natvi.families.table import FAMILIES
from natvi.gaussian import CovarianceGaussian, diagonal_covariance
from natvi.optimize.factor_system import FactorSystem
from natvi.run import Outcome, climb, wander
from natvi.run.exact import loop
from natvi.run.exact.rows import climb_rows
from natvi.run.storage import checkpoint as checkpoints
from natvi.target.design_rows import DesignRows, Observations
from natvi.target.function import FunctionTarget
from natvi.target.priors.independent_normal import IndependentNormal
from natvi.x64 import float64, to_host

STARTS = {"covariance": two_block_covariance, "precision": two_block_precision}
RECIPES = {
    "1E": (recipes.algorithm_1e, "covariance"),
    "1N": (recipes.algorithm_1n, "covariance"),
    "1S": (recipes.algorithm_1s, "covariance"),
    "2E": (recipes.algorithm_2e, "precision"),
    "2N": (recipes.algorithm_2n, "precision"),
    "2S": (recipes.algorithm_2s, "precision"),
}
RULES = {
    "plain": lambda: optimize.plain(0.05),
    "plain natural": lambda: optimize.plain(0.1, natural=True),
    "adam": lambda: optimize.adam(0.05),
    "nadam": lambda: optimize.nadam(0.05),
    "snngm": lambda: optimize.snngm(0.01),
    "nagm": lambda: optimize.nagm(0.1, ratio=1.0),
    "pga": lambda: optimize.pga(0.004),
}


@pytest.fixture(autouse=True)
def double():
    with float64():
        yield


def poisson_rows() -> DesignRows:
    """Columns of the two blocks are nearly independent; those of a block are not."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(40, 4))
    X[:, 1] += X[:, 0]
    y = rng.poisson(np.exp(X @ [0.3, -0.2, 0.4, 0.1]))
    rows = Observations(jnp.asarray(X), jnp.asarray(y, float))
    return DesignRows(rows, IndependentNormal.around_zero(4), FAMILIES["poisson"], 40)


def covariance(gaussian) -> np.ndarray:
    return st.covariance(jax.tree.map(jnp.asarray, gaussian))


@pytest.mark.parametrize("kind", STARTS)
def test_the_ascent_ends_where_the_gradient_is_zero(kind):
    start = STARTS[kind](jnp.zeros(4), 2, 0.3)
    system = FactorSystem(poisson_rows(), start)
    fitted = climb(system, start, tolerance=1e-12)
    assert fitted.outcome is Outcome.CONVERGED and type(fitted.gaussian.factor) is TwoBlocks
    residual = system.evaluate(system.start(jax.tree.map(jnp.asarray, fitted.gaussian))).residual.shared
    assert np.abs(np.asarray(residual)).max() < 1e-4
    # a richer structure has a higher bound, a poorer one a lower
    assert climb_rows(poisson_rows(), "diagonal").elbo < fitted.elbo < climb_rows(poisson_rows(), "dense").elbo


def test_the_ascent_of_any_structure_agrees_with_the_one_in_natural_parameters():
    start = diagonal_covariance(jnp.zeros(4), 0.3)
    fitted = climb(FactorSystem(poisson_rows(), start), start, tolerance=1e-12)
    expected = climb_rows(poisson_rows(), "diagonal", tolerance=1e-12)
    np.testing.assert_allclose(fitted.elbo, expected.elbo, rtol=1e-10)
    np.testing.assert_allclose(covariance(fitted.gaussian), covariance(expected.gaussian), rtol=1e-4)


def test_the_ascent_resumes_from_its_file_with_the_same_bits(tmp_path: Path, monkeypatch):
    monkeypatch.setattr(checkpoints, "SHARE", 0.0)
    start, target, path = two_block_precision(jnp.zeros(4), 2, 0.3), poisson_rows(), tmp_path / "fit.checkpoint"
    whole = climb(FactorSystem(target, start), start, tolerance=1e-12)
    for most in (3, loop.TRACE_LENGTH):
        resumed = climb(
            FactorSystem(target, start), start, tolerance=1e-12, max_steps=most, checkpoint=path, checkpoint_seconds=0.0
        )
    assert [leaf.tobytes() for leaf in jax.tree.leaves(resumed.state)] == [
        leaf.tobytes() for leaf in jax.tree.leaves(whole.state)
    ]


def quadratic(theta, P):
    return -0.5 * theta @ P @ theta


P = np.kron(np.eye(2), [[2.0, 0.5], [0.5, 1.0]])


@pytest.mark.parametrize("name", RECIPES)
def test_every_recipe_takes_it(name):
    make, kind = RECIPES[name]
    rule = RULES["plain natural"]() if name[1] in "NS" else RULES["adam"]()
    check_recovery(make(FunctionTarget(quadratic, (jnp.asarray(P),)), rule, order=2), kind)


@pytest.mark.parametrize("kind", STARTS)
@pytest.mark.parametrize("rule", RULES)
def test_every_rule_moves_it(rule, kind):
    make = recipes.algorithm_1e if kind == "covariance" else recipes.algorithm_2e
    check_recovery(make(FunctionTarget(quadratic, (jnp.asarray(P),)), RULES[rule](), num_samples=4), kind)


def check_recovery(algorithm, kind: str) -> None:
    """The pattern holds the target's precision; with steps that do not fall, it is recovered up to their noise."""

    @jax.jit
    def run(state, keys):
        return jax.lax.scan(lambda s, key: (algorithm.step(s, key), s.gaussian), state, keys)

    state = algorithm.init(STARTS[kind](jnp.ones(4), 2))
    _, path = run(state, jax.random.split(jax.random.key(0), 1500))
    late = jax.tree.map(lambda a: np.asarray(a)[-500:].mean(axis=0), path)
    np.testing.assert_allclose(st.flat(late.mean), 0.0, atol=0.1)
    np.testing.assert_allclose(covariance(late), np.linalg.inv(P), atol=0.15)


def test_a_noisy_fit_resumes_from_its_file_with_the_same_bits(tmp_path: Path):
    target = FunctionTarget(quadratic, (jnp.asarray(P),))
    algorithm, start = recipes.algorithm_2s(target, optimize.snngm(0.01)), two_block_precision(jnp.ones(4), 2)
    whole = wander(algorithm, start, max_steps=60, window=20)
    for most in (30, 60):
        resumed = wander(algorithm, start, max_steps=most, window=20, checkpoint=tmp_path / "fit")
    for a, b in zip(jax.tree.leaves(to_host(resumed.state)), jax.tree.leaves(to_host(whole.state)), strict=True):
        assert a.tobytes() == b.tobytes()


def test_a_block_that_does_not_fit_is_refused():
    with pytest.raises(ValueError, match="between 1 and 3 of 4 coordinates; got 4"):
        two_block_covariance(jnp.zeros(4), 4)
    assert isinstance(two_block_covariance(jnp.zeros(4), 1), CovarianceGaussian)
