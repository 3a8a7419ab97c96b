"""Formulas against formulae's own designs, and every mistake against its message."""

import time
from typing import Any

import formulae
import numpy as np
import pandas as pd
import pytest

from natvi.formula.columns import Numeric
from natvi.formula.design import Formula, build_design, parse_formula


def make_frame(num_rows: int = 150, seed: int = 0) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    return pd.DataFrame(
        {
            "y": rng.normal(size=num_rows),
            "x": rng.normal(size=num_rows),
            "z": rng.uniform(1.0, 2.0, size=num_rows),
            "k": rng.integers(1, 4, size=num_rows),
            "f": rng.choice(["a", "b", "c"], size=num_rows),
            "h": rng.choice(["u", "v"], size=num_rows),
            "b": rng.random(num_rows) < 0.5,
            "g": rng.integers(0, 20, size=num_rows),
        }
    )


@pytest.fixture
def frame() -> pd.DataFrame:
    return make_frame()


def build(text: str, data, **options):
    return build_design(parse_formula(text), data, **options)


# --- parsing ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "fixed", "random", "group"),
    [
        ("y ~ x", "1 + x", "0", None),
        ("y ~ 1", "1", "0", None),
        ("y ~ 0 + f", "0 + f", "0", None),
        ("y ~ x - 1", "x - 1", "0", None),
        ("y ~ -1 + x", "- 1 + x", "0", None),
        ("y ~ base*trt + age + (1|s)", "1 + base*trt + age", "1", "s"),
        ("y ~ (Days | Subject)", "1", "1 + Days", "Subject"),
        ("y ~ (1 + x | g) + z", "1 + z", "1 + x", "g"),
        ("y ~ (0 + x | g)", "1", "0 + x", "g"),
        ("y ~ (x - 1 | g)", "1", "x - 1", "g"),
        ("y ~ ((1 | `my group`))", "1", "1", "my group"),
        ("y ~ {(x + 1)*2} + `odd name`", "1 + I((x + 1)*2) + `odd name`", "0", None),
        ("y ~ I(0.00001*x) + bs(x, df=4)", "1 + I(0.00001*x) + bs(x, df=4)", "0", None),
        ("y ~ C(f, Treatment('a'))", "1 + C(f, Treatment('a'))", "0", None),
    ],
)
def test_parts(text, fixed, random, group):
    assert parse_formula(text) == Formula(text, "y", fixed, random, group)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "a formula is a text"),
        ("x + z", "no '~'"),
        ("~ x", "no response"),
        ("y ~", "no predictors"),
        ("y ~ x +", "ends too early"),
        ("y ~ (x", "cannot read the formula"),
        ("y ~ x z", "from 'z' on"),
        ("y ~ x | g", "random effects in parentheses"),
        ("y ~ `x", "backquote is not closed"),
        ("y ~ x ~ z", "more than one '~'"),
        ("y ~ (1|a + b)", "cannot group by.*two crossed factors"),
        ("y ~ (1|C(a))", "cannot group by.*computed as a column first"),
        ("y ~ x || g", "random effects in parentheses"),
        ("y ~ (x ||| g)", r"more than two '\|' in a row"),
        ("y ~ (1||a||b)", "one by one"),
        ("y ~ (1|a||b)", "one by one"),
        ("y ~ (0||g)", r"Write \(1 \| g\)"),
        ("y ~ I(x || z)", "one by one"),
        ("y ~ (1|a|b)", "one by one"),
        ("y ~ x*(1|g)", "one by one"),
        ("y ~ x - (1|g)", "one by one"),
        ("y ~ (0|g)", r"Write \(1 \| g\)"),
        ("y ~ (offset(x)|g)", r"left of '\|'"),
        ("y ~ offset(x):z", "offset cannot interact"),
        ("y ~ foo(x)", "unknown function 'foo'.*log, log2"),
        ("y ~ os.system('ls')", "unknown function 'os.system'"),
        ("y ~ np.load(x)", "unknown function 'np.load'"),
        ("y ~ log(foo(x))", "unknown function 'foo'"),
        ("y ~ offset(foo(x))", "unknown function 'foo'"),
        ("foo(y) ~ x", "unknown function 'foo'"),
        ("y ~ log(x, 2)", "takes one argument"),
        ("y ~ I(2)", "no column in it"),
        ("y ~ log(C(f))", "term by itself"),
        ("y ~ C(f, foo)", "coded by Treatment or Sum"),
        ("y ~ C(f, foo('a'))", "coded by Treatment or Sum"),
        ("y ~ bs(x, df=k)", "plain numbers"),
        ("y ~ x**2", r"write I\(x\*\*2\)"),
        ("y ~ I(-x**2)", "ambiguous"),
        ("y ~ x + 3", "3 is neither a column"),
        ("y ~ x[a]", r"x\[a\] is neither"),
        ("y ~ a:b + b:a", "twice"),
        ("y ~ log(y)", "both sides"),
        ("y ~ (1 | y)", "both sides"),
        ("y['a'] ~ x", "not yet supported: the response"),
        ("y + z ~ x", "cannot use 'y \\+ z' as a response"),
        ("1 ~ x", "as a response"),
        ("C(y) ~ x", "cannot be a response"),
    ],
)
def test_formula_mistakes(text, message):
    with pytest.raises(ValueError, match=message):
        parse_formula(text)


