"""Pictures of mixed models, of the Gaussian and of the marginal fit, and the page that shows them."""

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from matplotlib.figure import Figure

import natvi
from natvi.models.mixed.marginal import method as mixed_marginal
from natvi.show import glm_plots, plots

ROWS = 120


@pytest.fixture(scope="module", params=["gva", "marginal"])
def result(request: pytest.FixtureRequest) -> natvi.Result:
    rng = np.random.default_rng(0)
    data = pd.DataFrame({"g": np.repeat(np.arange(20), 6), "x": rng.standard_normal(ROWS)})
    slopes = 0.6 * rng.standard_normal((20, 2))[data["g"]]
    data["y"] = rng.poisson(np.exp(1.0 + slopes[:, 0] + (0.3 + slopes[:, 1]) * data["x"]))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(mixed_marginal, "FIRST_DRAWS", 512)
        patch.setattr(mixed_marginal, "MOST_DRAWS", 512)
        return natvi.glmm("y ~ x + (1 + x | g)", data, family="poisson").fit(method=request.param)


def test_residuals_and_replicates(result: natvi.Result) -> None:
    left, right = result.plot_residuals()
    assert len(left.lines[0].get_xdata()) == len(right.lines[1].get_xdata()) == ROWS
    bars = result.plot_predictive(50)
    assert sum(patch.get_height() for patch in bars.patches) == ROWS


def test_every_effect_has_a_panel(result: natvi.Result) -> None:
    first = result.plot_random_effects()
    assert [ax.get_ylabel() for ax in first.figure.axes] == ["Intercept", "x"] and first is first.figure.axes[0]
    for ax in first.figure.axes:
        heights = ax.lines[0].get_ydata()
        assert len(heights) == 20 and np.all(np.diff(heights) >= 0)
    given: Any = Figure().subplots()
    assert result.plot_random_effects(ax=given) is given and len(given.figure.axes) == 1


def test_many_effects_and_groups_stay_readable() -> None:
    rng = np.random.default_rng(1)
    names = [f"x{k}" for k in range(6)]
    mean = rng.standard_normal(6 * 1000)
    effects = pd.DataFrame({"g": np.tile(np.arange(1000), 6), "effect": np.repeat(names, 1000), "mean": mean})
    effects = effects.assign(sd=1.0, low=mean - 2, high=mean + 2)
    panels = plots.caterpillar(effects).figure.axes
    assert [ax.get_ylabel() for ax in panels] == names[: plots.MOST_EFFECTS]
    assert all(len(ax.lines[0].get_ydata()) == plots.MOST_GROUPS for ax in panels)


def test_the_page_names_its_pictures(result: natvi.Result, tmp_path: Path) -> None:
    page = result.report(tmp_path / "page.html").read_text(encoding="utf-8")
    for words in ("Random effects of 20 groups of g: x, by g.", "Pearson residuals against", "Estimates with 95%"):
        assert f'<svg role="img" aria-label="{words}' in page


def test_far_residuals_do_not_squeeze_the_others() -> None:
    rng = np.random.default_rng(2)
    pearson = rng.standard_normal(500)
    left, _ = glm_plots.residuals(rng.uniform(size=500), pearson, pearson)
    assert len(left.lines[0].get_xdata()) == 500  # nothing far out: all as they are
    pearson[:2] = 40.0, -25.0
    left, _ = glm_plots.residuals(rng.uniform(size=500), pearson, pearson)
    assert len(left.lines[0].get_xdata()) == 498 and np.ptp(left.get_ylim()) < 20
    texts = [text.get_text() for text in left.get_legend().get_texts()]
    assert any(text.startswith("2 beyond") for text in texts)
    np.testing.assert_array_equal(np.sign(left.lines[1].get_ydata()), [1, -1])
