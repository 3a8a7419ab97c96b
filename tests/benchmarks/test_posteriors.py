"""The suite of log-densities: its members, the rule that a Gaussian can serve, outcomes that are kept, and words."""

import json

import numpy as np
import pytest
from benchmarks.posteriors import campaign, tell
from benchmarks.posteriors.measure import can_serve, compare
from benchmarks.posteriors.nuts import data_of, free_draws
from benchmarks.posteriors.suite import MEMBERS, members
from benchmarks.report import Report

from benchmarks import __main__ as command

MODULE = """
import jax.numpy as jnp
import numpy as np
from benchmarks.posteriors.posterior import Posterior

def exact(data, rng, count):
    return {"x": data["m"] + rng.standard_normal((count, 2))}

MEMBERS = [
    Posterior(
        "own normal",
        lambda rng: {"m": rng.standard_normal(2)},
        lambda p, data: -0.5 * jnp.sum((p["x"] - data["m"]) ** 2),
        lambda data: {"x": np.zeros(2)},
        exact=exact,
    )
]
"""


def test_members_are_many_and_can_be_told_apart():
    slugs = [member.slug for member in MEMBERS]
    assert len(slugs) >= 24 and len(set(slugs)) == len(slugs)
    for member in MEMBERS:
        data = data_of(member, 0)
        assert all(np.all(np.isfinite(np.asarray(leaf))) for leaf in member.start(data).values())
        assert all(np.array_equal(a, b) for a, b in zip(data.values(), data_of(member, 0).values(), strict=True))


@pytest.mark.parametrize(("slug", "served"), [("correlation-0.999", True), ("banana", False), ("truncated", False)])
def test_the_rule_knows_which_members_a_gaussian_can_serve(slug, served):
    member = members()[slug]
    data = data_of(member, 0)
    draws = member.exact(data, np.random.default_rng(0), 20_000)
    free, carry, names = free_draws(member, data, draws)
    truth = np.concatenate([draws[name].reshape(20_000, -1) for name in names], axis=1)
    np.testing.assert_allclose(carry(free), truth, rtol=1e-8, atol=1e-8)
    assert can_serve(free, carry, truth) is served


def test_accuracy_is_in_posterior_sds():
    right, spread = np.array([3.0, 1.0]), np.array([2.0, 0.0])
    found = compare(np.array([3.4, 1.0]), np.array([2.2, 0.0]), right, spread)
    assert found.shift == pytest.approx(0.2) and found.change == pytest.approx(0.1)
    assert not found.far_off
    assert compare(np.array([np.nan, 1.0]), np.array([1.0, 0.0]), right, spread).far_off


@pytest.mark.parametrize(
    ("shift", "trust", "apart", "kind"),
    [
        (0.05, "good", 0.0, "accurate"),
        (0.05, "use with care", 0.0, "false alarm"),
        (0.2, "good", 0.0, "near"),
        (0.3, "good", 0.0, "silent"),
        (0.3, "good", 10.0, "separated"),
        (0.3, "use with care", 0.0, "said to be off"),
        (None, "good", 0.0, "silent"),
    ],
)
def test_kinds_of_runs(shift, trust, apart, kind):
    assert tell.kind({"shift": shift, "change": 0.0, "trust": trust, "modes_apart": apart}) == kind


def test_a_module_of_ones_own_runs_and_outcomes_are_kept(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("NATVI_POSTERIORS", str(tmp_path / "kept"))
    (tmp_path / "my.py").write_text(MODULE, "utf-8")
    target = tmp_path / "rows.json"
    from benchmarks import posteriors

    monkeypatch.setattr(posteriors, "installed", lambda: ["Laplace"])
    words = ["posteriors", "--quick", "--module", str(tmp_path / "my.py"), "--json", str(target)]
    assert command.main(words) == 0
    rows = {
        (r["tool"], r["metric"]): r["value"] for r in json.loads(target.read_text())["rows"] if r["problem"] != "all"
    }
    assert rows["natvi", "accurate"] == 1 and rows["Laplace", "accurate"] is True
    assert command.main([*words, "--times"]) == 0
    rows = {(r["tool"], r["metric"]): r["value"] for r in json.loads(target.read_text())["rows"]}
    assert rows["natvi", "largest_warm_cpu_seconds"] < rows["natvi", "largest_cpu_seconds"]
    monkeypatch.setattr(campaign, "Worker", None)  # nothing is run again
    assert command.main(words) == 0
    rows = {(r["tool"], r["metric"]): r["value"] for r in json.loads(target.read_text())["rows"]}
    assert rows["natvi", "alone_warm_cpu_seconds"] < rows["natvi", "alone_cpu_seconds"]
    line = json.loads((tmp_path / "kept" / "posteriors-truth.jsonl").read_text())
    assert len(line["found"]["mean"]) == 2 and line["key"] == ["own-normal", 0]
    assert command.main(["posteriors", "--minutes", "0.0001", *words[1:], "--only", "own-normal"]) == 0
    assert command.main(["fuzz", "--minutes", "1"]) == 2
    assert command.main([*words, "--only", "no such"]) == 2
    assert "own-normal" in capsys.readouterr().err
    assert command.main(["posteriors", "--module", str(tmp_path / "none.py")]) == 2


def test_lines_of_another_suite_are_left_aside(tmp_path, monkeypatch):
    monkeypatch.setenv("NATVI_POSTERIORS", str(tmp_path))
    line = {"key": ["banana", 11, 0], "found": {"shift": 0.0}, "versions": {"natvi": "0"}, "sources": "abc"}
    path = tmp_path / "posteriors-fit.jsonl"
    with campaign.Campaign("suite", kept=True) as now:
        path.write_text(json.dumps(line | {"suite": "other"}) + "\n", "utf-8")
        assert now.fit("banana", 11, 0) == {"error": campaign.MISSING} and now.missing == ["fit banana 11 0"]
        suite = now._labels["fit"]["suite"]
    path.write_text(json.dumps(line | {"suite": suite}) + "\n", "utf-8")
    with campaign.Campaign("suite", kept=True) as now:
        assert now.fit("banana", 11, 0) == {"shift": 0.0} and now.sources() == {"abc": 1}


def test_a_worker_that_fails_is_an_outcome(tmp_path):
    report = Report("posteriors", None)
    run = {"error": "ended with code 1", "served": True, "dimensions": 3, "data_seed": 0, "fit_seed": 0}
    tell.tell_member(report, MEMBERS[0], [run], {"served": True, "dimensions": 3}, {}, {"natvi": "0"})
    tell.tell_all(report, [run | {"times": {}}], {"natvi": "0"})
    assert "error" in report.notes[0]
    assert {r["metric"]: r["value"] for r in report.rows if r["problem"] == "all"}["errors"] == 1
