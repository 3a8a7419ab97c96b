"""How a generalized linear model is fitted: scales, states, checkpoints, and the paper's stochastic algorithms."""

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import natvi
from natvi.models.linear.methods import column_scales
from natvi.models.regression.options import RULES
from natvi.run.storage.file_format import StorageError


def table(n: int = 40) -> pd.DataFrame:
    rng = np.random.default_rng(2)
    x = rng.normal(size=n)
    return pd.DataFrame({"x": x, "count": rng.poisson(np.exp(0.7 + 0.4 * x)), "size": 2.0 + x + rng.normal(size=n)})


def fit(data: pd.DataFrame | None = None, structure: str = "dense", **options: Any) -> natvi.Result:
    return natvi.glm("count ~ x", table() if data is None else data, family="poisson", structure=structure).fit(
        **options
    )


@pytest.mark.parametrize("factor", [1e6, 1e-8])
@pytest.mark.parametrize("structure", ["dense", "diagonal"])
def test_the_unit_of_a_column_does_not_matter(structure: str, factor: float) -> None:
    settings = {"family": "poisson", "structure": structure}
    plain = natvi.glm("count ~ x", table(), prior={"x": 3.0}, **settings).fit()
    scaled = natvi.glm(
        "count ~ x", table().assign(x=factor * table()["x"]), prior={"x": 3.0 / factor}, **settings
    ).fit()
    assert scaled.outcome == "converged" and scaled.elbo == pytest.approx(plain.elbo, abs=1e-7)
    unit = np.array([[1.0], [1.0 / factor]])
    np.testing.assert_allclose(scaled.summary(), unit * plain.summary(), rtol=1e-4)
    ours, theirs = (np.stack(list(result.sample(50, seed=0).values())) for result in (scaled, plain))
    np.testing.assert_allclose(ours, unit * theirs, rtol=1e-3)


def test_the_unit_of_a_response_does_not_matter() -> None:
    plain = natvi.glm("size ~ x", table()).fit()
    large = natvi.glm("size ~ x", table().assign(size=1e6 * table()["size"])).fit()
    np.testing.assert_allclose(large.summary(), 1e6 * plain.summary(), rtol=1e-4)


def test_columns_of_similar_size_are_left_alone() -> None:
    X = np.array([[1.0, 20.0, 0.0], [1.0, -30.0, 0.0]])
    assert column_scales(X) is None
    scales = column_scales(X * [1.0, 1e5, 1.0])
    assert scales is not None and scales[0] == scales[2] == 1.0 and np.log2(scales[1]) % 1 == 0


def test_going_on_gives_the_same_bits(tmp_path: Path) -> None:
    whole = fit()
    part = fit(max_steps=1)
    assert part.outcome == "max_steps" and "fit(state=result.state)" in repr(part)
    resumed = fit(state=part.state)
    kept = fit(max_steps=1, checkpoint=tmp_path / "state.natvi")
    assert kept.elbo == part.elbo
    continued = fit(checkpoint=tmp_path / "state.natvi")
    for result in (resumed, continued):
        assert result.elbo == whole.elbo and result.trace.tobytes() == whole.trace.tobytes()
        assert result.model.mean.tobytes() == whole.model.mean.tobytes()
        assert result.model.factor.tobytes() == whole.model.factor.tobytes()
    with pytest.raises(StorageError, match="another model or other data"):
        fit(table().assign(x=table()["x"] ** 2), checkpoint=tmp_path / "state.natvi")


@pytest.mark.parametrize(
    ("structure", "options"),
    [
        ("dense", {"optimizer": "snngm", "order": 2, "step_size": 0.01}),
        ("diagonal", {"optimizer": "adam", "step_size": 0.01, "batch_size": 20, "num_samples": 4}),
    ],
)
def test_stochastic_fits_come_close_to_the_exact_one(structure: str, options: dict[str, Any]) -> None:
    exact, noisy = (fit(structure=structure, **more) for more in ({}, {"method": "gva", "seed": 1, **options}))
    assert noisy.outcome == "converged" and (noisy.method, noisy.optimizer) == ("gva", options["optimizer"])
    assert 0 <= exact.elbo - noisy.elbo < 0.1 and noisy.elbo_se == 0
    np.testing.assert_allclose(noisy.model.mean, exact.model.mean, atol=0.3 * exact.model.sds.max())
    assert noisy.steps is not None and noisy.steps == 100 * len(noisy.trace)


def test_a_stochastic_fit_repeats_and_goes_on() -> None:
    options: dict[str, Any] = {"method": "gva", "optimizer": "nagm", "step_size": 0.01, "seed": 3}
    whole, part = fit(max_steps=300, **options), fit(max_steps=150, **options)
    again = fit(max_steps=300, state=part.state, **options)
    assert part.outcome == "max_steps" and part.elbo < whole.elbo
    assert again.model.mean.tobytes() == whole.model.mean.tobytes() and again.elbo == whole.elbo


@pytest.mark.parametrize(
    ("optimizer", "structure"),
    [*((rule, shape) for rule in RULES for shape in ("dense", "diagonal")), ("ivon", "diagonal")],
)
def test_every_optimizer_climbs(optimizer: str, structure: str, monkeypatch: pytest.MonkeyPatch) -> None:
    options: dict[str, Any] = {"method": "gva", "optimizer": optimizer, "step_size": 0.02, "num_samples": 4}
    first, later = (fit(structure=structure, max_steps=steps, **options) for steps in (1, 40))
    assert later.outcome == "max_steps" and later.steps == 40 and later.optimizer == optimizer
    assert np.isfinite(first.elbo) and later.elbo > first.elbo + 1.0
    assert np.all(np.isfinite(later.model.sds)) and later.model.sds.min() > 0


def test_methods_of_before_are_understood_with_a_warning() -> None:
    new = fit(method="gva")
    assert (new.method, new.optimizer, new.structure) == ("gva", "ascent", "dense")
    with pytest.warns(DeprecationWarning, match="method='exact' is now method='gva' with optimizer='ascent'"):
        assert fit(method="exact").elbo == new.elbo
    with pytest.warns(DeprecationWarning, match="method='gva' with optimizer='adam'"):
        noisy = fit(method="stochastic", optimizer="adam", max_steps=20)
    assert (noisy.method, noisy.optimizer) == ("gva", "adam") and "gva with adam" in repr(noisy)
    with pytest.raises(ValueError, match="new words: method='gva' with optimizer='ascent' or optimizer='adam'"):
        fit(method="exact", optimizer="adam")
