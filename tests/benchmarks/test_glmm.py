"""The benchmark of mixed models: what is decided from the measurements. Nothing is measured here."""

import importlib
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT))  # the benchmarks are not part of the package

glmm = importlib.import_module("benchmarks.glmm")
glmm_vi = importlib.import_module("benchmarks.glmm_vi")
reporting = importlib.import_module("benchmarks.report")
memory = importlib.import_module("experiments.memory")


class Silent:
    """A worker that answers from a list."""

    def __init__(self, threads: int, *answers: dict[str, Any]) -> None:
        self.threads, self.answers = threads, list(answers)
        self.versions, self.asked = {"natvi": "0"}, []

    def ask(self, *words: object, limit: float | None = None) -> dict[str, Any]:
        self.asked.append(words)
        return self.answers.pop(0) if words[0] == "fit" else {"seconds": 0.01}


def call(seconds: float, **more: Any) -> dict[str, Any]:
    ours = {"fit_seconds": seconds / 2, "climb_seconds": seconds / 4, "method": "gva", "elbo": -1.0}
    table = {"names": ["Intercept"], "estimates": [1.0], "sds": [0.5]}
    return {"seconds": seconds, "outcome": "converged", "iterations": 9} | ours | table | more


def contender(tool: str, threads: int, *seconds: float) -> Any:
    made = glmm.Contender(tool, Silent(threads), ("poisson", "y ~ 1"), len(seconds), call(9.0))
    made.calls = [call(s, loglik=-2.0, remarks=[]) for s in seconds]
    made.prints = [0.1]
    return made


def test_each_method_is_asked_for_by_name(tmp_path: Path) -> None:
    report = reporting.Report("glmm", None, quick=False)
    for tool, method in zip(glmm.OURS, ("gva", "marginal", "auto"), strict=True):
        worker = Silent(1, call(1.0))
        made = glmm._first_call(report, glmm.PROBLEMS[0], tmp_path / "x.csv", tool, worker)
        assert worker.asked[1][-1] == method
        assert made.runs == (15 if method == "gva" else 5)
    worker = Silent(1, call(1.0))
    glmm._first_call(report, glmm.PROBLEMS[0], tmp_path / "x.csv", "lme4", worker)
    assert worker.asked[1] == ("fit", "poisson", glmm.PROBLEMS[0].formula)


def test_ratios_of_whole_calls_and_of_the_optimisation() -> None:
    report = reporting.Report("glmm", None)
    made = [contender("natvi gva", 1, 0.2, 0.3), contender("natvi gva", 2, 0.1), contender("glmmTMB", 1, 1.0)]
    glmm._tell(report, glmm.PROBLEMS[0], [*made, contender("natvi auto", 2, 0.5)])
    found = {(row["tool"], row["metric"], row["threads"]): row["value"] for row in report.rows}
    assert found["natvi gva / glmmTMB", "ratio_of_seconds", 1] == pytest.approx(0.2)
    assert found["natvi gva / glmmTMB", "ratio_of_seconds", "best"] == pytest.approx(0.1)
    assert found["natvi gva / glmmTMB", "ratio_of_optimisation_to_whole_call", "best"] == pytest.approx(0.025)
    assert found["natvi auto / glmmTMB", "ratio_of_seconds", "best"] == pytest.approx(0.5)
    assert ("natvi auto / glmmTMB", "ratio_of_seconds", 1) not in found


def test_the_best_step_size_is_the_fastest_that_came_near() -> None:
    far, late = {"near": False, "seconds": 1.0, "gap": 0.2}, {"near": True, "seconds": 9.0, "gap": 0.05}
    soon, broken = {"near": True, "seconds": 3.0, "gap": 0.09}, {"near": False, "seconds": 0.1, "gap": None}
    assert glmm_vi.best_run({0.1: far, 0.2: late, 0.3: soon, 0.4: broken}) == 0.3
    assert glmm_vi.best_run({0.1: far | {"gap": 0.3}, 0.2: broken, 0.3: far}) == 0.3


def test_the_longest_kept_run_of_nuts_is_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(memory.VARIABLE, str(tmp_path))
    assert glmm_vi.kept_reference("Epilepsy") is None
    for number, draws in enumerate((20, 50, 30)):
        np.savez(tmp_path / f"nuts-Epilepsy-{number}.npz", draws=np.zeros((2, draws, 3)), seconds=draws)
    found = glmm_vi.kept_reference("Epilepsy")
    assert found is not None and found["seconds"] == 50


def test_thinning_spreads_over_all_draws() -> None:
    draws = np.arange(10_000.0)[:, None]
    kept = glmm_vi._thin(draws)
    assert len(kept) == 2 * glmm_vi.MMD_DRAWS and kept[0] == 0 and kept[-1] == 9999
