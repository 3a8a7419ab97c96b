"""Empty groups fill the layout up to few sizes: they change no answer, and the next data set compiles nothing."""

from pathlib import Path

import jax
import numpy as np
import pandas as pd
import pytest

import natvi
from natvi.linalg.buckets import LARGEST, bucket
from natvi.models.mixed.filling import with_filling, without_filling
from natvi.models.mixed.marginal import method as mixed_marginal
from natvi.models.mixed.marginal.density import MarginalDensity
from natvi.models.mixed.target import build_target
from natvi.run import storage
from natvi.run.exact.groups import climb_groups
from natvi.x64 import float64


def counts(groups: int, rows: int, seed: int = 0) -> pd.DataFrame:
    """Draw Poisson responses of groups of uneven sizes, one of them large."""
    rng = np.random.default_rng(seed)
    sizes = np.append(rng.integers(rows - 1, rows + 1, groups - 1), 5 * rows)
    g = np.repeat(np.arange(groups), sizes)
    x = rng.standard_normal(len(g))
    y = rng.poisson(np.exp(0.5 + 0.4 * x + 0.6 * rng.standard_normal(groups)[g]))
    return pd.DataFrame({"g": g, "x": x, "y": y})


def test_sizes_in_steps() -> None:
    sizes = np.arange(LARGEST + 100)
    steps = np.array([bucket(int(size)) for size in sizes])
    assert np.all(steps >= sizes) and np.all(np.diff(steps) >= 0) and np.all(steps <= np.maximum(sizes * 1.25, 8))
    assert len(set(steps[:1025])) < 60 and np.all(steps[LARGEST + 1 :] == sizes[LARGEST + 1 :])
    assert all(bucket(int(step)) == step for step in np.unique(steps))


@pytest.mark.parametrize(
    "formula", ["y ~ x + (1 | g)", "y ~ x + (x | g)", pytest.param("y ~ x + (x || g)", marks=pytest.mark.slow)]
)
def test_empty_groups_change_nothing(formula: str) -> None:
    model = natvi.glmm(formula, counts(17, 5), family="poisson")
    rows = (model.design, model.y, model.family, model.prior, model.weight, model.constant)
    with float64():
        plain, filled = (build_target(*rows, fill_up=fill_up) for fill_up in (False, True))
        fits = [climb_groups(case.target, case.start) for case in (plain, filled)]
        near = fits[0].gaussian.mean.shared + 0.1 * np.arange(-2, 3)[:, None]
        marginals = [
            MarginalDensity(case.target, fit.gaussian).values(near)
            for case, fit in zip((plain, filled), fits, strict=True)
        ]
    assert fits[1].gaussian.mean.local.shape[1] == 20 and len(filled.place_of_group) == 17
    assert fits[1].elbo == pytest.approx(fits[0].elbo, rel=1e-11)
    for part in ("mean.local", "factor.local", "factor.cross"):
        a, b = ((case, fit.gaussian) for case, fit in zip((plain, filled), fits, strict=True))
        first, second = (
            np.asarray(getattr(getattr(q, part.split(".")[0]), part.split(".")[1]))[..., case.place_of_group]
            for case, q in (a, b)
        )
        np.testing.assert_allclose(second, first, atol=1e-6)
    np.testing.assert_allclose(fits[1].gaussian.factor.shared, fits[0].gaussian.factor.shared, rtol=1e-6, atol=1e-6)
    np.testing.assert_allclose(marginals[1], marginals[0], rtol=1e-12)


def test_columns_of_zeros_change_nothing() -> None:
    """Five columns are filled up to six: the Gaussian and the marginal with its gradient stay what they are."""
    data = counts(17, 5)
    data = data.assign(**{f"z{k}": np.random.default_rng(k).standard_normal(len(data)) for k in range(3)})
    model = natvi.glmm("y ~ x + z0 + z1 + z2 + (1 | g)", data, family="poisson")
    rows = (model.design, model.y, model.family, model.prior, model.weight, model.constant)
    g = len(model.prior.mean)
    with float64():
        plain, filled = (build_target(*rows, fill_up=fill_up) for fill_up in (False, True))
        fits = [climb_groups(case.target, case.start).gaussian for case in (plain, filled)]
        assert [fit.mean.shared.shape for fit in fits] == [(6,), (7,)]
        np.testing.assert_array_equal(fits[1].inverse_shared[5], np.eye(7)[5])
        assert fits[1].mean.shared[5] == 0.0 and np.all(np.asarray(fits[1].factor.cross)[5] == 0.0)
        own = without_filling(filled.target, fits[1], g)
        near = np.asarray(fits[0].mean.shared) + 0.1 * np.arange(-2, 3)[:, None]
        scores = [MarginalDensity(case.target, q).scores(near) for case, q in ((plain, fits[0]), (filled, own))]
        again = with_filling(filled.target, own)
    np.testing.assert_allclose(own.mean.shared, fits[0].mean.shared, atol=1e-7)
    np.testing.assert_allclose(own.factor.shared, fits[0].factor.shared, rtol=1e-6, atol=1e-6)
    for first, second in zip(*scores, strict=True):
        np.testing.assert_allclose(second, first, rtol=1e-9, atol=1e-9)
    np.testing.assert_array_equal(again.factor.shared, fits[1].factor.shared)


def test_another_data_set_of_similar_size_compiles_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mixed_marginal, "FIRST_DRAWS", 256)
    monkeypatch.setattr(mixed_marginal, "FEW_DRAWS", 256)
    monkeypatch.setattr(mixed_marginal, "MOST_DRAWS", 256)
    compiled = []

    def listen(event: str, duration: float, **_: object) -> None:
        compiled.extend([event] * event.endswith("backend_compile_duration"))

    first, other = counts(38, 5, seed=1), counts(34, 5, seed=2)
    first["z"], other["z"] = np.cos(first["x"]), np.cos(other["x"])
    for method in ("gva", "marginal"):
        natvi.glmm("y ~ x + z + (1 | g)", first, family="poisson").fit(method=method)
    jax.monitoring.register_event_duration_secs_listener(listen)
    for method in ("gva", "marginal"):
        for formula in ("y ~ x + z + (1 | g)", "y ~ x * z + (1 | g)"):  # three columns and four
            assert natvi.glmm(formula, other, family="poisson").fit(method=method).outcome == "converged"
    assert compiled == []


def test_a_marginal_fit_with_empty_groups_is_saved_whole(tmp_path: Path) -> None:
    fit = natvi.glmm("y ~ x + (1 | g)", counts(17, 5), family="poisson").fit(method="marginal")
    fit.save(tmp_path / "fit.natvi")
    again = natvi.load(tmp_path / "fit.natvi")
    assert len(fit.random_effects()) == 17
    pd.testing.assert_frame_equal(again.random_effects(), fit.random_effects())


def test_a_marginal_fit_with_columns_that_fill_up_is_saved_whole(tmp_path: Path) -> None:
    data = counts(12, 5)
    data["z"] = np.cos(data["x"])
    fit = natvi.glmm("y ~ x + z + (1 | g)", data, family="poisson").fit(method="marginal")  # three columns of four
    path = fit.save(tmp_path / "fit.natvi")
    again = natvi.load(path)
    pd.testing.assert_frame_equal(again.random_effects(), fit.random_effects())
    pd.testing.assert_frame_equal(again.predict(data.head()), fit.predict(data.head()))
    arrays, document = storage.read(path, "fit")
    arrays["rows_X"] = np.ones_like(arrays["rows_X"])
    storage.write(path, "fit", arrays, document)
    with pytest.raises(storage.StorageError, match="more columns of zeros"):
        natvi.load(path)
