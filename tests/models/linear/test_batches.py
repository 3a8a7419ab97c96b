"""Generalized linear models from rows that are never in memory together: the same posterior, the same bound."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

import natvi
from natvi.derivatives import exact_derivatives
from natvi.gaussian import CovarianceGaussian
from natvi.linalg import DenseFactor, DiagonalFactor
from natvi.models.linear.batches import ending as glm_ending
from natvi.models.linear.batches.door import grown
from natvi.models.linear.door import GlmModel
from natvi.models.linear.methods import build_target
from natvi.models.linear.posterior import GlmFit
from natvi.models.regression.spread import survey as glm_survey
from natvi.x64 import float64
from strategies import quick_jit

N = 3000
OPTIONS: dict[str, Any] = {"batch_size": 250, "step_size": 0.005, "seed": 1}


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Start from few rows, so that there is something left to learn, and sum the bound in several blocks."""
    monkeypatch.setattr(glm_survey, "SAMPLE_ROWS", 150)
    monkeypatch.setattr(glm_ending, "BLOCK_ROWS", 1024)


def data(family: str = "poisson", n: int = N) -> dict[str, Any]:
    rng = np.random.default_rng(4)
    x = rng.normal(size=(n, 2)) * [1.0, 30.0]
    eta = 0.4 + x @ [0.5, -0.01]
    trials = rng.integers(1, 4, n)
    y = {
        "poisson": lambda: rng.poisson(np.exp(eta)),
        "gaussian": lambda: 50 + 7 * rng.normal(eta),
        "binomial": lambda: rng.binomial(trials, 1 / (1 + np.exp(-eta))),
    }[family]()
    rows = {"X": np.column_stack([np.ones(n), x]), "y": y}
    return rows | {"trials": trials} if family == "binomial" else rows


def pieces(rows: dict[str, np.ndarray], length: int = 700) -> Any:
    def open_epoch(epoch: int) -> Iterator[dict[str, np.ndarray]]:
        for start in range(0, len(rows["y"]), length):
            yield {name: a[start : start + length] for name, a in rows.items()}

    return open_epoch


def mapped(rows: dict[str, np.ndarray], folder: Path) -> dict[str, np.ndarray]:
    """Return the arrays as memory-mapped files."""
    for name, a in rows.items():
        np.save(folder / f"{name}.npy", a)
    return {name: np.load(folder / f"{name}.npy", mmap_mode="r") for name in rows}


def bound_in_memory(model: GlmModel, result: natvi.Result) -> float:
    """Return the bound of a fitted Gaussian with all rows in memory."""
    fit = gaussian_of(result)
    with float64():
        kind = DiagonalFactor if fit.is_diagonal else DenseFactor
        gaussian = CovarianceGaussian(jnp.asarray(fit.mean), kind(jnp.asarray(fit.factor)))
        target = build_target(model.rows, model.family, model.prior, None)
        return float(quick_jit(lambda t, q: exact_derivatives(t, q).value)(target, gaussian))


def gaussian_of(result: natvi.Result) -> GlmFit:
    assert isinstance(result.model, GlmFit)
    return result.model


def same_posterior(result: natvi.Result, exact: natvi.Result) -> None:
    fit, best = gaussian_of(result), gaussian_of(exact)
    assert result.outcome == "converged"
    np.testing.assert_allclose((fit.mean - best.mean) / best.sds, 0, atol=0.1)
    np.testing.assert_allclose(fit.sds, best.sds, rtol=0.15)
    assert 0 <= exact.elbo - result.elbo < 0.1


# --- the same answer -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("family", "structure", "more"),
    [
        ("poisson", "dense", {}),
        pytest.param("gaussian", "diagonal", {"order": "exact"}, marks=pytest.mark.slow),
    ],
)
def test_an_iterator_leads_to_the_exact_posterior(family: str, structure: str, more: dict[str, Any]) -> None:
    rows = data(family)
    memory = natvi.glm_arrays(**rows, family=family, structure=structure)
    batches = natvi.glm_batches(pieces(rows), N, family=family, structure=structure)
    result = batches.fit(**OPTIONS | more)
    same_posterior(result, memory.fit())
    assert result.elbo == pytest.approx(bound_in_memory(memory, result), rel=1e-10)
    assert result.trust == "good" and "not checked" in " ".join(result.trust_reasons)
    assert "3,000 rows" in repr(result) and "exact fit to 150 of them" in repr(result)


