"""Weights of rows: where they may come from, how they stay with their rows, and what they may be."""

import numpy as np
import pandas as pd
import pytest

from natvi.formula.design import Design, build_design, parse_formula


@pytest.fixture
def frame() -> pd.DataFrame:
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"y": rng.normal(size=30), "x": rng.normal(size=30), "g": np.arange(30) % 4})
    return frame.assign(w=rng.uniform(0.5, 2.0, 30))


def build(data, weights, text: str = "y ~ x + (1 | g)", **options) -> Design:
    return build_design(parse_formula(text), data, weights=weights, **options)


@pytest.mark.parametrize("kind", ["column", "array", "series", "list"])
def test_where_weights_come_from(kind, frame):
    given = {"column": "w", "array": frame.w.to_numpy(), "series": frame.w, "list": frame.w.tolist()}[kind]
    design = build(frame, given)
    assert design.notes == () and design.weights is not None
    np.testing.assert_array_equal(design.weights, frame.w)
    assert (design.columns.weights is not None) == (kind == "column")


def test_no_weights(frame):
    assert build(frame, None).weights is None


def test_types_of_weights(frame):
    for weights, expected in [
        (np.arange(1, 31), np.arange(1.0, 31.0)),
        (pd.Series(range(1, 31), dtype="Int64"), np.arange(1.0, 31.0)),
        (np.ones(30, dtype=np.float32), np.ones(30)),
    ]:
        design = build(frame, weights)
        assert design.weights is not None and design.weights.dtype == np.float64
        np.testing.assert_array_equal(design.weights, expected)
    subset = build(frame, frame.x > 0)
    np.testing.assert_array_equal(subset.rows, np.flatnonzero(frame.x > 0))


@pytest.mark.parametrize("as_array", [False, True])
def test_weights_stay_with_their_rows(as_array, frame):
    frame.loc[[2, 3], "x"] = np.nan
    frame.loc[5, "w"] = np.nan
    frame.loc[[7, 8, 9], "w"] = 0.0
    frame.loc[8, ["x", "y"]] = [np.inf, np.nan]  # out by its weight, so neither matters
    frame.index = pd.Index(np.arange(100, 130))
    design = build(frame, frame.w.to_numpy() if as_array else "w")
    np.testing.assert_array_equal(design.rows, np.setdiff1d(np.arange(30), [2, 3, 5, 7, 8, 9]))
    assert design.num_missing == 3 and design.num_zero_weight == 3
    assert design.notes == ("3 of 30 rows left out: weight zero",)
    assert design.weights is not None and design.group_codes is not None and design.group_labels is not None
    used = frame.iloc[design.rows]
    np.testing.assert_array_equal(design.weights, used.w)
    np.testing.assert_array_equal(design.X[:, 1], used.x)
    np.testing.assert_array_equal(design.response, used.y)
    np.testing.assert_array_equal(design.group_labels[design.group_codes], used.g)


def test_zero_weights_alone(frame):
    design = build(frame.assign(w=np.where(frame.g == 0, 0, 1)), "w", missing="error")
    assert design.num_missing == 0 and design.num_zero_weight == 8
    assert list(design.group_labels if design.group_labels is not None else ()) == [1, 2, 3]


def test_missing_weights_are_counted(frame):
    frame.loc[[4, 6], "w"] = np.nan
    frame.loc[6, "x"] = np.nan
    with pytest.raises(ValueError, match="2 of 30 rows have missing values: 'x' 1, 'w' 2; the first is row 4"):
        build(frame, "w", missing="error")
    with pytest.raises(ValueError, match="'weights' 2"):
        build(frame, frame.w.to_numpy(), missing="error")
    with pytest.raises(ValueError, match="no row is without missing"):
        build(frame.assign(x=np.nan), "w")


def test_a_weighting_column_may_also_be_a_covariate(frame):
    design = build(frame, "w", "y ~ w")
    np.testing.assert_array_equal(design.X[:, 1], frame.w)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({3: np.inf, 7: np.inf}, "2 of 30 weights in 'w' are infinite, the first in row 'r3'"),
        ({5: -1.0}, "1 of 30 weights in 'w' are negative, the first in row 'r5'"),
        (dict.fromkeys(range(30), 0.0), "none of the 30 weights in 'w' is positive"),
        (dict.fromkeys(range(30), np.nan), "none of the 30 weights in 'w' is positive"),
    ],
)
def test_numbers_that_are_no_weights(change, message, frame):
    frame.iloc[list(change), frame.columns.get_loc("w")] = list(change.values())
    frame.index = pd.Index([f"r{row}" for row in range(30)])
    with pytest.raises(ValueError, match=message):
        build(frame, "w")
    with pytest.raises(ValueError, match=message.replace("'w'", "'weights'")):
        build(frame, frame.w)


def test_what_else_is_refused(frame):
    cases = [
        ("W", "no column 'W'.*Did you mean 'w'"),
        (np.ones(29), "29 weights for 30 rows.*also for rows that will be dropped"),
        (frame.w[:20], "20 weights for 30 rows"),
        (frame.w[::-1], "index of the weights differs.*loc.*to_numpy"),
        (np.ones((30, 1)), "2 axes"),
        (2.0, "0 axes"),
        (["a"] * 30, "must be numbers"),
        (frame.w.astype(str), "must be numbers"),
    ]
    for weights, message in cases:
        with pytest.raises(ValueError, match=message):
            build(frame, weights)
