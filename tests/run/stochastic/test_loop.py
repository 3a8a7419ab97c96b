"""The stochastic loop: converges, stops, keeps the last finite state, resumes bit for bit, answers bad input."""

import warnings
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from natvi import optimize, recipes
from natvi.derivatives import exact_derivatives
from natvi.families.table import FAMILIES
from natvi.gaussian import CovarianceGaussian, PrecisionGaussian, dense_covariance, dense_precision, diagonal_covariance
from natvi.linalg import DenseFactor, DiagonalFactor
from natvi.run import wander
from natvi.run.algorithm import compose
from natvi.run.batches.row_batches import ArrayBatches
from natvi.run.exact.rows import climb_rows
from natvi.run.stochastic import loop as stochastic
from natvi.run.storage import checkpoint as checkpoints
from natvi.run.storage import file_format as storage
from natvi.target.design_rows import DesignRows, Observations
from natvi.target.function import FunctionTarget
from natvi.target.priors.independent_normal import IndependentNormal
from natvi.target.rows import FunctionRows
from natvi.x64 import float64


@pytest.fixture(scope="module")
def logistic():
    """Logistic regression with 200 rows and 3 columns."""
    rng = np.random.default_rng(0)
    X = np.column_stack([np.ones(200), rng.normal(size=(200, 2))])
    y = (rng.random(200) < 1 / (1 + np.exp(-X @ [0.3, 1.0, -0.5]))).astype(float)
    with float64():
        rows = Observations(jnp.asarray(X), jnp.asarray(y))
        return DesignRows(rows, IndependentNormal.around_zero(3), FAMILIES["bernoulli"], 200)


RULES = {
    "adam": optimize.adam(0.01),
    "nadam": optimize.nadam(0.01),
    "snngm": optimize.snngm(0.01),
    "nagm": optimize.nagm(0.05, ratio=1.0),
    "pga": optimize.pga(0.01),
    "vogn": optimize.vogn(0.05),
    "plain": optimize.plain(0.01, natural=True),
}


def bits(fitted):
    leaves = [np.asarray(leaf) for leaf in jax.tree.leaves((fitted.gaussian, fitted.state))]
    return b"".join(leaf.tobytes() for leaf in leaves) + fitted.trace.tobytes()


@pytest.fixture
def frequent(monkeypatch):
    """Make every call a single step and every write happen at once."""
    monkeypatch.setattr(stochastic, "CHUNK_SECONDS", 1e-12)
    monkeypatch.setattr(checkpoints, "SHARE", 0.0)


# --- converging --------------------------------------------------------------------------------------------


def test_a_fit_stops_close_to_the_best_bound(logistic):
    with float64():
        best = wander(recipes.algorithm_1n(logistic, optimize.plain(0.5, natural=True), order="exact"), start())
        fitted = wander(recipes.algorithm_1n(logistic, RULES["snngm"]), start())
        assert fitted.outcome == best.outcome == "converged"
        bounds = [exact_derivatives(logistic, jax.device_put(fit.gaussian)).value for fit in (best, fitted)]
        assert 0 <= float(bounds[0] - bounds[1]) < 0.02
        assert len(fitted.trace) == int(fitted.state.count) // 100 and np.isfinite(fitted.trace).all()


@pytest.mark.slow
def test_minibatches_reach_the_same_posterior(logistic):
    with float64():
        source = ArrayBatches(logistic.rows, 40)
        whole = climb_rows(logistic)
        batched = wander(recipes.algorithm_1n(logistic, RULES["snngm"]), start(), batches=source)
        assert batched.outcome == "converged"
        sds = whole.gaussian.marginal_sds()
        # steps divided by the norm of a noisy gradient are biased towards the common batches, by some 0.15 sds here
        np.testing.assert_allclose(batched.gaussian.mean, whole.gaussian.mean, atol=0.2 * float(sds.min()))
        np.testing.assert_allclose(batched.gaussian.marginal_sds(), sds, rtol=0.1)


def test_limit_of_steps(logistic):
    with float64():
        fitted = wander(recipes.algorithm_1n(logistic, RULES["snngm"]), start(), max_steps=250)
        assert fitted.outcome == "max_steps" and int(fitted.state.count) == 250 and len(fitted.trace) == 2


def start(d=3):
    return dense_covariance(jnp.zeros(d), 0.1)


# --- going on ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("rule", RULES)
def test_every_optimizer_resumes_bit_for_bit(logistic, rule, tmp_path, frequent):
    with float64():
        algorithm = compose(logistic, RULES[rule], CovarianceGaussian)
        options = {"max_steps": 60, "window": 20, "seed": 5, "batches": ArrayBatches(logistic.rows, 50)}
        whole = wander(algorithm, start(), **options)
        half = wander(algorithm, start(), **options | {"max_steps": 33})
        assert bits(wander(algorithm, start(), **options, state=half.state)) == bits(whole)
        path = tmp_path / "checkpoint"
        wander(algorithm, start(), **options | {"max_steps": 33}, checkpoint=path, checkpoint_seconds=0.0)
        assert bits(wander(algorithm, start(), **options, checkpoint=path)) == bits(whole)
        assert bits(wander(algorithm, start(), **options)) == bits(whole)


