"""Centred products against the products of centred variables, and what a model without margins allows."""

import numpy as np
import pandas as pd
import pytest

from natvi.formula.design import build_design, parse_formula
from natvi.formula.margins import Margins, centring_map, plain_products, products_of

RNG = np.random.default_rng(3)
N = 60
FRAME = pd.DataFrame(
    {
        "y": RNG.normal(size=N),
        "x": RNG.normal(50.0, 3.0, N),
        "z": RNG.normal(-7.0, 0.1, N),
        "w": RNG.normal(2.0, 1.0, N),
        "f": RNG.choice(list("abc"), N),
        "h": RNG.choice(["u", "v"], N),
    }
)
CENTRED = {name: FRAME[name] - FRAME[name].mean() for name in ("x", "z", "w")}


def centred(formula):
    design = build_design(parse_formula(formula), FRAME)
    products = products_of(design.columns.fixed)
    K = centring_map(products, Margins(products, design.X), design.X, None)
    return design, K, dict(zip(design.fixed_names, (design.X @ K).T, strict=True))


def test_products_are_formed_of_centred_variables():
    _, _, columns = centred("y ~ x*z*w")
    for name in ("x", "x:z", "x:z:w", "z:w"):
        expected = np.prod([CENTRED[part] for part in name.split(":")], axis=0)
        np.testing.assert_allclose(columns[name], expected, atol=1e-8)
    np.testing.assert_array_equal(columns["Intercept"], 1.0)


@pytest.mark.parametrize("formula", ["y ~ x*f", "y ~ f + x:f", "y ~ 0 + f + x:f", "y ~ 0 + f*h + x + x:h"])
def test_a_number_within_levels_is_centred_whatever_the_coding(formula):
    _, _, columns = centred(formula)
    products = {name: column for name, column in columns.items() if name.startswith("x:") or name == "x"}
    assert products
    for name, column in products.items():
        level = name.partition("[")[2].removesuffix("]")
        inside = np.isin(FRAME["f"], [level]) | np.isin(FRAME["h"], [level]) if level else np.ones(N, bool)
        np.testing.assert_allclose(column, np.where(inside, CENTRED["x"], 0.0), atol=1e-8)


@pytest.mark.parametrize("formula", ["y ~ x*z*f", "y ~ 0 + f*h + x:z + x + z", "y ~ poly(x, 2) + x:f", "y ~ x:z + w"])
def test_the_span_stays(formula):
    design, K, _ = centred(formula)
    assert np.linalg.matrix_rank(K) == len(K)
    together = np.concatenate([design.X, design.X @ K], axis=1)
    assert np.linalg.matrix_rank(together) == np.linalg.matrix_rank(design.X)


def test_without_its_margins_a_product_stays_as_it_is():
    _, K, _ = centred("y ~ x:z")
    np.testing.assert_array_equal(K, np.eye(2))
    _, _, columns = centred("y ~ x + x:z")
    np.testing.assert_allclose(columns["x"], CENTRED["x"], atol=1e-9)
    np.testing.assert_allclose(columns["x:z"], FRAME["x"] * FRAME["z"])


def test_a_constant_is_found_among_cells_and_columns():
    design = build_design(parse_formula("y ~ 0 + f:h + x"), FRAME)
    found = Margins(products_of(design.columns.fixed), design.X).constant
    assert found is not None
    np.testing.assert_allclose(sum(weight * design.X[:, at] for at, weight in found.items()), 1.0)
    X = np.column_stack([FRAME["x"], np.full(N, 4.0)])
    assert Margins(plain_products(2), X).constant == {1: 0.25}
    assert Margins(plain_products(1), X[:, :1]).constant is None


def test_a_constant_number_is_not_centred_away():
    X = np.column_stack([np.ones(N), np.full(N, 5.0), FRAME["x"]])
    products = plain_products(3)
    K = centring_map(products, Margins(products, X), X, None)
    np.testing.assert_allclose((X @ K)[:, 1], 5.0)
    np.testing.assert_allclose((X @ K)[:, 2], CENTRED["x"], atol=1e-9)


def test_weights_move_the_centre():
    X = np.column_stack([np.ones(3), [1.0, 2.0, 6.0]])
    products = plain_products(2)
    K = centring_map(products, Margins(products, X), X, np.array([1.0, 1.0, 2.0]))
    np.testing.assert_allclose((X @ K)[:, 1], [-2.75, -1.75, 2.25])
