"""The pure parts of the benchmark command: rows, tables, names. Nothing is measured here."""

import importlib
import json
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT))  # the benchmarks are not part of the package

command = importlib.import_module("benchmarks.__main__")
peers = importlib.import_module("benchmarks.peers")
reporting = importlib.import_module("benchmarks.report")
simulate = importlib.import_module("benchmarks.simulate")

KEYS = {"problem", "tool", "metric", "value", "threads", "versions", "settings"}
VERSIONS = {"natvi": "0.1.0"}


def make_report(path: Path | None) -> "reporting.Report":
    report = reporting.Report("glmm", path, quick=True, seed=3)
    report.add("Epilepsy", "natvi", {"seconds": 0.012345, "runs": 5}, threads=1, versions=VERSIONS)
    report.add("HERS", "natvi", {"seconds": 0.5, "runs": 7}, threads=2, versions=VERSIONS)
    report.add("HERS", "lme4", {"log_likelihood": -5048.161}, threads=1, versions={"lme4": "1.1"})
    return report


def test_every_row_has_the_contract_keys() -> None:
    for row in make_report(None).rows:
        assert set(row) == KEYS


def test_the_file_holds_all_rows_at_any_moment(tmp_path: Path) -> None:
    path = tmp_path / "results" / "glmm.json"
    report = make_report(path)
    assert len(json.loads(path.read_text())["rows"]) == 5
    report.note("Diabetes left out")
    document = json.loads(path.read_text())
    assert document["notes"] == ["Diabetes left out"]
    assert document["seed"] == 3 and document["quick"] is True
    assert document["versions"] == {"natvi": "0.1.0", "lme4": "1.1"}
    assert {"cpu", "cores", "memory_gib"} <= set(document["machine"])
    assert [file.name for file in path.parent.iterdir()] == ["glmm.json"]


def test_numbers_that_are_not_finite_become_null() -> None:
    row = reporting.make_row("p", "t", "m", float("nan"), versions=VERSIONS)
    assert row["value"] is None


@pytest.mark.parametrize("value", [[1.0], {"a": 1}, object()])
def test_values_are_numbers_or_text(value: object) -> None:
    with pytest.raises(ValueError, match="not a number or text"):
        reporting.make_row("p", "t", "m", value, versions=VERSIONS)


def test_a_row_without_versions_is_refused() -> None:
    with pytest.raises(ValueError, match="versions"):
        reporting.make_row("p", "t", "m", 1.0, versions={})


def test_lines_with_the_same_metrics_share_a_table() -> None:
    first, second = reporting.markdown_tables(make_report(None).rows).split("\n\n")
    assert first.splitlines() == [
        "| problem | tool | threads | seconds | runs |",
        "| --- | --- | --- | ---: | ---: |",
        "| Epilepsy | natvi | 1 | 0.01235 | 5 |",
        "| HERS | natvi | 2 | 0.5 | 7 |",
    ]
    assert second.splitlines()[0] == "| problem | tool | threads | log likelihood |"
    assert second.splitlines()[2] == "| HERS | lme4 | 1 | -5,048.16 |"


def test_a_cell_cannot_break_its_table() -> None:
    row = reporting.make_row("p", "t", "remarks", "a | b\nc", versions=VERSIONS)
    assert reporting.markdown_tables([row]).splitlines()[-1] == "| p | t |  | a \\| b c |"


@pytest.mark.parametrize(
    ("value", "text"),
    [(None, ""), (True, "yes"), (1_000_000, "1,000,000"), (0.00123456, "0.001235"), ("x", "x")],
)
def test_values_are_shown_short(value: object, text: str) -> None:
    assert reporting.show(value) == text


def test_difference_is_in_posterior_sds_and_by_name() -> None:
    ours = {"names": ["Intercept", "a[x]:b"], "estimates": [1.0, 2.0], "sds": [0.5, 0.1]}
    theirs = {"names": ["ax:b", "(Intercept)"], "estimates": [2.05, 1.1]}
    assert peers.largest_difference(ours, theirs) == pytest.approx(0.5)


def test_other_fixed_effects_are_not_compared() -> None:
    ours = {"names": ["Intercept"], "estimates": [1.0], "sds": [0.5]}
    with pytest.raises(ValueError, match="differ"):
        peers.largest_difference(ours, {"names": ["x"], "estimates": [1.0]})


@pytest.mark.parametrize("family", ["bernoulli", "poisson"])
def test_simulated_data_repeat_with_the_seed(family: str) -> None:
    frame = simulate.random_intercepts(family, 20, seed=1)
    assert frame.shape == (100, 6)
    assert frame.equals(simulate.random_intercepts(family, 20, seed=1))
    assert not frame.equals(simulate.random_intercepts(family, 20, seed=2))


def test_planned_benchmarks_say_so(capsys: pytest.CaptureFixture[str]) -> None:
    assert command.main(["all"]) == 2
    assert "not built yet" in capsys.readouterr().err
