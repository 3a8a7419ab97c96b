"""Rows that count for nothing fill data up to few sizes: no answer changes, and the next data set compiles nothing."""

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
import pytest

import natvi
from natvi.linalg.buckets import bucket
from natvi.models.linear.methods import build_target
from natvi.run.exact.rows import climb_rows
from natvi.x64 import float64


def data(rows: int, seed: int) -> pd.DataFrame:
    """Draw gamma responses, for which zeros would be refused, and yes/no ones."""
    rng = np.random.default_rng(seed)
    x, z = rng.standard_normal((2, rows))
    y = rng.gamma(2.0, np.exp(0.5 + 0.4 * x - 0.2 * z) / 2.0)
    return pd.DataFrame({"x": x, "z": z, "y": y, "yes": (rng.uniform(size=rows) < 1 / (1 + np.exp(-x))).astype(int)})


@pytest.mark.parametrize("structure", ["dense", "diagonal"])
def test_rows_that_count_for_nothing_change_nothing(structure: str) -> None:
    model = natvi.glm("y ~ x + z", data(83, 1), family="gamma")
    parts = (model.rows, model.family, model.prior, None)
    with float64():
        plain, filled = (build_target(*parts, fill_up=fill_up) for fill_up in (False, True))
        assert [target.rows.X.shape[0] for target in (plain, filled)] == [83, bucket(83)]
        theta = jnp.array([0.3, 0.2, -0.1, 0.5])
        assert float(filled.value(theta)) == pytest.approx(float(plain.value(theta)), rel=1e-13)
        first, second = (climb_rows(target, structure) for target in (plain, filled))
    assert second.elbo == pytest.approx(first.elbo, rel=1e-12)
    np.testing.assert_allclose(second.gaussian.mean, first.gaussian.mean, atol=1e-6)


def test_another_number_of_rows_compiles_nothing() -> None:
    compiled = []

    def listen(event: str, duration: float, **_: object) -> None:
        compiled.extend([event] * event.endswith("backend_compile_duration"))

    natvi.glm("yes ~ x + z", data(230, 2), family="bernoulli").fit()
    jax.monitoring.register_event_duration_secs_listener(listen)
    assert natvi.glm("yes ~ x + z", data(250, 3), family="bernoulli").fit().outcome == "converged"
    assert compiled == []
