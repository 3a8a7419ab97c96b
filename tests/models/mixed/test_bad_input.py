"""What people get wrong: every mistake meets a sentence with what came, what is needed and what to do."""

import math
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import pytest

import natvi
from natvi.data import load_epilepsy

FORMULA = "y ~ weight + (1 | subject)"


def table(**columns: Any) -> pd.DataFrame:
    """Return 60 rows in 12 groups with a count `y`; functions of the frame replace or add columns."""
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(
        {
            "y": rng.poisson(3.0, 60),
            "weight": rng.normal(size=60),
            "dose": rng.choice(["low", "mid", "high"], 60),
            "subject": np.arange(60) % 12,
            "site": np.arange(60) % 3,
            "flag": rng.integers(0, 2, 60) == 1,
        }
    )
    return frame.assign(**columns)


def with_value(name: str, row: int, value: object) -> Callable[[pd.DataFrame], pd.Series]:
    return lambda frame: frame[name].astype(float).mask(frame.index == row, value)


def refuse(data: Any, *words: str, formula: str = FORMULA, family: str = "poisson", **options: Any) -> str:
    """Assert that the model is refused with a ValueError of our own that holds the words, in any order."""
    with pytest.raises(ValueError) as caught:
        natvi.glmm(formula, data, family=family, **options)
    return check_message(caught, *words)


def check_message(caught: pytest.ExceptionInfo[Exception], *words: str) -> str:
    message = str(caught.value)
    for word in words:
        assert word in message, message
    assert message.endswith(".") and "Traceback" not in message and "np." not in message
    # the message is raised by natvi itself, not by a library below it
    assert "/natvi/" in str(caught.traceback[-1].path)
    return message


# --- columns -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("formula", "wrong", "near"),
    [
        ("y ~ wieght + (1 | subject)", "wieght", "weight"),
        ("y ~ weight + (1 | subjct)", "subjct", "subject"),
        ("Y ~ weight + (1 | subject)", "Y", "y"),
        ("y ~ log(Wait) + (1 | subject)", "Wait", "weight"),
        ("y ~ weight + (Site | subject)", "Site", "site"),
    ],
)
def test_unknown_column(formula: str, wrong: str, near: str) -> None:
    refuse(table(), f"no column {wrong!r}", f"Did you mean {near!r}?", "'dose'", formula=formula)


def test_unknown_column_like_no_other() -> None:
    assert "Did you mean" not in refuse(table(), "no column 'zzz'", "'subject'", formula="y ~ zzz + (1 | subject)")


def test_infinite_covariate() -> None:
    refuse(table(weight=with_value("weight", 4, np.inf)), "'weight'", "1 infinite value", "Remove or replace")
    refuse(table(), "'log(site)'", "not a finite number in 20 of 60 rows", formula="y ~ log(site) + (1 | subject)")


@pytest.mark.parametrize(
    ("value", "words"),
    [(pd.Timestamp("2020-01-01"), ("dates or times", ".dt.days")), (1j, ("complex numbers",))],
)
def test_covariates_that_are_no_numbers(value: object, words: tuple[str, ...]) -> None:
    refuse(table(weight=value), "'weight'", *words)


def test_factor_with_a_million_levels_says_its_cost_and_stops() -> None:
    count = 10**6
    data = pd.DataFrame({"y": np.arange(count) % 7, "id": np.arange(count), "subject": np.arange(count) % 1000})
    began = time.process_time()
    message = refuse(data, "'id' has 1,000,000 levels", "GiB", "(1 | id)", formula="y ~ C(id) + (1 | subject)")
    assert time.process_time() - began < 15.0  # under a second without the checks of the tests
    assert "1,000,001 columns for 1,000,000 rows" in message


# --- missing values ----------------------------------------------------------------------------------------


def test_missing_values_are_counted_and_the_policy_is_named() -> None:
    data = table(weight=lambda d: d["weight"].mask(d.index < 2), y=with_value("y", 5, np.nan))
    model = natvi.glmm(FORMULA, data, family="poisson")
    assert len(model.y) == 57
    (note,) = model.notes
    assert "3 of 60 rows left out" in note and "missing='error'" in note
    refuse(data, "3 of 60 rows", "'weight' 2", "'y' 1", "missing='drop'", missing="error")


