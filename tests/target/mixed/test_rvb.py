"""RVB1 and RVB2: the change of variables, derivatives through the modes, and the exact Gaussian case."""

import itertools

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from natvi.families.table import find_family
from natvi.linalg import ArrowVector, GroupedRows
from natvi.models.mixed.noisy.row_expansion import canonical_slopes, data_predictor
from natvi.target import LikelihoodRows, NormalPrior, RandomEffectsPrior, SumOfTerms
from natvi.target.mixed.marginal import marginal_log_density
from natvi.target.mixed.rvb import ReparametrizedEffects, rvb1, rvb2
from natvi.x64 import float64
from strategies import MixedCase, arrow_vector, dense_vector, mixed_case, pattern_parts, quick_jit, random_vector

SIZES = (2, 1, 9, 3)  # the third group fills several chunks
MAKERS = {"rvb1": rvb1, "rvb2": rvb2}
BOTH = pytest.mark.parametrize("way", MAKERS)
CASES = pytest.mark.parametrize(("name", "r"), [("poisson", 1), ("bernoulli", 2)])


@pytest.fixture(autouse=True)
def double():
    with float64():
        yield


def point(r: int, g: int, n: int, seed: int = 0) -> ArrowVector:
    local, shared = random_vector(r, g, n, seed)
    return ArrowVector(local, 0.4 * shared)


def reparametrize(target: SumOfTerms, way: str) -> ReparametrizedEffects:
    rows = target.grouped[0]
    assert isinstance(rows, LikelihoodRows)
    make = quick_jit(lambda target, about: MAKERS[way](target, about, canonical_slopes(rows.family)))
    return make(target, data_predictor(rows))


def example(way: str, name: str, r: int) -> tuple[MixedCase, ReparametrizedEffects, ArrowVector]:
    """Return a small model, its reparametrization and a point."""
    case = mixed_case(name, SIZES, r, seed=3)
    return case, reparametrize(case.target, way), point(r, case.g, case.n)


@quick_jit
def value(target: ReparametrizedEffects, theta: ArrowVector) -> jax.Array:
    return target.value(theta)


@quick_jit
def gradient(target: ReparametrizedEffects, theta: ArrowVector) -> ArrowVector:
    return jax.grad(target.value)(theta)


@quick_jit
def group_gradients(target: ReparametrizedEffects, theta: ArrowVector) -> tuple[jax.Array, ArrowVector]:
    return target.value_and_group_gradients(theta)


@quick_jit
def original(target: ReparametrizedEffects, theta: ArrowVector) -> ArrowVector:
    return target.to_original(theta)


def differences(function, theta: ArrowVector, step: float = 1e-5) -> np.ndarray:
    """Return central differences in every coordinate, stacked."""
    r, n = theta.local.shape
    x, rows = dense_vector(theta), []
    for move in step * np.eye(len(x)):
        up, down = (function(arrow_vector(x + s * move, r, n)) for s in (1, -1))
        rows.append((np.asarray(up) - np.asarray(down)) / (2 * step))
    return np.stack(rows)


# --- the change of variables -------------------------------------------------------------------------------


@BOTH
@CASES
def test_density_is_the_original_times_the_jacobian(way, name, r):
    case, target, theta = example(way, name, r)
    there = original(target, theta)
    jacobian = differences(lambda x: dense_vector(original(target, x)), theta)
    _, log_volume = np.linalg.slogdet(jacobian)
    np.testing.assert_allclose(value(target, theta), case.target.value(there) + log_volume, rtol=1e-7)
    np.testing.assert_array_equal(there.shared, theta.shared)
    np.testing.assert_allclose(target.from_original(there).local, theta.local, atol=1e-12)


