"""Simulation-based calibration: its data, ranks and bands. The study itself takes more than an hour."""

import numpy as np
import pytest
from experiments.__main__ import built
from experiments.calibration_data import DESIGNS, DISPERSION, GROUPS, KINDS, Design, kind_of, simulate
from experiments.calibration_ranks import NUM_DRAWS, Ranked, covered, histogram, simultaneous_band, within
from experiments.report import Report

import natvi
from experiments import calibration


def made_up(number: int, rng: np.random.Generator, spread: float = 1.0) -> Ranked:
    """Ranks that are uniform, or too often far out where `spread` is above 1."""
    names = ("Intercept", "x1", "x2", "sd(Intercept|g)", "phi", *["Intercept|g"] * 4)
    share = np.clip(0.5 + spread * (rng.uniform(size=len(names)) - 0.5), 0.0, 1.0 - 1e-9)
    ranks = (share * (NUM_DRAWS + 1)).astype(int)
    return Ranked(Design("negative_binomial", False), number, "marginal", "good", names, ranks)


def test_designs_are_six_families_with_intercepts_and_slopes_and_two_crossed():
    assert len(DESIGNS) == 14 and len({design.family for design in DESIGNS}) == 6
    assert "calibration" in built()


@pytest.mark.parametrize("design", DESIGNS, ids=lambda design: design.name)
def test_data_sets_share_their_design_and_the_model_takes_prior_and_names(design):
    (first, truth), (second, other) = simulate(design, 0, 1), simulate(design, 1, 1)
    columns = [name for name in first.columns if name != "y"]
    assert first[columns].equals(second[columns]) and not first["y"].equals(second["y"])
    assert truth["x1"] != other["x1"]
    model = natvi.glmm(design.formula, first, family=design.family, prior=design.prior)
    assert {kind_of(name) for name in truth} <= set(KINDS)
    assert set(model.design.fixed_names) <= set(truth)
    assert truth["Intercept|g"].shape == (GROUPS,)


def test_parameters_have_the_distribution_of_the_prior():
    design = Design("gamma", True)
    truths = [simulate(design, number, 2).truth for number in range(2000)]
    sd = np.array([truth["sd(x1|g)"] for truth in truths])
    assert np.mean(sd < 0.5 * 0.6745) == pytest.approx(0.5, abs=0.04)  # the median of a half-normal
    log_shape = np.log([truth["shape"] for truth in truths])
    assert log_shape.mean() == pytest.approx(DISPERSION["gamma"][1], abs=0.03)
    z = np.array([truth["x1|g"] / truth["sd(x1|g)"] for truth in truths])
    assert z.std() == pytest.approx(1.0, abs=0.02)
    product = [np.mean(t["x1|g"] * t["Intercept|g"]) / (t["sd(x1|g)"] * t["sd(Intercept|g)"]) for t in truths]
    rho = np.array([truth["corr(Intercept,x1|g)"] for truth in truths])
    assert np.polyfit(rho, product, 1)[0] == pytest.approx(1.0, abs=0.05)


def test_nine_of_ten_ranks_are_covered():
    assert covered(np.arange(NUM_DRAWS + 1)).mean() == pytest.approx(0.9)
    assert histogram(np.arange(NUM_DRAWS + 1), 20).tolist() == [50] * 20


def test_the_band_holds_all_bins_together():
    band = simultaneous_band(500, 20)
    counts = np.random.default_rng(7).multinomial(500, np.full(20, 1 / 20), size=4000)
    inside = np.mean([within(row, band) for row in counts])
    assert 0.985 < inside < 0.999
    assert band.low < 25 < band.high


def test_the_report_tells_calibrated_ranks_from_others():
    rng = np.random.default_rng(0)
    for spread, fine in ((1.0, True), (1.3, False)):
        report = Report("calibration")
        calibration.tell(report, [made_up(k, rng, spread) for k in range(200)])
        cells = {(cell["row"], cell["column"]): cell["ours"] for cell in report.cells}
        assert cells["slopes", "within 87% to 93%"] is fine
        assert cells["slopes", "within"] is fine
        assert cells["negative binomial, random intercepts", "ended with marginal"] == 200
        report.json()


def test_refused_data_sets_are_counted():
    refused = Ranked(DESIGNS[0], 200, "", "no variation", (), np.array([], int))
    rng = np.random.default_rng(0)
    own = [made_up(k, rng)._replace(design=DESIGNS[0]) for k in range(20)]
    report = Report("calibration")
    calibration.tell(report, [*own, refused])
    cells = {(cell["row"], cell["column"]): cell["ours"] for cell in report.cells}
    assert cells[DESIGNS[0].name, "refused"] == 1
