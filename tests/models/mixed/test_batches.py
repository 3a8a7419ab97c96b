"""Mixed models from batches of groups end at the bound of the exact ascent."""

import numpy as np
import pandas as pd
import pytest

import natvi
from natvi.models.mixed.batches.door import fit_mixed_batches
from natvi.models.mixed.batches.posterior import BatchFitError
from natvi.models.mixed.batches.state import BatchNames
from natvi.run.batches.group_batches import GroupedArrays


def simulate(family: str, n: int, rows: int = 5, seed: int = 0) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    group = np.repeat(np.arange(n), rows)
    x, t = rng.normal(size=n * rows), rng.integers(0, 2, n)[group]
    eta = 0.3 + 0.4 * x - 0.5 * t + (rng.normal(size=n) * (0.7 if family == "poisson" else 1.5))[group]
    y = rng.poisson(np.exp(eta)) if family == "poisson" else rng.uniform(size=len(eta)) < 1 / (1 + np.exp(-eta))
    return pd.DataFrame({"y": y.astype(float), "x": x, "t": t, "g": group})


def arrays(model: natvi.MixedModel, batch_groups: int, **options) -> GroupedArrays:
    design = model.design
    rows = {"X": design.X, "Z": design.Z, "y": model.y, "offset": design.offset, "group": design.group_codes}
    return GroupedArrays(rows, batch_groups, **options)


@pytest.mark.slow
@pytest.mark.parametrize("family", ["poisson", "bernoulli"])
def test_two_thousand_groups(family):
    model = natvi.glmm("y ~ x + t + (1 | g)", simulate(family, 2000), family=family, prior="paper")
    exact = model.fit(method="gva")
    fit = fit_mixed_batches(arrays(model, 200), family=family, prior="paper")
    assert fit.outcome == "converged" and len(fit.trace) < 15
    assert fit.elbo == pytest.approx(exact.elbo, abs=0.002)
    mean, covariance = exact.model.shared_moments()
    own_mean, own_covariance = fit.model.shared_moments()
    np.testing.assert_allclose((own_mean - mean) / np.sqrt(np.diag(covariance)), 0, atol=0.01)
    np.testing.assert_allclose(own_covariance, covariance, rtol=0.01, atol=1e-6)
    posterior = fit.model.posterior(np.arange(5))
    np.testing.assert_allclose(posterior.mean.local, exact.model.posterior.mean.local[:, :5], atol=1e-3)


@pytest.mark.parametrize("blocks", ["memory", "recompute"])
def test_epilepsy(blocks):
    formula = "y ~ base*trt + age + visit + (1 | subject)"
    model = natvi.glmm(formula, natvi.data.load_epilepsy(), family="poisson", prior="paper")
    fit = fit_mixed_batches(arrays(model, 15, seed=3), family="poisson", prior="paper", blocks=blocks)
    assert fit.outcome == "converged"
    assert fit.elbo == pytest.approx(-695.792, abs=0.002)
    assert abs(fit.trace[-1] - fit.elbo) < 0.01
    if blocks == "recompute":
        with pytest.raises(BatchFitError, match=r"not kept\. Fit with blocks='memory'"):
            fit.model.posterior()


def slopes(seed: int = 5) -> pd.DataFrame:
    """Return counts in 60 groups of unequal size, in no order, with correlated intercepts and slopes."""
    rng = np.random.default_rng(seed)
    sizes = rng.integers(1, 12, 60)
    group = rng.permutation(np.repeat(np.arange(60), sizes))
    x = rng.normal(size=len(group))
    effects = rng.normal(size=(60, 2)) @ np.array([[0.8, 0.2], [0.0, 0.4]])
    y = rng.poisson(np.exp(1 + 0.5 * x + effects[group, 0] + effects[group, 1] * x))
    return pd.DataFrame({"y": y, "x": x, "g": group})