@BOTH
def test_tilde_integrates_to_the_marginal(way):
    """With one group the integral over tilde is p(y, theta_g), whatever the expansion."""
    case = mixed_case("bernoulli", (5,), 1, seed=1)
    target, shared = reparametrize(case.target, way), point(1, case.g, 1).shared
    grid = jnp.linspace(-12, 12, 1201)
    logs = quick_jit(jax.vmap(lambda t: target.value(ArrowVector(t[None, None], shared))))(grid)
    integral = jax.nn.logsumexp(logs) + jnp.log(grid[1] - grid[0])
    expected = quick_jit(marginal_log_density)(case.target, shared, jnp.zeros((1, 1)))
    np.testing.assert_allclose(integral, expected, rtol=1e-6)


@BOTH
def test_gaussian_responses_are_exact(way):
    """tilde is standard normal given theta_g; the rest is the marginal of theta_g."""
    case, target, theta = example(way, "gaussian", 1)
    normal = -0.5 * jnp.sum(theta.local**2) - 0.5 * theta.local.size * jnp.log(2 * jnp.pi)
    marginal = quick_jit(marginal_log_density)(case.target, theta.shared, jnp.zeros((1, case.n)))
    np.testing.assert_allclose(value(target, theta) - normal, marginal, rtol=1e-9)


# --- derivatives -------------------------------------------------------------------------------------------


