"""Uncorrelated random effects: `||` is a bar like `|`, wherever it stands and whatever stands around it."""

import numpy as np
import pandas as pd
import pytest

from natvi.formula.design import build_design, parse_formula


@pytest.mark.parametrize(
    ("text", "fixed", "random", "group"),
    [
        ("y ~ (x || g)", "1", "1 + x", "g"),
        ("y ~ (1 + x || g)", "1", "1 + x", "g"),
        ("y ~ (1+x||g)", "1", "1 + x", "g"),
        ("y ~ (0 + x || g) + z", "1 + z", "0 + x", "g"),
        ("y ~ ((x || g))", "1", "1 + x", "g"),
        ("y ~ ((1 + x) || (g))", "1", "1 + x", "g"),
        ("y ~ (x || `my || group`)", "1", "1 + x", "my || group"),
        ("y ~ `a || b` + (`a || b` || g)", "1 + `a || b`", "1 + `a || b`", "g"),
        ("y ~ C(f, Treatment('a || b')) + (1 || g)", "1 + C(f, Treatment('a || b'))", "1", "g"),
    ],
)
def test_double_bars(text, fixed, random, group):
    parsed = parse_formula(text)
    assert (parsed.fixed, parsed.random, parsed.group, parsed.correlated) == (fixed, random, group, False)


@pytest.mark.parametrize(
    "text", ["y ~ x", "y ~ (x | g)", "y ~ `a || b` + (1 | g)", "y ~ C(f, Treatment('a || b')) + (1 | `g||h`)"]
)
def test_single_bars_and_bars_in_names_leave_effects_correlated(text):
    assert parse_formula(text).correlated


def test_designs_differ_in_nothing_else():
    rng = np.random.default_rng(0)
    data = pd.DataFrame({"y": rng.normal(size=40), "x": rng.normal(size=40), "g": np.arange(40) % 5})
    data["f"] = rng.choice(["a", "b", "c"], 40)
    single, double = (build_design(parse_formula(f"y ~ x + (x + f {bar} g)"), data) for bar in ("|", "||"))
    assert single.correlated and not double.correlated
    assert double.random_names == ("Intercept", "x", "f[b]", "f[c]")
    np.testing.assert_array_equal(single.Z, double.Z)
    assert single.columns == double.columns
