"""Crossed models from batches of rows end at the bound of all rows at once."""

import numpy as np
import pandas as pd
import pytest

import natvi
from natvi.models.mixed.crossed.batches.door import crossed_batches

FORMULA = "y ~ x + (1 | a) + (0 + x | a) + (1 | b)"


@pytest.fixture(scope="module")
def table() -> pd.DataFrame:
    rng = np.random.default_rng(3)
    a, b, x = rng.integers(0, 25, 300), rng.integers(0, 7, 300), rng.normal(size=300)
    a[:25], b[:7] = np.arange(25), np.arange(7)
    eta = 0.5 + 0.3 * x + 0.6 * rng.normal(size=25)[a] + 0.4 * rng.normal(size=7)[b] + 0.3 * rng.normal(size=25)[a] * x
    y = rng.poisson(rng.gamma(3.0, np.exp(eta) / 3.0))
    return pd.DataFrame({"y": y, "x": x, "a": [f"a{k:02d}" for k in a], "b": b, "n": rng.integers(1, 3, 300)})


def test_batches_in_any_order_give_the_bound_of_all_rows(table, tmp_path):
    shuffled = table.sample(frac=1, random_state=0)
    parts = [shuffled.iloc[:130], shuffled.iloc[130:]]
    model = crossed_batches(
        FORMULA, lambda _: parts, family="negative_binomial", prior="paper", weights="n", folder=tmp_path, batch_rows=64
    )
    fit = model.fit(method="gva")
    whole = natvi.glmm(FORMULA, table, family="negative_binomial", prior="paper", weights="n").fit(method="gva")
    assert fit.outcome == "converged" and fit.trust == "use with care"
    assert fit.elbo == pytest.approx(whole.elbo, abs=1e-6)
    pd.testing.assert_frame_equal(fit.summary(), whole.summary(), rtol=1e-4, atol=1e-5)
    pd.testing.assert_frame_equal(fit.random_effects(), whole.random_effects(), rtol=1e-4, atol=1e-5)
    again = natvi.load(fit.save(tmp_path / "fit.natvi"))
    assert again.predict(table.head()).shape == (5, 4)
    with pytest.raises(ValueError, match="in memory"):
        model.fit(method="integrated")


def test_what_batches_cannot_take_is_refused(table):
    with pytest.raises(ValueError, match="one grouping factor"):
        crossed_batches("y ~ x + (1 | a)", lambda _: [table])
    with pytest.raises(ValueError, match="not yet supported: the response"):
        crossed_batches("log(y) ~ x + (1 | a) + (1 | b)", lambda _: [table])
    holes = table.assign(b=table["b"].astype(float).where(table.index > 5))
    with pytest.raises(ValueError, match="missing"):
        crossed_batches("y ~ x + (1 | a) + (1 | b)", lambda epoch: [table if epoch == 0 else holes])