def test_calls_do_not_change_bits(logistic, monkeypatch):
    with float64():
        algorithm = recipes.algorithm_1n(logistic, RULES["snngm"])
        whole = wander(algorithm, start(), max_steps=300)
        monkeypatch.setattr(stochastic, "CHUNK_SECONDS", 1e-12)
        assert bits(wander(algorithm, start(), max_steps=300)) == bits(whole)


def test_another_seed_gives_other_bits(logistic):
    with float64():
        algorithm = recipes.algorithm_1n(logistic, RULES["snngm"])
        one, two = (wander(algorithm, start(), max_steps=100, seed=seed) for seed in (0, 1))
        assert bits(one) != bits(two)


def test_fits_of_the_same_kind_share_compiled_code(logistic):
    with float64():
        first = recipes.algorithm_1n(logistic, optimize.snngm(0.01))
        wander(first, start(), max_steps=20)
        count = stochastic.run_steps._cache_size()
        moved = logistic.with_rows(logistic.rows._replace(y=1.0 - logistic.rows.y))
        wander(recipes.algorithm_1n(moved, optimize.snngm(0.01)), start(), max_steps=20)
        assert stochastic.run_steps._cache_size() == count


@pytest.mark.parametrize("change", ["data", "rule", "start", "seed", "draws"])
def test_checkpoint_of_another_fit_is_refused(logistic, tmp_path, change):
    with float64():
        path = tmp_path / "checkpoint"
        wander(recipes.algorithm_1n(logistic, optimize.snngm(0.01)), start(), max_steps=5, checkpoint=path)
        before = path.read_bytes()
        y = logistic.rows.y
        other = logistic.with_rows(logistic.rows._replace(y=1.0 - y)) if change == "data" else logistic
        rule = optimize.snngm(0.02 if change == "rule" else 0.01)
        algorithm = recipes.algorithm_1n(other, rule, num_samples=2 if change == "draws" else 1)
        begin = dense_covariance(jnp.ones(3), 0.1) if change == "start" else start()
        with pytest.raises(storage.StorageError, match="another model or other data"):
            wander(algorithm, begin, max_steps=9, checkpoint=path, seed=int(change == "seed"))
        assert path.read_bytes() == before


def test_state_of_another_model_is_refused(logistic):
    with float64():
        algorithm = recipes.algorithm_1n(logistic, RULES["snngm"])
        state = wander(algorithm, start(), max_steps=5).state
        with pytest.raises(ValueError, match="belongs to another model"):
            wander(recipes.algorithm_1n(logistic, RULES["adam"]), start(), state=state)


def test_a_full_disk_at_the_end_loses_nothing(logistic, tmp_path, monkeypatch):
    with float64():
        algorithm = recipes.algorithm_1n(logistic, RULES["snngm"])
        whole = wander(algorithm, start(), max_steps=150)
        path = tmp_path / "checkpoint"
        wander(algorithm, start(), max_steps=5, checkpoint=path)
        before = path.read_bytes()

        def full(*_):
            raise OSError(28, "No space left on device")

        monkeypatch.setattr(storage.os, "fsync", full)
        with pytest.warns(UserWarning, match="complete, but its checkpoint could not be written: .*There is no room"):
            fitted = wander(algorithm, start(), max_steps=150, checkpoint=path, checkpoint_seconds=1000.0)
        assert bits(fitted) == bits(whole) and path.read_bytes() == before


def test_a_path_that_cannot_be_written_is_noticed_first(logistic, tmp_path):
    with float64(), pytest.raises(OSError, match="does not exist"):
        wander(recipes.algorithm_1n(logistic), start(), checkpoint=tmp_path / "nowhere" / "checkpoint")


# --- mishaps -----------------------------------------------------------------------------------------------


def nan_beyond(theta, limit):
    """A log-density that pulls theta upwards and turns NaN beyond a limit."""
    return jnp.where(theta[0] > limit, jnp.nan, theta[0] - 0.0 * theta[0] ** 2)


def nan_rows(theta, rows):
    """The same as the log-likelihood of rows, which VOGN needs."""
    return rows * nan_beyond(theta, 3.0)


@pytest.mark.parametrize("rule", RULES)
def test_a_gradient_that_turns_nan_keeps_the_last_finite_state(rule):
    with float64(), warnings.catch_warnings():
        warnings.simplefilter("error")
        target = FunctionTarget(nan_beyond, (jnp.asarray(3.0),))
        if rule == "vogn":
            target = FunctionRows(nan_rows, jnp.ones(4), IndependentNormal.around_zero(1, 100.0), 4)
        algorithm = compose(target, RULES[rule], CovarianceGaussian)
        fitted = wander(algorithm, diagonal_covariance(jnp.zeros(1), 0.05), max_steps=30_000)
        assert fitted.outcome == "nonfinite"
        mean, sd = float(fitted.state.algorithm.gaussian.mean[0]), float(fitted.gaussian.marginal_sds()[0])
        assert np.isfinite([mean, sd]).all() and sd > 0 and mean > 0.5
        assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(fitted.gaussian))


