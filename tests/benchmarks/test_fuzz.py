"""The fuzz campaign: its cases, its second method, how it counts, and a small slice of it."""

import importlib
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import scipy.stats

import natvi

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT))  # the benchmarks are not part of the package

fuzz = importlib.import_module("benchmarks.fuzz")
campaign = importlib.import_module("benchmarks.fuzz.campaign")
cases = importlib.import_module("benchmarks.fuzz.cases")
densities = importlib.import_module("benchmarks.fuzz.densities")
judging = importlib.import_module("benchmarks.fuzz.judge")
mixed_oracle = importlib.import_module("benchmarks.fuzz.mixed_oracle")
priors = importlib.import_module("benchmarks.fuzz.priors")
law = importlib.import_module("benchmarks.fuzz.law")
oracle = importlib.import_module("benchmarks.fuzz.oracle")
reporting = importlib.import_module("benchmarks.report")
workers = importlib.import_module("benchmarks.workers")

# cases that share a few shapes, and some that are refused before anything is compiled
SLICE = (8, 19, 22, 23, 24, 29, 34, 57, 59, 78, 93, 96, 123, 148, 174, 177, 192)


def simple_case(family: str = "gaussian", link: str = "identity", formula: str = "y ~ x") -> "cases.Case":
    rng = np.random.default_rng(3)
    x = rng.standard_normal(60)
    y = cases.draw_response(family, link, 0.4 + 0.8 * x, np.ones(60, int), rng)
    frame = pd.DataFrame({"x": x, "y": y})
    return cases.Case(0, 0, formula, family, link, frame, None, (), ("x",), True)


# --- cases ---------------------------------------------------------------------------------------------------


def test_seed_and_number_decide_a_case():
    first, again, other = cases.draw_case(1, 5), cases.draw_case(1, 5), cases.draw_case(2, 5)
    pd.testing.assert_frame_equal(first.frame, again.frame)
    assert first.words == again.words
    assert not (first.words == other.words and first.frame.equals(other.frame))


def test_cases_go_through_all_that_is_promised():
    drawn = [cases.draw_case(1, number) for number in range(400)]
    assert {(case.family, case.link) for case in drawn} == set(cases.FAMILIES)
    assert 0.3 < np.mean([case.mixed for case in drawn]) < 0.5
    words = " ".join(word for case in drawn for word in case.oddities)
    for kind in ("huge", "tiny", "constant", "a copy", "missing", "infinite", "all equal", "all zero", "separated"):
        assert kind in words, kind
    assert any(case.weights for case in drawn) and any("offset" in case.formula for case in drawn)
    assert any("1 + x |" in case.formula for case in drawn) and any("||" in case.formula for case in drawn)
    sizes = [case.frame.groupby("g").size() for case in drawn if case.mixed]
    assert min(size.min() for size in sizes) == 1 and max(size.max() for size in sizes) == 200


# --- the second method ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("family", "link", "y", "expected"),
    [
        ("gaussian", "identity", 1.3, scipy.stats.norm(0.4, np.exp(0.2)).logpdf(1.3)),
        ("poisson", "log", 3.0, scipy.stats.poisson(np.exp(0.4)).logpmf(3)),
        ("bernoulli", "logit", 1.0, -np.log1p(np.exp(-0.4))),
        ("bernoulli", "probit", 0.0, scipy.stats.norm.logcdf(-0.4)),
        ("bernoulli", "cloglog", 1.0, np.log(-np.expm1(-np.exp(0.4)))),
        ("gamma", "log", 2.0, scipy.stats.gamma(np.exp(0.2), scale=np.exp(0.4 - 0.2)).logpdf(2.0)),
        (
            *("negative_binomial", "log", 3.0),
            scipy.stats.nbinom(np.exp(0.2), np.exp(0.2) / (np.exp(0.2) + np.exp(0.4))).logpmf(3),
        ),
    ],
)
def test_densities_are_those_of_scipy(family, link, y, expected):
    found = densities.row_log_density(family, link, np.array([y]), np.array([0.4]), np.array(0.2))
    assert found[0] == pytest.approx(expected, rel=1e-12)


