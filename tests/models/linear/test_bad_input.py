"""What goes wrong with generalized linear models: a clear refusal, or a finite answer and a warning with names."""

from typing import Any

import numpy as np
import pandas as pd
import pytest

import natvi

N = 40


def table(**columns: Any) -> pd.DataFrame:
    rng = np.random.default_rng(1)
    frame = pd.DataFrame(
        {
            "x": rng.normal(size=N),
            "z": rng.normal(size=N),
            "event": rng.integers(0, 2, N),
            "count": rng.poisson(3.0, N),
            "trials": rng.integers(2, 5, N),
            "level": rng.choice(["a", "b", "c"], N),
        }
    )
    return frame.assign(**columns)


def refuse(*words: str, formula: str = "count ~ x", family: str = "poisson", data: Any = None, **options: Any) -> None:
    with pytest.raises(ValueError) as caught:
        natvi.glm(formula, table() if data is None else data, family=family, **options)
    message = str(caught.value)
    assert all(word in message for word in words) and message.endswith("."), message


# --- refused -----------------------------------------------------------------------------------------------


def test_values_outside_the_family() -> None:
    refuse("negative", "family='gaussian'", data=table(count=lambda t: t["count"] - 3))
    refuse("more successes than trials", formula="p(count, trials) ~ x", family="binomial")
    refuse("greater than zero", family="gamma", data=table(count=lambda t: t["count"] - 3))
    refuse("All 40 values", data=table(count=2))
    refuse("Did you mean 'poisson'?", family="poison")
    refuse("no link 'probit'", link="probit")
    refuse("no coefficients", formula="count ~ 0")


