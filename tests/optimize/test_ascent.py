"""The ascent: the bound never falls, Gaussian targets are matched at once, bad candidates are refused."""

from functools import cache
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
import pytest

import natvi
from natvi.gaussian import ArrowPrecision
from natvi.linalg import ArrowMatrix
from natvi.models.mixed.target import build_target
from natvi.optimize.arrow_system import ArrowSystem, Natural
from natvi.optimize.ascent import (
    FIRST_TRY,
    MAX_HALVINGS,
    AscentState,
    ascent_init,
    ascent_step,
    is_stalled,
)
from natvi.target import SumOfTerms
from natvi.x64 import float64, to_host
from strategies import (
    QuadraticTerm,
    dense_matrix,
    dense_moments,
    dense_vector,
    mixed_case,
    quick_jit,
    random_arrow,
    random_vector,
)

EPILEPSY_BOUND = -695.792  # prior N(0, 100) on every shared coordinate, all constants
STEPS = 120


@pytest.fixture(autouse=True)
def double():
    with float64():
        yield


class Path(NamedTuple):
    """A run of the ascent: system, last state, and of every iteration the bound, the step tried, the steps accepted."""

    system: ArrowSystem
    state: AscentState
    elbo: np.ndarray
    halvings: np.ndarray
    accepted: np.ndarray


@quick_jit
def run(system: ArrowSystem, state: AscentState, plain: jax.Array) -> tuple:
    """Iterate STEPS times; a plain run never tries an accelerated candidate."""

    def step(state: AscentState, _: None) -> tuple:
        halvings = jnp.where(plain, jnp.maximum(state.halvings, 0), state.halvings)
        state = ascent_step(system, state._replace(halvings=halvings))
        return state, (state.elbo, halvings, state.accepted)

    return jax.lax.scan(step, state, None, length=STEPS)


step_once = quick_jit(ascent_step)


def path(target: SumOfTerms, start: Natural, plain: bool = False) -> Path:
    system = ArrowSystem.around(target, start)
    state, trace = run(system, ascent_init(system, start), jnp.asarray(plain))
    return Path(system, state, *to_host(trace))


@cache
def epilepsy(plain: bool = False) -> Path:
    formula = "y ~ base*trt + age + visit + (1 | subject)"
    model = natvi.glmm(formula, natvi.data.load_epilepsy(), family="poisson", prior="paper")
    target, start, _ = build_target(model.design, model.y, model.family, model.prior)
    return path(target, start, plain)


@cache
def alike(plain: bool = False) -> Path:
    """Run on counts of groups that do not differ: the variance component goes towards zero."""
    rng = np.random.default_rng(0)
    x, g = rng.normal(size=300), np.repeat(np.arange(50), 6)
    data = pd.DataFrame({"y": rng.poisson(np.exp(0.5 + 0.3 * x)), "x": x, "g": g})
    model = natvi.glmm("y ~ x + (1 | g)", data, family="poisson", prior="paper")
    target, start, _ = build_target(model.design, model.y, model.family, model.prior)
    return path(target, start, plain)


@cache
def binary() -> Path:
    """Run on a small model with a binary response, from a start far away."""
    case = mixed_case("bernoulli", (2, 1, 9, 3, 4, 6), 1, seed=3)
    precision = ArrowMatrix(*(0.3 * part for part in random_arrow(1, case.g, case.n, seed=4)))
    return path(case.target, Natural(random_vector(1, case.g, case.n, seed=5), precision))


# --- real targets ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("ascent", [epilepsy, binary])
def test_the_bound_never_falls(ascent):
    elbo = ascent().elbo
    assert np.all(np.isfinite(elbo))
    assert np.all(np.diff(elbo) >= -1e-13 * (1 + np.abs(elbo[:-1])))
    assert elbo[-1] > elbo[0] + 1


def test_epilepsy_reaches_its_maximum():
    assert abs(epilepsy().elbo[-1] - EPILEPSY_BOUND) < 1e-3


def test_acceleration_changes_the_way_not_the_goal():
    fast, plain = epilepsy(), epilepsy(plain=True)
    assert np.all(plain.halvings >= 0) and np.any(fast.halvings < 0)
    np.testing.assert_allclose(fast.elbo[-1], plain.elbo[-1], rtol=1e-12)
    (fast_mean, fast_cov), (mean, covariance) = (moments(run) for run in (fast, plain))
    sds = np.sqrt(np.diag(covariance))
    np.testing.assert_allclose((fast_mean - mean) / sds, 0.0, atol=1e-5)
    np.testing.assert_allclose(fast_cov / np.outer(sds, sds), covariance / np.outer(sds, sds), atol=1e-5)


