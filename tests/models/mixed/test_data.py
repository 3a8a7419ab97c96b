"""Data that say little about a mixed model: notes when it is described, reasons in the verdict."""

import numpy as np
import pandas as pd
import pytest

import natvi


def table() -> pd.DataFrame:
    """Return 200 rows in 40 groups; `size` is the same in all rows of a group, and so is `group_y`."""
    rng = np.random.default_rng(0)
    group = np.repeat(np.arange(40), 5)
    frame = pd.DataFrame({"g": group, "x": rng.standard_normal(200), "size": rng.standard_normal(40)[group]})
    frame["arm"] = np.where(rng.random(200) < 0.15, "b", "a")
    frame["y"] = np.where(frame["arm"] == "b", 1, rng.random(200) < 0.5).astype(int)
    return frame.assign(group_y=rng.integers(0, 2, 40)[group], count=rng.poisson(2.0, 200), n=rng.integers(1, 3, 200))


def notes(formula: str, data: pd.DataFrame, family: str) -> tuple[str, ...]:
    return natvi.glmm(formula, data, family=family).notes


# --- slopes ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("bar", ["|", "||"])
def test_a_slope_of_a_column_that_is_constant_within_groups(bar: str) -> None:
    (note,) = notes(f"count ~ x + size + (1 + x + size {bar} g)", table(), "poisson")
    assert "random slope of 'size' cannot be told from 'Intercept'" in note
    assert "constant within every group of g" in note and "fixed effect" in note


def test_slopes_that_can_be_told_apart() -> None:
    assert notes("count ~ x + (x | g)", table(), "poisson") == ()
    # without an intercept beside it, a slope of a constant column is the only effect of its group
    assert notes("count ~ size + (0 + size | g)", table(), "poisson") == ()


# --- responses ---------------------------------------------------------------------------------------------


def test_equal_responses_within_groups_of_a_binary_response() -> None:
    model = natvi.glmm("group_y ~ x + (1 | g)", table(), family="bernoulli")
    assert "the same in all rows of every group of g: nothing limits the variance" in model.notes[0]
    result = model.fit(method="gva", max_steps=100)
    assert result.trust != "good" and any("sd(Intercept|g)" in reason for reason in result.trust_reasons)


def test_equal_responses_within_groups_of_other_families() -> None:
    data = table().assign(group_y=lambda d: 1.0 + d["group_y"])
    assert "check the grouping column" in notes("group_y ~ x + (1 | g)", data, "poisson")[0]
    for family in ("gaussian", "gamma"):
        with pytest.raises(ValueError, match=r"'group_y' is the same in all rows of every group of 'g'.*Check"):
            natvi.glmm("group_y ~ x + (1 | g)", data, family=family)


def test_separation_is_a_reason_to_take_care() -> None:
    """In arm b nothing but successes: the coefficient is as large as the prior lets it be."""
    result = natvi.glmm("y ~ x + arm + (1 | g)", table(), family="bernoulli").fit(method="gva", max_steps=60)
    assert result.trust == "use with care"
    (reason,) = (reason for reason in result.trust_reasons if "separation" in reason)
    assert reason.startswith("column 'arm[b]' separates the responses") and "tighter prior" in reason


# --- groups ------------------------------------------------------------------------------------------------


def test_groups_of_one_trial() -> None:
    data = table().assign(g=range(200), y=lambda d: np.minimum(d["y"], d["n"]))
    once = int((data["n"] == 1).sum())
    assert notes("p(y, n) ~ x + (1 | g)", data, "binomial") == (f"{once} of 200 groups have a single trial",)
    every = notes("p(y, n) ~ x + (1 | g)", data.assign(n=1), "binomial")
    assert every == ("every group of g has a single trial: the variance is poorly determined",)


def test_missing_group_labels() -> None:
    data = table().assign(g=lambda d: d["g"].astype(float).mask(d.index < 3), weight=1.0)
    data.loc[5, "weight"] = 0.0
    model = natvi.glmm("count ~ x + (1 | g)", data, family="poisson", weights="weight")
    assert model.notes[0].startswith("3 of 200 rows left out: missing values")
    assert model.notes[1] == "1 of 200 rows left out: weight zero" and len(model.y) == 196
    with pytest.raises(ValueError, match=r"3 of 200 rows have missing values: 'g' 3"):
        natvi.glmm("count ~ x + (1 | g)", data, family="poisson", missing="error")


def test_a_giant_group_beside_single_rows() -> None:
    """Work space grows with the rows, not with the number of groups times the largest."""
    rng = np.random.default_rng(0)
    group = np.concatenate([np.zeros(100_000, int), np.arange(1, 501)])
    data = pd.DataFrame({"y": rng.poisson(np.exp(0.5 + 0.5 * rng.standard_normal(501)[group])), "g": group})
    model = natvi.glmm("y ~ 1 + (1 | g)", data, family="poisson")
    assert model.notes == ("500 of 501 groups have a single row",)
    result = model.fit(method="gva")
    assert result.outcome == "converged" and result.state is not None
    giant, *others = result.random_effects()["sd"]
    assert giant < 0.1 < min(others)
