"""The study of verdicts: its data, its truths and how it counts. The study itself takes half an hour."""

import numpy as np
import pytest
from experiments.__main__ import built
from experiments.memory import VARIABLE
from experiments.report import Report
from experiments.verdict_data import DESIGNS, LARGEST_SD, PER_DESIGN, SMALLEST_SD, _effects, simulate
from experiments.verdict_outcomes import ALLOWED, Outcome, kept_outcome, outcome, source_digest
from experiments.verdicts import rates, tell

from experiments import kept, verdict_outcomes


def made_up(
    trust: str, error: float, method: str = "marginal", about_data: bool = False, spread: float = 0.0
) -> Outcome:
    return Outcome(
        name="some data",
        family="poisson",
        slopes=False,
        method=method,
        trust=trust,
        reasons=() if trust == "good" else ("sd(Intercept|g) is poorly determined by the data",),
        about_data=about_data,
        errors=np.array([0.0, error]),
        gaussian_errors=np.array([0.0, 2 * error]),
        gaussian_spreads=np.zeros(2),
        coordinates=np.array([0.0, error / 2]),
        spreads=np.array([0.0, spread]),
        names=("Intercept", "sd(Intercept|g)"),
        effective=2500.0,
        by_nuts=False,
    )


# --- data ----------------------------------------------------------------------------------------------------


def test_there_are_200_varied_data_sets():
    assert len(DESIGNS) * PER_DESIGN == 200
    families = {"poisson", "bernoulli", "binomial", "gaussian", "negative_binomial", "gamma"}
    assert {design.family for design in DESIGNS} == families
    assert {design.family for design in DESIGNS if design.slopes} == families
    assert 0.2 < np.mean([design.slopes for design in DESIGNS]) < 0.3
    assert {design.covariates for design in DESIGNS} == {1, 2, 3, 4}
    groups = [design.groups for design in DESIGNS]
    assert min(groups) == 10 and max(groups) == 300


@pytest.mark.parametrize("design", DESIGNS, ids=lambda design: design.name)
def test_data_sets_of_a_design_share_their_sizes(design):
    frames = [simulate(design, number, seed=1) for number in (0, 7)]
    sizes = [frame.groupby("g").size().to_numpy() for frame in frames]
    np.testing.assert_array_equal(*sizes)
    assert len(sizes[0]) == design.groups
    assert sizes[0].min() == 1 and sizes[0].max() == design.most_rows <= 10
    assert not np.array_equal(*(frame["y"].to_numpy() for frame in frames))
    assert all(np.isfinite(frame.to_numpy(float)).all() for frame in frames)


def test_the_seed_decides_the_data():
    design = DESIGNS[9]  # binomial: trials too
    assert simulate(design, 2, 1).equals(simulate(design, 2, 1))
    assert not simulate(design, 2, 1).equals(simulate(design, 2, 2))
    frame = simulate(design, 2, 1)
    assert (frame["y"] <= frame["trials"]).all()


def test_true_sds_go_through_their_range():
    many = DESIGNS[0]._replace(groups=20_000)
    sds = [_effects(np.random.default_rng(0), many, number).std() for number in range(PER_DESIGN)]
    assert sds == sorted(sds)
    ratio = (LARGEST_SD / SMALLEST_SD) ** (1 / PER_DESIGN)
    assert SMALLEST_SD * 0.98 < sds[0] < SMALLEST_SD * ratio * 1.02
    assert LARGEST_SD / ratio * 0.98 < sds[-1] < LARGEST_SD * 1.02


# --- counting ------------------------------------------------------------------------------------------------


def test_rates_count_each_kind_of_error():
    outcomes = [made_up("good", 0.0, "gva")] * 5
    outcomes += [made_up("good", 1.1 * ALLOWED), made_up("use with care", 0.1), made_up("do not use", 3.0)]
    outcomes += [made_up("use with care", 0.0, about_data=True)] * 2
    found = rates(outcomes)
    assert found["trusted but off, of all"] == pytest.approx(1 / 10)
    assert found["trusted but off, of the trusted"] == pytest.approx(1 / 6)
    assert found["alarmed but right, of all"] == pytest.approx(3 / 10)
    assert found["alarmed but right, of the right ones"] == pytest.approx(3 / 8)
    assert found["the same without alarms about the data alone"] == pytest.approx(1 / 8)
    assert found["escalated to marginal"] == pytest.approx(1 / 2)
    assert found["a shared coordinate off"] == pytest.approx(1 / 10)


def test_a_mean_that_is_not_a_number_is_off():
    assert made_up("good", np.nan).off


def test_an_sd_is_judged_as_a_mean_is():
    assert not made_up("good", 0.0, spread=np.log(1.14)).off and not made_up("good", 0.0, spread=np.log(0.86)).off
    assert made_up("good", 0.0, spread=np.log(1.16)).off and made_up("good", 0.0, spread=np.log(0.84)).off
    assert made_up("good", 0.0, spread=np.nan).off


def test_columns_are_neither_centred_nor_scaled():
    frame = simulate(DESIGNS[5], 3, seed=1)
    assert 1990 < frame["x1"].mean() < 2010 and set(frame["x2"]) == {1.0, 2.0} and frame["x3"].mean() > 40_000
    assert frame["x4"].abs().max() < 0.1
    slopes = simulate(DESIGNS[3], 3, seed=1)
    assert 9 < slopes["x1"].mean() < 11


def test_the_report_names_the_wrong_verdicts():
    report = Report("verdicts")
    tell(report, [made_up("good", 0.5), made_up("use with care", 0.0), made_up("good", 0.0, "gva")])
    cells = {(cell["row"], cell["column"], cell["metric"]): cell["ours"] for cell in report.cells}
    assert cells["some data", "marginal", "trusted but off: largest error in posterior sds"] == 0.5
    assert cells["poisson", "trusted but off", "count"] == 1
    assert cells["an sd is poorly determined by the data", "right", "alarms"] == 1
    report.json()


def test_the_study_is_registered_and_knows_its_sources():
    assert "verdicts" in built()
    assert source_digest() == source_digest() and len(source_digest()) == 12


@pytest.mark.slow
def test_one_data_set_from_end_to_end(tmp_path, monkeypatch):
    monkeypatch.setenv(VARIABLE, str(tmp_path))
    found = outcome(DESIGNS[0], 6, seed=1)
    assert found.effective > 2000 and not found.off
    again = outcome(DESIGNS[0], 6, seed=1)  # from memory
    np.testing.assert_array_equal(found.errors, again.errors)


def test_outcomes_are_kept_as_they_were(tmp_path, monkeypatch):
    made = Outcome(
        *("a data set", "poisson", False, "gva", "good", ("one",), False),
        *(np.array([0.1, np.inf]), np.array([0.1]), np.zeros(0), np.array([-2.5]), np.array([np.nan])),
        *(("x", "sd"), 2500.0, True),
    )
    monkeypatch.setattr(kept, "ROOT", tmp_path)
    monkeypatch.setattr(verdict_outcomes, "outcome", lambda *_: made)
    first, _ = kept_outcome(DESIGNS[1], 3, 1)
    monkeypatch.setattr(verdict_outcomes, "outcome", None)
    again, sources = kept_outcome(DESIGNS[1], 3, 1)
    assert len(sources) == 12 and first.reasons == again.reasons == ("one",) and again.by_nuts is True
    for name in verdict_outcomes.ARRAYS:
        np.testing.assert_array_equal(getattr(again, name), getattr(made, name))
    with pytest.raises(ValueError, match="other settings"):
        kept.keep("verdicts", "01-3", {}, lambda _: {})