@BOTH
@CASES
def test_gradients_and_hessian_blocks(way, name, r):
    """Against differences, which see how the modes move with theta_g."""
    case, target, theta = example(way, name, r)
    by_differences = differences(lambda x: value(target, x), theta)
    np.testing.assert_allclose(by_differences, dense_vector(gradient(target, theta)), rtol=1e-6, atol=1e-6)
    blocks = quick_jit(lambda t, x: t.hessian(x))(target, theta)
    by_differences = differences(lambda x: dense_vector(gradient(target, x)), theta)
    local, _, shared = pattern_parts(by_differences, r, case.n)
    np.testing.assert_allclose(blocks.local, local, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(blocks.shared, shared, rtol=1e-5, atol=1e-5)


def test_hessian_against_automatic_differentiation():
    case, target, theta = example("rvb2", "poisson", 1)
    blocks, dense = quick_jit(lambda t, x: (t.hessian(x), jax.hessian(t.value)(x)))(target, theta)
    for i in range(case.n):
        np.testing.assert_allclose(blocks.local[..., i], dense.local.local[:, i, :, i], atol=1e-10)
    np.testing.assert_allclose(blocks.shared, dense.shared.shared, atol=1e-9)


@pytest.mark.parametrize(("way", "name", "r"), [("rvb2", "bernoulli", 2), ("rvb1", "gaussian", 1)])
def test_gradients_of_groups(way, name, r):
    """They sum to the gradient, and each is that of its own group and a share of the prior."""
    case, target, theta = example(way, name, r)
    total, groups = group_gradients(target, theta)
    whole = gradient(target, theta)
    np.testing.assert_allclose(total, value(target, theta), rtol=1e-12)
    np.testing.assert_allclose(groups.local, whole.local, atol=1e-10)
    np.testing.assert_allclose(jnp.sum(groups.shared, axis=1), whole.shared, atol=1e-9)
    # other responses in the first group changes that group's gradient only
    rows, effects = case.target.grouped
    assert isinstance(rows, LikelihoodRows)
    changed = eqx.tree_at(lambda rows: rows.y, rows, rows.y.at[:, 0].set(1.0 - rows.y[:, 0]))
    other = reparametrize(SumOfTerms((changed, effects), case.target.shared), way)
    parts, change = group_gradients(other, theta)[1], gradient(other, theta).shared - whole.shared
    np.testing.assert_allclose(parts.shared[:, 1:], groups.shared[:, 1:], atol=1e-10)
    np.testing.assert_allclose(parts.shared[:, 0] - groups.shared[:, 0], change, rtol=1e-8, atol=1e-9)


@pytest.mark.parametrize(("name", "link"), [("negative_binomial", None), ("binomial", "probit")])
def test_other_families(name, link):
    """Links that are not canonical, dispersions and weights: derivatives through the modes against differences."""
    case = mixed_case("bernoulli" if link else "poisson", SIZES, 1, seed=2)
    family, rows = find_family(name, link), case.target.grouped[0]
    assert isinstance(rows, LikelihoodRows)
    trials = jnp.where(rows.design.filled, 3.0, 7.0)
    likelihood = LikelihoodRows(rows.design, rows.y, family, weight=trials, constant=-2.5)
    effects = RandomEffectsPrior(1, 2 + family.has_dispersion)
    prior = NormalPrior(jnp.zeros(effects.stop), jnp.ones(effects.stop))
    target = reparametrize(SumOfTerms((likelihood, effects), (prior,)), "rvb2")
    theta = point(1, effects.stop, case.n, seed=4)
    by_differences = differences(lambda x: value(target, x), theta)
    np.testing.assert_allclose(by_differences, dense_vector(gradient(target, theta)), rtol=1e-5, atol=1e-5)


# --- the modes ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["poisson", "bernoulli"])
def test_modes_are_found_from_anywhere(name):
    """Rare outcomes, a large spread of the effects, and a bad start: plain Newton steps cycle here."""
    N, n = 6, 5
    y = (np.arange(n) * np.ones((N, 1)) > np.arange(N)[:, None]).astype(float)  # from no success to nearly all
    rows = GroupedRows(
        X=jnp.ones((1, N, n)),
        Z=jnp.ones((1, N, n)),
        offset=jnp.asarray(np.linspace(-2, 2, N)[:, None] * np.ones(n)),
        filled=jnp.ones((N, n), bool),
        extra=jnp.zeros(0, jnp.int32),
        num_simple=n,
    )
    likelihood = LikelihoodRows(rows, jnp.asarray(y), find_family(name))
    model = SumOfTerms((likelihood, RandomEffectsPrior(1, 1)), (NormalPrior(jnp.zeros(2), jnp.ones(2)),))
    slope = quick_jit(lambda x: jax.grad(model.value)(x).local)
    for rough, beta in itertools.product([-3.0, 0.0, 6.0], [-9.0, 0.0, 6.0]):
        target = rvb2(model, jnp.full((N, n), rough))
        shared = jnp.asarray([beta, -np.log(5.0)])
        mode = original(target, ArrowVector(jnp.zeros((1, n)), shared))
        np.testing.assert_allclose(slope(mode), 0.0, atol=1e-6)


def test_slopes_by_hand_and_by_machine():
    case = mixed_case("bernoulli", SIZES, 2, seed=3)
    theta = point(2, case.g, case.n)
    by_hand, by_machine = reparametrize(case.target, "rvb2"), rvb2(case.target)
    np.testing.assert_allclose(value(by_hand, theta), value(by_machine, theta), rtol=1e-9)


def test_data_predictors():
    """Jeffreys' posterior means: 2 and -2 for single trials; a row that counts ten times is more certain."""
    binary = mixed_case("bernoulli", (3, 2), 1, seed=0)
    rows = binary.target.grouped[0]
    assert isinstance(rows, LikelihoodRows)
    got = np.asarray(data_predictor(rows))[rows.design.filled]
    np.testing.assert_allclose(got, np.where(np.asarray(rows.y)[rows.design.filled] > 0, 2.0, -2.0), atol=1e-12)
    ten = LikelihoodRows(rows.design, jnp.full_like(rows.y, 3.0), find_family("poisson"), weight=10 + 0 * rows.y)
    np.testing.assert_allclose(data_predictor(ten)[rows.design.filled], np.log(3.0), atol=2e-3)


def test_mistakes_are_explained():
    case = mixed_case("poisson", SIZES, 1, seed=3)
    with pytest.raises(ValueError, match="needs a mixed model"):
        rvb1(SumOfTerms(case.target.grouped[:1], ()))
    with pytest.raises(ValueError, match="one number for each cell"):
        rvb2(case.target, jnp.zeros((1, 1)))
