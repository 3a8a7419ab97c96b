"""Table 11 and Figure 10: the paper's cells, the order of groups, learning rates in the state, and a small run."""

import jax
import numpy as np
import pandas as pd
import pytest
from experiments.memory import VARIABLE
from experiments.mixed_problems import MixedProblem
from experiments.mixed_runs import Length, begin, one, restore
from experiments.mixed_scores import WeightedDraws, gaussian_draws, join, kept_reference, weighted_measure
from experiments.paper_table11 import WHOLE, paper
from experiments.report import Report

from experiments import figure10, mixed_runs, mixed_scores, table11
from natvi.models.mixed.noisy.stochastic import mixed_algorithm
from natvi.models.regression.options import RULES
from natvi.x64 import float64
from strategies import quick_jit


@pytest.fixture(autouse=True)
def own_folder(tmp_path, monkeypatch):
    monkeypatch.setenv(VARIABLE, str(tmp_path))


def table():
    """Counts in 24 groups, one of them large, so that the target's order of groups is not that of the data."""
    rng = np.random.default_rng(0)
    sizes = rng.integers(1, 6, 24)
    sizes[3] = 60
    group = np.repeat(np.arange(24), sizes)
    x, u = rng.normal(size=len(group)), rng.normal(size=24)
    return pd.DataFrame({"y": rng.poisson(np.exp(1.0 + 0.3 * x + u[group])), "x": x, "g": group})


@pytest.fixture(scope="module")
def problem():
    return MixedProblem("Epilepsy", table, "y ~ x + (1 | g)", "poisson")


def test_the_papers_figures():
    assert paper("Snngm", "Diabetes", "RVB2", "M") == 9.34
    assert paper("PGA", "Diabetes", "GVA", "M") == 2.68 and paper("PGA", "Diabetes", "RVB2", "M") is None
    assert paper("VOGN", "HERS", "RVB1", "seconds") == 41.1
    assert paper("NVP", "Toenail", WHOLE, "M") == 3.67 and paper("NVP", "Diabetes", WHOLE, "seconds") is None
    assert paper("NUTS", "Diabetes", WHOLE, "seconds") == 13462.3 and paper("NUTS", "HERS", WHOLE, "M") is None
    assert paper("Adam", "HERS", "GVA", "elbo") is None


@pytest.mark.parametrize(("way", "rule"), [("gva", "snngm"), ("rvb1", "vogn")])
def test_a_learning_rate_in_the_state_is_the_rule_with_that_rate(problem, way, rule):
    target, alpha = problem.built.target, 0.02
    adjustable, start = begin(target, way, rule, alpha)
    with float64():
        ours, theirs = (mixed_algorithm(target, way, r) for r in (adjustable, RULES[rule](alpha)))
        a, b = start.algorithm, theirs.init(start.algorithm.gaussian)
        move_a, move_b = quick_jit(ours.step), quick_jit(theirs.step)
        for key in jax.random.split(jax.random.key(0), 3):
            a, b = move_a(a, key), move_b(b, key)
    for x, y in zip(jax.tree.leaves(a.gaussian), jax.tree.leaves(b.gaussian), strict=True):
        np.testing.assert_allclose(x, y, rtol=1e-9, atol=1e-12)


def test_all_samples_have_their_groups_in_one_order(problem):
    order = np.argsort(problem.built.place_of_group)
    assert not np.array_equal(order, np.arange(len(order)))
    gaussian = gaussian_draws(problem.posterior, 200, 0)
    conditional = problem.conditional_draws(gaussian[:, -3:], seed=1)
    by_data = problem.gva.random_effects()["mean"].to_numpy()
    np.testing.assert_allclose(gaussian[:, :-3].mean(axis=0), by_data[order], atol=0.25)
    np.testing.assert_allclose(conditional.mean(axis=0), by_data[order], atol=0.25)


@pytest.fixture
def short(monkeypatch):
    for way in ("gva", "rvb1", "rvb2"):
        monkeypatch.setitem(mixed_runs.LENGTHS, ("Epilepsy", way), Length(300, window=100, elbo_draws=50))
    monkeypatch.setattr(mixed_runs, "choose", lambda score, first: (first, {repr(first): -1.0}))