def test_build_design_checks_formulas_it_did_not_parse(frame):
    with pytest.raises(ValueError, match="unknown function"):
        build_design(Formula("", "y", "1 + os.system(x)", "0", None), frame)


# --- designs ---------------------------------------------------------------------------------------

FIXED_PARTS = [
    "1",
    "x*z",
    "x*f",
    "x + x:f",
    "x:f",
    "f*h",
    "f:h",
    "f:h:x",
    "(f + h + x)**2",
    "0 + x",
    "0 + f",
    "0 + f + h",
    "0 + f:h",
    "x - 1",
    "b*x",
    "center(x) + scale(z) + standardize(k)",
    "center(log(z)) + I(center(x)**2)",
    "I(x**2) + log(z) + {x + 1} + np.exp(x)",
    "log(z)*f",
    "poly(x, 3) + h",
    "poly(x, 2, raw=True):f",
    "bs(x, df=5)",
    "C(k)",
    "C(k)*x + k",
    "C(k, Treatment(2))",
    "T(f, ref='b')",
    "C(b)",
    "S(f)",
    "0 + C(f, Sum)",
]


@pytest.mark.parametrize("part", FIXED_PARTS)
def test_design_equals_formulae(part, frame):
    design = build(f"y ~ {part}", frame)
    theirs: Any = formulae.design_matrices(part, frame, extra_namespace={"log": np.log, "np": np}).common
    np.testing.assert_allclose(design.X, theirs.design_matrix, rtol=1e-12, atol=1e-12)
    assert design.fixed_names == tuple(label for term in theirs.terms.values() for label in term.labels)
    new = make_frame(40, seed=1)
    np.testing.assert_allclose(
        design.columns.apply(new)[0], theirs.evaluate_new_data(new).design_matrix, rtol=1e-12, atol=1e-12
    )


@pytest.mark.parametrize("part", ["f/h", "0 + (f + x)*h", "(x + f):h"])
def test_terms_that_share_components_keep_their_own_coding(part, frame):
    # formulae's labels and new-data columns are wrong here, since its terms share state.
    design = build(f"y ~ {part}", frame)
    assert len(set(design.fixed_names)) == len(design.fixed_names) == np.linalg.matrix_rank(design.X)
    np.testing.assert_array_equal(design.columns.apply(frame)[0], design.X)


def test_calls_that_formulae_cannot_compare(frame):
    design = build("y ~ center(log(z)) + center(z) + center(2*z) + (I(x**2) + x)*(h + I(z**2))", frame)
    np.testing.assert_allclose(design.X[:, 3], 2 * design.X[:, 2])
    assert design.X.shape[1] == np.linalg.matrix_rank(design.X) + 1


def test_names_keep_parentheses(frame):
    design = build("y ~ I((x + z)*2) + I(x + z*2) + I(-(x**2)) + I(x - (z - k))", frame)
    expected = ("I((x + z) * 2)", "I(x + z * 2)", "I(-x ** 2)", "I(x - (z - k))")
    assert design.fixed_names[1:] == expected
    np.testing.assert_allclose(design.X[:, 1], (frame.x + frame.z) * 2)
    np.testing.assert_allclose(design.X[:, 3], -(frame.x**2))


def test_random_part(frame):
    design = build("y ~ x + (x | g)", frame)
    assert design.random_names == ("Intercept", "x")
    np.testing.assert_array_equal(design.Z, np.column_stack([np.ones(len(frame)), frame.x]))
    assert build("y ~ (0 + f | g)", frame).random_names == ("f[a]", "f[b]", "f[c]")
    assert build("y ~ (f | g)", frame).random_names == ("Intercept", "f[b]", "f[c]")
    assert build("y ~ x", frame).Z.shape == (len(frame), 0)