@pytest.mark.slow
def test_random_slopes_have_sds_a_correlation_and_a_dispersion():
    rng = np.random.default_rng(5)
    group, x = np.repeat(np.arange(40), 5), rng.normal(size=200)
    effects = rng.normal(size=(40, 2)) @ np.array([[0.8, 0.3], [0.0, 0.4]])
    y = 1 + 0.5 * x + effects[group, 0] + effects[group, 1] * x + 0.5 * rng.normal(size=200)
    X = np.column_stack([np.ones(200), x])
    names = BatchNames(("Intercept", "x"), ("Intercept", "x"), "g")
    fit = fit_mixed_batches(GroupedArrays({"X": X, "Z": X, "y": y, "group": group}, 20), prior="paper", names=names)
    table = fit.summary(prob=0.9)
    components = ["sd(Intercept|g)", "sd(x|g)", "corr(Intercept,x|g)", "sigma"]
    assert list(table.index) == ["Intercept", "x", *components] and list(table.columns) == ["mean", "sd", "q5", "q95"]
    assert [list(part.index) for part in fit.tables().values()] == [["Intercept", "x"], components]
    mean, covariance = fit.model.user_moments()
    np.testing.assert_allclose(table["mean"].iloc[:2], mean[:2])
    # (beta, log sigma, log W_11, W_21, log W_22), random effects of precision W W'
    draws = rng.multivariate_normal(mean, covariance, 50_000)
    W = np.zeros((len(draws), 2, 2))
    W[:, 0, 0], W[:, 1, 0], W[:, 1, 1] = np.exp(draws[:, 3]), draws[:, 4], np.exp(draws[:, 5])
    S = np.linalg.inv(W @ W.swapaxes(1, 2))
    sds = np.sqrt(S[:, [0, 1], [0, 1]])
    values = np.column_stack([sds, S[:, 0, 1] / sds.prod(1), np.exp(draws[:, 2])])
    parts = [values.mean(0), values.std(0), *np.quantile(values, [0.05, 0.95], axis=0)]
    gap = (table.loc[components].to_numpy() - np.stack(parts, axis=1)) / values.std(0)[:, None]
    np.testing.assert_allclose(gap, 0, atol=0.1)


@pytest.mark.slow
@pytest.mark.parametrize("bar", ["|", "||"])
def test_slopes_in_groups_of_unequal_size_and_priors_on_sds(bar):
    prior = {"Intercept": 5, "sd": ("half_t", 3, 1)}
    model = natvi.glmm(f"y ~ x + (x {bar} g)", slopes(), family="poisson", prior=prior)
    names = BatchNames(("Intercept", "x"), ("Intercept", "x"), "g", correlated=bar == "|")
    fit = fit_mixed_batches(arrays(model, 20), family="poisson", prior=prior, names=names, gap=1e-4)
    exact = model.fit(method="gva")
    assert fit.elbo == pytest.approx(exact.elbo, abs=0.01)
    own, other = fit.summary(), exact.summary()
    assert list(own.index) == list(other.index) and ("corr(Intercept,x|g)" in own.index) == (bar == "|")
    np.testing.assert_allclose((own - other).div(other["sd"], axis=0), 0, atol=0.05)
    assert fit.model.prior.description.count("half-t(3, 1)") == 2


def test_a_fit_from_batches_is_a_result(tmp_path):
    group = np.repeat(np.arange(30), 4)
    X = np.column_stack([np.ones(120), np.tile([-1.0, 0.0, 1.0, 2.0], 30)])
    y = np.random.default_rng(0).poisson(np.exp(0.3 * X[:, 1]))
    source = GroupedArrays({"X": X, "Z": X[:, :1], "y": y, "group": group}, 10)
    fit = fit_mixed_batches(source, family="poisson", blocks="recompute")
    assert isinstance(fit, natvi.Result) and (fit.method, fit.structure, fit.elbo_se) == ("gva", "arrow", 0.0)
    assert fit.trust == "use with care" and "not checked" in fit.trust_reasons[0]
    assert "30 groups of group, read in batches" in repr(fit) and "Fixed effects" in repr(fit)
    back = natvi.load(fit.save(tmp_path / "fit.natvi"))
    pd.testing.assert_frame_equal(back.summary(), fit.summary())
    draws, again = fit.sample(2000, seed=1), back.sample(2000, seed=1)
    assert list(draws) == ["x1", "x2", "sd(z1|group)"]
    np.testing.assert_array_equal(draws["x2"], again["x2"])
    gap = draws["x2"].mean() - fit.fixed_effects().loc["x2", "mean"]
    assert abs(gap) < 4 * fit.fixed_effects().loc["x2", "sd"] / np.sqrt(2000)
    with pytest.raises(ValueError, match=r"no random effects.*natvi\.glmm"):
        fit.random_effects()
    with pytest.raises(ValueError, match=r"how to predict.*natvi\.glm, natvi\.glmm"):
        fit.predict({"x": [1.0]})
    with pytest.raises(ValueError, match=r"held against data.*natvi\.glm and natvi\.glmm"):
        fit.loo()
    assert fit.report(tmp_path / "page.html").exists()