@pytest.mark.parametrize("weights", [{}, {"weights": np.arange(N) % 3}])
def test_the_prior_is_scaled_to_all_rows(weights: dict[str, np.ndarray]) -> None:
    rows: dict[str, Any] = data("gaussian") | weights
    batches, memory = natvi.glm_batches(pieces(rows)), natvi.glm_arrays(**rows)
    np.testing.assert_allclose(batches.prior.mean, memory.prior.mean, rtol=1e-12)
    np.testing.assert_allclose(batches.prior.sd, memory.prior.sd, rtol=1e-12)
    assert batches.prior.description == memory.prior.description


def test_memory_mapped_files_lead_to_the_exact_posterior(tmp_path: Path) -> None:
    rows = data()
    files = mapped({"X": rows["X"][:, 1:], "y": rows["y"].astype(np.int32)}, tmp_path)
    assert isinstance(files["X"], np.memmap)
    model = natvi.glm_batches((files["X"], files["y"]), family="poisson", names=["a", "b"], intercept=True)
    result = model.fit(**OPTIONS)
    exact = natvi.glm_arrays(**rows, family="poisson", names=["Intercept", "a", "b"]).fit()
    same_posterior(result, exact)
    assert list(result.summary().index) == ["Intercept", "a", "b"]
    assert result.sample(20)["a"].shape == (20,) and len(result.trace) > 5
    new = rows["X"][:5, 1:]
    np.testing.assert_allclose(result.predict(new)["mean"], exact.predict(rows["X"][:5])["mean"], rtol=0.02)
    with pytest.raises(ValueError, match="training data"):
        result.predict()
    loaded = natvi.load(result.save(tmp_path / "fit.natvi"))
    np.testing.assert_array_equal(loaded.predict(new), result.predict(new))


@pytest.mark.parametrize("family", ["poisson", "binomial"])
def test_offset_weights_and_trials(family: str) -> None:
    rows = data(family, 1000)
    rng = np.random.default_rng(0)
    extra: dict[str, Any] = {"offset": rng.normal(size=1000) / 2, "weights": rng.integers(0, 3, 1000)}
    memory = natvi.glm_arrays(**rows, **extra, family=family)
    batches = natvi.glm_batches(pieces(rows | extra, 123), family=family, prior=memory.prior)
    assert batches.survey.num_rows == 1000
    result = batches.fit(max_steps=100, batch_size=50)
    assert result.outcome == "max_steps" and result.elbo == pytest.approx(bound_in_memory(memory, result), rel=1e-10)
    assert len(result.predict({"X": rows["X"][:2], "offset": extra["offset"][:2]})) == 2


def test_the_same_seed_gives_the_same_bits() -> None:
    rows = data(n=1000)
    for source in (pieces(rows, 130), rows):
        model = natvi.glm_batches(source, family="poisson")
        whole, again, other, part = (
            model.fit(seed=seed, max_steps=steps, batch_size=100)
            for seed, steps in ((3, 300), (3, 300), (4, 300), (3, 150))
        )
        resumed = model.fit(seed=3, max_steps=300, batch_size=100, state=part.state)
        for same in (again, resumed):
            assert gaussian_of(same).mean.tobytes() == gaussian_of(whole).mean.tobytes() and same.elbo == whole.elbo
        assert gaussian_of(other).mean.tobytes() != gaussian_of(whole).mean.tobytes()


def test_no_more_than_a_few_pieces_are_held() -> None:
    rows, ahead = data(), []

    def open_epoch(epoch: int) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        ahead.append(0)
        for start in range(0, N, 50):
            ahead[-1] += 1
            yield rows["X"][start : start + 50], rows["y"][start : start + 50]

    natvi.glm_batches(open_epoch, family="poisson").fit(max_steps=1, batch_size=10)
    # passes: survey, the first rows twice, a few batches with those fetched ahead, the bound twice
    assert max(ahead[1:-2]) < 50 and ahead[0] == ahead[-2] == ahead[-1] == 60


