"""What a result offers depends on its model: asking for what a model lacks says which models have it."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import natvi
from natvi.result import registry
from natvi.result.model import FittedModel, HasConstraints, HasRandomEffects, HoldsRows, Predicts


@pytest.fixture(scope="module")
def density() -> natvi.Result:
    def logdensity(x):
        return -0.5 * x["a"] @ x["a"] - x["s"]

    return natvi.fit(logdensity, {"a": np.zeros(2), "s": np.ones(())}, constrain={"s": "positive"})


@pytest.fixture(scope="module")
def counts() -> natvi.Result:
    rng = np.random.default_rng(0)
    return natvi.glm_arrays(rng.normal(size=(40, 2)), rng.poisson(2.0, 40), family="poisson").fit()


def test_models_have_what_they_offer_and_no_more(density: natvi.Result, counts: natvi.Result) -> None:
    capabilities = (Predicts, HasRandomEffects, HasConstraints, HoldsRows)
    for result, has in ((density, (False, False, True, False)), (counts, (True, False, False, True))):
        assert isinstance(result.model, FittedModel)
        assert tuple(isinstance(result.model, capability) for capability in capabilities) == has


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda fit: fit.predict(), r"predict.*natvi\.glm, natvi\.glmm"),
        (lambda fit: fit.random_effects(), r"no random effects.*Fits of natvi\.glmm"),
        (lambda fit: fit.variance_components(), r"no random effects.*natvi\.glmm"),
        (lambda fit: fit.fixed_effects(), r"no coefficients.*natvi\.glm"),
        (lambda fit: fit.loo(), r"loo are offered by fits of natvi\.glm and natvi\.glmm"),
        (lambda fit: fit.plot_residuals(), r"Residuals.*natvi\.glm"),
        (lambda fit: fit.prior_sensitivity(), r"held against data"),
    ],
)
def test_what_a_log_density_lacks(density: natvi.Result, call, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        call(density)


def test_constraints(density: natvi.Result, counts: natvi.Result) -> None:
    assert density.constraints() == {"a": "real", "s": "positive"}
    with pytest.raises(ValueError, match=r"no constrained parameters. Fits of natvi\.fit"):
        counts.constraints()


def test_tables_carry_roles_and_texts_make_the_title(density: natvi.Result, counts: natvi.Result) -> None:
    assert list(density.tables()) == ["parameters"] and "\nParameters\n" in repr(density)
    assert list(counts.tables()) == ["coefficients"] and "\nCoefficients\n" in repr(counts)
    pd.testing.assert_frame_equal(counts.tables(0.9)["coefficients"], counts.fixed_effects(0.9))


def test_a_log_density_has_a_report(density: natvi.Result, tmp_path: Path) -> None:
    assert "Parameters" in density.report(tmp_path / "page.html").read_text("utf-8")


def test_every_kind_of_model_says_how_it_is_read() -> None:
    from natvi.models import loading

    loading._ask_models()
    assert set(registry.MODULES) >= {"glm", "glmm", "glmm_batches", "density", "deep_glm"}
    for kind in registry.MODULES:
        module = registry.find_module(kind)
        assert callable(module.check) and callable(module.restore)