@pytest.mark.parametrize(
    "column",
    [
        pd.Series([3, 1, 3, 2]),
        pd.Series(["c", "a", "c", "b"]),
        pd.Series(pd.Categorical(["c", "a", "c", "b"], categories=["a", "b", "c", "unused"])),
        pd.Series([True, False, True, False]),
        pd.Series(["2", "1", "2", "10"], dtype=object),
    ],
    ids=["int", "str", "category", "bool", "object"],
)
def test_groups(column):
    design = build("y ~ 1 + (1 | g)", {"y": np.arange(4.0), "g": column})
    assert design.group_codes is not None and design.group_labels is not None
    assert design.group_codes.dtype == np.int64
    assert list(design.group_labels[design.group_codes]) == list(column)
    assert list(design.group_labels) == sorted(set(column))
    assert design.group_sizes is not None
    assert design.group_sizes.sum() == 4 and (design.group_sizes > 0).all()


def test_no_group(frame):
    design = build("y ~ x", frame)
    assert design.group_codes is None and design.group_labels is None and design.group_sizes is None


def test_offsets_add_up(frame):
    design = build("y ~ offset(log(z)) + x + offset(2)", frame)
    np.testing.assert_allclose(design.offset, np.log(frame.z) + 2, rtol=1e-14)
    assert design.fixed_names == ("Intercept", "x")
    assert not build("y ~ x", frame).offset.any()


def test_response(frame):
    frame["text"] = "no"
    assert build("text ~ x", frame).response.tolist() == ["no"] * len(frame)
    design = build("log(z) ~ x", frame)
    assert design.response_name == "log(z)"
    np.testing.assert_allclose(design.response, np.log(frame.z))
    np.testing.assert_allclose(build("scale(y) ~ x", frame).response.std(ddof=0), 1.0)


def test_types_of_columns(frame):
    frame["text"] = np.where(frame.k == 1, "1", "2").astype(object)
    frame["nullable"] = frame.k.astype("Int64")
    frame["small"] = (100 * frame.k).astype(np.int16)
    assert build("y ~ b + text", frame).fixed_names == ("Intercept", "b", "text[2]")
    np.testing.assert_array_equal(build("y ~ nullable", frame).X[:, 1], frame.k)
    np.testing.assert_array_equal(build("y ~ I(small*small)", frame).X[:, 1], 1e4 * frame.k**2)
    assert build("y ~ C(nullable) + nullable", frame).fixed_names[1] == "C(nullable)[2]"


def test_categories_keep_their_order_and_lose_unused_levels(frame):
    frame["f"] = pd.Categorical(frame.f, categories=["c", "never", "a", "b"])
    assert build("y ~ f", frame).fixed_names == ("Intercept", "f[a]", "f[b]")
    frame["f"] = frame.f.cat.as_ordered()
    assert build("y ~ C(f)", frame).fixed_names == ("Intercept", "C(f)[a]", "C(f)[b]")


def test_intervals_are_levels(frame):
    frame["cut"] = pd.cut(frame.x, [-10, 0, 10])
    design = build("y ~ cut", frame)
    assert design.fixed_names == ("Intercept", "cut[(0, 10]]")
    np.testing.assert_array_equal(design.columns.apply(frame)[0], design.X)


def test_missing_values_are_dropped_and_counted(frame):
    frame.loc[[3, 4], "x"] = np.nan
    frame["g"] = frame.g.astype(float)
    frame.loc[7, "g"] = np.nan
    frame.loc[9, "y"] = np.nan
    frame.loc[11, "k"] = -1  # not missing
    frame["unused"] = np.nan
    design = build("y ~ x + k + (1 | g)", frame)
    assert design.num_missing == 4
    np.testing.assert_array_equal(design.rows, np.setdiff1d(np.arange(len(frame)), [3, 4, 7, 9]))
    np.testing.assert_array_equal(design.X[:, 1], frame.x.to_numpy()[design.rows])
    with pytest.raises(ValueError, match=r"4 of 150 rows.*'g' 1, 'x' 2, 'y' 1.*missing='drop'"):
        build("y ~ x + k + (1 | g)", frame, missing="error")
    with pytest.raises(ValueError, match="'drop' or 'error'"):
        build("y ~ x", frame, missing="keep")


