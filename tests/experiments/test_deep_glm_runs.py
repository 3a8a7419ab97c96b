"""Table 10 in small: pilots choose a rate on held-out rows, runs are made once, the table takes what is kept."""

import numpy as np
import pytest
from experiments.deep_glm_problems import DeepProblem, simulate_binary, simulate_real
from experiments.deep_glm_runs import ROWS, pilot, run, run_name
from experiments.kept import all_kept
from experiments.memory import VARIABLE

from experiments import deep_glm_runs, kept

said = []


@pytest.fixture(autouse=True)
def own_folders(tmp_path, monkeypatch):
    monkeypatch.setenv(VARIABLE, str(tmp_path / "checkpoints"))
    monkeypatch.setattr(kept, "ROOT", tmp_path / "runs")
    monkeypatch.setattr(deep_glm_runs, "DRAWS", 5)


@pytest.mark.slow
def test_pilots_and_runs_are_kept():
    rng = np.random.default_rng(0)
    X, y = simulate_binary(rng, 400, 6)
    data = DeepProblem("binary", "bernoulli", X, y, X, y, 50, 25, 10, 5)
    alpha = pilot(data, "Snngm", said.append)
    assert alpha in ROWS["Snngm"].grid
    found = run(data, "Snngm", 0, said.append)
    assert np.isfinite(found["tll"]) and len(found["gamma"]) == 6 and len(found["curve"]) == 10
    grid = len(ROWS["Snngm"].grid)
    assert len(all_kept("table10")) == grid + 1
    assert run(data, "Snngm", 0, said.append) == found and len(said) == grid + 1


def test_names_of_files():
    assert run_name("real", "IVON, warm-up", 2) == "real-ivon-warm-up-2"
    assert len({run_name("a9a", row, 0) for row in ROWS}) == len(ROWS)


def test_the_second_simulation_has_correlated_inputs_and_unit_noise():
    X, y = simulate_real(np.random.default_rng(1), 20_000, 12)
    assert np.corrcoef(X[:, 0], X[:, 1])[0, 1] == pytest.approx(0.5, abs=0.02)
    assert X.std(axis=0) == pytest.approx(np.ones(12), abs=0.03)
    assert np.corrcoef(X[:, 11], y)[0, 1] == pytest.approx(0, abs=0.3)
