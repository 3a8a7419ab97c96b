"""Columns far from zero beside an intercept: a year, or a time in seconds, is as good as the centred column."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import natvi
from natvi.models.linear import centring as glm_centring
from natvi.models.linear.centring import Centring, ShiftedNormal, find_centring
from natvi.run.exact import rows as row_fits
from natvi.target import design_rows
from natvi.x64 import float64

N = 120


def table(family: str, n: int = N) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(6)
    x, z = rng.normal(size=(2, n))
    eta = 0.4 + 0.5 * x - 0.3 * z
    if family == "gaussian":
        return x, z, rng.normal(eta)
    return x, z, rng.poisson(np.exp(eta)) if family == "poisson" else (rng.random(n) < 1 / (1 + np.exp(-eta))) + 0.0


def fit(family: str, shift: float, n: int = N, prior: Any = None, structure: str = "dense", **options: Any) -> Any:
    x, z, y = table(family, n)
    X = np.column_stack([z, np.ones(n), x + shift])
    # a prior so wide that it does not matter where the intercept is measured
    prior = prior or {"one": 1e4 * max(1.0, shift), "x": 10.0, "z": 10.0}
    return natvi.glm_arrays(X, y, family=family, names=["z", "one", "x"], prior=prior, structure=structure).fit(
        **options
    )


@pytest.mark.parametrize("family", ["gaussian", "poisson", "bernoulli"])
def test_a_shift_changes_nothing_but_the_intercept(family: str) -> None:
    plain = fit(family, 0.0)
    covariance = plain.model.factor @ plain.model.factor.T
    for shift in (2000.0, 1e6):
        moved = fit(family, shift)
        assert moved.outcome == "converged" and moved.trust == "good"
        # the wider prior of the intercept costs log(shift)
        assert moved.elbo + np.log(shift) == pytest.approx(plain.elbo, abs=1e-5)
        for name in ("z", "x"):
            np.testing.assert_allclose(moved.summary().loc[name], plain.summary().loc[name], rtol=1e-5)
        # beta_0 = beta_0' - shift beta_x
        assert moved.model.mean[1] == pytest.approx(plain.model.mean[1] - shift * plain.model.mean[2], rel=1e-5)
        root, back = moved.model.factor, np.eye(len(covariance))
        back[1, 2] = -shift
        np.testing.assert_array_equal(root, np.tril(root))
        np.testing.assert_allclose(root @ root.T, back @ covariance @ back.T, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("structure", ["dense", "diagonal"])
def test_a_year_does_not_need_centring(structure: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(glm_centring, "LARGEST_SHIFT", 1e300)
    moved = fit("poisson", 2000.0, structure=structure)
    assert moved.outcome == "converged"
    if structure == "dense":
        np.testing.assert_allclose(moved.summary().loc["x"], fit("poisson", 0.0).summary().loc["x"], rtol=1e-4)


@pytest.mark.parametrize(("family", "blocks"), [("gaussian", False), ("poisson", True)])
def test_centring_keeps_an_informative_prior(family: str, blocks: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    n = 400 if blocks else N
    if blocks:  # as with very many rows: worked through in blocks, and begun on a sample of them
        monkeypatch.setattr(design_rows, "BLOCK_ROWS", 64)
        monkeypatch.setattr(row_fits, "SAMPLE_ROWS", 64)
    options: dict[str, Any] = {
        "n": n,
        "tolerance": 1e-12,
        "prior": {"one": (1.0, 0.3), "x": (0.2, 0.1), "z": (0.0, 0.2)},
    }
    plain = fit(family, 3.0, **options)
    monkeypatch.setattr(glm_centring, "LARGEST_SHIFT", 0.5)
    assert find_centring(np.column_stack([np.ones(n), table(family, n)[0] + 3.0])) is not None
    centred = fit(family, 3.0, **options)
    assert centred.elbo == pytest.approx(plain.elbo, abs=1e-8)
    np.testing.assert_allclose(centred.model.mean, plain.model.mean, atol=1e-6)
    np.testing.assert_allclose(centred.model.factor, plain.model.factor, atol=1e-6)


def test_a_centred_fit_goes_on() -> None:
    whole, part = fit("poisson", 1e6), fit("poisson", 1e6, max_steps=1)
    assert part.outcome == "max_steps"
    resumed = fit("poisson", 1e6, state=part.state)
    assert resumed.elbo == whole.elbo and resumed.model.mean.tobytes() == whole.model.mean.tobytes()


def test_what_is_centred() -> None:
    x = np.linspace(0, 1, 50)
    ones = np.ones(50)
    assert find_centring(np.column_stack([ones, x])) is None
    assert find_centring(np.column_stack([x, x + 1e5])) is None  # no constant column to take the shift
    assert find_centring(np.column_stack([ones, 2 * ones])) is None
    assert find_centring(np.zeros((5, 0))) is None
    found = find_centring(np.column_stack([x, 0 * ones, x - 1e5, -2 * ones, x + 10]))
    assert found is not None and (found.at, found.value) == (3, -2.0)
    np.testing.assert_allclose(found.centre, [0, 0, 0.5 - 1e5, 0, 0])
    # X beta does not change
    rng = np.random.default_rng(0)
    X, beta = rng.normal(size=(4, 3)) + [0, 1, 0], rng.normal(size=3)
    X[:, 1] = 2.0
    centring = Centring(1, 2.0, np.array([0.3, 0.0, 7.0]))
    mean, _ = centring.undo(beta, np.eye(3))
    np.testing.assert_allclose(X @ mean, centring.columns(X) @ beta)


def test_the_prior_of_centred_coefficients() -> None:
    with float64():
        parts = (jnp.array([0.1, 0.5, -0.2]), jnp.array([1.0, 2.0, 3.0]), jnp.array([0.7, 0.0, -4.0]))
        prior, theta = ShiftedNormal(*parts, at=1), jnp.array([0.4, -0.1, 0.3])
        np.testing.assert_allclose(prior.gradient(theta), jax.grad(prior.value)(theta), rtol=1e-12)
        np.testing.assert_allclose(prior.whole_precision, -jax.hessian(prior.value)(theta), rtol=1e-12)
        np.testing.assert_allclose(prior.precision, jnp.diagonal(prior.whole_precision))