def test_missing_values_in_other_columns_do_not_matter() -> None:
    assert natvi.glmm(FORMULA, table(other=np.nan), family="poisson", missing="error").notes == ()


def test_missing_groups_are_left_out() -> None:
    data = table(subject=with_value("subject", 0, np.nan))
    assert "1 of 60 rows" in natvi.glmm(FORMULA, data, family="poisson").notes[0]


def test_nothing_but_missing_values() -> None:
    refuse(table(weight=np.nan), "no row is without missing values", "'weight' 60", "Fill them")


def test_unknown_policy() -> None:
    refuse(table(), "'drop' or 'error'", "'ignore'", missing="ignore")


# --- groups ------------------------------------------------------------------------------------------------


def test_groups_seen_once_are_noted() -> None:
    some = natvi.glmm(FORMULA, table(subject=lambda d: d["subject"].mask(d.index == 0, 99)), family="poisson")
    assert some.notes == ("1 of 13 groups have a single row",)
    every = natvi.glmm(FORMULA, table(subject=range(60)), family="poisson")
    assert "every group of subject has a single row" in every.notes[0]


def test_gaussian_groups_all_seen_once_are_refused() -> None:
    data = table(subject=range(60))
    refuse(data, "'subject'", "single row", "residual", "leave the random effects out", family="gaussian")


def test_one_group_only() -> None:
    refuse(table(subject="a"), "'subject'", "one group only", "at least two")


def test_formula_without_random_effects() -> None:
    refuse(table(), "'y ~ weight'", "no random effects", "+ (1 | group)", formula="y ~ weight")


# --- responses ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("family", "response", "words"),
    [
        ("poisson", with_value("y", 3, -2.0), ("count", "1 negative value", "-2", "family='gaussian'")),
        ("poisson", with_value("y", 3, 2.5), ("count", "2.5", "not whole", "offset(log(exposure))")),
        ("poisson", with_value("y", 3, np.inf), ("1 infinite value",)),
        ("poisson", lambda d: d["dose"], ("numeric", "Convert 'y' to numbers")),
        ("poisson", lambda d: d["flag"], ("numeric", "bool", "family='bernoulli'")),
        ("bernoulli", lambda d: d["site"], ("must be 0 or 1", "holds 2.", "family='poisson'", "== 2)")),
        ("bernoulli", lambda d: d["weight"], ("must be 0 or 1", ", ...")),
        ("bernoulli", lambda d: d["dose"], ("two levels", "has 3: high, low, mid", "== 'mid')")),
        ("gaussian", lambda d: d["dose"], ("numeric", "Convert 'y' to numbers")),
        ("gaussian", lambda d: d["dose"].where(d["flag"], "low").replace("mid", "high"), ("family='bernoulli'",)),
        ("gaussian", with_value("y", 3, -np.inf), ("1 infinite value",)),
        ("gaussian", lambda d: pd.Timestamp("2020-01-01") + pd.to_timedelta(d["y"], "D"), ("numeric", "datetime64")),
    ],
)
def test_responses_outside_the_family(family: str, response: Any, words: tuple[str, ...]) -> None:
    refuse(table(y=response), "'y'", *words, family=family)


def test_logarithm_of_zero_as_response() -> None:
    refuse(
        table(),
        "'log(y)'",
        "not a finite number in 1 of 60 rows",
        formula="log(y) ~ weight + (1 | subject)",
        family="gaussian",
    )


@pytest.mark.parametrize("family", ["gaussian", "poisson", "bernoulli"])
@pytest.mark.parametrize("value", [0, 1])
def test_equal_responses(family: str, value: int) -> None:
    refuse(table(y=value), f"All 60 values of the response 'y' equal {value}:", "Check the column", family=family)


@pytest.mark.parametrize("value", [True, "yes"])
def test_equal_labels(value: object) -> None:
    refuse(table(y=value), f"equal {value!r}:", "nothing to learn", family="bernoulli")


