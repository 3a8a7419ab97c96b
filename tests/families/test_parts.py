"""Numbers beside the mean with predictors of their own: a stacked row against dense quadrature over all its numbers."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from natvi.families.family import Family, Part
from natvi.families.parts import find_part, join_extras, part_slices, with_parts, without_parts
from natvi.families.rows import PredictorMoments
from natvi.families.stacked import Stacked, for_rows, rows_each
from natvi.families.table import find_family
from natvi.x64 import float64


@pytest.fixture(autouse=True)
def double():
    with float64():
        yield


class Case(NamedTuple):
    name: str
    words: tuple[str, ...]
    y: tuple[float, ...]
    link: str | None = None
    last_sd: float = 0.0  # of the last number, where it is wide


TOLERANCE = 1e-6
CASES = [
    Case("gaussian", ("dispersion",), (1.3, -0.2)),
    Case("gaussian", ("dispersion",), (1.3, 0.2), "log"),
    Case("lognormal", ("dispersion",), (1.3, 0.2)),
    Case("gamma", ("dispersion",), (1.3, 0.2)),
    Case("negative_binomial", ("dispersion",), (0.0, 3.0)),
    Case("weibull(1.5)", ("dispersion",), (1.0, -2.0)),
    Case("beta", ("dispersion",), (0.3, 0.9)),
    Case("student_t(4)", ("dispersion",), (1.0, -2.0)),
    Case("student_t", ("dispersion",), (1.0, -2.0)),
    Case("zero_inflated_poisson", ("zero",), (0.0, 3.0)),
    Case("hurdle_poisson", ("zero",), (0.0, 3.0)),
    Case("zero_inflated_negative_binomial", ("zero",), (0.0, 3.0)),
    Case("zero_inflated_negative_binomial", ("dispersion", "zero"), (0.0, 3.0)),
    Case("hurdle_negative_binomial", ("dispersion",), (0.0, 3.0)),
    Case("zero_inflated_poisson", ("zero",), (0.0, 3.0), None, 2.0),
    Case("zero_inflated_negative_binomial", ("zero",), (0.0, 3.0), None, 1.2),
]


def with_words(plain: Family, words: tuple[str, ...], effects: int = 0) -> Family:
    return with_parts(plain, tuple(Part(*find_part(plain, word), 1, effects) for word in words))


def dense(family: Family, y: float, m: np.ndarray, S: np.ndarray) -> tuple[float, np.ndarray, np.ndarray]:
    """E log p with the expectations of its derivatives in (eta, all numbers), by a product rule."""
    rules = [np.polynomial.hermite_e.hermegauss(k) for k in (100, *((100,) if len(m) == 2 else (32, 32)))]
    z = np.stack([a.ravel() for a in np.meshgrid(*[x for x, _ in rules], indexing="ij")])
    weights = np.prod([a.ravel() for a in np.meshgrid(*[w / w.sum() for _, w in rules], indexing="ij")], axis=0)
    points = jnp.asarray((m[:, None] + np.linalg.cholesky(S) @ z).T)

    def f(p: jax.Array) -> jax.Array:
        return family.log_density(jnp.asarray(y), p[0], p[1] if len(m) == 2 else p[1:])

    @jax.jit
    def all_of(points: jax.Array) -> tuple[jax.Array, ...]:
        return jax.vmap(f)(points), jax.vmap(jax.grad(f))(points), jax.vmap(jax.hessian(f))(points)

    value, slope, bend = map(np.asarray, all_of(points))
    return float(weights @ value), weights @ slope, np.einsum("s,sij->ij", weights, bend)


def moments(kinds: list[list[int]], rest: list[int], m: np.ndarray, S: np.ndarray, copies: int) -> PredictorMoments:
    """Moments of stacked rows, whose predictors add up the numbers in `kinds`, and of what is shared."""
    A = np.zeros((len(kinds), len(m)))
    for row, kind in zip(A, kinds, strict=True):
        row[kind] = 1.0
    mean, variance = (jnp.tile(jnp.asarray(a), copies) for a in (A @ m, np.einsum("ki,ij,kj->k", A, S, A)))
    if not rest:
        return PredictorMoments(mean, variance)
    (s,) = rest
    covariance = jnp.tile(jnp.asarray(A @ S[s]), copies)
    return PredictorMoments(mean, variance, jnp.asarray(m[s]), jnp.asarray(S[s, s]), covariance)


@pytest.mark.parametrize(
    "case", CASES, ids=lambda case: f"{case.name}-{case.link or ''}-{'-'.join(case.words)}-{case.last_sd or ''}"
)
def test_stacked_rows_agree_with_dense_quadrature(case: Case):
    plain = find_family(case.name, case.link)
    family = with_words(plain, case.words)
    stacked, d = Stacked(family), 1 + plain.num_extras
    rng = np.random.default_rng(2)
    A = 0.2 * rng.standard_normal((d, d)) + 0.15 * np.eye(d)
    m, S = 0.3 * rng.standard_normal(d), A @ A.T
    if case.name == "student_t":  # whose singularities are near where sigma may be small
        S = 0.1 * S
    if case.last_sd:
        scale = np.append(np.ones(d - 1), case.last_sd / np.sqrt(S[-1, -1]))
        S = S * np.outer(scale, scale)
    at = [0, *(1 + part.place for part in family.parts)]
    kinds = [[at[a] for a in kind] for kind in stacked.kinds]
    rest = [k for k in range(d) if k not in at]
    y = jnp.repeat(jnp.asarray(case.y), len(kinds))
    found = jax.jit(stacked.expected)(y, moments(kinds, rest, m, S, len(case.y)))
    rows = np.zeros((len(kinds), d))
    for row, kind in zip(rows, kinds, strict=True):
        row[kind] = 1.0
    for k, one in enumerate(case.y):
        own = slice(k * len(kinds), (k + 1) * len(kinds))
        value, slope, bend = dense(plain, one, m, S)
        grad = np.asarray(found.d_eta[own]) @ rows
        hess = rows.T @ (np.asarray(found.d_eta_eta[own])[:, None] * rows)
        for s in rest:
            assert found.d_disp is not None and found.d_eta_disp is not None and found.d_disp_disp is not None
            grad[s], hess[s, s] = float(np.sum(found.d_disp[own])), float(np.sum(found.d_disp_disp[own]))
            cross = np.asarray(found.d_eta_disp[own]) @ rows
            hess[s] += cross
            hess[:, s] += cross
        np.testing.assert_allclose(float(np.sum(found.value[own])), value, rtol=TOLERANCE)
        np.testing.assert_allclose(grad, slope, rtol=TOLERANCE, atol=TOLERANCE)
        np.testing.assert_allclose(hess, bend, rtol=TOLERANCE, atol=TOLERANCE)


@pytest.mark.parametrize("name", ["zero_inflated_poisson", "gaussian"])
def test_derivatives_at_a_point_are_those_of_no_spread(name: str):
    word = "zero" if name.startswith("zero") else "dispersion"
    stacked = Stacked(with_words(find_family(name), (word,)))
    y, eta = jnp.repeat(jnp.asarray([0.0, 3.0]), 3), jnp.asarray([0.2, -0.5, -0.3, 0.9, 0.4, 1.3])
    value, slope, bend = stacked.row_derivatives(y, eta, None)
    exact = stacked.expected(y, PredictorMoments(eta, jnp.zeros(6)))
    np.testing.assert_allclose(value.reshape(2, 3).sum(axis=1), exact.value.reshape(2, 3).sum(axis=1), rtol=1e-9)
    np.testing.assert_allclose(slope, exact.d_eta, rtol=1e-8, atol=1e-10)
    rows = np.array([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]])
    for k in range(2):
        own = slice(3 * k, 3 * k + 3)
        theirs, ours = (rows.T @ (np.asarray(each[own])[:, None] * rows) for each in (exact.d_eta_eta, bend))
        if stacked.log_concave or np.all(np.linalg.eigvalsh(theirs) < 0):
            np.testing.assert_allclose(ours, theirs, rtol=1e-8, atol=1e-10)
        else:
            assert np.all(np.linalg.eigvalsh(ours) <= 1e-12)


def test_numbers_stand_where_the_family_expects_them():
    plain = find_family("zero_inflated_negative_binomial")
    family = with_words(plain, ("zero",))
    assert [extra.name for extra in family.extras] == ["phi"] and without_parts(family) == plain
    joined = join_extras(family, np.array([[1.0]]), [np.array([[2.0, 3.0]])])
    assert joined.tolist() == [[[1.0, 1.0]], [[2.0, 3.0]]]
    assert part_slices(family, 3, 0)[1] == (slice(2, 3), slice(0, 0))
    assert rows_each(for_rows(family)) == 3 and rows_each(for_rows(plain)) == 1


def test_what_counts_as_concave():
    gaussian = find_family("gaussian")
    assert Stacked(with_words(gaussian, ("dispersion",))).quadratic
    assert not Stacked(with_words(gaussian, ("dispersion",), effects=1)).quadratic
    assert Stacked(with_words(find_family("hurdle_poisson"), ("zero",), effects=1)).log_concave
    assert not Stacked(with_words(find_family("zero_inflated_poisson"), ("zero",))).log_concave
