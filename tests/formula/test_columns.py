"""Column recipes: what they compute, what they refuse, and their way through JSON."""

import copy
import json

import numpy as np
import pandas as pd
import pytest

from natvi.formula import columns as columns
from natvi.formula.columns import ColumnRecipe, Expression, Factor, Numeric, Spline, TermRecipe
from natvi.formula.design import build_design, parse_formula


def make_frame(num_rows: int = 120, seed: int = 0) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    return pd.DataFrame(
        {
            "y": rng.normal(size=num_rows),
            "x": rng.normal(size=num_rows),
            "z": rng.uniform(1.0, 2.0, size=num_rows),
            "k": rng.integers(1, 4, size=num_rows),
            "f": rng.choice(["a", "b", "c"], size=num_rows),
            "b": rng.random(num_rows) < 0.5,
            "g": rng.integers(0, 20, size=num_rows),
        }
    )


FORMULA = (
    "y ~ x*f + scale(z):b + I(x**2/(z + 1)) + poly(x, 3) + bs(z, df=4) + C(k) + S(f):k + offset(log(z)) "
    "+ (1 + center(x) + f | g)"
)


@pytest.fixture(scope="module")
def recipe() -> ColumnRecipe:
    return build_design(parse_formula(FORMULA), make_frame()).columns


def reload(recipe: ColumnRecipe) -> ColumnRecipe:
    return ColumnRecipe.from_dict(json.loads(json.dumps(recipe.to_dict(), allow_nan=False)))


def column(name: str) -> Expression:
    return Expression("column", name=name)


def test_json_round_trip(recipe):
    again = reload(recipe)
    assert again == recipe
    assert json.loads(json.dumps(recipe.to_dict())) == recipe.to_dict()
    new = make_frame(50, seed=1)
    for mine, theirs in zip(again.apply(new), recipe.apply(new), strict=True):
        np.testing.assert_array_equal(mine, theirs)


def test_training_rows_are_reproduced():
    frame = make_frame()
    design = build_design(parse_formula(FORMULA), frame)
    X, Z, offset = reload(design.columns).apply(frame)
    np.testing.assert_array_equal(X, design.X)
    np.testing.assert_array_equal(Z, design.Z)
    np.testing.assert_array_equal(offset, design.offset)
    assert X.shape == (120, len(design.fixed_names)) and Z.shape == (120, 4)


def test_state_is_of_the_training_data(recipe):
    frame, new = make_frame(), make_frame(7, seed=2)
    names = recipe.random_names
    np.testing.assert_allclose(recipe.apply(new)[1][:, names.index("center(x)")], new.x - frame.x.mean())


def test_one_row_and_no_row(recipe):
    frame = make_frame()
    row = {name: [frame[name].iloc[5]] for name in recipe.used_columns}
    np.testing.assert_array_equal(recipe.apply(row)[0][0], recipe.apply(frame)[0][5])
    assert recipe.apply(frame.iloc[:0])[0].shape == (0, len(recipe.fixed_names))


def test_used_columns(recipe):
    assert recipe.used_columns == ("b", "f", "k", "x", "z")


def test_rows_in_blocks(recipe, monkeypatch):
    frame = make_frame(1000, seed=3)
    whole = recipe.apply(frame)
    monkeypatch.setattr(columns, "_BLOCK", 1)
    for mine, theirs in zip(recipe.apply(frame), whole, strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=1e-13, atol=1e-13)


@pytest.mark.parametrize("op", sorted(columns.FUNCTIONS))
def test_functions(op):
    x = np.array([0.1, 0.7, 2.0])
    np.testing.assert_array_equal(Expression(op, (column("x"),)).evaluate(pd.DataFrame({"x": x})), getattr(np, op)(x))


def test_products_run_over_the_last_component_first():
    factors = [Factor(name, ("p", "q")) for name in ("u", "v")]
    term = TermRecipe(("pp", "pq", "qp", "qq"), tuple(factors))
    np.testing.assert_array_equal(
        term.evaluate(pd.DataFrame({"u": ["p", "q"], "v": ["q", "p"]})), [[0, 1, 0, 0], [0, 0, 1, 0]]
    )


@pytest.mark.parametrize("reference", [None, 0, 1, 2])
def test_factor_coding(reference):
    frame = pd.DataFrame({"f": ["c", "a", "b", "a"]})
    expected = np.eye(3)[[2, 0, 1, 0]]
    expected = expected if reference is None else np.delete(expected, reference, axis=1)
    np.testing.assert_array_equal(Factor("f", ("a", "b", "c"), reference).evaluate(frame), expected)


def test_levels_match_by_value():
    # A file read again may turn integers into floats, and text into categories.
    factor = Factor("f", (1, 2))
    np.testing.assert_array_equal(factor.codes(pd.DataFrame({"f": [2.0, 1.0]})), [1, 0])
    factor = Factor("f", ("a", "b"))
    frame = pd.DataFrame({"f": pd.Categorical(["b", "a"], categories=["b", "c", "a"])})
    np.testing.assert_array_equal(factor.codes(frame), [1, 0])


