"""Priors: the default, the paper's, and those that the user sets."""

from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

from natvi.families.table import find_family
from natvi.formula.margins import Atom, Products, plain_products
from natvi.models.regression.prior.choice import Prior, choose_prior
from natvi.models.regression.prior.data import PriorData

NAMES = ("Intercept", "x", "age")
rng = np.random.default_rng(0)
X = np.column_stack([np.ones(50), rng.normal(size=50), rng.uniform(20, 60, 50)])
Z = X[:, [0, 2]]
NONE = np.zeros((50, 0))
Y = np.exp(1.0 + 0.3 * X[:, 1] + rng.normal(size=50))
SPREAD = {"gaussian": np.std(Y)}


def choose(prior: Any = "default", family: str = "poisson", random=NONE, *, y=Y, weights=None, **options: Any) -> Prior:
    data = PriorData(y, options.pop("X", X), random, options.pop("offset", None), weights)
    return choose_prior(prior, find_family(family), data, **({"names": NAMES} | options))


def user_prior(prior: Prior) -> tuple[np.ndarray, np.ndarray]:
    """Mean and covariance of the user's coefficients."""
    p, M = len(prior.names), prior.coordinates.fixed
    M = np.eye(p) if M is None else M
    return M @ prior.mean[:p], M @ np.diag(prior.sd[:p] ** 2) @ M.T


# --- the paper's -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("family", ["poisson", "bernoulli", "binomial", "negative_binomial", "gaussian"])
@pytest.mark.parametrize("random", [NONE, Z], ids=["fixed", "random"])
def test_the_papers_prior(family, random):
    chosen = choose("paper", family, random, y=np.round(Y) if family != "gaussian" else Y)
    size = 3 + (family in ("negative_binomial", "gaussian")) + (3 if random is Z else 0)
    np.testing.assert_array_equal(chosen.mean, np.zeros(size))
    np.testing.assert_array_equal(chosen.sd, np.full(size, 10.0))
    assert chosen.coordinates.fixed is None and chosen.coordinates.random is None
    assert ("ω" in chosen.description) == (random is Z)


def test_words_of_the_papers_prior():
    words = choose("paper", random=Z).description
    assert words.startswith("N(0, 10²) on every fixed effect and on ω (paper); sd of random ")
    assert choose("paper").description == "N(0, 10²) on every coefficient (paper)"
    assert choose("paper", "gaussian").description == "N(0, 10²) on every coefficient and on log sigma (paper)"


# --- the default -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("family", "b0"), [("gaussian", np.mean(Y)), ("gamma", np.log(np.mean(Y)))])
def test_coefficients_where_the_numbers_are_average(family, b0):
    s = SPREAD.get(family, 1.0)
    chosen = choose(family=family)
    mean, covariance = user_prior(chosen)
    at_average = np.array([1.0, *X[:, 1:].mean(axis=0)])
    assert at_average @ mean == pytest.approx(b0)
    assert at_average @ covariance @ at_average == pytest.approx((2.5 * s) ** 2)
    np.testing.assert_allclose(np.sqrt(np.diagonal(covariance))[1:], 2.5 * s / np.std(X[:, 1:], axis=0))
    np.testing.assert_allclose(mean[1:], 0.0, atol=1e-12)
    assert covariance[1, 2] == pytest.approx(0.0, abs=1e-12)


def test_scales_of_the_default():
    s = np.std(Y)
    chosen = choose(family="gaussian", random=Z)
    covariance = chosen.scales.covariance
    assert covariance.eta == 1.0 and covariance.start == 4
    assert [d.parameters for d in covariance.densities] == [(3.0, pytest.approx(2.5 * s))] * 2
    # at average covariates, in the user's units
    np.testing.assert_allclose(
        chosen.coordinates.random, [[1.0, -Z[:, 1].mean() / np.std(Z[:, 1])], [0.0, 1 / np.std(Z[:, 1])]]
    )
    (sigma,) = chosen.scales.placed
    assert (sigma.position, sigma.power, sigma.density.parameters) == (3, 1.0, (3.0, pytest.approx(2.5 * s)))
    for family in ("gamma", "negative_binomial"):
        (found,) = choose(family=family, y=np.ceil(Y)).scales.placed
        assert (found.power, found.density) == (-0.5, ("half_t", (3.0, 1.0)))
    uncorrelated = choose(random=Z, correlated=False)
    np.testing.assert_allclose(uncorrelated.coordinates.random, np.diag([1.0, 1 / np.sqrt(np.mean(Z[:, 1] ** 2))]))