def test_the_second_method_agrees_with_a_grid():
    case = simple_case("poisson", "log", "y ~ 1")
    model = natvi.glm(case.formula, case.frame, family="poisson", prior=0.7)
    found = oracle.posterior_moments(model)
    assert found is not None and found.effective > 3000
    beta = np.linspace(-2.0, 3.0, 20_001)
    y = case.frame["y"].to_numpy()
    log_p = y.sum() * beta - len(y) * np.exp(beta) - 0.5 * (beta / 0.7) ** 2
    p = np.exp(log_p - log_p.max())
    mean = np.sum(p * beta) / p.sum()
    sd = np.sqrt(np.sum(p * (beta - mean) ** 2) / p.sum())
    assert abs(found.mean[0] - mean) < 4 * sd / np.sqrt(found.effective)
    assert found.sd[0] == pytest.approx(sd, rel=4 / np.sqrt(found.effective))


def small_model(family: str, random: str) -> "natvi.MixedModel":
    rng = np.random.default_rng(5)
    g = np.repeat(np.arange(3), (1, 3, 4))
    frame = pd.DataFrame({"g": g, "x": rng.standard_normal(8), "w": rng.integers(1, 3, 8)})
    frame["y"] = rng.poisson(2.0, 8) + (0.5 * rng.standard_normal(8) if family == "gaussian" else 0)
    return natvi.glmm(f"y ~ x + {random}", frame, family=family, weights=None if family == "gaussian" else "w")


def test_gaussian_random_effects_are_integrated_out():
    model = small_model("gaussian", "(1 + x | g)")
    theta = np.array([[0.3, -0.2, 0.1, 0.4, -0.7, 0.2], [0.0, 0.5, -0.3, -0.5, 0.3, 0.9]])
    found = mixed_oracle._gaussian_marginal(model, theta)
    X, Z, codes = model.design.X, model.design.Z, model.design.group_codes
    same = codes[:, None] == codes
    for at, covariance in enumerate(mixed_oracle._covariances(model, theta)):
        V = np.where(same, Z @ covariance @ Z.T, 0.0) + np.exp(2 * theta[at, 2]) * np.eye(8)
        expected = scipy.stats.multivariate_normal(X @ theta[at, :2], V).logpdf(model.y)
        assert found[at] == pytest.approx(expected, rel=1e-10)


def test_other_random_effects_are_integrated_out():
    model = small_model("poisson", "(1 | g)")
    theta = np.array([[0.6, 0.2, 0.4]])
    (found,) = mixed_oracle._quadrature_marginal(model, theta)
    b = np.linspace(-12.0, 12.0, 40_001)
    expected = 0.0
    for group in range(3):
        own = model.design.group_codes == group
        eta = (model.design.X[own] @ theta[0, :2])[:, None] + model.design.Z[own] * b
        log_p = model.weight[own] @ scipy.stats.poisson.logpmf(model.y[own][:, None], np.exp(eta))
        expected += np.log(np.trapezoid(np.exp(log_p + scipy.stats.norm.logpdf(b, scale=np.exp(-0.4))), b))
    assert found == pytest.approx(expected, rel=1e-9)


def test_the_prior_of_two_correlated_effects_has_its_jacobian():
    model = small_model("gaussian", "(1 + x | g)")
    covariance = model.prior.scales.covariance._replace(eta=2.0)

    def parameters(omega: np.ndarray) -> np.ndarray:
        (V,) = mixed_oracle._covariances(model, np.concatenate([[0.0, 0.0, 0.0], omega])[None])
        sds = np.sqrt(np.diag(V))
        return np.array([*sds, V[0, 1] / sds.prod()])

    expected, found = [], []
    for omega in np.random.default_rng(0).normal(0.0, 0.7, (3, 3)):
        steps = 1e-5 * np.eye(3)
        jacobian = np.stack([(parameters(omega + h) - parameters(omega - h)) / 2e-5 for h in steps])
        s1, s2, rho = parameters(omega)
        each = [priors.SCALES[d.name](s, *d.parameters) for d, s in zip(covariance.densities, (s1, s2), strict=True)]
        expected.append(sum(each) + np.log1p(-(rho**2)) + np.linalg.slogdet(jacobian)[1])
        found.append(priors._log_covariance_prior(covariance, np.concatenate([[0.0, 0.0, 0.0], omega])[None])[0])
    np.testing.assert_allclose(np.subtract(found, expected), found[0] - expected[0], atol=1e-6)