def test_information_grows_with_the_rows() -> None:
    rng = np.random.default_rng(0)
    C, sd = np.tril(0.1 * rng.normal(size=(3, 3))) + np.eye(3), np.array([2.0, 3.0, 4.0])
    more = grown(C, sd, 5.0)
    prior = np.diag(sd**-2)
    np.testing.assert_allclose(np.linalg.inv(more @ more.T), prior + 5 * (np.linalg.inv(C @ C.T) - prior))
    np.testing.assert_array_equal(more, np.tril(more))
    # a sample that tells less than the prior is no reason to fail
    np.testing.assert_allclose(grown(C, 0.1 * sd, 4.0), C / 2)


# --- bad input -----------------------------------------------------------------------------------------------


def refuse(source: Any, *words: str, family: str = "poisson", **options: Any) -> None:
    with pytest.raises(ValueError) as caught:
        natvi.glm_batches(source, family=family, **options)
    message = str(caught.value)
    assert all(word in message for word in words) and message.endswith("."), message


def test_sources_that_cannot_be_read() -> None:
    rows = data(n=40)
    X, y = rows["X"], rows["y"]
    refuse(iter([rows]), "can be read once", "lambda epoch")
    refuse(pieces(rows), "held 40 rows", "should be 50", "correct num_rows", num_rows=50)
    refuse(lambda epoch: iter(()), "no rows")
    refuse(lambda epoch: None, "must return an iterator", "NoneType")
    refuse(lambda epoch: [X], "a pair (X, y)", "ndarray")
    refuse({"X": X}, "y missing")
    refuse(rows | {"weight": y}, "weight unknown")
    refuse((X, y[:-1]), "same number of rows")
    refuse(pieces(rows), "num_rows", "got True", num_rows=True)
    once = iter([rows])
    model = natvi.glm_batches(lambda epoch: once, family="poisson")
    with pytest.raises(ValueError, match=r"held 0 rows, and there should be 40.*fresh iterator"):
        model.fit()


def test_pieces_that_do_not_belong_together() -> None:
    rows = data(n=40)
    X, y = rows["X"], rows["y"]
    where = "starts at row 40"
    refuse(lambda epoch: [(X, y), (X[:, :2], y)], where, "2 columns", "3 columns")
    refuse(lambda epoch: [(X, y), rows | {"offset": y}], where, "offset", "the same columns")
    hole = X.copy()
    hole[3, 1] = np.nan
    refuse(lambda epoch: [(X, y), (hole, y)], where, "row 3, column 1 holds nan")
    refuse(lambda epoch: [(X, y), (X, y - 50)], where, "negative")
    refuse(lambda epoch: [(X, y), (X, np.where(y > 2, np.nan, y))], where, "missing value")
    refuse(lambda epoch: [(X, y), (X, y.astype(str))], where, "numbers")
    refuse(lambda epoch: [rows | {"weights": y - 50}], "zero or more")
    refuse((X, np.ones(40)), "all 40 values of y equal 1")
    refuse(rows | {"weights": np.zeros(40)}, "none of the 40 weights is positive")


def test_settings_that_make_no_sense() -> None:
    rows = data(n=40)
    refuse(rows, "Did you mean 'poisson'?", family="poison")
    refuse(rows, "'dense', 'diagonal', not 'block'", structure="block")
    refuse(rows, "one for each of the 3 columns", names=["a", "b"])
    refuse((rows["X"][:, :0], rows["y"]), "no coefficients")
    model = natvi.glm_batches(rows, family="poisson")
    mistakes: list[tuple[dict[str, Any], str]] = [
        ({"batch_size": 41}, "from 1 to 40"),
        ({"optimizer": "sgd"}, "optimizer must be one of"),
        ({"order": 3}, "order must be"),
        ({"max_steps": 0}, "max_steps"),
    ]
    for options, words in mistakes:
        with pytest.raises(ValueError, match=words):
            model.fit(**options)
