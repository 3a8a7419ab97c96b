"""Grouped rows against a dense design matrix, and the layout that places every row in exactly one cell."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from natvi.linalg import ArrowFactor, ArrowVector, GroupedRows, layout_rows
from natvi.linalg.grouped_rows import RowLayout
from natvi.x64 import float64
from strategies import (
    dense_design,
    dense_factor,
    dense_moments,
    dense_vector,
    grouped_rows,
    pattern_parts,
    pick,
    quick_jit,
    random_data,
    random_gaussian,
    random_vector,
)

TIGHT = {"rtol": 1e-12, "atol": 1e-12}
# one chunk each for most groups, several for the large ones, which stand anywhere in the data
SIZES = (2, 1, 9, 3, 2, 1, 3, 14, 2, 3, 1, 2)
CASES = {"r=1": (1, SIZES), "r=2": (2, SIZES), "r=3": (3, SIZES), "no extra chunks": (2, (3, 3, 2, 3))}
P, G = 2, 5  # two coefficients, three further shared coordinates


@pytest.fixture(autouse=True)
def double():
    with float64():
        yield


# --- the layout --------------------------------------------------------------------------------------------

sizes = st.lists(st.integers(1, 12) | st.integers(13, 300), min_size=1, max_size=30)


def shuffled_groups(sizes: list[int], seed: int) -> np.ndarray:
    return np.random.default_rng(seed).permutation(np.repeat(np.arange(len(sizes)), sizes))


def group_of_chunk(layout: RowLayout, num_groups: int) -> np.ndarray:
    """Return the place of the group that each chunk belongs to."""
    return np.concatenate([np.arange(num_groups), layout.extra])


@given(sizes, st.integers(0, 100))
@example([1] * 50 + [500], 0)
@example([500] + [1] * 50, 0)
@example([1], 0)
@example([1000], 0)
def test_every_row_has_one_cell_of_its_own_group(sizes, seed):
    group = shuffled_groups(sizes, seed)
    layout = layout_rows(group, len(sizes))
    c, K = layout.shape
    assert len(layout.extra) == K - len(sizes)
    assert len(np.unique(layout.cell)) == len(group)
    assert layout.cell.min() >= 0 and layout.cell.max() < c * K
    place = group_of_chunk(layout, len(sizes))[layout.cell % K]
    np.testing.assert_array_equal(place, layout.place_of_group[group])


@given(sizes, st.integers(0, 100))
@example([1] * 50 + [500], 0)
@example([500] + [1] * 50, 0)
def test_groups_of_one_chunk_come_first(sizes, seed):
    layout = layout_rows(shuffled_groups(sizes, seed), len(sizes))
    c = layout.shape[0]
    chunks = np.bincount(group_of_chunk(layout, len(sizes)), minlength=len(sizes))
    in_order = np.asarray(sizes)[np.argsort(layout.place_of_group)]
    np.testing.assert_array_equal(np.sort(layout.place_of_group), np.arange(len(sizes)))
    np.testing.assert_array_equal(chunks, -(-in_order // c))
    assert np.all(chunks[: layout.num_simple] == 1) and np.all(chunks[layout.num_simple :] > 1)
    # `per_group` promises sorted indices to its scatter; `rest` counts them from the first group it keeps
    assert np.all(np.diff(layout.extra) >= 0) and np.all(layout.extra >= layout.num_simple)


@given(sizes)
@example([1] * 50 + [500])
@example([1] * 1000 + [100_000])
@example([7] * 40)
def test_cells_are_few(sizes):
    layout = layout_rows(np.repeat(np.arange(len(sizes)), sizes), len(sizes))
    # chunks of one cell cost N + 3 (N - n) < 4 N, so the best choice does not cost more
    assert layout.shape[0] * layout.shape[1] <= 4 * sum(sizes)


def test_equal_groups_are_not_padded():
    layout = layout_rows(np.repeat(np.arange(40), 7), 40)
    assert layout.shape == (7, 40) and layout.num_simple == 40 and layout.extra.size == 0


def test_a_giant_group_does_not_widen_the_others():
    group = np.concatenate([np.arange(1000), np.full(100_000, 1000)])
    layout = layout_rows(group, 1001)
    assert layout.num_simple == 1000 and layout.place_of_group[1000] == 1000
    assert layout.shape[0] * layout.shape[1] < 1.7 * len(group)


def test_place_lays_values_out_and_fills_the_rest():
    group = shuffled_groups([2, 7, 1, 3], 0)
    layout = layout_rows(group, 4)
    values = np.random.default_rng(0).standard_normal((2, len(group)))
    grid = layout.place(values, fill=np.nan)
    assert grid.shape == (2, *layout.shape)
    np.testing.assert_array_equal(pick(layout, grid), values)
    assert np.isnan(grid).sum() == 2 * (layout.shape[0] * layout.shape[1] - len(group))


# --- the operator ------------------------------------------------------------------------------------------


def setting(name: str):
    """Return the design operator with its layout, data and dense matrix."""
    r, sizes = CASES[name]
    data = random_data(sizes, P, r, seed=3)
    rows, layout = grouped_rows(data)
    return rows, layout, data, dense_design(data, layout, G)


@pytest.mark.parametrize("name", CASES)
def test_predictor(name):
    rows, layout, data, A = setting(name)
    theta = random_vector(data.Z.shape[1], G, data.num_groups, seed=4)
    eta = pick(layout, quick_jit(GroupedRows.predictor)(rows, theta))
    np.testing.assert_allclose(eta, data.offset + A @ dense_vector(theta), **TIGHT)


@pytest.mark.parametrize("name", CASES)
def test_moments(name):
    rows, layout, data, A = setting(name)
    r, n = data.Z.shape[1], data.num_groups
    gaussian = random_gaussian(r, G, n, seed=5)
    mean, Sigma = dense_moments(gaussian)
    got = quick_jit(lambda q, design: q.row_moments(design, (4, 1)))(gaussian, rows)
    np.testing.assert_allclose(pick(layout, got.mean), data.offset + A @ mean, **TIGHT)
    np.testing.assert_allclose(pick(layout, got.variance), np.einsum("ij,jk,ik->i", A, Sigma, A), **TIGHT)
    shared = [r * n + 4, r * n + 1]
    np.testing.assert_allclose(pick(layout, got.covariance), (A @ Sigma[:, shared]).T, **TIGHT)


@pytest.mark.parametrize("name", CASES)
def test_transposed_product_and_gram(name):
    rows, layout, data, A = setting(name)
    r, n = data.Z.shape[1], data.num_groups
    weight = np.random.default_rng(6).standard_normal(len(data.group))
    grid = jnp.asarray(layout.place(weight))
    local, shared = quick_jit(GroupedRows.transposed_product)(rows, grid)
    A = A[:, : r * n + P]
    np.testing.assert_allclose(np.concatenate([local.T.ravel(), shared]), A.T @ weight, **TIGHT)
    gram = A.T @ (weight[:, None] * A)
    parts = quick_jit(GroupedRows.gram)(rows, grid)
    for part, expected in zip(parts, pattern_parts(gram, r, n), strict=True):
        np.testing.assert_allclose(part, expected, **TIGHT)
    # the pattern holds all of it: rows of one group never meet those of another
    lower = dense_factor(ArrowFactor(*parts))
    np.testing.assert_allclose(np.tril(lower), np.tril(gram), **TIGHT)


@pytest.mark.parametrize("name", ["r=2", "no extra chunks"])
def test_per_group_is_the_adjoint_of_per_chunk(name):
    rows, layout, data, _ = setting(name)
    rng = np.random.default_rng(7)
    u, w = rng.standard_normal((2, data.num_groups)), rng.standard_normal((2, layout.shape[1]))
    spread, summed = rows.per_chunk(jnp.asarray(u)), rows.per_group(jnp.asarray(w))
    np.testing.assert_allclose(np.sum(spread * w), np.sum(u * summed), rtol=1e-13)
    np.testing.assert_array_equal(spread, u[:, group_of_chunk(layout, data.num_groups)])


def products(rows: GroupedRows, weight: jax.Array, theta: ArrowVector) -> tuple:
    """Return what has a group or chunk axis, and what is summed over the groups."""
    local, shared = rows.transposed_product(weight)
    blocks, cross, corner = rows.gram(weight)
    return (local, blocks, cross, rows.predictor(theta)), (shared, corner)


@pytest.mark.parametrize("cuts", [(3, 4), (4, 0)], ids=["two blocks", "one block"])
def test_pieces_add_up_to_the_whole(cuts):
    """Two blocks and the rest: local parts side by side, shared parts summed, give the whole."""
    rows, layout, data, _ = setting("r=2")
    first, both = cuts[0], sum(cuts)
    assert layout.num_simple >= both and len(layout.extra) > 0
    weight = jnp.asarray(layout.place(np.random.default_rng(8).standard_normal(len(data.group))))
    theta = random_vector(2, G, data.num_groups, seed=9)

    @quick_jit
    def in_pieces(rows: GroupedRows, start: jax.Array) -> list:
        bounds = [(0, first), (first, both), (both, None)]
        pieces = [rows.block(0, first), rows.block(start, both - first), rows.rest(both)]
        return [
            products(piece, weight[:, low:high], theta._replace(local=theta.local[:, low:high]))
            for piece, (low, high) in zip(pieces, bounds, strict=True)
        ]

    local, shared = quick_jit(products)(rows, weight, theta)
    locals_, shareds = zip(*in_pieces(rows, jnp.asarray(first)), strict=True)
    for whole, parts in zip(local, zip(*locals_, strict=True), strict=True):
        np.testing.assert_allclose(np.concatenate(parts, axis=-1), whole, **TIGHT)
    for whole, parts in zip(shared, zip(*shareds, strict=True), strict=True):
        np.testing.assert_allclose(sum(parts), whole, **TIGHT)