# --- counting ------------------------------------------------------------------------------------------------


def test_a_wrong_mean_is_noticed(monkeypatch):
    case = simple_case()
    fit = judging.fit_case(case)
    truth = oracle.posterior_moments(fit.model)
    assert judging._against_second_method(case, fit) == ""
    moved = truth._replace(mean=truth.mean + np.array([0.0, 0.4 * truth.sd[1]]))
    monkeypatch.setattr(judging, "posterior_moments", lambda _: moved)
    assert "x: mean off by -0.4" in judging._against_second_method(case, fit)
    wide = truth._replace(sd=2 * truth.sd)
    monkeypatch.setattr(judging, "posterior_moments", lambda _: wide)
    assert "sd 0.4" in judging._against_second_method(case, fit)


def test_what_is_not_a_number_is_noticed():
    case = simple_case()
    fit = judging.fit_case(case)
    assert judging.not_a_number(fit, case) == ""
    spoiled = fit.predictor.copy()
    spoiled.iloc[3, 0] = np.nan
    assert "predicted link" in judging.not_a_number(fit._replace(predictor=spoiled), case)


def test_a_refusal_is_told_from_a_crash():
    refused = judging.judge(simple_case(formula="y ~ nowhere"))
    assert refused.outcome == "refused" and "nowhere" in refused.words
    try:
        np.linalg.inv(np.zeros((2, 3)))
    except Exception as error:
        assert judging.refusal(error).outcome == "crash"
    try:
        [][1]
    except IndexError as error:
        assert "IndexError" in judging.refusal(error).words


def test_other_units_come_back():
    case = simple_case()
    changed = law.other_units(case)
    assert changed is not None
    x, y = (changed.case.frame[name].to_numpy() for name in "xy")
    assert np.std(x) == pytest.approx(1000 * np.std(case.frame["x"])) and x.mean() > 30 * np.std(x)
    mean, sd = changed.predictor_back(y, np.ones(len(y)))
    np.testing.assert_allclose(mean, case.frame["y"])
    np.testing.assert_allclose(sd, 1 / law.RESPONSE)


class Scripted:
    """A worker that answers what a list says."""

    def __init__(self, answers: list) -> None:
        self.answers, self.versions, self.closed = answers, {"natvi": "0"}, 0

    def ask(self, *words: object, limit: float | None = None) -> dict:
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer | {"number": words[2]}

    def close(self) -> None:
        self.closed += 1


def test_hangs_and_deaths_are_outcomes_and_outcomes_are_kept(tmp_path, monkeypatch):
    monkeypatch.setenv(campaign.VARIABLE, str(tmp_path))
    monkeypatch.setattr(campaign, "RUNS", tmp_path)
    right = {"outcome": "right", "words": "", "memory_gib": 1.0, "case": "", "mixed": False, "odd": False}
    right |= {"family": "poisson", "warned": "", "seconds": 0.1}
    worker = Scripted([right, workers.WorkerTimeoutError("late"), workers.WorkerError("ended with code -11"), right])
    monkeypatch.setattr(campaign, "Worker", lambda *_: worker)
    with campaign.Campaign(1) as many:
        found = list(many.outcomes(range(4)))
    assert [one["outcome"] for one in found] == ["right", "hang", "crash", "right"]
    assert "code -11" in found[2]["words"]
    with campaign.Campaign(1) as many:  # nothing is asked again
        assert list(many.outcomes(range(4))) == found
    report = reporting.Report("fuzz", None)
    fuzz.tell(report, found, {"natvi": "0"})
    counts = {row["metric"]: row["value"] for row in report.rows if row["problem"] == "all"}
    assert (counts["cases"], counts["right"], counts["hang"], counts["crash"]) == (4, 2, 1, 1)
    assert any("case 2" in note for note in report.notes)


# --- a slice of the campaign ---------------------------------------------------------------------------------


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("number", SLICE)
def test_a_slice_of_the_campaign(number):
    case = cases.draw_case(1, number)
    verdict = judging.judge(case)
    assert verdict.outcome not in judging.BAD, f"case {number} ({case.words}): {verdict.outcome}: {verdict.words}"