@pytest.mark.parametrize(
    ("coding", "note"),
    [
        (lambda y: y == 1, "infect: True counts as 1"),
        (lambda y: y.map({0: "healthy", 1: "ill"}), "infect: 'ill' counts as 1, 'healthy' as 0"),
        (lambda y: pd.Categorical(y.map({0: "no", 1: "-"}), ["no", "-", "?"]), "infect: '-' counts as 1, 'no' as 0"),
    ],
    ids=["booleans", "strings", "categories"],
)
def test_the_summary_says_which_level_counts_as_one(coding: Callable, note: str) -> None:
    data, options = table(infect=lambda d: 1 * d["flag"]), {"method": "gva", "max_steps": 2}
    formula = "infect ~ weight + (1 | subject)"
    result = natvi.glmm(formula, data.assign(infect=coding(data["infect"])), family="bernoulli").fit(**options)
    assert f"note:      {note}\n" in repr(result)
    plain = natvi.glmm(formula, data, family="bernoulli").fit(**options)
    assert result.elbo == plain.elbo  # whichever way it is written, 1 means infected


# --- tables ------------------------------------------------------------------------------------------------


def test_empty_data() -> None:
    refuse(table().head(0), "no rows", "at least one")
    refuse(pd.DataFrame(), "no rows")


@pytest.mark.parametrize(
    "data", [3, "data.csv", object(), {"y": [1, 2], "weight": [1.0]}], ids=["number", "path", "object", "ragged"]
)
def test_not_a_data_frame(data: object) -> None:
    refuse(data, f"type {type(data).__name__}", "cannot be read as a table", "Give a pandas or polars DataFrame")


def test_arrays_without_column_names() -> None:
    refuse(np.zeros((4, 2)), "no column 'subject'")


def test_columns_of_the_same_name() -> None:
    frame = table()
    refuse(pd.concat([frame, frame[["weight"]]], axis=1), "2 columns named 'weight'", "Rename")


# --- options -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("family", "near"), [("poison", "poisson"), ("xyz", "")])
def test_unknown_family(family: str, near: str) -> None:
    message = refuse(table(), f"Unknown family {family!r}", "poisson, bernoulli, gaussian", family=family)
    assert (f"Did you mean {near!r}?" in message) if near else ("Did you mean" not in message)


def test_unknown_prior() -> None:
    refuse(table(), "'default' or 'paper'", "'flat'", prior="flat")


@pytest.fixture(scope="module")
def model() -> natvi.MixedModel:
    return natvi.glmm("y ~ base*trt + age + visit + (1 | subject)", load_epilepsy(), family="poisson")


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"method": "nuts"}, ("'auto', 'gva'", "'nuts'")),
        ({"max_steps": 0}, ("max_steps must be a whole number of at least 1", "0")),
        ({"max_steps": -3}, ("max_steps must be a whole number of at least 1", "-3")),
        ({"tolerance": 0.0}, ("tolerance must be a number between 0 and 1", "0.0")),
        ({"tolerance": -1e-6}, ("tolerance must be a number between 0 and 1", "-1e-06")),
        ({"tolerance": 1.5}, ("tolerance must be a number between 0 and 1", "1.5")),
        ({"tolerance": math.nan}, ("tolerance must be a number between 0 and 1", "nan")),
    ],
    ids=str,
)
def test_nonsense_options_of_fit(model: natvi.MixedModel, options: dict[str, Any], words: tuple[str, ...]) -> None:
    with pytest.raises(ValueError) as caught:
        model.fit(**options)
    check_message(caught, *words)


@pytest.mark.parametrize("formula", ["", "weight", "~ weight", "y ~", "y ~ weight + (1 | subject", "y ~ f(weight)"])
def test_formulas_that_cannot_be_read(formula: str) -> None:
    with pytest.raises(ValueError) as caught:
        natvi.glmm(formula, table())
    assert str(caught.value).endswith(".")


# --- extreme numbers end in an outcome, not in an exception ------------------------------------------------


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_counts_beyond_reason_are_refused() -> None:
    data = load_epilepsy().assign(y=lambda d: d["y"] * 1e300)
    with pytest.raises(ValueError, match=r"too large to compute with\. Give it in another unit"):
        natvi.glmm("y ~ base*trt + age + visit + (1 | subject)", data, family="poisson")
