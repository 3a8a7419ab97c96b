"""Formulas as people write them elsewhere, and formulas that would exhaust time or memory: understood or refused."""

import warnings

import numpy as np
import pandas as pd
import pytest

import natvi
from natvi.formula.columns import ColumnRecipe
from natvi.formula.design import build_design, parse_formula
from natvi.formula.dot import expand_dot

N = 60


@pytest.fixture(scope="module")
def table() -> pd.DataFrame:
    rng = np.random.default_rng(0)
    columns = {"x": rng.normal(size=N), "z": rng.normal(size=N), "g": np.repeat(np.arange(10), 6)}
    return pd.DataFrame(columns | {"a b": rng.normal(size=N), "y": rng.normal(size=N)})


def columns_of(formula: str, data: pd.DataFrame) -> tuple[str, ...]:
    return build_design(parse_formula(expand_dot(formula, data)), data).fixed_names


def test_hat_is_a_power(table: pd.DataFrame) -> None:
    assert columns_of("y ~ I(x^2)", table) == columns_of("y ~ I(x**2)", table)
    assert columns_of("y ~ (x + z)^2", table) == ("Intercept", "x", "z", "x:z")
    assert parse_formula("y ~ `a^b`").fixed == "1 + `a^b`"
    for formula, cure in (("y ~ x^2", "write I(x**2)"), ("y^2 ~ x", "write I(y**2)")):
        with pytest.raises(ValueError) as caught:
            parse_formula(formula)
        assert cure in str(caught.value)


def test_dot_stands_for_the_other_columns(table: pd.DataFrame) -> None:
    assert columns_of("y ~ .", table) == ("Intercept", "x", "z", "g", "a b")
    assert columns_of("y ~ . - x", table) == ("Intercept", "z", "g", "a b")
    assert columns_of("y ~ . + (1 | g)", table) == ("Intercept", "x", "z", "a b")
    assert natvi.glm("y ~ .", table[["x", "y", "g"]], weights="g").names == ("Intercept", "x")
    assert natvi.glmm("y ~ . + (1 | g)", table[["x", "y", "g"]]).formula == "y ~ (x) + (1 | g)"
    wide = pd.DataFrame(np.zeros((3, 700)), columns=[f"v{j}" for j in range(700)]).assign(y=1.0)
    assert len(columns_of("y ~ .", wide)) == 701
    for formula in ("y ~ log(.)", ". ~ x"):
        with pytest.raises(ValueError, match="stands for all other columns"):
            expand_dot(formula, table)
    with pytest.raises(ValueError, match="there are none"):
        expand_dot("y ~ .", table[["y"]])
    with pytest.raises(ValueError, match="write the names"):
        parse_formula("y ~ .")


def test_comparisons_are_zero_or_one(table: pd.DataFrame) -> None:
    design = build_design(parse_formula("y ~ I(x > 0) + I(g == 3) + I(2*x + 1 <= z)"), table)
    x, z, g = (table[name].to_numpy() for name in "xzg")
    expected = np.column_stack([np.ones(N), x > 0, g == 3, 2 * x + 1 <= z])
    np.testing.assert_array_equal(design.X, expected)
    again = ColumnRecipe.from_dict(design.columns.to_dict()).apply(table)[0]
    np.testing.assert_array_equal(again, expected)
    with pytest.raises(ValueError, match=r"comparisons stand in I\(\)"):
        parse_formula("y ~ x > 0")


@pytest.mark.parametrize(
    ("formula", "words"),
    [
        ("y ~ bs(x, df=1000000000)", "more than 200 columns"),
        ("y ~ bs(x, df=10**9)", "plain numbers"),
        ("y ~ poly(x, 100000000)", "more than 200 columns"),
        ("y ~ (x + z)**99999999", "more than 5,000 terms"),
        ("y ~ " + "*".join("abcdefghijklmnopqrst"), "more than 5,000 terms"),
        ("y ~ I(x + 9**9999999)", "not a finite number"),
        ("y ~ I(x + 9**9**9)", "ambiguous"),
        ("y ~ I(x * " + "9" * 400 + ")", "not a finite number"),
        ("y ~ I(x + 1/0)", "not a finite number"),
        ("y ~ " + "(" * 3000 + "x" + ")" * 3000, "cannot read the formula"),
    ],
)
def test_formulas_that_would_never_end(formula: str, words: str, table: pd.DataFrame) -> None:
    with pytest.raises(ValueError) as caught:
        columns_of(formula, table)
    message = str(caught.value)
    assert words in message and len(message) < 1000


def test_numbers_that_came_as_text(table: pd.DataFrame) -> None:
    texts = table.assign(x=table["x"].astype(str), few=table["g"].astype(str))
    with pytest.raises(ValueError, match=r"numbers as text: 60 of them.*pd\.to_numeric.*C\(x\)"):
        columns_of("y ~ x", texts)
    texts.loc[3, "x"] = "?"
    with pytest.raises(ValueError, match=r"but for '\?'.*errors='coerce'"):
        columns_of("y ~ x", texts)
    assert len(columns_of("y ~ C(x)", texts)) == N
    assert len(columns_of("y ~ few", texts)) == 10


def test_splines_outside_their_range(table: pd.DataFrame) -> None:
    recipe = build_design(parse_formula("y ~ bs(x, df=5)"), table).columns
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        recipe.apply(table)
    with pytest.warns(UserWarning, match="1 of 2 rows lie outside the range of x"):
        recipe.apply({"x": [0.0, 50.0]})