def test_a_kept_fit_is_restored_with_its_groups_in_order(problem, short):
    kept = one(problem, "rvb1", "adam")
    assert len(kept["trace"]) == 3 and np.isfinite(kept["elbo"]) and kept["alpha"] == 0.001
    fit = restore(problem, "rvb1", kept)
    draws = join(fit.sample(500))
    order = np.argsort(problem.built.place_of_group)
    by_data = problem.gva.random_effects()["mean"].to_numpy()
    assert draws.shape == (500, 27)
    # far from converged, yet the expansion about the data tells the groups apart
    assert np.corrcoef(draws[:, :-3].mean(axis=0), by_data[order])[0, 1] > 0.9


def test_without_draws_of_nuts_nothing_is_sampled(problem):
    assert kept_reference(problem, 0) is None and kept_reference(problem, 1) is None


def test_weighted_draws_are_measured_by_their_law():
    rng = np.random.default_rng(0)
    proposal, aim = rng.normal(0, 1.5, size=(4_000, 2)), rng.normal(size=(2_000, 2))
    log_ratio = -0.5 * (1 - 1.5**-2) * np.sum(proposal**2, axis=1)
    weights = np.exp(log_ratio) / np.exp(log_ratio).sum()
    equal = np.full(4_000, 1 / 4_000)

    class OneEffect:
        """A model whose one random effect is standard normal whatever theta_g is."""

        @staticmethod
        def conditional_draws(shared, seed):
            return np.random.default_rng(seed).normal(size=(len(shared), 1))

    aim = np.concatenate([rng.normal(size=(len(aim), 1)), aim], axis=1)
    right, wrong = (
        weighted_measure(OneEffect, WeightedDraws(proposal, w), aim, size=300, evaluations=5)["mean"]
        for w in (weights, equal)
    )
    assert right > 6 > wrong


@pytest.mark.slow
def test_table11_and_figure10_share_their_runs(problem, short, monkeypatch):
    shared = gaussian_draws(problem.posterior, 200, 3)[:, -3:]
    elbo = np.asarray(problem.gva.elbo)
    fitted = {table11.EXACT_ROW: {"elbo": elbo, "seconds": 0.1}}
    fitted[table11.MARGINAL_ROW] = {"elbo": elbo + 1, "seconds": 0.2, "pareto_k": 0.1}
    fitted[table11.MARGINAL_ROW] |= {"shared": shared, "weights": np.full(200, 1 / 200)}
    about = {"ess": np.ones(3), "rhat": np.ones(3), "num_divergent": 0, "num_steps": 1, "seconds": 1.0}
    sampled = about | {"draws": shared.reshape(2, 100, 3)}
    for module in (table11, mixed_scores):
        monkeypatch.setattr(module, "kept_reference", lambda *_: sampled)
    monkeypatch.setattr(mixed_runs, "QUICK", mixed_runs.LENGTHS["Epilepsy", "gva"])
    for module in (table11, figure10):
        monkeypatch.setattr(module, "PROBLEMS", {"Epilepsy": problem})
        monkeypatch.setattr(module, "RULES", {"Snngm": "snngm"})
        monkeypatch.setattr(module, "WAYS", {"GVA": "gva"})
        monkeypatch.setattr(module, "natvi_fits", lambda _: fitted)
    table, figure = Report("table11", quick=True), Report("figure10", quick=True)
    with float64():
        table11.run(table)
        monkeypatch.setattr(mixed_runs, "follow", None)  # nothing is left to run
        figure10.run(figure)
    rows = {(c["row"], c["column"], c["metric"]): c["ours"] for c in table.cells}
    assert {row for row, _, _ in rows} == {"Snngm", "NVP", "NUTS", table11.EXACT_ROW, table11.MARGINAL_ROW}
    best, other = (rows[row, "Epilepsy, GVA", "elbo"] for row in (table11.EXACT_ROW, "Snngm"))
    assert isinstance(best, float) and isinstance(other, float) and best > other
    assert all(rows[row, f"Epilepsy, {WHOLE}", "M"] > 3 for row in ("NUTS", table11.MARGINAL_ROW))  # type: ignore
    assert rows["NVP", f"Epilepsy, {WHOLE}", "M"] is None
    assert table.settings["problems"]["Epilepsy"]["grid"] == {"Snngm, GVA": {"0.002": -1.0}}
    assert figure.cells and figure.figure is not None
    assert table.markdown() and figure.json()