def test_data_mistakes(frame):
    frame["one"] = "only"
    frame["when"] = pd.Timestamp("2020-01-01")
    frame["mixed"] = [1, "a"] * 75
    frame["complex"] = 1j
    cases = {
        "y ~ X": "no column 'X'.*Did you mean 'x'",
        "y ~ x + (1 | group)": "no column 'group'.*Columns: 'y'",
        "y ~ one": "one level only",
        "y ~ x + (1 | one)": "at least two",
        "y ~ when": "dates or times",
        "y ~ mixed": "mixes types",
        "y ~ complex": "complex",
        "y ~ log(f)": "must be numbers",
        "y ~ log(x)": r"'log\(x\)' is not a finite number in \d+ of 150 rows",
        "log(y) ~ x": "not a finite number",
        "y ~ offset(log(x))": "'offset' is not a finite number",
        "y ~ scale(I(x*0))": r"scale\(\) of a constant",
        "y ~ T(f, 'q')": "'q' is not a level. Levels: 'a', 'b', 'c'",
        "y ~ C(f, Treatment('q'))": "not a level",
        "y ~ bs(x, df=1)": "cannot be built",
        "y ~ poly(x, 0)": "degree of 1 or more",
    }
    for text, message in cases.items():
        with pytest.raises(ValueError, match=message):
            build(text, frame)


def test_infinite_values(frame):
    frame.loc[[3, 8], "x"] = np.inf
    for text in ("y ~ x", "y ~ C(x)", "x ~ z", "y ~ z + (1 | x)"):
        with pytest.raises(ValueError, match="'x' has 2 infinite"):
            build(text, frame)


def test_tables_of_other_kinds(frame):
    columns = frame.to_dict("list")
    np.testing.assert_array_equal(build("y ~ x*f", columns).X, build("y ~ x*f", frame).X)
    for data in ("a.csv", {"y": 1}, 3):
        with pytest.raises(ValueError, match="cannot be read as a table"):
            build("y ~ x", data)
    with pytest.raises(ValueError, match="no rows"):
        build("y ~ x", frame.iloc[:0])
    with pytest.raises(ValueError, match="no row is without missing"):
        build("y ~ x", frame.assign(x=np.nan))
    with pytest.raises(ValueError, match="2 columns named 'x'"):
        build("y ~ x", pd.concat([frame, frame[["x"]]], axis=1))


def test_too_many_levels_are_refused_before_they_are_built():
    num_rows = 200_000
    numbers = np.arange(num_rows)
    data = pd.DataFrame({"y": 0.0, "x": 0.0, "id": numbers.astype(str)})
    data["hundred"] = data["century"] = (numbers % 100).astype(str)
    data["wide"] = (numbers % 4000).astype(str)
    start = time.perf_counter()
    with pytest.raises(ValueError, match=r"200,000 levels.*200,001 columns.*GiB.*\(1 \| id\)"):
        build("y ~ x:id", data)
    with pytest.raises(ValueError, match="10,001 columns"):
        build("y ~ hundred:century", data)
    with pytest.raises(ValueError, match=r"4,001 columns for 200,000 rows \(6.0 GiB\)"):
        build("y ~ wide", data)
    with pytest.raises(ValueError, match="4,001 columns"):
        build("y ~ (wide | hundred)", data)
    assert time.perf_counter() - start < 60


def test_a_recipe_that_differs_from_formulae_is_refused(frame, monkeypatch):
    monkeypatch.setattr(Numeric, "evaluate", lambda self, rows: np.zeros((len(rows), 1)))
    with pytest.raises(ValueError, match="does not reproduce what formulae"):
        build("y ~ x + z", frame)


def test_nothing_is_printed(frame, capsys):
    for text in ("y ~ x*f + (1 | g)", "y ~ T(f, 'q')", "y ~ bs(x, df=1)"):
        try:
            build(text, frame)
        except ValueError:
            pass
    assert capsys.readouterr() == ("", "")


def test_many_terms():
    names = [f"x{number}" for number in range(1000)]
    data = pd.DataFrame(np.random.default_rng(0).normal(size=(20, 1000)), columns=names).assign(y=0.0)
    design = build("y ~ " + " + ".join(names), data)
    assert design.fixed_names == ("Intercept", *names)
    np.testing.assert_array_equal(design.X[:, 1:], data[names])


def test_a_million_rows():
    rng = np.random.default_rng(0)
    num_rows, num_groups = 1_000_000, 200_000
    data = pd.DataFrame(rng.normal(size=(num_rows, 5)), columns=list("abcde"))
    data["y"], data["g"] = data.a, rng.integers(0, num_groups, size=num_rows)
    start = time.perf_counter()
    design = build("y ~ a + b + c + d + scale(e) + (1 + a | g)", data)
    assert time.perf_counter() - start < 5
    assert design.X.shape == (num_rows, 6) and design.Z.shape == (num_rows, 2)
    np.testing.assert_array_equal(design.X[:, 4], data.d)
    np.testing.assert_allclose(design.X[:, 5].mean(), 0, atol=1e-12)
