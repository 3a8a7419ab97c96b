"""Mixed models from batches of groups end at the bound of the exact ascent."""

import numpy as np
import pandas as pd
import pytest

import natvi
from natvi.fit import group_steps
from natvi.fit.group_batches import GroupedArrays
from natvi.models import batch_state
from natvi.models.batch_state import BatchNames
from natvi.models.mixed_batches import BatchFitError, fit_mixed_batches
from strategies import compile_fits_quickly, quick_jit

quick_solve = quick_jit(group_steps.solve_batch.__wrapped__)


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    compile_fits_quickly(monkeypatch)
    monkeypatch.setattr(batch_state, "solve_batch", quick_solve)


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
    np.testing.assert_allclose((fit.mean - mean) / np.sqrt(np.diag(covariance)), 0, atol=0.01)
    np.testing.assert_allclose(fit.covariance, covariance, rtol=0.01, atol=1e-6)
    posterior = fit.posterior(np.arange(5))
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
            fit.posterior()


@pytest.mark.slow
def test_random_slopes_groups_of_unequal_size_and_priors_on_sds():
    rng = np.random.default_rng(5)
    sizes = rng.integers(1, 12, 60)
    group = rng.permutation(np.repeat(np.arange(60), sizes))
    x = rng.normal(size=len(group))
    effects = rng.normal(size=(60, 2)) * [0.8, 0.4]
    y = rng.poisson(np.exp(1 + 0.5 * x + effects[group, 0] + effects[group, 1] * x))
    frame = pd.DataFrame({"y": y, "x": x, "g": group})
    prior = {"Intercept": 5, "sd": ("half_t", 3, 1)}
    model = natvi.glmm("y ~ x + (x || g)", frame, family="poisson", prior=prior)
    names = BatchNames(("Intercept", "x"), ("Intercept", "x"), "g", correlated=False)
    fit = fit_mixed_batches(arrays(model, 20), family="poisson", prior=prior, names=names, gap=1e-4)
    assert fit.elbo == pytest.approx(model.fit(method="gva").elbo, abs=0.01)
    assert list(fit.summary().index) == ["Intercept", "x", "log W(Intercept)", "log W(x)"]
    assert fit.prior.count("half-t(3, 1)") == 2
