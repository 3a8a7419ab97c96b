"""Mixed models against data: replicated responses, log-likelihoods, cross-validation, residuals."""

import numpy as np
import pandas as pd
import pytest
import scipy.stats
from scipy.special import expit

import natvi
from natvi.data import load_epilepsy


def small_binary(seed: int = 0, groups: int = 60, rows: int = 4, sd: float = 2.0) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    data = pd.DataFrame({"g": np.repeat(np.arange(groups), rows), "x": rng.uniform(-1, 1, groups * rows)})
    eta = -0.5 + data["x"] + sd * rng.standard_normal(groups)[data["g"]]
    return data.assign(y=(rng.uniform(size=len(data)) < expit(eta)).astype(int))


def test_predictive_checks_of_a_gaussian_fit() -> None:
    data = load_epilepsy()
    result = natvi.glmm("y ~ base*trt + age + visit + (1 | subject)", data, family="poisson").fit(method="gva")
    replicated = result.posterior_predictive(300, seed=1)
    assert replicated.shape == (300, 236) and np.all(replicated >= 0)
    fitted = result.predict(data)["mean"].to_numpy()
    # the mean of a replicate is that of the prediction
    assert abs(replicated.mean() / fitted.mean() - 1) < 0.03
    each = result.log_likelihood(200, seed=2)
    draws = result.sample(200, seed=2)
    columns = {"Intercept": np.ones(236), "base:trt": data["base"] * data["trt"]}
    columns |= {name: data[name] for name in ("base", "trt", "age", "visit")}
    eta = sum(np.outer(draws[name], column) for name, column in columns.items())
    eta = eta + draws["Intercept|subject"][:, data["subject"].to_numpy() - 1]
    np.testing.assert_allclose(each, scipy.stats.poisson.logpmf(data["y"].to_numpy(), np.exp(eta)), rtol=1e-9)
    np.testing.assert_allclose(result.log_likelihood(200, seed=2, data=data), each, rtol=1e-12)
    loo = result.loo(500, seed=0)
    assert -700 < loo.elpd < -630 and 40 < loo.p_loo < 130 and len(loo.pareto_k) == 236
    residuals = result.model.residuals(0)  # type: ignore[attr-defined]
    assert abs(np.mean(residuals.quantile)) < 0.2 and 0.6 < np.std(residuals.quantile) < 1.4
    for picture in (result.plot_residuals(), result.plot_predictive(50), result.plot_random_effects()):
        assert picture is not None


@pytest.mark.slow
def test_new_groups_and_trials_against_data() -> None:
    data = small_binary(1, groups=30)
    table = data.groupby("g", as_index=False).agg(y=("y", "sum"), x=("x", "mean")).assign(n=4)
    more = pd.concat([table, table.assign(x=-table["x"], y=4 - table["y"])], ignore_index=True)
    result = natvi.glmm("p(y, n) ~ x + (1 | g)", more, family="binomial").fit(method="gva")
    replicated = result.posterior_predictive(50)
    assert replicated.max() <= 4 and np.array_equal(result.model.observed(), more["y"])  # type: ignore[attr-defined]
    assert np.array_equal(replicated, np.round(replicated))
    unseen = more.head(6).assign(g=[1000, 1000, 1001, 1001, 0, 1])
    each = result.log_likelihood(40, data=unseen)
    assert each.shape == (40, 6) and np.all(each < 0)
    assert result.posterior_predictive(5, data=unseen.drop(columns="y")).shape == (5, 6)
    with pytest.raises(ValueError, match="num_draws must be a whole number of at least 1"):
        result.posterior_predictive(0)
    with pytest.raises(ValueError, match=r"GiB.*num_draws="):
        result.log_likelihood(10**8)