@pytest.mark.parametrize(("bad", "word"), [(np.inf, "infinite"), (-1.0, "negative")])
def test_weights(bad: float, word: str) -> None:
    weights = np.ones(N)
    weights[3] = bad
    refuse(word, "row 3", weights=weights)
    with pytest.raises(ValueError, match=word):
        natvi.glm_arrays(table()[["x"]], table()["count"], family="poisson", weights=weights)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"X": np.full((N, 1), np.nan)}, "row 0, column 0 holds nan"),
        ({"X": np.zeros(N)}, r"shape \(n, p\)"),
        ({"X": np.full((N, 1), "a")}, "cannot be read as numbers"),
        ({"y": np.arange(3)}, "each of the 40 rows"),
        ({"y": np.full(N, np.nan)}, "40 missing"),
        ({"names": ["a", "b"]}, "one for each of the 1 columns"),
        ({"offset": np.full(N, np.inf)}, "offset holds values"),
        ({"weights": np.where(np.arange(N) == 3, np.nan, 1.0)}, "weights are missing"),
        ({"trials": np.full(N, 2)}, "has no trials"),
        ({"family": "binomial", "trials": np.full(N, 1)}, "more successes than trials"),
        ({"structure": "arrow"}, "not 'arrow'"),
        ({"prior": {"w": 2.0}}, "no parameter"),
    ],
)
def test_arrays(change: dict[str, Any], words: str) -> None:
    options: dict[str, Any] = {"X": table()[["x"]].to_numpy(), "y": table()["count"].to_numpy(), "family": "poisson"}
    with pytest.raises(ValueError, match=words):
        natvi.glm_arrays(**(options | change))


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"method": "rvb1"}, "'auto', 'gva', 'psis', not 'rvb1'"),
        ({"max_steps": 0}, "at least 1"),
        ({"tolerance": 2.0}, "between 0 and 1"),
        ({"batch_size": 10}, "batch_size is for noisy steps: give an optimizer such as 'snngm' with method='gva'"),
        ({"optimizer": "adam"}, "method='auto' takes exact ones: give method='gva' with it"),
        ({"method": "gva", "optimizer": "ivon"}, "is for structure='diagonal'.*'vogn'"),
        ({"method": "gva", "optimizer": "sgd"}, "not 'sgd'"),
        ({"method": "gva", "optimizer": "adam", "batch_size": 100}, "from 1 to 40"),
        ({"method": "gva", "optimizer": "adam", "order": 3}, "order must be 1"),
    ],
)
def test_options_of_fit(options: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        natvi.glm("event ~ x", table(), family="bernoulli").fit(**options)


# --- finite answers with a warning -------------------------------------------------------------------------


def reasons(data: pd.DataFrame, formula: str = "event ~ x + z", family: str = "bernoulli") -> str:
    result = natvi.glm(formula, data, family=family).fit()
    assert result.outcome == "converged" and np.all(np.isfinite(result.summary().to_numpy()))
    assert result.trust == "use with care"
    return " | ".join(result.trust_reasons)


def test_separation_names_the_column() -> None:
    assert "column 'x' separates the responses" in reasons(table(event=lambda t: (t["x"] > 0.2).astype(int)))
    flag = table(z=lambda t: ((t["event"] == 1) & (t["x"] > 0)).astype(float))
    assert "column 'z' separates the responses" in reasons(flag)


def test_columns_that_separate_together_are_named() -> None:
    found = reasons(table(event=lambda t: (t["x"] + t["z"] > 0).astype(int)))
    assert "together separate the responses" in found and "'x'" in found and "'z'" in found


def test_collinear_constant_and_empty_columns_are_named() -> None:
    assert "columns 'x', 'z' are collinear" in reasons(table(z=lambda t: 2 * t["x"] + 1))
    assert "columns 'Intercept', 'z' are collinear" in reasons(table(z=3.0))
    assert "column 'z' is zero in every row" in reasons(table(z=0.0))


def test_nothing_is_said_about_sound_columns() -> None:
    result = natvi.glm("event ~ x + z", table(), family="bernoulli").fit()
    assert result.trust == "good" and len(result.trust_reasons) == 2


@pytest.mark.parametrize(("family", "value"), [("poisson", 3), ("bernoulli", 1), ("gaussian", 251.0), ("gamma", 2.0)])
def test_one_row(family: str, value: float) -> None:
    model = natvi.glm("y ~ 1", {"y": [value]}, family=family)
    assert any("single row" in note for note in model.notes)
    assert model.rows.y.tolist() == [value] and np.all(np.isfinite(model.prior.mean)) and np.all(model.prior.sd > 0)
    if family == "poisson":
        result = model.fit()
        assert result.outcome == "converged" and np.all(np.isfinite(result.summary().to_numpy()))


def test_more_columns_than_rows() -> None:
    model = natvi.glm_arrays(np.random.default_rng(0).normal(size=(5, 8)), [0, 2, 1, 4, 3], family="poisson", prior=1.0)
    assert "more coefficients (8) than rows (5)" in model.notes[0]
    result = model.fit()
    assert result.outcome == "converged" and np.all(np.isfinite(result.summary().to_numpy()))
    assert any("5 rows cannot determine 8 coefficients" in reason for reason in result.trust_reasons)


# --- predictions -------------------------------------------------------------------------------------------


def test_predictions_that_cannot_be_made() -> None:
    result = natvi.glm("event ~ level", table(), family="bernoulli").fit()  # three columns, as above
    with pytest.raises(ValueError, match=r"'d'.*'a', 'b', 'c'"):
        result.predict({"x": [0.0], "level": ["d"]})
    with pytest.raises(ValueError, match="no column 'level'"):
        result.predict({"x": [0.0]})
    with pytest.raises(ValueError, match="'response', 'link', not 'mean'"):
        result.predict(kind="mean")
    with pytest.raises(ValueError, match="models with random effects"):
        result.predict(groups="new")
    for method in (result.random_effects, result.variance_components):
        with pytest.raises(ValueError, match="no random effects"):
            method()
    columns = table()[["x", "z"]]
    arrays = natvi.glm_arrays(columns, table()["event"], family="bernoulli", intercept=True).fit(max_steps=2)
    with pytest.raises(ValueError, match="3 columns, and the model was fitted to 2: x, z"):
        arrays.predict(np.zeros((4, 3)))