def test_acceleration_is_needed_where_the_groups_do_not_differ():
    fast, plain = alike(), alike(plain=True)
    assert np.ptp(fast.elbo[-20:]) < 1e-8
    assert plain.elbo[-1] < fast.elbo[-1] - 1e-2


def moments(done: Path) -> tuple[np.ndarray, np.ndarray]:
    return dense_moments(quick_jit(ArrowPrecision.from_natural)(*done.system.natural(done.state.x)))


@pytest.mark.parametrize("ascent", [epilepsy, binary])
def test_fixed_point(ascent):
    """S = -E hess and E grad = 0, in units of posterior sds."""
    system, state, *_ = ascent()
    (linear, precision), (new_linear, new_precision) = system.natural(state.x), system.natural(state.G)
    S, new_S = dense_matrix(precision), dense_matrix(new_precision)
    T = np.linalg.cholesky(S)
    change = np.linalg.solve(T, np.linalg.solve(T, new_S - S).T)
    assert np.abs(change).max() < 1e-5
    # G = (S' mu + E grad, S')
    grad = dense_vector(new_linear) - new_S @ np.linalg.solve(S, dense_vector(linear))
    assert np.abs(np.linalg.solve(T, grad)).max() < 1e-5


# --- a Gaussian target -------------------------------------------------------------------------------------


@cache
def quadratic() -> tuple[ArrowSystem, Natural, Natural]:
    """Return a Gaussian target, its natural parameters and a start far from it."""
    mean, precision = random_vector(2, 3, 4, seed=0), random_arrow(2, 3, 4, seed=1)
    target = SumOfTerms((QuadraticTerm(mean, precision),), ())
    start = Natural(random_vector(2, 3, 4, seed=2), random_arrow(2, 3, 4, seed=3))
    return ArrowSystem.around(target, start), Natural(precision.matvec(mean), precision), start


def evaluated_start() -> AscentState:
    system, _, start = quadratic()
    return step_once(system, ascent_init(system, start))


def test_a_gaussian_target_is_recovered_in_one_step():
    system, exact, _ = quadratic()
    first = evaluated_start()
    assert int(first.accepted) == 1 and float(first.elbo) < -1
    state = step_once(system, first)
    for got, expected in zip(jax.tree.leaves(system.natural(state.x)), jax.tree.leaves(exact), strict=True):
        np.testing.assert_allclose(got, expected, rtol=1e-11, atol=1e-12)
    # the target is normalised: log Z = 0 is the maximum of the bound
    np.testing.assert_allclose(state.elbo, 0.0, atol=1e-11)
    np.testing.assert_allclose(state.gain, -first.elbo, rtol=1e-11)
    assert int(state.evaluated) == 2 and int(state.accepted) == 2


def same(a: object, b: object) -> None:
    jax.tree.map(np.testing.assert_array_equal, a, b)


def test_a_candidate_that_is_not_positive_definite_is_refused():
    system, _, _ = quadratic()
    state = evaluated_start()
    x = system.natural(state.x)
    flipped = Natural(x.linear, ArrowMatrix(*(-part for part in x.precision)))
    wrong = state._replace(G=system.start(flipped), halvings=jnp.asarray(FIRST_TRY, jnp.int32))
    after = step_once(system, wrong)
    for name in ("x", "G", "residual", "elbo", "gain", "past_G", "past_residual", "depth", "cursor", "accepted"):
        same(getattr(after, name), getattr(wrong, name))
    # a plain step comes next: there was nothing to learn, so another accelerated candidate would be the same
    assert int(after.halvings) == 0 and int(after.evaluated) == int(wrong.evaluated) + 1


def test_a_step_that_is_too_long_is_not_the_end():
    system, exact, _ = quadratic()
    state = evaluated_start()
    # G - x made 16 times longer: the full step falls, a shorter or a mixed one rises
    far = jax.tree.map(lambda x, G: x + 16 * (G - x), state.x, state.G)
    begin = state = state._replace(G=far)
    while int(state.accepted) == int(begin.accepted):
        state = step_once(system, state)
    assert 2 <= int(state.evaluated) - int(begin.evaluated) <= 8
    assert float(state.elbo) > float(begin.elbo) and int(state.halvings) == FIRST_TRY
    for _ in range(6):  # the wrong G stays in the past for a while
        state = step_once(system, state)
    for got, wanted in zip(jax.tree.leaves(system.natural(state.x)), jax.tree.leaves(exact), strict=True):
        np.testing.assert_allclose(got, wanted, rtol=1e-9, atol=1e-9)


