"""The paper's stochastic ways at the formula door: noisy gva, rvb1 and rvb2, and the contract of their results."""

from pathlib import Path
from typing import Any

import jax
import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

import natvi
from natvi.cli.app import app
from natvi.linalg import ArrowVector
from natvi.models.mixed import storage
from natvi.models.mixed.noisy import method as mixed_methods
from natvi.models.mixed.noisy.method import judge_noise
from natvi.models.mixed.noisy.rvb import RvbFit
from natvi.run import Outcome
from natvi.run.interrupt import Interruption
from natvi.run.stochastic import loop as stochastic
from natvi.x64 import float64
from strategies import check_draws_against_tables, quick_jit

FORMULA = "y ~ x + (1 | g)"
NUM_DRAWS = 3000
NOISY: dict[str, Any] = {"optimizer": "snngm", "order": 2, "step_size": 0.01}


@pytest.fixture(autouse=True, scope="module")
def quick() -> Any:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(mixed_methods, "WINDOW", 20)
        patch.setattr(mixed_methods, "ELBO_DRAWS", 300)
        yield


@pytest.fixture
def unchecked(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave out the look at the exact marginal and the bound at the end where they are not what is tested."""
    monkeypatch.setattr(mixed_methods, "check_fit", lambda *_: ())
    monkeypatch.setattr(mixed_methods, "estimate_elbo", lambda *_: (-1.0, 0.1))


def counts() -> pd.DataFrame:
    """Return groups of different sizes in no order, so that the target has to arrange them."""
    rng = np.random.default_rng(3)
    sizes = rng.integers(2, 9, 14)
    g = rng.permutation(np.repeat(np.arange(14), sizes))
    x = rng.uniform(-1, 1, len(g))
    eta = 1.0 + 0.5 * x + 0.7 * rng.standard_normal(14)[g]
    return pd.DataFrame({"y": rng.poisson(np.exp(eta)), "x": x, "g": [f"g{code:02d}" for code in g]})


def model() -> natvi.MixedModel:
    return natvi.glmm(FORMULA, counts(), family="poisson", prior={"sd": ("half_normal", 1.0)})


@pytest.fixture(scope="module")
def exact(quick: Any) -> natvi.Result:
    return model().fit(method="gva")


@pytest.fixture(scope="module")
def fits(quick: Any) -> dict[str, natvi.Result]:
    """Two ways at their optimum, by second derivatives."""
    return {way: model().fit(method=way, max_steps=3000, **NOISY) for way in ("gva", "rvb2")}


@pytest.fixture(scope="module")
def rvb(fits: dict[str, natvi.Result]) -> natvi.Result:
    return fits["rvb2"]


# --- the fits ------------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("way", ["gva", "rvb2"])
def test_noisy_fits_find_the_posterior(fits: dict[str, natvi.Result], exact: natvi.Result, way: str) -> None:
    found, names = fits[way], ("mean", "sd")
    assert (found.outcome, found.method, found.optimizer) == ("converged", way, "snngm") and found.steps is not None
    assert found.structure == ("arrow" if way == "gva" else "block")
    for table in ("fixed_effects", "variance_components", "random_effects"):
        own, other = (getattr(result, table)().loc[:, names] for result in (found, exact))
        assert np.max(np.abs(own["mean"] - other["mean"]) / other["sd"]) < 0.3
        np.testing.assert_allclose(own["sd"], other["sd"], rtol=0.2)
    assert list(found.random_effects()["g"]) == list(exact.random_effects()["g"])
    assert found.elbo > exact.elbo - 0.1
    if way == "gva":
        assert found.elbo <= exact.elbo + 1e-8 and found.elbo_se == 0.0
    else:
        assert 0 < found.elbo_se < 0.1
    assert found.trust != "do not use"  # an sd that noise has left off by over 10% is told


def check_first_order(fit: Any) -> None:
    """Its shared part is that of q; regression on theta_g and spread are those of the way back."""
    assert isinstance(fit, RvbFit)
    q, C, place = fit.gaussian.mean, fit.gaussian.factor, fit.data.place
    mean, covariance = fit.shared_moments()
    np.testing.assert_allclose(mean, q.shared)
    np.testing.assert_allclose(covariance, C.shared @ C.shared.T, rtol=1e-8)
    (r, _), g = q.local.shape, len(mean)
    with float64():
        known = jax.device_put(fit._reparametrized)
        back = quick_jit(jax.vmap(lambda local, shared: known.to_original(ArrowVector(local, shared)).local))
        local = q.local + np.concatenate([np.zeros((1 + g, *q.local.shape)), C.local.swapaxes(0, 1)])
        shared = q.shared + np.concatenate([np.zeros((1, g)), 1e-6 * np.eye(g), np.zeros((r, g))])
        effects = np.asarray(back(local, shared))[..., place]
    np.testing.assert_allclose(fit.posterior.mean.local, effects[0])
    slopes, roots = (effects[1 : 1 + g] - effects[0]) / 1e-6, effects[1 + g :] - effects[0]  # (g, r, n), (k, r, n)
    T, cross = np.moveaxis(np.asarray(fit.posterior.factor.local), -1, 0), np.asarray(fit.posterior.factor.cross)
    given = -np.linalg.solve(T.swapaxes(1, 2), cross.transpose(2, 1, 0))  # (n, r, g): -T_i^-T T_gi'
    np.testing.assert_allclose(given, slopes.transpose(2, 1, 0), atol=1e-4)
    spread = np.einsum("krn,kjn->nrj", roots, roots)
    np.testing.assert_allclose(np.linalg.inv(T @ T.swapaxes(1, 2)), spread, rtol=1e-6)


def test_first_order_gaussian(rvb: natvi.Result) -> None:
    check_first_order(rvb.model)


SLOPES: dict[str, Any] = {"method": "rvb1", "optimizer": "nagm", "order": 2, "seed": 4, "step_size": 1e-3}
GVA: dict[str, Any] = {"method": "gva", **NOISY}


def slopes() -> natvi.MixedModel:
    """Return a model with two random effects and a residual sd."""
    return natvi.glmm("z ~ x + (x | g)", counts().assign(z=lambda data: np.log1p(data["y"])))


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize(("make", "settings"), [(model, GVA), pytest.param(slopes, SLOPES, marks=pytest.mark.slow)])
def test_going_on_gives_the_same_bits(make: Any, settings: dict[str, Any], tmp_path: Path) -> None:
    whole = make().fit(max_steps=150, **settings)
    part = make().fit(max_steps=70, checkpoint=tmp_path / "fit.ckpt", **settings)
    rests = [{"state": part.state}, {"checkpoint": tmp_path / "fit.ckpt"}]
    for rest in rests:
        again = make().fit(max_steps=150, **rest, **settings)
        pd.testing.assert_frame_equal(again.summary(), whole.summary())
        assert again.elbo == whole.elbo and np.array_equal(again.trace, whole.trace) and again.steps == 150
    assert part.outcome == "max_steps" and part.trust == "use with care"
    assert whole.trace[-1] > whole.trace[0]


@pytest.mark.usefixtures("unchecked")
def test_slopes_and_a_dispersion_interrupted(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """All of the way there and back, although Ctrl-C came during the first steps."""
    monkeypatch.setattr(stochastic, "Interruption", Pressed)
    found = slopes().fit(**SLOPES)
    assert found.outcome == "interrupted" and found.trust == "use with care" and found.steps and found.steps < 1000
    assert np.all(np.isfinite(found.summary()))
    check_first_order(found.model)
    draws = found.sample(20, seed=1)
    assert draws["Intercept|g"].shape == draws["x|g"].shape == (20, 14) and np.all(draws["sigma"] > 0)
    loaded = natvi.load(found.save(tmp_path / "fit.natvi"))
    np.testing.assert_array_equal(loaded.sample(20, seed=1)["x|g"], draws["x|g"])
    assert repr(loaded) == repr(found)


class Pressed(Interruption):
    """Ctrl-C during the first chunk."""

    def __init__(self) -> None:
        super().__init__()
        self.asked = True


def test_the_verdict_tells_what_the_noise_left_open() -> None:
    noise = np.random.default_rng(0).normal(0.0, 0.1, 60)
    assert judge_noise(Outcome.MAX_STEPS, noise) == () == judge_noise(Outcome.MAX_STEPS, np.zeros(0))
    rising = noise + np.linspace(-50, 0, 60)
    assert judge_noise(Outcome.CONVERGED, rising) == ()
    (found,) = judge_noise(Outcome.MAX_STEPS, rising)
    assert found.level == "use with care" and "the bound still rises, by about 34" in found.reasons[0]
    assert "method='gva' with the exact ascent" in found.reasons[0]
    (broken,) = judge_noise(Outcome.NONFINITE, rising)
    assert broken.level == "do not use" and "step_size" in broken.reasons[0]


# --- the contract --------------------------------------------------------------------------------------------


def test_summary_says_how_it_was_done(rvb: natvi.Result) -> None:
    text = repr(rvb)
    assert "standardised random effects" in text and "rvb2 with snngm (" in text and "converged after" in text
    assert f"{rvb.elbo:,.3f} (±" in text and "sd(Intercept|g)" in text and "Approximation of the posterior" in text
    assert "standardised" in rvb._repr_html_()


def test_draws_agree_with_the_tables(rvb: natvi.Result) -> None:
    check_draws_against_tables(rvb, 14, NUM_DRAWS)


@pytest.mark.parametrize("groups", ["known", "population", "new"])
def test_predictions(rvb: natvi.Result, groups: str) -> None:
    rows = counts().iloc[[3, 20, 41]]
    draws = rvb.sample(NUM_DRAWS, seed=3)
    eta = draws["Intercept"][:, None] + np.outer(draws["x"], rows["x"])
    if groups == "known":
        eta += draws["Intercept|g"][:, [int(label[1:]) for label in rows["g"]]]
    if groups == "new":
        eta += (draws["sd(Intercept|g)"] * np.random.default_rng(0).standard_normal(NUM_DRAWS))[:, None]
    for kind, values in (("link", eta), ("response", np.exp(eta))):
        table = rvb.predict(rows, kind=kind, groups=groups, prob=0.8)
        assert list(table.columns) == ["mean", "sd", "q10", "q90"]
        error = values.std(0) * np.sqrt(1 / 1000 + 1 / NUM_DRAWS)
        assert np.max(np.abs(values.mean(0) - table["mean"]) / error) < 4.5
        assert np.max(np.abs(np.quantile(values, 0.9, axis=0) - table["q90"]) / table["sd"]) < 0.2
    mixed = rvb.predict(rows.assign(g=[rows["g"].iloc[0], "new", "newer"]))
    pd.testing.assert_frame_equal(mixed.iloc[:1], rvb.predict(rows.iloc[:1]))


def test_save_and_load(rvb: natvi.Result, tmp_path: Path) -> None:
    loaded = natvi.load(rvb.save(tmp_path / "fit.natvi"))
    assert repr(loaded) == repr(rvb) and isinstance(loaded.model, RvbFit) and loaded.model.way == "rvb2"
    mine, theirs = rvb.sample(100, seed=4), loaded.sample(100, seed=4)
    assert all(np.array_equal(mine[name], theirs[name]) for name in mine)
    pd.testing.assert_frame_equal(loaded.random_effects(), rvb.random_effects())
    pd.testing.assert_frame_equal(loaded.predict(counts().head()), rvb.predict(counts().head()))
    with pytest.raises(ValueError, match="does not hold its training data"):
        loaded.posterior_predictive(10)
    assert loaded.posterior_predictive(100, data=counts()).shape == (100, len(counts()))
    arrays, document = rvb.model.store()
    with pytest.raises(ValueError, match="arrays of the reparametrized model have shapes"):
        storage.restore(arrays | {"tilde_factor_shared": np.eye(2)}, document)
    with pytest.raises(ValueError, match="the way back from 'rvb3'"):
        storage.restore(arrays, document | {"rvb": {"way": "rvb3"}})


def test_criticism_pictures_and_exports(rvb: natvi.Result, tmp_path: Path) -> None:
    assert rvb.posterior_predictive(100).shape == (100, len(counts()))
    loo = rvb.loo(400)
    assert np.isfinite(loo.elpd) and loo.pareto_k.shape == (len(counts()),)
    tree = rvb.to_arviz(100, log_likelihood=True)
    assert tree["posterior"]["Intercept|g"].shape == (1, 100, 14)
    assert tree["log_likelihood"]["y"].shape == (1, 100, len(counts()))
    page = rvb.report(tmp_path / "fit.html").read_text("utf-8")
    assert "rvb2 with snngm" in page and "<figure>" in page
    rvb.plot_predictive(100)


# --- mistakes ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"method": "rvb3"}, "method must be one of 'auto', 'gva', 'marginal', 'rvb1', 'rvb2', not 'rvb3'"),
        ({"method": "rvb1", "optimizer": "ascent"}, "needs exact expectations, and method='rvb1' has none"),
        ({"optimizer": "snngm"}, "method='auto' takes exact ones: give method='gva'"),
        ({"method": "marginal", "optimizer": "adam"}, "method='marginal' takes exact ones"),
        ({"method": "gva", "optimizer": "sgd"}, "optimizer must be one of 'ascent', 'adam'"),
        ({"step_size": 0.1}, "step_size is for noisy steps"),
        ({"method": "gva", "order": 2}, "order is for noisy steps"),
        ({"method": "marginal", "num_samples": 2}, "num_samples is for noisy steps"),
        ({"seed": 1}, "seed is for noisy steps"),
        ({"method": "rvb1", "order": 3}, "order must be 1"),
        ({"method": "rvb1", "num_samples": 0}, "num_samples must be a whole number of at least 1"),
        ({"method": "rvb1", "seed": -1}, "seed must be a whole number from 0"),
        ({"method": "rvb1", "max_steps": 0}, "max_steps must be a whole number of at least 1"),
        ({"method": "rvb1", "optimizer": "vogn", "order": 2}, "VOGN takes gradients of rows"),
        ({"method": "rvb1", "state": 3}, "state must be `result.state` of an earlier fit of this model by the same"),
    ],
)
def test_mistakes_are_explained(options: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words.replace("(", r"\(")):
        model().fit(**options)


def test_the_command_line_hands_the_seed_to_noisy_fits_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[dict[str, Any]] = []
    monkeypatch.setattr(natvi.MixedModel, "fit", lambda self, **options: asked.append(options))
    monkeypatch.setattr("natvi.cli.fitting.deliver", lambda *_: None)
    counts().to_csv(tmp_path / "counts.csv", index=False)
    for method in ("rvb2", "gva"):
        arguments = ["fit", str(tmp_path / "counts.csv"), FORMULA, "--family", "poisson", "--method", method]
        assert CliRunner().invoke(app, [*arguments, "--seed", "3"], catch_exceptions=False).exit_code == 0
    noisy = {"method": "rvb2", "progress": True, "seed": 3}
    assert asked == [noisy, {"method": "gva", "progress": True}]


def test_states_of_other_fits_are_refused(rvb: natvi.Result, exact: natvi.Result) -> None:
    for method, optimizer in (("rvb2", "pga"), ("gva", "snngm")):
        with pytest.raises(ValueError, match=r"by the same method and optimizer, not that of another one|other shapes"):
            model().fit(method=method, optimizer=optimizer, state=rvb.state)
    with pytest.raises(ValueError, match="not LoopState"):
        model().fit(method="rvb1", state=exact.state)
    with pytest.raises(ValueError, match="by the same method, not StochasticState"):
        model().fit(method="gva", state=rvb.state)
