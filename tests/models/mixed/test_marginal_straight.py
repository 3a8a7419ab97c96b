"""Fixed effects drawn given the sds: the chart against differences and brute force, and heavy tails."""

import numpy as np
import pandas as pd
import pytest
from scipy.stats import multivariate_normal

import natvi
from natvi.models.mixed.marginal.chart import Curved, Plain, carry_over
from natvi.models.mixed.marginal.straight import FixedEffects, Straight, Sums


def some_sums(disp: float | None, rng: np.random.Generator) -> tuple[Sums, list[np.ndarray], list[np.ndarray], list]:
    """Return the sums of three groups with two effects each, and the rows behind them."""
    X = [rng.standard_normal((m, 2)) for m in (4, 3, 1)]
    Z = [np.stack([np.ones(len(x)), x[:, 1]], 1) for x in X]
    y = [rng.standard_normal(len(x)) for x in X]
    centre = np.array([0.4, -0.7])
    w = 1.0 if disp is None else np.exp(-2 * disp)
    sums = Sums(
        w * np.sum([x.T @ x for x in X], axis=0),
        w * np.sum([x.T @ (v - x @ centre) for x, v in zip(X, y, strict=True)], axis=0),
        w * np.stack([z.T @ x for x, z in zip(X, Z, strict=True)]),
        w * np.stack([z.T @ z for z in Z]),
        w * np.stack([z.T @ (v - x @ centre) for x, z, v in zip(X, Z, y, strict=True)]),
        np.diag([0.1, 0.2]),
        np.array([0.03, -0.1]) - np.array([0.1, 0.2]) * centre,
        centre,
        disp,
    )
    return sums, X, Z, y


@pytest.mark.parametrize("inner", [Plain(), Curved()])
def test_there_and_back_and_the_volume(inner: Plain | Curved) -> None:
    rng = np.random.default_rng(0)
    chart = Straight(inner, FixedEffects(some_sums(0.3, rng)[0], 3, True))
    x = 0.5 * rng.standard_normal((5, 6))
    shared = chart.to_shared(x)
    np.testing.assert_allclose(chart.from_shared(shared), x, atol=1e-10)
    centre, slope = carry_over(chart, Plain(), x[2], np.eye(6))
    np.testing.assert_allclose(centre, shared[2], atol=1e-12)
    assert chart.log_volume(x)[2] == pytest.approx(np.log(abs(np.linalg.det(slope))), abs=1e-6)


def test_given_the_sds_it_is_the_conditional_of_gaussian_rows() -> None:
    """p(beta | psi, y) by Bayes with the covariance of y written out, at another sigma than that of the sums."""
    sums, X, Z, y = some_sums(0.3, np.random.default_rng(1))
    fixed = FixedEffects(sums, 3, True)
    psi = np.array([0.7, 0.4, -0.5, 0.9])  # log sigma; W
    W = np.array([[np.exp(psi[1]), 0.0], [psi[2], np.exp(psi[3])]])
    G = np.linalg.inv(W @ W.T)
    precision, pulled = np.diag([0.1, 0.2]), np.array([0.03, -0.1])
    for x, z, v in zip(X, Z, y, strict=True):
        R = np.linalg.inv(z @ G @ z.T + np.exp(1.4) * np.eye(len(v)))
        precision, pulled = precision + x.T @ R @ x, pulled + x.T @ R @ v
    mean, root = fixed.given(np.concatenate([np.zeros(2), psi])[None])
    np.testing.assert_allclose(root[0] @ root[0].T, precision, rtol=1e-10)
    np.testing.assert_allclose(mean[0], np.linalg.solve(precision, pulled), rtol=1e-10)


def test_what_is_out_of_range_is_not_a_number_and_quiet() -> None:
    chart = Straight(Plain(), FixedEffects(some_sums(None, np.random.default_rng(2))[0], 2, True))
    x = np.array([[0.0, 0.0, 800.0, 0.0, 0.0], [0.0, 0.0, 0.0, 1e200, 0.0], [0.1, 0.0, 0.0, 0.0, 0.0]])
    assert np.all(np.isfinite(chart.to_shared(x)[2]))
    assert np.all(np.isfinite(chart.log_volume(x)[2:]))


@pytest.mark.slow
def test_four_groups_have_heavy_tails() -> None:
    """Four groups of very different size, against the exact answer: given sigma and the groups' sd all is Gaussian."""
    rng = np.random.default_rng(5)
    g = np.repeat([0, 1, 2, 3], [60, 30, 5, 1])
    frame = pd.DataFrame({"g": [f"s{k}" for k in g], "y": 2.0 + 0.3 * np.arange(4)[g] + rng.standard_normal(len(g))})
    fit = natvi.glmm("y ~ 1 + (1 | g)", frame, prior={"sigma": ("lognormal", 0.0, 1e-6)}).fit(method="marginal")
    sds = np.exp(np.linspace(-7, 5, 300))
    prior = fit.model.prior  # type: ignore[attr-defined]
    log_p, mean, var = [], [], []
    s = frame["y"].std()
    for sd in sds:
        V = np.eye(len(g)) + sd**2 * (g[:, None] == g)
        tau = 2.5 * s
        one = np.ones(len(g))
        R = np.linalg.inv(V)
        P = one @ R @ one + tau**-2
        b0 = prior.mean[0]
        m = (one @ R @ frame["y"].to_numpy() + b0 * tau**-2) / P
        law = multivariate_normal(np.full(len(g), b0), V + tau**2 * np.outer(one, one))  # type: ignore[arg-type]
        # half-t(3, 2.5 s), and d sd = sd d log sd
        log_p.append(law.logpdf(frame["y"]) - 2 * np.log1p((sd / tau) ** 2 / 3) + np.log(sd))
        mean.append(m)
        var.append(1 / P)
    w = np.exp(np.array(log_p) - max(log_p))
    w /= w.sum()
    middle = w @ np.array(mean)
    sd = np.sqrt(w @ np.array(var) + w @ (np.array(mean) - middle) ** 2)
    table = fit.summary()
    assert fit.trust == "good"
    assert table.loc["Intercept", "mean"] == pytest.approx(middle, abs=0.03 * sd)
    assert table.loc["Intercept", "sd"] == pytest.approx(sd, rel=0.05)
    exact = np.sqrt(w @ sds**2 - (w @ sds) ** 2)
    assert table.loc["sd(Intercept|g)", "sd"] == pytest.approx(exact, rel=0.05)
