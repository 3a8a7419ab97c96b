"""Successes and trials on the left side of a formula."""

import copy
import json

import numpy as np
import pandas as pd
import pytest

from natvi.formula.columns import ColumnRecipe
from natvi.formula.design import Design, build_design, parse_formula
from natvi.models.regression.response import Response, encode_response


def make_frame(num_rows: int = 40, seed: int = 0) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    n = rng.integers(1, 9, num_rows)
    frame = pd.DataFrame({"y": rng.binomial(n, 0.4), "n": n, "x": rng.normal(size=num_rows)})
    return frame.assign(fail=frame.n - frame.y, share=frame.y / frame.n, g=np.arange(num_rows) % 5)


@pytest.fixture
def frame() -> pd.DataFrame:
    return make_frame()


def build(text: str, data, **options) -> Design:
    return build_design(parse_formula(text), data, **options)


def encode(text: str, data, family: str = "binomial") -> Response:
    design = build(text, data)
    return encode_response(design.response, design.response_name, family, design.trials)


@pytest.mark.parametrize("name", ["p", "prop", "proportion"])
def test_all_names(name, frame):
    design = build(f"{name}(y, n) ~ x + (1 | g)", frame)
    assert design.response_name == f"{name}(y, n)" and design.trials is not None
    np.testing.assert_array_equal(design.response, frame.y)
    np.testing.assert_array_equal(design.trials, frame.n)
    assert design.fixed_names == ("Intercept", "x")
    assert build("y ~ x", frame).trials is None


@pytest.mark.parametrize("left", ["p(y, y + fail)", "p(n - fail, n)", "p(share*n, n)", "p({n*share}, (y + fail)*1)"])
def test_arithmetic(left, frame):
    response = encode(f"{left} ~ x", frame)
    np.testing.assert_array_equal(response.values, frame.y / frame.n)
    np.testing.assert_array_equal(response.trials, frame.n)


def test_a_number_of_trials(frame):
    response = encode("p(y, 8) ~ x", frame)
    np.testing.assert_array_equal(response.values, frame.y / 8)
    np.testing.assert_array_equal(response.trials, np.full(40, 8.0))


def test_names_in_backquotes_and_trials_on_the_right(frame):
    odd = frame.rename(columns={"y": "y (all)", "n": "number of"})
    design = build("p(`y (all)`, `number of`) ~ x + `number of`", odd)
    np.testing.assert_array_equal(design.response, frame.y)
    np.testing.assert_array_equal(design.X[:, 2], frame.n)


def test_other_types_of_columns(frame):
    typed = frame.assign(y=(frame.y > 0), n=frame.n.astype("Int64"))
    np.testing.assert_array_equal(encode("p(y, n) ~ x", typed).values, (frame.y > 0) / frame.n)


def test_missing_successes_and_trials(frame):
    gaps = frame.astype({"y": float, "n": float})
    gaps.loc[3, "y"] = gaps.loc[[4, 5], "n"] = np.nan
    design = build("p(y, n) ~ x", gaps)
    assert design.num_missing == 3 and design.trials is not None
    np.testing.assert_array_equal(design.trials, frame.n.to_numpy()[design.rows])
    np.testing.assert_array_equal(design.response, frame.y.to_numpy()[design.rows])


@pytest.mark.parametrize(
    ("left", "message"),
    [
        ("p(y)", "takes two arguments"),
        ("p(y, n, x)", "takes two arguments"),
        ("p(y, trials=n)", "takes two arguments"),
        ("p(3, n)", "no column in it"),
        ("p(y, 'n')", "cannot use"),
        ("p(log(y), n)", r"'log\(y\)' in 'p\(log\(y\), n\)' is not simple enough"),
        ("p(y, scale(n))", "not simple enough"),
        ("p(y, n + foo(x))", "not simple enough"),
        ("p(os.system(y), n)", "not simple enough"),
        ("log(p(y, n))", "whole left side"),
        ("cbind(y, fail)", r"successes and trials: p\(y, y \+ fail\)"),
        ("cbind(y, n - y)", r"successes and trials: p\(y, n\)"),
        ("cbind(y)", r"p\(y, n\)"),
    ],
)
def test_left_sides_that_are_refused(left, message):
    with pytest.raises(ValueError, match=message):
        parse_formula(f"{left} ~ x")


