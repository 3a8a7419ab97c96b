"""The doors of generalized linear models: the right posterior, and the same one whichever way the data come in."""

import numpy as np
import pandas as pd
import pytest
from scipy.optimize import minimize
from scipy.special import expit, gammaln, log_expit

import natvi
from natvi.data import load_a4a, load_german
from natvi.models.regression.binomial import log_choose

NODES, WEIGHTS = np.polynomial.hermite_e.hermegauss(40)
WEIGHTS = WEIGHTS / WEIGHTS.sum()


def table(n: int = 40, seed: int = 0) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    x = rng.normal(size=n)
    trials = rng.integers(1, 4, n)
    return pd.DataFrame(
        {
            "x": x,
            "event": (rng.random(n) < expit(0.5 + x)).astype(int),
            "count": rng.poisson(np.exp(0.7 + 0.4 * x)),
            "size": 2.0 + 0.5 * x + 0.3 * rng.normal(size=n),
            "trials": trials,
            "wins": rng.binomial(trials, expit(x)),
            "exposure": rng.uniform(0.5, 2.0, n),
            "times": rng.integers(1, 4, n),
        }
    )


def design(frame: pd.DataFrame) -> np.ndarray:
    return np.column_stack([np.ones(len(frame)), frame["x"]])


def bound(log_density, frame, y, mean, C, prior_sd=10.0) -> float:
    """The ELBO written out: Gauss-Hermite for each row, the prior and the entropy in closed form."""
    X = design(frame)
    m, s = X @ mean, np.linalg.norm(X @ C, axis=1)
    likelihood = np.sum(log_density(y[:, None], m[:, None] + s[:, None] * NODES) @ WEIGHTS)
    prior = -np.sum(mean**2 + np.sum(C**2, axis=1)) / (2 * prior_sd**2) - len(mean) * np.log(prior_sd)
    return float(likelihood + prior + np.sum(np.log(np.abs(np.diag(C)))) + 0.5 * len(mean))


DENSITIES = {
    "bernoulli": ("event", lambda y, eta: log_expit(np.where(y == 1, eta, -eta))),
    "poisson": ("count", lambda y, eta: y * eta - np.exp(eta) - gammaln(y + 1)),
}


def same(one: natvi.Result, other: natvi.Result, difference: float = 0.0) -> None:
    assert one.outcome == other.outcome == "converged"
    assert one.elbo == pytest.approx(other.elbo + difference, abs=1e-6)
    pd.testing.assert_frame_equal(one.summary(), other.summary(), rtol=1e-4, check_names=False)


# --- the optimum -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("family", DENSITIES)
def test_the_bound_is_at_its_maximum_and_close_to_the_evidence(family: str) -> None:
    frame = table()
    name, log_density = DENSITIES[family]
    result = natvi.glm(f"{name} ~ x", frame, family=family, prior="paper").fit()
    y = frame[name].to_numpy(dtype=float)
    mean, C = result.model.mean, result.model.factor
    assert result.elbo == pytest.approx(bound(log_density, frame, y, mean, C), abs=1e-7)

    def loss(v):
        return -bound(log_density, frame, y, v[:2], np.array([[np.exp(v[2]), 0], [v[4], np.exp(v[3])]]))

    start = np.array([*mean, np.log(C[0, 0]), np.log(C[1, 1]), C[1, 0]]) + 0.05
    best = minimize(loss, start, method="BFGS", options={"gtol": 1e-7})
    assert -best.fun == pytest.approx(result.elbo, abs=1e-6)
    np.testing.assert_allclose(best.x[:2], mean, atol=1e-3)
    # the posterior itself, on a grid
    sds = result.model.sds
    grid = [m + s * np.linspace(-7, 7, 161) for m, s in zip(mean, sds, strict=True)]
    theta = np.stack([axis.ravel() for axis in np.meshgrid(*grid, indexing="ij")], axis=1)
    log_joint = np.sum(log_density(y, theta @ design(frame).T), axis=1)
    log_joint += np.sum(-0.5 * (theta / 10) ** 2 - np.log(10 * np.sqrt(2 * np.pi)), axis=1)
    weight = np.exp(log_joint - log_joint.max())
    cell = np.prod([axis[1] - axis[0] for axis in grid])
    evidence = log_joint.max() + np.log(weight.sum() * cell)
    assert 0 < evidence - result.elbo < 0.1
    exact_mean = weight @ theta / weight.sum()
    exact_sd = np.sqrt(weight @ (theta - exact_mean) ** 2 / weight.sum())
    assert np.max(np.abs(exact_mean - mean) / sds) < 0.1 and np.max(np.abs(np.log(exact_sd / sds))) < 0.1
    assert result.trust == "good" and "held against the exact posterior" in result.trust_reasons[1]