def test_columns_of_two_values_cells_and_constants():
    y = rng.poisson(2.0, 50).astype(float)
    flag, group = (X[:, 1] > 1.0).astype(float), np.arange(50) % 3
    cells = (group[:, None] == np.arange(3)).astype(float)
    b0 = np.log((y.sum() + 0.5) / 50)
    _, covariance = user_prior(choose(X=np.column_stack([np.ones(50), flag]), y=y, names=("one", "flag")))
    assert np.sqrt(covariance[1, 1]) == pytest.approx(5.0)

    products = Products(tuple(frozenset({Atom("level", "f", k)}) for k in range(3)), {"f": 3})
    data = PriorData(y, cells, NONE, fixed=products)
    mean, covariance = user_prior(choose_prior("default", find_family("poisson"), data, names=("a", "b", "c")))
    np.testing.assert_allclose(mean, b0)
    np.testing.assert_allclose(np.sqrt(np.diagonal(covariance)), 5.0)
    # a second constant column is a slope of its own size
    twice = np.column_stack([np.ones(50), np.full(50, 4.0)])
    mean, covariance = user_prior(choose(X=twice, y=y, names=("one", "four")))
    np.testing.assert_allclose(mean, [b0, 0.0])
    np.testing.assert_allclose(np.sqrt(np.diagonal(covariance)), [2.5, 2.5 / 4.0])


def test_without_a_constant_sizes_are_root_mean_squares():
    chosen = choose(X=X[:, 1:], names=NAMES[1:], family="gaussian")
    mean, covariance = user_prior(chosen)
    rms = np.sqrt(np.mean(X[:, 1:] ** 2, axis=0))
    np.testing.assert_array_equal(mean, 0.0)
    np.testing.assert_allclose(np.sqrt(np.diagonal(covariance)), 2.5 * np.sqrt(np.mean(Y**2)) / rms)
    assert "average" not in chosen.description


@pytest.mark.parametrize(
    ("family", "y"),
    [
        ("poisson", np.zeros(50)),
        ("bernoulli", np.ones(50)),
        ("bernoulli", np.zeros(50)),
        ("gaussian", np.full(50, 7.0)),
    ],
)
def test_responses_that_are_all_equal_stay_finite(family, y):
    chosen = choose(family=family, y=y)
    mean, covariance = user_prior(chosen)
    assert np.all(np.isfinite(mean)) and np.all(np.isfinite(covariance))
    assert bool(chosen.note) == (family == "gaussian")


def test_the_intercept_is_that_of_a_model_without_covariates():
    y, w, o = rng.binomial(1, 0.2, 50).astype(float), rng.integers(1, 5, 50).astype(float), rng.normal(size=50)
    for family, link in (("bernoulli", "logit"), ("bernoulli", "probit"), ("bernoulli", "cloglog")):
        data = PriorData(y, np.ones((50, 1)), NONE, o, w)
        found = find_family(family, link)
        b0 = choose_prior("default", found, data, names=("one",)).mean[0]
        p = np.asarray(found.mean(jnp.asarray(b0 + o)))
        middle = float(found.mean(jnp.asarray(b0 + np.average(o, weights=w))))
        assert np.sum(w * (y - p)) + 0.5 - middle == pytest.approx(0.0, abs=1e-4)
    data = PriorData(3 * y, np.ones((50, 1)), NONE, o, w)
    b0 = choose_prior("default", find_family("poisson"), data, names=("one",)).mean[0]
    assert np.exp(b0) * np.sum(w * np.exp(o)) == pytest.approx(np.sum(w * 3 * y) + 0.5)