def test_successes_and_proportions_on_the_right_are_refused():
    with pytest.raises(ValueError, match="'y' stands on both sides"):
        parse_formula("p(y, n) ~ y + x")
    with pytest.raises(ValueError, match="whole left side"):
        parse_formula("y ~ p(x, n)")


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"y": 9}, r"40 of 40 rows of 'p\(y, n\)' have more successes than trials, e.g. row 'r0' with 9"),
        ({"y": 9}, "wrong order"),
        ({"y": lambda d: d.y.mask(d.x == d.x.min(), 99)}, "1 of 40 rows.*with 99 successes.*all trials"),
        ({"y": -1}, "40 of 40 rows.*negative successes.*-1 successes"),
        ({"y": lambda d: d.y + 0.5}, "successes that are not whole"),
        ({"n": lambda d: d.n + 0.25}, "trials that are not whole"),
        ({"n": lambda d: -d.n}, "negative trials.*row 'r0'"),
        ({"n": lambda d: d.n.mask(d.x == d.x.min(), 0)}, "1 of 40 rows.*no trials.*Leave them out"),
        ({"y": 0}, "All 40 rows.*no success"),
        ({"y": lambda d: d.n}, "All 40 rows.*nothing but successes"),
    ],
)
def test_counts_that_are_refused(columns, message, frame):
    frame.index = pd.Index([f"r{row}" for row in range(len(frame))])
    with pytest.raises(ValueError, match=message) as caught:
        encode("p(y, n) ~ x", frame.assign(**columns))
    assert str(caught.value).endswith(".")


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"n": "many"}, "'n' must be numbers"),
        ({"y": "few"}, "'y' must be numbers"),
        ({"n": np.inf}, "'n' has 40 infinite"),
    ],
)
def test_columns_that_are_refused(columns, message, frame):
    with pytest.raises(ValueError, match=message):
        build("p(y, n) ~ x", frame.assign(**columns))
    with pytest.raises(ValueError, match=r"'trials of p\(y, n / \(n - n\)\)' is not a finite number"):
        build("p(y, n/(n - n)) ~ x", frame)


@pytest.mark.parametrize("family", ["bernoulli", "poisson", "gaussian", "gamma", "negative_binomial"])
def test_trials_need_the_binomial_family(family, frame):
    with pytest.raises(ValueError, match=f"a {family} response has no trials. Use family='binomial'"):
        encode("p(y, n) ~ x", frame, family)


# --- saved recipes -----------------------------------------------------------------------------------------


@pytest.fixture
def stored(frame) -> dict:
    recipe = build("p(y, y + fail) ~ x", frame, weights="n").columns
    stored = json.loads(json.dumps(recipe.to_dict()))
    assert ColumnRecipe.from_dict(stored) == recipe
    return stored


def test_saved_recipes_know_trials_and_weights(stored):
    recipe, new = ColumnRecipe.from_dict(stored), make_frame(7, seed=1)
    np.testing.assert_array_equal(recipe.apply_trials(new), new.n)
    np.testing.assert_array_equal(recipe.apply_weights(new), new.n)
    assert recipe.used_columns == ("x",)  # a prediction needs neither
    assert recipe.apply(new[["x"]])[0].shape == (7, 2)
    with pytest.raises(ValueError, match="no column 'fail'"):
        recipe.apply_trials(new[["x", "y"]])
    with pytest.raises(ValueError, match="missing values: 'n' 7"):
        recipe.apply_weights(new.assign(n=np.nan))
    plain = build("y ~ x", make_frame(), weights=np.ones(40)).columns
    assert plain.apply_trials(new) is None and plain.apply_weights(new) is None
    assert not {"trials", "weights"} & set(plain.to_dict())


@pytest.mark.parametrize("part", ["trials", "weights"])
@pytest.mark.parametrize(
    "edit",
    [
        {"op": "system", "args": [{"op": "column", "name": "n"}]},
        {"op": "__import__('os').system('true')"},
        {"op": "eval", "values": [1.0]},
        {"op": "add", "args": [{"op": "column", "name": "n"}, {"op": "getattr"}]},
        {"op": "column", "name": "n", "args": [{"op": "exec"}]},
        {"op": "column"},
        {"op": "number", "values": ["__import__('os')"]},
        "n",
        None,
        ["n"],
    ],
    ids=str,
)
def test_edited_expressions_are_refused(part, edit, stored):
    spoiled = copy.deepcopy(stored)
    assert part in spoiled
    spoiled[part] = edit
    with pytest.raises(ValueError, match="column recipe"):
        ColumnRecipe.from_dict(spoiled)


def test_a_column_name_is_never_code(stored):
    stored["trials"] = {"op": "column", "name": "__import__('os').system('true')"}
    with pytest.raises(ValueError, match="no column"):
        ColumnRecipe.from_dict(stored).apply_trials(make_frame())