def test_gaussian_response_is_ridge_regression_given_sigma() -> None:
    frame = table()
    result = natvi.glm("size ~ x", frame, prior={"x": (1.0, 0.05), "Intercept": (1.0, 8.0)}).fit()
    model = result.model
    mean, covariance = model.mean, model.factor @ model.factor.T
    # E sigma^-2; the precision of beta is that of the conjugate posterior, and so nearly is its mean
    precision = np.exp(-2 * mean[2] + 2 * covariance[2, 2])
    X, y = design(frame), frame["size"].to_numpy()
    S = precision * X.T @ X + np.diag(model.prior.sd[:2] ** -2.0)
    expected = np.linalg.solve(S, precision * X.T @ y + model.prior.mean[:2] / model.prior.sd[:2] ** 2)
    np.testing.assert_allclose(mean[:2], expected, atol=0.1 * model.sds[:2].min())
    np.testing.assert_allclose(np.linalg.inv(covariance)[:2, :2], S, rtol=1e-3)
    assert 0.5 < mean[1] < 1.0  # between the data and the prior
    assert result.summary().index.tolist() == ["Intercept", "x", "sigma"]
    assert "x N(1, 0.05²)" in repr(result) and "Dispersion" in repr(result)


@pytest.mark.needs_data
@pytest.mark.parametrize(("structure", "elbo"), [("dense", -625.588), ("diagonal", -638.938)])
def test_german(structure: str, elbo: float) -> None:
    X, y, names = load_german()
    result = natvi.glm_arrays(X, y, family="bernoulli", names=names, structure=structure, prior="paper").fit()
    assert result.outcome == "converged" and result.elbo == pytest.approx(elbo, abs=2e-3)
    assert result.trust == ("good" if structure == "dense" else "use with care")


@pytest.mark.needs_data
def test_a4a() -> None:
    """Nearly separated columns, on which the plain fixed point does not converge."""
    X, y, names = load_a4a()[0]
    result = natvi.glm_arrays(X, y, family="bernoulli", names=names, prior="paper").fit(method="gva")
    assert result.outcome == "converged" and result.steps < 15
    assert result.elbo == pytest.approx(-1842.244, abs=2e-3)
    text = " ".join(result.trust_reasons)
    assert "'feature_123' are zero in every row" in text and "collinear" in text and "separate" in text


# --- ways in -----------------------------------------------------------------------------------------------


def test_arrays_equal_formula_and_weights_count_rows() -> None:
    frame = table()
    X, y, times = design(frame), frame["count"].to_numpy(), frame["times"]
    weighted = natvi.glm("count ~ x", frame, family="poisson", weights="times").fit()
    arrays = natvi.glm_arrays(X, y, family="poisson", names=("Intercept", "x"), weights=times).fit()
    added = natvi.glm_arrays(X[:, 1:], y, family="poisson", names=["x"], intercept=True, weights=times.to_numpy()).fit()
    twice = frame.loc[frame.index.repeat(times)]
    repeated = natvi.glm("count ~ x", twice, family="poisson").fit()
    same(arrays, weighted)
    same(added, weighted)
    same(repeated, weighted)
    rows = pd.DataFrame({"x": [0.5, -1.0]})
    expected = weighted.predict(rows)
    for result, new in ((arrays, design(rows)), (added, rows[["x"]]), (added, rows.to_numpy())):
        pd.testing.assert_frame_equal(result.predict(new), expected, rtol=1e-4)


