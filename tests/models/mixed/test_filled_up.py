"""Empty groups fill the layout up to few sizes: they change no answer, and the next data set compiles nothing."""

from pathlib import Path

import jax
import numpy as np
import pandas as pd
import pytest

import natvi
from natvi.linalg.buckets import LARGEST, bucket
from natvi.models.mixed.marginal import method as mixed_marginal
from natvi.models.mixed.marginal.density import MarginalDensity
from natvi.models.mixed.target import build_target
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


def test_another_data_set_of_similar_size_compiles_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mixed_marginal, "FIRST_DRAWS", 256)
    monkeypatch.setattr(mixed_marginal, "MOST_DRAWS", 256)
    compiled = []

    def listen(event: str, duration: float, **_: object) -> None:
        compiled.extend([event] * event.endswith("backend_compile_duration"))

    for method in ("gva", "marginal"):
        natvi.glmm("y ~ x + (1 | g)", counts(38, 5, seed=1), family="poisson").fit(method=method)
    jax.monitoring.register_event_duration_secs_listener(listen)
    for method in ("gva", "marginal"):
        other = natvi.glmm("y ~ x + (1 | g)", counts(34, 5, seed=2), family="poisson").fit(method=method)
        assert other.outcome == "converged"
    assert compiled == []


def test_a_marginal_fit_with_empty_groups_is_saved_whole(tmp_path: Path) -> None:
    fit = natvi.glmm("y ~ x + (1 | g)", counts(17, 5), family="poisson").fit(method="marginal")
    fit.save(tmp_path / "fit.natvi")
    again = natvi.load(tmp_path / "fit.natvi")
    assert len(fit.random_effects()) == 17
    pd.testing.assert_frame_equal(again.random_effects(), fit.random_effects())
