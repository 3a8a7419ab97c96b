"""Tables 7 and 8, Figures 6 and 7: the parts that decide their figures, and small runs from end to end."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from experiments.algorithms import ESTIMATED, EXACT, GRID, begin, choose, follow
from experiments.memory import VARIABLE, recall
from experiments.paper_table8 import paper
from experiments.regression_runs import EXACT_ROW, one, was_cut_short
from experiments.report import Report
from experiments.scores import held_out, predictive

from experiments import figure6, problems, table7, table8
from natvi import optimize
from natvi.gaussian import CovarianceGaussian
from natvi.linalg import DenseFactor
from natvi.run.algorithm import compose
from natvi.x64 import float64
from strategies import quick_jit


@pytest.fixture(autouse=True)
def own_folder(tmp_path, monkeypatch):
    monkeypatch.setenv(VARIABLE, str(tmp_path))


def small(family="bernoulli", n=300, d=4):
    X, y = problems._draw(np.random.default_rng(0), family, n, d)
    settings = {"problem": "small", "n": n, "d": d}
    with float64():
        test = problems.Observations(jnp.asarray(X), jnp.asarray(y))
        return problems.Problem("small", problems.make_target(X, y, family), test, None, 2, 5, settings, False)


def test_what_was_computed_is_not_computed_again():
    calls = []

    def compute():
        calls.append(1)
        return {"a": np.arange(3), "text": "x"}

    first, again = (recall("name", {"k": 1}, compute) for _ in range(2))
    recall("name", {"k": 2}, compute)
    assert len(calls) == 2
    assert first["a"].tolist() == again["a"].tolist() == [0, 1, 2] and str(again["text"]) == "x"


def test_the_climb_finds_the_best_learning_rate_and_steps_down_from_divergence():
    best, seen = choose(lambda alpha: -((np.log10(alpha) + 3) ** 2), 0.05)
    assert best == 0.001 and {"0.0005", "0.001", "0.002"} <= set(seen)
    best, seen = choose(lambda alpha: np.nan if alpha > 0.004 else alpha, 0.05)
    assert best == 0.002 and seen["0.05"] is None


def test_a_choice_at_the_end_of_a_shorter_grid_is_made_anew(monkeypatch):
    assert GRID[-3:] == (10.0, 20.0, 50.0) and GRID[0] == 1e-5
    assert was_cut_short({"alpha": 5.0, "grid": '{"2.0": -2.0, "5.0": -1.0}'})
    assert not was_cut_short({"alpha": 2.0, "grid": '{"2.0": -1.0, "5.0": -2.0}'})
    assert not was_cut_short({"alpha": 2.0, "grid": '{"2.0": -1.0, "5.0": null}'})
    assert not was_cut_short({"alpha": 50.0, "grid": '{"20.0": -2.0, "50.0": -1.0}'})
    assert not was_cut_short({"alpha": 0.001, "grid": "{}"})
    scores = [(1.0, {"0.5": -2.0, "1.0": -1.0}), (10.0, {"5.0": -0.2, "10.0": -0.1, "20.0": None})]
    monkeypatch.setattr("experiments.regression_runs.choose", lambda *_: scores.pop(0))
    with float64():
        problem = small()._replace(pilots=True, chunks=1, steps=2)
        first = one(problem, "diagonal", ESTIMATED["VOGN"], None)
        again = one(problem, "diagonal", ESTIMATED["VOGN"], None)
    assert first["alpha"] == again["alpha"] == 10.0 and not scores


@pytest.mark.parametrize("family", ["bernoulli", "poisson"])
def test_curves_are_the_limit_of_many_draws(family):
    with float64():
        problem = small(family)
        q = CovarianceGaussian(jnp.full(4, 0.1), DenseFactor(0.3 * jnp.eye(4)))
        draws = np.asarray(jax.vmap(q.sample)(jax.random.split(jax.random.key(0), 20_000)))
        sampled, accuracy = held_out(problem, draws)
        assert problem.test is not None
        limit = float(predictive(problem.target, problem.test, q))
    assert abs(sampled - limit) < 2e-3
    assert np.isnan(accuracy) == (family == "poisson")


@pytest.mark.parametrize("row", ["Snngm1", "Nagm1", "VOGN"])
def test_a_shortened_step_is_the_step_with_that_learning_rate(row):
    method, alpha = ESTIMATED[row], 0.02
    with float64():
        problem = small("poisson")._replace(chunks=1, steps=3)
        ours = follow(problem, "diagonal", method, alpha, 0, lambda q: 0.0).gaussian
        rule = getattr(optimize, method.rule)(alpha)
        algorithm = compose(problem.target, rule, CovarianceGaussian, order=method.order)
        state, step = algorithm.init(begin(problem, "diagonal")), quick_jit(algorithm.step)
        for key in jax.random.split(jax.random.fold_in(jax.random.key(0), 0), 3):
            state = step(state, key)
    np.testing.assert_allclose(ours.mean, state.gaussian.mean, rtol=1e-10)
    np.testing.assert_allclose(ours.factor.values, state.gaussian.factor.values, rtol=1e-10)


def test_the_papers_figures():
    assert paper("Snngm2", "a4a", "full", "M") == 4.84
    assert paper("Snngm2", "German", "full", "M") == 7.89
    assert paper("Adam1", "simulation", "full", "acc") == 64.7
    assert paper("NVP", "German", "full", "seconds") == 246
    assert paper("VOGN", "German", "full", "seconds") is None and paper("NVP", "a4a", "diagonal", "M") is None
    assert table7.paper("nAdam", "full", 100, "tll") == -3.848
    assert table7.paper("Adam", "diagonal", 100, "seconds") == 5.6


def test_table7_and_figure6_share_their_runs(monkeypatch):
    monkeypatch.setattr("experiments.regression_runs.STRUCTURES", ("full",))
    for module in (table7, figure6):
        monkeypatch.setattr(module, "STRUCTURES", ("full",))
        monkeypatch.setattr(module, "EXACT", {"VOGN": EXACT["VOGN"]})
    table, figure = Report("table7", quick=True), Report("figure6", quick=True)
    with float64():
        table7.run(table)
        monkeypatch.setattr("experiments.regression_runs.follow", None)  # nothing is left to run
        figure6.run(figure)
    tll = {(c["row"], c["column"]): c["ours"] for c in table.cells if c["metric"] == "tll"}
    assert set(row for row, _ in tll) == {"VOGN", EXACT_ROW}
    # what was drawn and the limit of many draws agree, and the first epochs are on their way up
    assert len(figure.cells) == 1 and figure.figure is not None
    ends = [c["ours"] for c in figure.cells]
    best = tll[EXACT_ROW, "full, d = 5"]
    assert isinstance(best, float)
    assert all(isinstance(end, float) and end <= best + 0.01 for end in ends)
    assert table.markdown() and figure.json()


@pytest.mark.slow
def test_table8_with_a_small_reference(monkeypatch):
    problem = small()
    draws = np.random.default_rng(0).normal(size=(2, 600, 4))
    sampled = {
        "draws": draws,
        "ess": np.ones(4),
        "rhat": np.ones(4),
        "num_divergent": 0,
        "num_steps": 1,
        "seconds": 1.0,
    }
    flow = {"draws": draws[0], "elbo": np.array(-1.0), "elbo_se": np.array(0.1), "seconds": np.array(2.0)}
    for module in ("experiments.table8", "experiments.regression_runs"):
        monkeypatch.setattr(f"{module}.STRUCTURES", ("full",))
    monkeypatch.setattr(table8, "UNIT_START", {})
    monkeypatch.setattr(table8, "ESTIMATED", {"Snngm2": ESTIMATED["Snngm2"]})
    monkeypatch.setattr(table8, "reference", lambda *_: sampled)
    monkeypatch.setattr(table8, "flow_draws", lambda *_: flow)
    monkeypatch.setattr(table8, "DRAWS", 200)
    monkeypatch.setattr("experiments.scores.mmd_measure", lambda a, b: table8.mmd_measure(a, b, size=50, evaluations=2))
    monkeypatch.setattr(problems, "logistic", lambda quick: problem._replace(name="simulation"))
    monkeypatch.setattr(problems, "german", lambda quick: problem)
    report = Report("table8", quick=True)
    with float64():
        table8.run(report)
    rows = {(c["row"], c["column"], c["metric"]): c["ours"] for c in report.cells}
    assert {"Snngm2", EXACT_ROW, "NVP", "MCMC"} == {row for row, _, _ in rows}
    best, other = (rows[row, "small, full", "elbo"] for row in (EXACT_ROW, "Snngm2"))
    assert isinstance(best, float) and isinstance(other, float) and best > other
    assert rows["NVP", "small, full", "seconds"] == 2.0
    assert report.settings["nuts"]["small"]["divergent"] == 0
    assert report.markdown() and report.json()
