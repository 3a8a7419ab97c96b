"""Laws of the default prior: a change of units or of a zero changes no prediction, and no bound."""

from functools import cache
from itertools import product

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import natvi
from natvi.models.regression.prior.log_density import log_prior
from natvi.target.mixed.random_effects import omega_positions
from natvi.x64 import float64

N, GROUPS = 90, 9
CLOSE = 1e-4  # posterior sds
SHIFTS = st.sampled_from([0.0, -3.0, 2000.0, -1.5e4])
SCALES = st.sampled_from([1.0, 1e-4, 37.0, -2.5])
FEW = settings(max_examples=3)
KINDS = ("dense", "arrow", "marginal")


def table(family, seed=0):
    rng = np.random.default_rng(seed)
    x, z, o = rng.normal(size=N), rng.normal(size=N), rng.normal(0.0, 0.3, N)
    f, g = rng.choice(list("abc"), N), np.arange(N) % GROUPS
    effects = rng.normal(size=(GROUPS, 2)) @ [[0.5, 0.0], [0.1, 0.3]]
    eta = 0.4 + 0.5 * x - 0.3 * z + 0.2 * x * z + 0.5 * (f == "b") + effects[g, 0] + effects[g, 1] * x + o
    draws = {
        "gaussian": lambda: eta + rng.normal(0.0, 0.5, N),
        "poisson": lambda: rng.poisson(np.exp(eta)),
        "bernoulli": lambda: rng.binomial(1, 1 / (1 + np.exp(-eta))),
        "gamma": lambda: rng.gamma(3.0, np.exp(eta) / 3.0),
        "negative_binomial": lambda: rng.negative_binomial(4, 4 / (4 + np.exp(eta))),
    }
    return pd.DataFrame({"y": draws[family](), "x": x, "z": z, "o": o, "f": f, "g": g})


@cache
def first(kind, family, formula="y ~ x*z + f + offset(o)"):
    return fit(kind, table(family), family, formula)


def fit(kind, data, family, formula="y ~ x*z + f + offset(o)"):
    if kind == "dense":
        return natvi.glm(formula, data, family=family).fit(tolerance=1e-12)
    method = "gva" if kind == "arrow" else "marginal"
    return natvi.glmm(f"{formula} + (x | g)", data, family=family).fit(method=method, tolerance=1e-12)


def same(one, other, here, there, shift=0.0, factor=1.0, jacobian=0.0):
    """The predictors agree, once the second's are brought to the first's units."""
    a, b = one.predict(here, kind="link"), other.predict(there, kind="link")
    np.testing.assert_array_less(np.abs((b["mean"] - shift) / factor - a["mean"]) / a["sd"], CLOSE)
    np.testing.assert_array_less(np.abs(b["sd"] / abs(factor) / a["sd"] - 1.0), CLOSE)
    assert other.elbo - jacobian == pytest.approx(one.elbo, abs=1e-3)


@pytest.mark.parametrize(("kind", "family"), [*product(KINDS[:2], ["gaussian", "poisson", "bernoulli"])])
@FEW
@given(shift=SHIFTS, scale=SCALES, name=st.sampled_from(["x", "z"]))
def test_shift_and_scale_of_a_variable(kind, family, shift, scale, name):
    check_variable(kind, family, shift, scale, name)


# the marginal method takes seconds for a fit: one move each, far and by much; mirrored, one seed would give other draws
@pytest.mark.slow
@pytest.mark.parametrize(("family", "name", "scale"), [("gaussian", "x", 37.0), ("poisson", "z", 1e-4)])
def test_shift_and_scale_of_a_variable_in_the_marginal_method(family, name, scale):
    check_variable("marginal", family, -1.5e4, scale, name)


def check_variable(kind, family, shift, scale, name):
    data = table(family)
    moved = data.assign(**{name: shift + scale * data[name]})
    same(first(kind, family), fit(kind, moved, family), data, moved)


@pytest.mark.parametrize("kind", KINDS[:2])
@FEW
@given(shift=SHIFTS, scale=st.sampled_from([1e-3, 40.0]))
def test_units_of_a_gaussian_response(kind, shift, scale):
    check_response(kind, shift, scale)


def test_units_of_a_gaussian_response_in_the_marginal_method():
    check_response("marginal", 2000.0, 40.0)