def test_rows_of_weight_zero_are_left_out() -> None:
    frame = table()
    times = frame["times"].where(frame.index < 30, 0)
    model = natvi.glm_arrays(design(frame), frame["count"], family="poisson", weights=times)
    formula = natvi.glm("count ~ x", frame.assign(times=times), family="poisson", weights="times")
    for each in (model, formula):
        assert each.rows.X.shape == (30, 2) and "10 of 40 rows left out: weight zero" in each.notes


def test_trials_are_expanded_rows() -> None:
    frame = table()
    grouped = natvi.glm("p(wins, trials) ~ x", frame, family="binomial").fit(tolerance=1e-12)
    wins, trials = frame["wins"].to_numpy(), frame["trials"].to_numpy()
    each = np.concatenate([np.repeat([1, 0], [y, n - y]) for y, n in zip(wins, trials, strict=True)])
    rows = design(frame)[np.repeat(np.arange(40), trials)]
    expanded = natvi.glm_arrays(rows, each, family="bernoulli", names=("Intercept", "x")).fit(tolerance=1e-12)
    same(grouped, expanded, float(log_choose(trials, wins).sum()))
    arrays = natvi.glm_arrays(design(frame), wins, trials=trials, family="binomial", names=("Intercept", "x")).fit(
        tolerance=1e-12
    )
    same(arrays, grouped)
    replicated = grouped.posterior_predictive(200)
    assert replicated.shape == (200, 40) and np.all((replicated >= 0) & (replicated <= trials))


def test_offset() -> None:
    frame = table()
    formula = natvi.glm("count ~ x + offset(log(exposure))", frame, family="poisson").fit()
    exposure = np.log(frame["exposure"].to_numpy())
    arrays = natvi.glm_arrays(
        design(frame), frame["count"], family="poisson", names=("Intercept", "x"), offset=exposure
    ).fit()
    same(arrays, formula)
    twice = formula.predict(frame.assign(exposure=2 * frame["exposure"]))
    np.testing.assert_allclose(twice["mean"], 2 * formula.predict(frame)["mean"])
    again = arrays.predict({"X": design(frame), "offset": exposure})
    np.testing.assert_allclose(again, formula.predict(frame), rtol=1e-4)
    with pytest.raises(ValueError, match=r"no offset.*'offset': offset"):
        arrays.predict(design(frame))


def test_prior_is_settable_and_stated() -> None:
    frame = table()
    wide = natvi.glm("event ~ x", frame, family="bernoulli", prior="paper")
    assert wide.prior.description == "N(0, 10²) on every coefficient (paper)" and np.all(wide.prior.sd == 10)
    tight = natvi.glm("event ~ x", frame, family="bernoulli", prior=0.01).fit()
    assert tight.summary()["mean"].abs().max() < 0.02 and "N(0, 0.01²)" in repr(tight)
    scaled = natvi.glm("size ~ x", frame)
    assert scaled.prior.mean[0] == pytest.approx(frame["size"].mean())


def test_names_and_structures_are_checked() -> None:
    frame = table()
    with pytest.raises(ValueError, match="'dense', 'diagonal', not 'block'"):
        natvi.glm("event ~ x", frame, family="bernoulli", structure="block")
    with pytest.raises(ValueError, match=r"Use natvi\.glmm"):
        natvi.glm("count ~ x + (1 | times)", frame)


def test_counts_that_look_poisson_have_a_relative_spread_with_moments() -> None:
    # phi itself has none: its posterior falls like phi^(-3/2)
    rng = np.random.default_rng(5)
    data = pd.DataFrame({"x": rng.normal(size=80)})
    data["y"] = rng.poisson(np.exp(1.0 + 0.3 * data["x"]))
    fit = natvi.glm("y ~ x", data, family="negative_binomial").fit()
    row = fit.tables()["dispersion"].loc["1/sqrt(phi)"]
    drawn = fit.sample(4000, seed=1)
    spread = drawn["1/sqrt(phi)"]
    assert fit.trust == "good" and 0.0 < row["mean"] < 0.5
    np.testing.assert_allclose([row["mean"], row["sd"]], [spread.mean(), spread.std()], rtol=0.1)
    np.testing.assert_allclose(drawn["phi"], spread**-2.0)