def test_data_mistakes(recipe):
    frame = make_frame(30)
    cases = [
        (frame.drop(columns="x").rename(columns={"z": "Z"}), "no column 'x'"),
        (frame.rename(columns={"z": "Z"}), "no column 'z'.*Did you mean 'Z'"),
        (frame.assign(f="d"), "not in the training data: 'd'. Known levels: 'a', 'b', 'c'"),
        (frame.assign(k=frame.k.astype(str)), "training data: '.*Known levels: 1, 2, 3"),
        (frame.assign(x=np.nan, f=None), r"missing values: 'f' 30, 'x' 30.*dropna"),
        (frame.assign(x=np.inf), "'x' has 30 infinite"),
        (frame.assign(x="text"), "'x' must be numbers"),
        (frame.assign(x=pd.Timestamp("2020-01-01")), "dates or times"),
        (frame.assign(z=-1.0), "not a finite number in 30 of 30 rows"),
        (5, "cannot be read as a table"),
    ]
    for data, message in cases:
        with pytest.raises(ValueError, match=message):
            recipe.apply(data)


def component(recipe: dict, kind: str) -> dict:
    return next(part for term in recipe["fixed"] for part in term.get("components", []) if part["kind"] == kind)


def edits():
    """Named ways to spoil a stored recipe."""
    return {
        "op": lambda data: component(data, "numeric")["expression"].update(op="__import__"),
        "no op": lambda data: component(data, "numeric")["expression"].pop("op"),
        "name": lambda data: component(data, "numeric")["expression"].update(name=3),
        "no name": lambda data: component(data, "numeric")["expression"].pop("name"),
        "args": lambda data: component(data, "numeric")["expression"].update(args=["x"]),
        "extra value": lambda data: component(data, "numeric")["expression"].update(values=[1.0]),
        "expression": lambda data: component(data, "numeric").update(expression="x"),
        "no expression": lambda data: component(data, "numeric").pop("expression"),
        "kind": lambda data: component(data, "numeric").update(kind="python"),
        "component": lambda data: data["fixed"][1].update(components=["x"]),
        "level": lambda data: component(data, "factor").update(levels=[None, "b", "c"]),
        "same levels": lambda data: component(data, "factor").update(levels=["a", "a", "c"]),
        "reference": lambda data: component(data, "factor").update(reference=7),
        "true reference": lambda data: component(data, "factor").update(reference=True),
        "contrast": lambda data: component(data, "factor").update(contrast=[[1.0], [0.0]]),
        "ragged": lambda data: component(data, "factor").update(contrast=[[1.0], [0.0, 1.0], [0.0]]),
        "text": lambda data: component(data, "factor").update(contrast=[["1"], ["0"], ["0"]]),
        "norms": lambda data: component(data, "polynomial").update(norms=[1.0]),
        "infinite": lambda data: component(data, "polynomial").update(norms=[1.0, float("inf"), 1.0]),
        "huge": lambda data: component(data, "polynomial").update(norms=[1.0, 10**400, 1.0]),
        "knots": lambda data: component(data, "spline")["knots"].reverse(),
        "degree": lambda data: component(data, "spline").update(degree=-1),
        "names": lambda data: data["fixed"][1].update(names=["x", "more"]),
        "number as name": lambda data: data["fixed"][1].update(names=[1]),
        "fixed": lambda data: data.update(fixed={}),
        "offset": lambda data: data.update(offset=[{"op": "eval", "args": []}]),
        "version": lambda data: data.update(version=99),
        "no version": lambda data: data.pop("version"),
    }


@pytest.mark.parametrize("name", edits())
def test_spoiled_recipes_are_refused(name, recipe):
    data = copy.deepcopy(recipe.to_dict())
    edits()[name](data)
    with pytest.raises(ValueError, match="column recipe"):
        ColumnRecipe.from_dict(data)


@pytest.mark.parametrize("data", [None, [], "x", 3])
def test_what_is_no_recipe_is_refused(data):
    with pytest.raises(ValueError, match="column recipe"):
        ColumnRecipe.from_dict(data)


def test_deep_trees_are_refused(recipe):
    deep: dict = {"op": "column", "name": "x"}
    for _ in range(500):
        deep = {"op": "neg", "args": [deep]}
    with pytest.raises(ValueError, match="nested"):
        ColumnRecipe.from_dict(recipe.to_dict() | {"offset": [deep]})


def test_spline_beyond_its_knots_and_plain_term():
    spline = Spline(column("x"), (0.0, 0.0, 1.0, 1.0), 1, ((1.0, 0.0), (0.0, 1.0)))
    frame = pd.DataFrame({"x": [0.0, 0.25, 1.0, 2.0]})
    np.testing.assert_allclose(spline.evaluate(frame), [[1, 0], [0.75, 0.25], [0, 1], [-1, 2]])
    np.testing.assert_array_equal(Numeric(column("x")).evaluate(frame)[:, 0], frame.x)