def check_response(kind, shift, scale):
    data = table("gaussian")
    shift = scale * shift  # a response a million sds from zero would lose the digits that are compared
    moved = data.assign(y=shift + scale * data["y"], o=scale * data["o"])
    change = -N * np.log(scale)
    same(first(kind, "gaussian"), fit(kind, moved, "gaussian"), data, moved, shift, scale, change)


@pytest.mark.parametrize("kind", [*KINDS[:2], pytest.param("marginal", marks=pytest.mark.slow)])
def test_units_of_a_gamma_response(kind):
    data = table("gamma")
    moved = data.assign(y=1e3 * data["y"])
    units = np.log(1e3)
    same(first(kind, "gamma"), fit(kind, moved, "gamma"), data, moved, units, 1.0, -N * units)


@pytest.mark.parametrize(("kind", "family"), [*product(KINDS[:2], ["poisson", "bernoulli", "negative_binomial"])])
def test_a_constant_in_the_offset(kind, family):
    data = table(family)
    moved = data.assign(o=data["o"] + 3.0)
    same(first(kind, family), fit(kind, moved, family), data, moved)


@pytest.mark.slow
def test_cells_and_numbers_without_an_intercept():
    data = table("poisson")
    moved = data.assign(x=1e4 + 3.0 * data["x"])
    formula = "y ~ 0 + f + x*z + offset(o)"  # as many columns as elsewhere: nothing new is compiled
    same(fit("dense", data, "poisson", formula), fit("dense", moved, "poisson", formula), data, moved)


def test_arrays_follow_the_same_laws():
    data = table("bernoulli")
    X = data[["x", "z"]].to_numpy()
    moved = X * [1e-5, 10.0] + [400.0, -3.0]
    one, other = (natvi.glm_arrays(a, data["y"], family="bernoulli", intercept=True).fit() for a in (X, moved))
    same(one, other, X, moved)


@pytest.mark.parametrize("orders", [("1 + x", "x + 1"), ("1 + x + w", "w + 1 + x"), ("0 + x + w", "0 + w + x")])
def test_the_log_prior_knows_no_order_of_random_terms(orders):
    """As a density of the effects' covariance, in the user's units: log p(omega) - log |d vech(Sigma) / d omega|."""
    data = table("gaussian")
    data["w"] = data["z"] + 1.0
    models = [natvi.glmm(f"y ~ x + w + ({terms} | g)", data) for terms in orders]
    names = [model.design.random_names for model in models]
    rng = np.random.default_rng(0)
    for _ in range(5):
        A = rng.normal(size=(len(names[0]),) * 2)
        covariance = A @ A.T
        beta, disp = rng.normal(size=3), rng.normal()
        found = []
        for model, own in zip(models, names, strict=True):
            order = [names[0].index(name) for name in own]
            found.append(log_prior_of_covariance(model, beta, disp, covariance[np.ix_(order, order)]))
        assert found[0] == pytest.approx(found[1], abs=1e-10)


def log_prior_of_covariance(model, beta, disp, covariance):
    r, M = len(covariance), model.prior.coordinates.random
    M = np.eye(r) if M is None else M
    inner = np.linalg.solve(M, np.linalg.solve(M, covariance).T)
    W = np.linalg.cholesky(np.linalg.inv(inner))
    positions = omega_positions(r)
    omega = np.array([np.log(W[at]) if at[0] == at[1] else W[at] for at in positions])

    def entries(omega):
        W = jnp.zeros((r, r))
        for k, at in enumerate(positions):
            W = W.at[at].set(jnp.exp(omega[k]) if at[0] == at[1] else omega[k])
        return (M @ jnp.linalg.inv(W @ W.T) @ M.T)[jnp.tril_indices(r)]

    with float64():
        slope = np.asarray(jax.jacfwd(entries)(jnp.asarray(omega)))
    theta = np.concatenate([beta, [disp], omega])[None]
    return float(log_prior(model.prior, theta)[0] - np.linalg.slogdet(slope)[1])


@pytest.mark.slow
def test_the_order_of_random_terms():
    one = first("marginal", "gaussian")
    turned = natvi.glmm("y ~ x*z + f + offset(o) + (x + 1 | g)", table("gaussian"))
    a, b = one.summary(), turned.fit(method="marginal", tolerance=1e-12).summary()
    b = b.rename(index={"corr(x,Intercept|g)": "corr(Intercept,x|g)"}).loc[a.index]
    np.testing.assert_array_less(np.abs(a["mean"] - b["mean"]) / a["sd"], 0.05)
