"""Priors: the default, the paper's, and those that the user sets."""

from typing import Any

import numpy as np
import pytest

from natvi.models.regression.priors import Prior, choose_prior

NAMES = ("Intercept", "x", "age")
rng = np.random.default_rng(0)
X = np.column_stack([np.ones(50), rng.normal(size=50), rng.uniform(20, 60, 50)])
Z = X[:, :2]
NONE = np.zeros((50, 0))
Y = np.exp(1.0 + 0.3 * X[:, 1] + rng.normal(size=50))


def choose(prior: Any = "default", family: str = "poisson", random=NONE, **options: Any) -> Prior:
    dispersion = family in ("gaussian", "gamma", "negative_binomial")
    return choose_prior(prior, family, Y, X, random, dispersion, names=NAMES, **options)


@pytest.mark.parametrize("family", ["poisson", "bernoulli", "binomial", "negative_binomial"])
@pytest.mark.parametrize("random", [NONE, Z], ids=["fixed", "random"])
@pytest.mark.parametrize("prior", ["default", "paper"])
def test_the_papers_prior(family, random, prior):
    chosen = choose(prior, family, random)
    size = 3 + (family == "negative_binomial") + (3 if random is Z else 0)
    np.testing.assert_array_equal(chosen.mean, np.zeros(size))
    np.testing.assert_array_equal(chosen.sd, np.full(size, 10.0))
    assert ("ω" in chosen.description) == (random is Z)
    assert ("log dispersion" in chosen.description) == (family == "negative_binomial")


def test_words_of_the_papers_prior():
    assert choose(random=Z).description.startswith("N(0, 10²) on every fixed effect and on ω (paper); sd of random ")
    assert choose().description == "N(0, 10²) on every coefficient (paper)"
    assert choose("paper", "gaussian").description == "N(0, 10²) on every coefficient and on log sigma (paper)"


def test_gaussian_default_is_scaled_to_the_data():
    scale = np.std(Y)
    chosen = choose(family="gaussian", random=Z)
    np.testing.assert_allclose(chosen.mean[:4], np.array([np.mean(Y), 0, 0, np.log(scale)]))
    np.testing.assert_allclose(chosen.sd[:4], np.array([10 * scale, *(10 * scale / np.std(X[:, 1:], axis=0)), 10]))
    # omega = (log W_11, W_21, log W_22)
    np.testing.assert_allclose(chosen.mean[4:], np.array([-np.log(scale), 0, np.log(np.std(Z[:, 1]) / scale)]))
    np.testing.assert_allclose(chosen.sd[4:], np.array([10, 10 * np.std(Z[:, 1]) / scale, 10]))
    assert len(choose(family="gaussian").mean) == 4 and "log sigma" in choose(family="gaussian").description


def test_gamma_default_is_scaled_to_the_data():
    chosen = choose(family="gamma", random=Z)
    np.testing.assert_allclose(chosen.mean, [np.log(np.mean(Y)), 0, 0, 0, 0, 0, np.log(np.std(Z[:, 1]))])
    np.testing.assert_allclose(chosen.sd[:4], np.array([10, *(10 / np.std(X[:, 1:], axis=0)), 10]))
    assert "slopes N(0, (10/sd(x))²), log dispersion N(0, 10²)" in choose(family="gamma").description


def test_units_do_not_matter():
    """Measured in other units, the prior says the same of the same data."""
    units = np.array([1.0, 1000.0, 0.01])
    here = choose_prior("default", "gaussian", Y, X, NONE, True)
    there = choose_prior("default", "gaussian", 60 * Y + 7, X * units, NONE, True)
    np.testing.assert_allclose(there.sd[:3], 60 * here.sd[:3] / units)
    np.testing.assert_allclose(there.mean[:4] - [60 * here.mean[0] + 7, 0, 0, here.mean[3] + np.log(60)], 0, atol=1e-12)


@pytest.mark.parametrize("family", ["gaussian", "gamma"])
def test_weights_are_repeated_rows(family):
    counts = np.random.default_rng(1).integers(1, 4, 50)
    again = np.repeat(np.arange(50), counts)
    weighted = choose_prior("default", family, Y, X, Z, True, weights=counts.astype(float))
    repeated = choose_prior("default", family, Y[again], X[again], Z[again], True)
    np.testing.assert_allclose(weighted.mean, repeated.mean, rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(weighted.sd, repeated.sd, rtol=1e-12)
    assert weighted.description == repeated.description


@pytest.mark.parametrize("family", ["gaussian", "gamma", "poisson"])
def test_uncorrelated_effects_have_the_diagonal_only(family):
    whole, diagonal = choose(family=family, random=Z), choose(family=family, random=Z, correlated=False)
    np.testing.assert_array_equal(diagonal.mean, np.delete(whole.mean, -2))
    np.testing.assert_array_equal(diagonal.sd, np.delete(whole.sd, -2))


def test_designs_without_an_intercept():
    slopes = choose_prior("default", "gaussian", Y, X[:, 1:], NONE, True)
    np.testing.assert_array_equal(slopes.mean[:2], 0.0)
    assert "intercept" not in slopes.description
    empty = choose_prior("default", "gaussian", Y, np.zeros((50, 1)), NONE, True)
    assert empty.mean[0] == 0.0 and np.isfinite(empty.sd).all()


# --- settings ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("family", ["gaussian", "gamma", "poisson", "negative_binomial"])
@pytest.mark.parametrize("number", [2.5, 3, np.float64(0.1)])
def test_a_number_is_the_sd_of_every_coefficient(family, number):
    default, chosen = choose(family=family, random=Z), choose(number, family, Z)
    np.testing.assert_array_equal(chosen.mean[:3], 0.0)
    np.testing.assert_array_equal(chosen.sd[:3], float(number))
    np.testing.assert_array_equal(chosen.mean[3:], default.mean[3:])
    np.testing.assert_array_equal(chosen.sd[3:], default.sd[3:])
    assert chosen.description.startswith(f"N(0, {float(number):g}²) on every fixed effect, ")


@pytest.mark.parametrize("family", ["gaussian", "gamma", "poisson"])
def test_single_coefficients(family):
    default, chosen = choose(family=family), choose({"age": (0.1, 0.5), "x": 2}, family)
    np.testing.assert_array_equal(chosen.mean, [default.mean[0], 0.0, 0.1, *default.mean[3:]])
    np.testing.assert_array_equal(chosen.sd, [default.sd[0], 2.0, 0.5, *default.sd[3:]])
    assert chosen.description.startswith("age N(0.1, 0.5²), x N(0, 2²); other coefficients ")


def test_words_of_settings():
    assert choose(4).description == "N(0, 4²) on every coefficient"
    assert choose({"x": 1}).description == "x N(0, 1²); other coefficients N(0, 10²)"
    every = dict.fromkeys(NAMES, 1.0)
    assert choose(every).description == "Intercept N(0, 1²), x N(0, 1²), age N(0, 1²)"
    assert "; N(0, 10²) on ω; sd of " in choose(every, random=Z).description
    assert choose({}).description == choose().description
    many = tuple(f"x{k}" for k in range(9))
    wide = choose_prior(dict.fromkeys(many, 1), "poisson", Y, np.ones((50, 9)), NONE, False, names=many)
    assert "x5 N(0, 1²), ... (9 in all)" in wide.description


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


def test_a_dict_needs_names():
    with pytest.raises(ValueError, match="needs the names"):
        choose_prior({"x": 1}, "poisson", Y, X, NONE, False)