@pytest.mark.parametrize("family", ["gaussian", "gamma", "poisson"])
def test_weights_are_repeated_rows(family):
    y = np.ceil(Y)
    counts = np.random.default_rng(1).integers(1, 4, 50)
    again = np.repeat(np.arange(50), counts)
    weighted = choose(family=family, random=Z, y=y, weights=counts.astype(float))
    repeated = choose(family=family, random=Z[again], y=y[again], X=X[again])
    np.testing.assert_allclose(weighted.mean, repeated.mean, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(weighted.coordinates.fixed, repeated.coordinates.fixed, rtol=1e-9)
    assert weighted.description == repeated.description


def test_numbers_of_any_size():
    for factor in (1e-155, 1e155):
        chosen = choose(family="gaussian", y=factor * Y)
        assert np.all(np.isfinite(chosen.mean)) and np.all(chosen.sd > 0)
    wide = choose(X=X * [1.0, 1e200, 1e-200])
    assert np.all(np.isfinite(wide.coordinates.fixed))


def test_the_prior_of_another_model_is_taken_over():
    first = choose(family="gaussian", random=Z)
    again = choose(first, "gaussian", Z[:30], y=100 + Y[:30], X=X[:30])
    assert again is first
    with pytest.raises(ValueError, match="Give the prior of a model with the same parameters"):
        choose(first, "gaussian", Z, names=("Intercept", "x", "other"))
    with pytest.raises(ValueError, match="belongs to a model of 7 shared parameters"):
        choose(first, "gaussian", NONE)


# --- settings ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("family", ["gaussian", "gamma", "poisson"])
@pytest.mark.parametrize("number", [2.5, 3, np.float64(0.1)])
def test_a_number_is_the_sd_of_every_coefficient(family, number):
    default, chosen = choose(family=family, random=Z), choose(number, family, Z)
    mean, covariance = user_prior(chosen)
    np.testing.assert_array_equal(mean, 0.0)
    np.testing.assert_allclose(covariance, np.eye(3) * float(number) ** 2)
    assert chosen.scales == default.scales
    assert chosen.description.startswith(f"N(0, {float(number):g}²) on every fixed effect; ")


@pytest.mark.parametrize("family", ["gaussian", "gamma", "poisson"])
def test_single_coefficients_hold_at_the_users_zero(family):
    chosen = choose({"age": (0.1, 0.5), "Intercept": (2.0, 3.0)}, family)
    mean, covariance = user_prior(chosen)
    np.testing.assert_allclose(mean[[0, 2]], [2.0, 0.1])
    np.testing.assert_allclose(covariance[np.ix_([0, 2], [0, 2])], np.diag([9.0, 0.25]), atol=1e-10)
    default = user_prior(choose(family=family))[1]
    assert covariance[1, 1] == pytest.approx(default[1, 1])
    assert "Intercept N(2, 3²)," in chosen.description and "age N(0.1, 0.5²)" in chosen.description


def test_words_of_settings():
    assert choose(4).description == "N(0, 4²) on every coefficient"
    assert (
        choose(dict(zip(NAMES, (1, 2, 3), strict=True))).description == "Intercept N(0, 1²), x N(0, 2²), age N(0, 3²)"
    )
    assert choose({}).description == choose().description
    assert choose().description.startswith("weakly informative, scaled to the data: Intercept N(")
    many = tuple(f"x{k}" for k in range(9))
    wide = choose_prior(
        dict(zip(many, range(1, 10), strict=True)),
        find_family("poisson"),
        PriorData(Y, rng.normal(size=(50, 9)), NONE, fixed=plain_products(9)),
        names=many,
    )
    assert "x5 N(0, 6²), ... (9 in all)" in wide.description


@pytest.mark.parametrize(
    ("prior", "message"),
    [
        ("flat", "'default' or 'paper', a number .*, or a dict .*; not 'flat'"),
        (None, "prior must be"),
        (True, "prior must be"),
        ([1.0, 2.0], "prior must be"),
        (0, "every coefficient must be finite and greater than zero, not 0"),
        (-1.0, "greater than zero, not -1"),
        (np.nan, "not nan"),
        (np.inf, "not inf"),
        ({"x": -2}, "the prior sd of 'x' .* not -2"),
        ({"x": (0, 0)}, "the prior sd of 'x'"),
        ({"x": (np.nan, 1)}, "the prior mean of 'x' must be a finite number"),
        ({"x": (1, 2, 3)}, r"an sd or a pair \(mean, sd\)"),
        ({"x": "wide"}, r"an sd or a pair \(mean, sd\), not 'wide'"),
        ({"x": True}, "an sd or a pair"),
        ({"Age": 1}, "'Age', which is no parameter of the model. Did you mean 'age'.*'Intercept', 'x', 'age'"),
        ({"intercept": 1}, "Did you mean 'Intercept'"),
        ({"zzz": 1}, "'zzz', which is no parameter of the model. Coefficients"),
        ({3: 1}, "3, which is no parameter"),
        ({"sd(Intercept|g)": 1}, r"'sd\(Intercept\|g\)', which is no parameter"),
        ({"corr(Intercept,x|g)": 1}, "has no correlations: leave it out"),
        ({"sigma": 1}, "'sigma', which is no parameter"),
    ],
)
def test_settings_that_are_refused(prior, message):
    with pytest.raises(ValueError, match=message) as caught:
        choose(prior)
    assert str(caught.value).endswith(".")
