"""The other skeletons of the guides keep the laws of what they are examples of."""

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
import pytest
import scipy.stats
from new_family import EXPONENTIAL
from new_model import fit_rates
from new_optimizer import heavy_ball
from new_term import ExponentialSds

from natvi import recipes
from natvi.families.rows import PredictorMoments, RowFamily
from natvi.linalg import ArrowVector
from natvi.run import Outcome, wander
from natvi.run.exact.rows import climb_rows
from natvi.target import RandomEffectsPrior, SumOfTerms, Term
from natvi.target.design_rows import DesignRows, Observations
from natvi.target.function import FunctionTarget
from natvi.target.point_mass import PointMass
from natvi.target.priors.independent_normal import IndependentNormal
from natvi.x64 import float64
from strategies import hermite, random_gaussian


@pytest.fixture(autouse=True)
def double():
    with float64():
        yield


# --- a term ------------------------------------------------------------------------------------------------


def test_a_term_is_its_density_and_its_expectation():
    term, q = ExponentialSds(jnp.asarray([2.0, 0.5]), start=1), random_gaussian(1, 3, 2, seed=0)
    assert isinstance(term, Term)
    theta = ArrowVector(q.mean.local, q.mean.shared)
    sds = np.exp(np.asarray(theta.shared)[1:])
    expected = scipy.stats.expon.logpdf(sds, scale=[0.5, 2.0]) + np.log(sds)
    np.testing.assert_allclose(term.value(theta), expected.sum(), rtol=1e-12)
    np.testing.assert_allclose(term.expected(PointMass(theta)).value, term.value(theta), rtol=1e-12)
    # E by quadrature in each coordinate
    x, w = hermite((60,))
    sd = np.sqrt(np.asarray(q.shared_variances()))[1:]
    nodes = np.asarray(q.mean.shared)[1:] + x.T * sd
    by_nodes = w @ (np.log([2.0, 0.5]) + nodes - np.array([2.0, 0.5]) * np.exp(nodes))
    found = term.expected(q)
    np.testing.assert_allclose(found.value, by_nodes.sum(), rtol=1e-10)

    def in_the_mean(shared):
        return term.expected(q._replace(mean=ArrowVector(q.mean.local, shared))).value

    np.testing.assert_allclose(found.grad.shared, jax.grad(in_the_mean)(q.mean.shared)[1:], rtol=1e-10)
    np.testing.assert_allclose(found.hess.shared, jax.hessian(in_the_mean)(q.mean.shared)[1:, 1:], rtol=1e-10)


def test_a_term_finds_its_place_in_a_sum():
    q, effects = random_gaussian(1, 3, 2, seed=0), RandomEffectsPrior(1, start=2)
    term = ExponentialSds(jnp.asarray([2.0]), start=1)
    whole, without = (SumOfTerms((effects,), shared).expected(q) for shared in ((term,), ()))
    change = np.asarray(whole.grad.shared - without.grad.shared)
    np.testing.assert_allclose(change, [0.0, term.expected(q).grad.shared[0], 0.0], atol=1e-12)


# --- a family ----------------------------------------------------------------------------------------------


def test_a_family_is_its_density_and_its_expectation():
    y, m, v = jnp.asarray([0.0, 0.3, 4.0]), jnp.asarray([-1.0, 0.2, 1.0]), jnp.asarray([0.2, 1.0, 0.5])
    assert isinstance(EXPONENTIAL, RowFamily)
    np.testing.assert_allclose(
        EXPONENTIAL.log_density(y, m, None), scipy.stats.expon.logpdf(y, scale=np.exp(m)), rtol=1e-12
    )
    x, w = hermite((60,))
    each = [EXPONENTIAL.log_density(y, m + node * jnp.sqrt(v), None) for node in x[0]]
    found = EXPONENTIAL.expected(y, PredictorMoments(m, v))
    np.testing.assert_allclose(found.value, w @ np.stack(each), rtol=1e-10)

    def total(m):
        return jnp.sum(EXPONENTIAL.expected(y, PredictorMoments(m, v)).value)

    np.testing.assert_allclose(found.d_eta, jax.grad(total)(m), rtol=1e-10, atol=1e-12)
    np.testing.assert_allclose(found.d_eta_eta, jnp.diagonal(jax.hessian(total)(m)), rtol=1e-10, atol=1e-12)
    assert np.all(np.isfinite(EXPONENTIAL.start(y)))
    draws = EXPONENTIAL.draw(jax.random.key(0), jnp.full(20_000, 0.7), None)
    assert abs(np.mean(draws) - np.exp(0.7)) < 4 * np.exp(0.7) / np.sqrt(20_000)


def test_a_family_is_fitted_by_the_exact_ascent():
    rng = np.random.default_rng(0)
    X = np.column_stack([np.ones(200), rng.normal(size=200)])
    y = rng.exponential(np.exp(X @ [0.5, -0.7]))
    rows = Observations(jnp.asarray(X), jnp.asarray(y))
    fitted = climb_rows(DesignRows(rows, IndependentNormal.around_zero(2), EXPONENTIAL, 200))
    assert fitted.outcome is Outcome.CONVERGED
    assert np.abs((fitted.gaussian.mean - [0.5, -0.7]) / fitted.gaussian.marginal_sds()).max() < 4


# --- an optimizer ------------------------------------------------------------------------------------------


def falling(count):
    return 0.1 / (1.0 + count / 100)


def bowl(theta):
    return -0.5 * jnp.sum((theta - 1.0) ** 2 * jnp.asarray([1.0, 4.0]))


def test_an_optimizer_recovers_a_gaussian_and_goes_on_with_the_same_bits():
    from natvi.gaussian import dense_precision

    algorithm = recipes.algorithm_2n(FunctionTarget(bowl), heavy_ball(falling))
    start = dense_precision(jnp.zeros(2))
    whole = wander(algorithm, start, max_steps=1500, settle=False)
    np.testing.assert_allclose(whole.gaussian.mean, 1.0, atol=0.05)
    np.testing.assert_allclose(whole.gaussian.marginal_sds(), [1.0, 0.5], atol=0.05)
    part = wander(algorithm, start, max_steps=700, settle=False)
    again = wander(algorithm, start, max_steps=1500, settle=False, state=part.state)
    assert [a.tobytes() for a in jax.tree.leaves(again.state)] == [a.tobytes() for a in jax.tree.leaves(whole.state)]
    assert heavy_ball(0.1) is heavy_ball(0.1) and "heavy_ball" in heavy_ball(0.1).name
    for wrong in ({"step_size": 0.0}, {"beta": 1.0}):
        with pytest.raises(ValueError, match=r"must"):
            heavy_ball(**wrong)


# --- a model -----------------------------------------------------------------------------------------------


def test_a_model_hands_out_a_result():
    sites = pd.Index(["north", "south", "west"])
    result = fit_rates(pd.Series([30, 4, 90], sites), pd.Series([10.0, 4.0, 9.0], sites))
    assert result.outcome == "converged"
    table = result.summary()
    np.testing.assert_allclose(table["mean"], np.log([3.0, 1.0, 10.0]), atol=0.2)
    np.testing.assert_allclose(table["sd"], np.array([30, 4, 90]) ** -0.5, rtol=0.2)
    assert set(result.sample(10, seed=0)) == set(sites) and "log rates of 3 sites" in repr(result)
    with pytest.raises(ValueError, match="every exposure must be positive"):
        fit_rates(pd.Series([1], ["a"]), pd.Series([0.0], ["a"]))
