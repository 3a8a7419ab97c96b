"""The largest factor integrated out of a crossed model, against brute force, and what weights of draws make of it."""

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
import pytest
from scipy.special import log_expit, logsumexp

import natvi
from natvi.linalg import ArrowVector
from natvi.models.mixed.crossed.integrated.inner import IntegratedDensity
from natvi.models.mixed.crossed.start import crossed_start
from natvi.target.mixed.crossed_given import CrossedGiven
from natvi.target.mixed.largest_out import can_leave_out, draw_largest, log_density
from natvi.x64 import float64

LEVELS, OTHERS = 5, 2
FORMULAS = ("y ~ x + (1 | a) + (1 | b)", "y ~ x + (1 | a) + (0 + x | a) + (1 | b)", "y ~ x + (1 + x | a) + (1 | b)")


@pytest.fixture(scope="module")
def table() -> pd.DataFrame:
    rng = np.random.default_rng(4)
    a, b = np.repeat(np.arange(LEVELS), 4), np.tile(np.arange(OTHERS), 10)
    x = rng.normal(size=20)
    eta = 0.4 + x + 1.5 * rng.normal(size=LEVELS)[a] + rng.normal(size=OTHERS)[b]
    return pd.DataFrame({"y": (rng.uniform(size=20) < 1 / (1 + np.exp(-eta))).astype(int), "x": x, "a": a, "b": b})


def log_grid(sds: np.ndarray, root: np.ndarray, nodes: int) -> tuple[np.ndarray, np.ndarray]:
    """Nodes of a wide product rule for effects with covariance root root', and log weights times their density."""
    z = np.linspace(-9.0, 9.0, nodes)
    grids = np.stack([grid.ravel() for grid in np.meshgrid(*[z] * len(sds), indexing="ij")])
    log_weight = -0.5 * np.sum(grids**2, axis=0) + len(sds) * np.log((z[1] - z[0]) / np.sqrt(2 * np.pi))
    return root @ grids, log_weight


@pytest.mark.parametrize("formula", FORMULAS)
def test_integrals_and_draws_given_the_rest_are_those_of_brute_force(table, formula):
    model = natvi.glmm(formula, table, family="bernoulli")
    rng = np.random.default_rng(0)
    with float64():
        target = model.build().target
        h, p, r = target.b - target.p, target.p, target.num_local
        hyper, shared = 0.3 * rng.normal(size=h), 0.5 * rng.normal(size=p + OTHERS)
        given, near = CrossedGiven(target, jnp.asarray(hyper)), jnp.zeros((r, LEVELS))
        found = float(log_density(given, jnp.asarray(shared), near))
        keys = jax.random.split(jax.random.key(1), 4000)
        drawn = np.asarray(jax.vmap(lambda key: draw_largest(given, jnp.asarray(shared), near, key))(keys))
        # the prior's share is the library's own: priors are tested elsewhere
        theta = ArrowVector(near, jnp.asarray(shared))
        rest = given.value(theta)
    W = np.zeros((r, r))
    if "1 + x" in formula:
        W[0, 0], W[1, 0], W[1, 1] = np.exp(hyper[0]), hyper[1], np.exp(hyper[2])
    else:
        W = np.diag(np.exp(hyper[:r]))
    root = np.linalg.inv(W).T
    u, log_weight = log_grid(np.ones(r), root, 1201 if r == 1 else 241)
    design = model.design
    Z = np.concatenate([design.Z[:, term.first : term.stop] for term in design.terms[:-1]], axis=1)
    eta = design.X @ shared[:p] + shared[p:][table["b"].to_numpy()]
    sign, zero, means, sds = 2.0 * table["y"].to_numpy() - 1.0, 0.0, [], []
    total = 0.0
    for level in range(LEVELS):
        own = table["a"].to_numpy() == level
        value = np.sum(log_expit(sign[own, None] * (eta[own, None] + Z[own] @ u)), axis=0) + log_weight
        total += logsumexp(value)
        zero += np.sum(log_expit(sign[own] * eta[own]))
        weight = np.exp(value - logsumexp(value))
        means.append(u @ weight)
        sds.append(np.sqrt(u**2 @ weight - (u @ weight) ** 2))
    # at u = 0: log p(rows) + log N(0; 0, (W W')^-1) in place of the integrals
    at_zero = zero + LEVELS * (np.log(np.diag(W)).sum() - 0.5 * r * np.log(2 * np.pi))
    assert found == pytest.approx(float(rest) - at_zero + total, abs=2e-5 if r == 1 else 3e-4)
    place = model.build().place
    means, sds = np.array(means).T, np.array(sds).T
    errors = (drawn[:, :, place].mean(axis=0) - means) / (sds / np.sqrt(len(drawn)))
    assert np.max(np.abs(errors)) < 4.0
    np.testing.assert_allclose(drawn[:, :, place].std(axis=0), sds, rtol=0.06)


def test_mean_weights_are_the_evidence_by_quadrature_in_all_dimensions(table):
    model = natvi.glmm("y ~ 1 + (1 | a) + (1 | b)", table, family="bernoulli")
    points = np.array([[-0.3, -0.5], [-1.2, 0.4]])  # the sds 1.35 and 1.65, 3.3 and 0.67
    with float64():
        target = model.build().target
        start = crossed_start(target, *map(jnp.asarray, model.rough_values()))
        from natvi.gaussian.blocked_precision import BlockedPrecision

        q = BlockedPrecision.from_natural(start.linear, start.precision, target.pattern)
        density = IntegratedDensity(target, q.mean, start.precision, points[0], 4096)
        found = density.describe(points, 3)
        grid = np.linspace(-7.0, 7.0, 29)
        nodes = np.stack([part.ravel() for part in np.meshgrid(*[grid] * 3, indexing="ij")], axis=1)
        near = jnp.zeros((1, LEVELS))
        log_cell = 3 * np.log(grid[1] - grid[0])
        exact = []
        for hyper in points:
            given = CrossedGiven(target, jnp.asarray(hyper))
            values = jax.lax.map(lambda at, own=given: log_density(own, at, near), jnp.asarray(nodes), batch_size=256)
            exact.append((logsumexp(values) + log_cell, nodes[:, 0] @ np.exp(values - logsumexp(values))))
    for k, (evidence, intercept) in enumerate(exact):
        raw = np.exp(found.log_ratios[k] - evidence)
        error = raw.std() / np.sqrt(len(raw))
        assert abs(raw.mean() - 1.0) < 4.0 * error + 1e-3 and error < 0.05
        assert float(found.inner.bound[k] + found.lacking[k]) == pytest.approx(evidence, abs=4 * error + 1e-3)
        sd = np.sqrt(found.beta_covariance[k, 0, 0])
        assert abs(found.beta[k, 0] - intercept) < 0.1 * sd
    assert np.all(found.lacking > 0.01)  # the bound is below the evidence


def test_gaussian_rows_and_three_effects_of_a_level_are_left_in(table):
    frame = table.assign(z=np.arange(20.0), w=table["x"] ** 2)
    for formula, family, can in (
        ("x ~ 1 + (1 | a) + (1 | b)", "gaussian", False),
        ("y ~ x + (1 + z | a) + (1 | b)", "bernoulli", True),
        ("y ~ x + (1 + z + w | a) + (1 | b)", "bernoulli", False),
    ):
        with float64():
            assert can_leave_out(natvi.glmm(formula, frame, family=family).build().target) is can
