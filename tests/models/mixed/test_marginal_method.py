"""The marginal method: its draws against quadrature and known integrals, and the contract of its result."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import scipy.stats
from scipy.special import expit

import natvi
from natvi.models.mixed.marginal import method as mixed_marginal
from natvi.models.mixed.marginal.chart import Curved, Plain
from natvi.models.mixed.marginal.coordinates import from_shared, log_volume, slopes, to_shared
from natvi.models.mixed.marginal.posterior import MarginalFit
from natvi.models.mixed.marginal.proposal import Proposal, draw_mixture
from natvi.models.mixed.marginal.search import find_mode
from strategies import check_draws_against_tables

NUM_DRAWS = 3000


def small_binary(seed: int = 0, groups: int = 60, rows: int = 4, sd: float = 2.0) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    data = pd.DataFrame({"g": np.repeat(np.arange(groups), rows), "x": rng.uniform(-1, 1, groups * rows)})
    eta = -0.5 + data["x"] + sd * rng.standard_normal(groups)[data["g"]]
    return data.assign(y=(rng.uniform(size=len(data)) < expit(eta)).astype(int))


@pytest.fixture(scope="module")
def binary() -> natvi.Result:
    return natvi.glmm("y ~ x + (1 | g)", small_binary(), family="bernoulli", prior="paper").fit(method="marginal")


# --- the draws -----------------------------------------------------------------------------------------------


def grid_posterior(data: pd.DataFrame, row_weights: np.ndarray | float = 1.0) -> tuple[np.ndarray, np.ndarray]:
    """Return a grid over (intercept, slope, omega) and the posterior weight of each point, by brute force."""
    axes = (np.linspace(-3.0, 1.8, 21), np.linspace(-1.2, 3.2, 19), np.linspace(-2.2, 0.8, 21))
    points = np.stack([axis.ravel() for axis in np.meshgrid(*axes, indexing="ij")], axis=1)
    z, w = np.polynomial.hermite_e.hermegauss(40)
    X = np.column_stack([np.ones(len(data)), data["x"]])
    y, group = data["y"].to_numpy(), data["g"].to_numpy()
    fixed = points[:, :2] @ X.T
    sd = np.exp(-points[:, 2])
    likelihood = np.zeros((len(points), group.max() + 1))
    for node, weight in zip(z, w / w.sum(), strict=True):
        eta = fixed + (sd * node)[:, None]
        logs = -row_weights * np.log1p(np.exp(eta * (1 - 2 * y)))
        by_group = np.add.reduceat(logs, np.flatnonzero(np.diff(group, prepend=-1)), axis=1)
        likelihood += weight * np.exp(by_group)
    log_posterior = np.sum(np.log(likelihood), axis=1) + scipy.stats.norm.logpdf(points, 0, 10).sum(axis=1)
    weights = np.exp(log_posterior - log_posterior.max())
    steps = np.prod([axis[1] - axis[0] for axis in axes])
    evidence = np.log(np.sum(weights) * steps) + log_posterior.max()
    return np.column_stack([points, weights / weights.sum()]), np.array(evidence)


def test_draws_agree_with_brute_force(binary: natvi.Result) -> None:
    check_against_grid(binary, *grid_posterior(small_binary()))


def test_weighted_rows_agree_with_brute_force() -> None:
    data = small_binary().assign(w=np.random.default_rng(1).uniform(0.6, 1.4, 240))
    result = natvi.glmm("y ~ x + (1 | g)", data, family="bernoulli", weights="w", prior="paper").fit(method="marginal")
    check_against_grid(result, *grid_posterior(data, data["w"].to_numpy()))


def check_against_grid(result: natvi.Result, grid: np.ndarray, evidence: np.ndarray) -> None:
    points, weights = grid[:, :3], grid[:, 3]
    mean = weights @ points
    sd = np.sqrt(weights @ (points - mean) ** 2)
    fit = result.model
    assert isinstance(fit, MarginalFit) and fit.pareto_k < 0.5 and fit.effective > 0.5 * len(fit.weights)
    own, covariance = fit.shared_moments()
    np.testing.assert_allclose((own - mean) / sd, 0.0, atol=0.05)
    np.testing.assert_allclose(np.sqrt(np.diag(covariance)) / sd, 1.0, atol=0.05)
    assert abs(result.elbo - evidence) < 0.05 and 0 < result.elbo_se < 0.05
    sds = np.exp(-points[:, 2])
    row = result.variance_components().loc["sd(Intercept|g)"]
    assert row["mean"] == pytest.approx(weights @ sds, rel=0.03)
    values, which = np.unique(points[:, 2], return_inverse=True)
    mass = np.bincount(which, weights)
    edge = np.exp(-np.interp([0.975, 0.025], np.cumsum(mass) - mass / 2, values))
    np.testing.assert_allclose(row[["q2.5", "q97.5"]].to_numpy(dtype=float), edge, rtol=0.06)


def test_many_rounds_end_with_an_honest_verdict(monkeypatch: pytest.MonkeyPatch) -> None:
    """A proposal far off: three rounds improve it, and the verdict follows the weights."""
    for name in ("FEW_DRAWS", "FIRST_DRAWS", "MOST_DRAWS"):
        monkeypatch.setattr(mixed_marginal, name, 64)
    monkeypatch.setattr(mixed_marginal, "ENOUGH", 2.0)  # never enough
    result = natvi.glmm("y ~ x + (1 | g)", small_binary(), family="bernoulli", prior="paper").fit(method="marginal")
    assert result.trust == "use with care"
    assert any("64 weighted draws" in reason and "NUTS" in reason for reason in result.trust_reasons)


# --- the parts -----------------------------------------------------------------------------------------------


def test_coordinates_of_sds_and_correlation() -> None:
    phi = np.array([0.3, 0.5, -1.2, 0.4])  # something else, log s1, atanh rho, log s2
    shared = to_shared(phi, np)
    np.testing.assert_allclose(from_shared(shared), phi, rtol=1e-12)
    W = np.array([[np.exp(shared[1]), 0.0], [shared[2], np.exp(shared[3])]])
    covariance = np.linalg.inv(W @ W.T)
    sds = np.sqrt(np.diag(covariance))
    np.testing.assert_allclose(np.log(sds), phi[[1, 3]])
    assert covariance[0, 1] / sds.prod() == pytest.approx(np.tanh(-1.2))
    tangent = np.stack([(to_shared(phi + 1e-6 * e, np) - to_shared(phi - 1e-6 * e, np)) / 2e-6 for e in np.eye(4)], 1)
    np.testing.assert_allclose(slopes(phi), tangent, atol=1e-8)
    assert log_volume(phi, np) == pytest.approx(np.log(abs(np.linalg.det(tangent))))


@pytest.mark.parametrize("curved", [False, True])
def test_proposals_draw_what_their_density_says(curved: bool) -> None:
    """The mean of p/q over draws of q is one, for a p inside q; the mixture is in proportion."""
    factor = np.array([[0.3, 0.0, 0.0], [0.1, 0.4, 0.0], [-0.1, 0.1, 0.3]])
    main = Proposal(
        np.array([0.2, -0.3, 0.1]),
        factor,
        np.array([[0.7, 1.0, 1.0], [2.0, 1.0, 1.0]]),
        9.0,
        Curved() if curved else Plain(),
    )
    centre = to_shared(main.centre, np) if curved else main.centre
    wide = Proposal(centre, 2 * np.eye(3), np.ones((2, 3)), 9.0)
    law = scipy.stats.multivariate_normal(centre, 0.04 * np.eye(3))  # type: ignore[arg-type]
    for mixture in ([(1.0, main)], [(0.75, main), (0.25, wide)]):
        draws, log_q = draw_mixture(mixture, 16384, 0)
        weights = np.exp(law.logpdf(draws) - log_q)
        assert np.mean(weights) == pytest.approx(1.0, abs=0.03)
        np.testing.assert_allclose(weights @ draws / len(draws), centre, atol=0.02)
    u = np.linalg.solve(factor, ((from_shared(draws) if curved else draws) - main.centre).T)[0]
    assert np.mean(u > 0) > 0.6  # the wide side has more of them


def test_newton_finds_a_mode_and_holds_what_it_should() -> None:
    H = np.array([[2.0, 0.5, 0.0], [0.5, 1.0, 0.3], [0.0, 0.3, 4.0]])

    def scores(points: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        x = points - 1.0
        return -0.5 * np.sum(x @ H * x, axis=1) - 0.1 * np.sum(x**4, axis=1), -x @ H - 0.4 * x**3

    mode = find_mode(scores, np.array([4.0, -3.0, 2.0]), np.eye(3))
    assert mode.converged
    np.testing.assert_allclose(mode.centre, 1.0, atol=1e-3)
    np.testing.assert_allclose(mode.covariance, np.linalg.inv(H), atol=0.01)
    held = find_mode(scores, np.array([1.0, -3.0, 2.0]), np.eye(3)[:, 1:])
    assert held.centre[0] == 1.0
    np.testing.assert_allclose(held.covariance[1:, 1:], np.linalg.inv(H[1:, 1:]), atol=0.01)


# --- the contract --------------------------------------------------------------------------------------------


def test_summary_says_how_it_was_done(binary: natvi.Result) -> None:
    text = repr(binary)
    assert binary.method == "marginal" and binary.trust == "good" and "weighted draws" in text
    assert "random effects integrated out" in text and f"{binary.elbo:,.3f} (±" in text
    assert "converged after" in text and binary.trace[-1] == binary.elbo
    assert np.all(np.diff(binary.trace) >= -1e-9)  # the weighted bound lies above the Gaussian's
    assert binary.state is not None


def test_draws_agree_with_the_tables(binary: natvi.Result) -> None:
    check_draws_against_tables(binary, 60, NUM_DRAWS)


@pytest.mark.parametrize("kind", ["link", "response"])
def test_predictions(binary: natvi.Result, kind: str) -> None:
    rows = small_binary().iloc[[3, 100, 201]]
    draws = binary.sample(NUM_DRAWS, seed=3)
    for groups in ("known", "population", "new"):
        eta = draws["Intercept"][:, None] + np.outer(draws["x"], rows["x"])
        if groups == "known":
            eta += draws["Intercept|g"][:, rows["g"].to_numpy()]
        if groups == "new":
            eta += (draws["sd(Intercept|g)"] * np.random.default_rng(0).standard_normal(NUM_DRAWS))[:, None]
        values = eta if kind == "link" else expit(eta)
        table = binary.predict(rows, kind=kind, groups=groups, prob=0.8)
        assert list(table.columns) == ["mean", "sd", "q10", "q90"]
        error = values.std(0) * np.sqrt(1 / 1000 + 1 / NUM_DRAWS)
        assert np.max(np.abs(values.mean(0) - table["mean"]) / error) < 4.5
        np.testing.assert_allclose(values.std(0), table["sd"], rtol=0.12)
    mixed = binary.predict(rows.assign(g=[rows["g"].iloc[0], 1000, 1001]))
    pd.testing.assert_frame_equal(mixed.iloc[:1], binary.predict(rows.iloc[:1]))


def test_save_and_load(binary: natvi.Result, tmp_path: Path) -> None:
    path = binary.save(tmp_path / "fit.natvi")
    loaded = natvi.load(path)
    assert repr(loaded) == repr(binary) and loaded.method == "marginal"
    mine, theirs = binary.sample(50, seed=4), loaded.sample(50, seed=4)
    assert all(np.array_equal(mine[name], theirs[name]) for name in mine)
    pd.testing.assert_frame_equal(loaded.random_effects(), binary.random_effects())
    rows = small_binary().head(5)
    pd.testing.assert_frame_equal(loaded.predict(rows), binary.predict(rows))
    with pytest.raises(ValueError, match="does not hold its training data"):
        loaded.posterior_predictive(10)
    assert loaded.posterior_predictive(10, data=small_binary()).shape == (10, 240)


def test_to_arviz(binary: natvi.Result) -> None:
    tree = binary.to_arviz(100, log_likelihood=True)
    assert tree["posterior"]["Intercept|g"].shape == (1, 100, 60)
    assert tree["log_likelihood"]["y"].shape == (1, 100, 240)