def test_steps_are_halved_when_mixing_does_not_help():
    system, _, _ = quadratic()
    state = evaluated_start()
    far = jax.tree.map(lambda x, G: x + 16 * (G - x), state.x, state.G)
    begin = state._replace(G=far, halvings=jnp.zeros((), jnp.int32))
    state, tried = begin, []
    while int(state.accepted) == int(begin.accepted):
        tried.append(int(state.halvings))
        state = step_once(system, state)
    assert tried == list(range(len(tried))) and 2 <= len(tried) <= 5
    expected = jax.tree.map(lambda x, G: x + 0.5 ** tried[-1] * (G - x), begin.x, begin.G)
    for got, wanted in zip(jax.tree.leaves(state.x), jax.tree.leaves(expected), strict=True):
        np.testing.assert_allclose(got, wanted, rtol=1e-12, atol=1e-12)


def test_a_direction_that_never_helps_stalls():
    system, _, _ = quadratic()
    state = evaluated_start()
    assert int(state.halvings) == 0  # without a past the plain step comes first
    nowhere = jax.tree.map(lambda a: jnp.full_like(a, jnp.nan), state.G)
    wrong = state._replace(G=nowhere, halvings=jnp.asarray(FIRST_TRY, jnp.int32))
    last, (elbo, halvings, accepted) = run(system, wrong, jnp.asarray(False))
    assert np.all(elbo == wrong.elbo) and np.all(accepted == 1)
    np.testing.assert_array_equal(halvings, [FIRST_TRY, *range(STEPS - 1)])
    same(last.x, wrong.x)
    assert bool(is_stalled(last)) and not bool(is_stalled(wrong))
    assert not bool(is_stalled(last._replace(halvings=jnp.asarray(MAX_HALVINGS))))


def test_a_start_that_is_not_positive_definite_is_not_accepted():
    system, _, start = quadratic()
    broken = Natural(start.linear, ArrowMatrix(*(-part for part in start.precision)))
    state = step_once(system, ascent_init(system, broken))
    assert int(state.accepted) == 0 and float(state.elbo) == -np.inf


# --- the state ---------------------------------------------------------------------------------------------


def test_the_state_is_a_pytree_of_arrays_that_a_step_keeps_in_shape():
    system, _, start = quadratic()
    state = ascent_init(system, start)
    assert all(isinstance(leaf, jax.Array) for leaf in jax.tree.leaves(state))
    after = jax.eval_shape(ascent_step, system, state)
    assert jax.tree.structure(after) == jax.tree.structure(state)
    for old, new in zip(jax.tree.leaves(state), jax.tree.leaves(after), strict=True):
        assert (old.shape, old.dtype) == (new.shape, new.dtype)


def test_the_same_state_gives_the_same_bits():
    system, _, _ = quadratic()
    state = evaluated_start()
    same(step_once(system, state), step_once(system, to_host(state)))


@pytest.mark.parametrize(("r", "g", "n"), [(1, 1, 1), (1, 4, 3), (2, 1, 3), (2, 3, 4), (3, 5, 2), (4, 20, 2)])
def test_packing_is_a_bijection(r, g, n):
    x = Natural(random_vector(r, g, n, seed=6), random_arrow(r, g, n, seed=7))
    system = ArrowSystem(quadratic()[0].target, r, g)
    same(system.natural(system.start(x)), x)


def test_a_model_is_traced_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tracing is a third of a first fit: the shape of the residual must not cost another one."""
    traced, evaluate = [], ArrowSystem.evaluate
    monkeypatch.setattr(ArrowSystem, "evaluate", lambda system, x: traced.append(x) or evaluate(system, x))
    rng = np.random.default_rng(0)
    table = pd.DataFrame(rng.normal(size=(77, 7)), columns=list("abcdefg")).assign(
        y=rng.poisson(2.0, 77), h=np.arange(77) % 11
    )
    natvi.glmm("y ~ a + b + c + d + e + f + g + (1 | h)", table, family="poisson").fit(method="gva")
    assert len(traced) == 1