def test_a_few_bad_draws_do_not_end_a_fit():
    with float64():
        # NaN in a tail that a draw meets now and then
        target = FunctionTarget(lambda t: jnp.where(t[0] > 2.5, jnp.nan, -0.5 * t @ t))
        fitted = wander(recipes.algorithm_1n(target, RULES["snngm"]), dense_covariance(jnp.zeros(2)))
        assert fitted.outcome == "converged" and np.isfinite(fitted.trace).all()


def test_bad_starts_are_explained():
    with float64():
        square = FunctionTarget(lambda theta: -0.5 * jnp.sum(theta**2))
        run = recipes.algorithm_1n(square)
        with pytest.raises(ValueError, match=r"log-density is nan at the start's mean\. Start where it is finite"):
            wander(recipes.algorithm_1n(FunctionTarget(lambda t: jnp.log(t[0]))), dense_covariance(-jnp.ones(2)))
        with pytest.raises(ValueError, match="log-density is -inf"):
            wander(recipes.algorithm_1n(FunctionTarget(lambda t: jnp.log(t[0]))), dense_covariance(jnp.zeros(2)))
        with pytest.raises(ValueError, match="must be floating-point arrays; got int"):
            wander(run, CovarianceGaussian(jnp.arange(3), DiagonalFactor(jnp.ones(3))))
        with pytest.raises(ValueError, match="factor is singular: 1 of its 3 diagonal entries are zero"):
            wander(run, CovarianceGaussian(jnp.zeros(3), DiagonalFactor(jnp.array([1.0, 0.0, 1.0]))))
        with pytest.raises(ValueError, match="start holds NaN or infinite values"):
            wander(run, CovarianceGaussian(jnp.array([0.0, jnp.inf]), DiagonalFactor(jnp.ones(2))))
        with pytest.raises(ValueError, match=r"must return one number; got shape \(3,\)"):
            wander(recipes.algorithm_1n(Bare(lambda t: -0.5 * t**2)), dense_covariance(jnp.zeros(3)))
        with pytest.raises(ValueError, match="must return a floating-point number; got int"):
            wander(recipes.algorithm_1n(Bare(lambda t: jnp.asarray(1))), dense_covariance(jnp.zeros(3)))


@pytest.mark.parametrize(("factor", "size"), [(DenseFactor(np.eye(4)), 4), (DiagonalFactor(np.ones(1)), 1)])
def test_mean_and_factor_of_different_sizes_are_explained(factor, size):
    """One number beside three would be used for all of them in silence."""
    with float64():
        run = recipes.algorithm_1n(FunctionTarget(lambda theta: -0.5 * jnp.sum(theta**2)))
        begin = CovarianceGaussian(jnp.zeros(3), jax.tree.map(jnp.asarray, factor))
        with pytest.raises(
            ValueError, match=rf"the mean has shape \[\(3,\)\] and the factor's diagonal \[\({size},\)\]"
        ):
            wander(run, begin)


class Bare(NamedTuple):
    """A target by nothing but its function."""

    value: Any


def test_wrong_shapes_are_explained(logistic):
    with float64():
        with pytest.raises(ValueError, match=r"could not be evaluated at the start, a vector of 5 coordinates"):
            wander(recipes.algorithm_1n(logistic), start(5))
        with pytest.raises(ValueError, match=r"stands for 200 rows and the batches come from 10"):
            wander(recipes.algorithm_1n(logistic), start(), batches=ArrayBatches(np.zeros((10, 3)), 2))
        with pytest.raises(ValueError, match="Minibatches need a target made of rows"):
            plain = FunctionTarget(lambda t: -0.5 * t @ t)
            wander(recipes.algorithm_1n(plain), start(), batches=ArrayBatches(np.zeros((10, 3)), 2))


@pytest.mark.parametrize("name", ["max_steps", "window", "gap"])
@pytest.mark.parametrize("value", [0, -1, True])
def test_options_that_make_no_sense(logistic, name, value):
    with float64(), pytest.raises(ValueError, match=f"{name} must be positive"):
        wander(recipes.algorithm_1n(logistic), start(), **{name: value})


def test_integer_data_are_welcome():
    """Counts as integers are data, not parameters."""
    with float64():
        rows = {"y": np.array([3, 5, 2, 4, 6, 1])}
        target = FunctionRows(
            lambda theta, r: r["y"] * theta[0] - jnp.exp(theta[0]), rows, IndependentNormal.around_zero(1), 6
        )
        algorithm = recipes.algorithm_2n(target, RULES["snngm"])
        fitted = wander(algorithm, dense_precision(jnp.zeros(1)), batches=ArrayBatches(rows, 3))
        assert isinstance(fitted.gaussian, PrecisionGaussian)
        assert abs(float(fitted.gaussian.mean[0]) - np.log(3.5)) < 0.1
