"""Tables of other libraries: polars, without pyarrow or with it."""

import numpy as np
import pytest

import natvi
from natvi.formula.frames import as_frame


def test_polars() -> None:
    pl = pytest.importorskip("polars")
    rng = np.random.default_rng(3)
    kind = rng.choice(["a", "b", "c"], 30).tolist()
    columns = {"y": rng.normal(size=30), "x": rng.normal(size=30), "text": kind, "count": [None, *range(29)]}
    frame = pl.DataFrame(
        {**columns, "flag": [True, False] * 15, "enum": pl.Series(kind, dtype=pl.Enum(["c", "a", "b"]))}
    )
    pandas = as_frame(frame)
    assert pandas["enum"].cat.categories.tolist() == ["c", "a", "b"]
    assert pandas["count"].isna().sum() == 1 and pandas["flag"].dtype == bool
    names = natvi.glm("y ~ x + text + enum + flag + count", frame).names
    assert names == ("Intercept", "x", "text[b]", "text[c]", "enum[a]", "enum[b]", "flag", "count")
    fit = natvi.glm("y ~ x + text", frame.lazy()).fit()
    np.testing.assert_array_equal(fit.predict(frame), fit.predict(pandas))
    assert natvi.glm_arrays(frame[["x"]], frame["y"]).names == ("x",)


def test_what_is_no_table() -> None:
    with pytest.raises(ValueError, match="pandas or polars DataFrame"):
        as_frame(3.0)
    assert as_frame([{"x": 1.0}, {"x": 2.0}])["x"].tolist() == [1.0, 2.0]
