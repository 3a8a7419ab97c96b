"""Random models with their data; (seed, number) decides all of a case.

Sizes come from short lists, so that most cases find their programs compiled already.
"""

from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from benchmarks.fuzz.columns import companion, draw_column, draw_factor, standardise
from benchmarks.fuzz.responses import DEGENERATE, draw_response, spoil

FAMILIES = (
    ("gaussian", "identity"),
    ("poisson", "log"),
    ("bernoulli", "logit"),
    ("bernoulli", "probit"),
    ("bernoulli", "cloglog"),
    ("binomial", "logit"),
    ("binomial", "probit"),
    ("binomial", "cloglog"),
    ("negative_binomial", "log"),
    ("gamma", "log"),
)
ROWS, ROW_ODDS = (60, 24, 400), (0.8, 0.1, 0.1)
FEW_ROWS = (1, 2, 4)


class Right(NamedTuple):
    """The right-hand side of a formula.

    Attributes:
        text: With columns x, z and factors f, h.
        levels: Of the factor f.
        numeric: Columns that may be rescaled without changing any prediction.
        shift: Whether they may be shifted too.
    """

    text: str
    levels: int = 3
    numeric: tuple[str, ...] = ("x",)
    shift: bool = True


# mostly two or four columns
FIXED = (
    Right("x"),
    Right("x"),
    Right("x + z + h", numeric=("x", "z")),
    Right("x * z", numeric=("x", "z")),
    Right("x * f", 2),
    Right("f * h", 2, ()),
    Right("f + h", 3, ()),
    Right("z + x + I(x**2)", numeric=("z",)),
    Right("exp(x / 1000) + z + h", numeric=("z",)),
    Right("bs(x, df=3)"),
    Right("poly(x, 3)"),
    Right("0 + f + x", 3),
    Right("0 + f", 2, ()),
    Right("0 + x + z", numeric=("x", "z"), shift=False),
    Right("scale(x) + z + h", numeric=("x", "z")),
    Right("x:z + h", numeric=("x", "z"), shift=False),
    Right("x*f*h", 5),
    Right("1", numeric=()),
    Right("0 + x", shift=False),
)
MIXED_FIXED = (Right("x"), Right("x"), Right("x * h"), Right("f * x", 2), Right("x + z", numeric=("x", "z")))
# random part, and whether shifting x changes no prediction
RANDOM = (("(1 | g)", True), ("(1 | g)", True), ("(1 + x | g)", True), ("(x || g)", False), ("(0 + x | g)", False))
LAYOUTS = {
    "uneven": (1, 2, 3, 4, 5, 6, 7, 8, 9, 10),
    "many small": (1, 2, 3, 4) * 8,
    "few large": (200, 90, 7, 1),
    "single rows": (1,) * 24,
    "two groups": (12, 12),
    "one group": (30,),
}
LAYOUT_ODDS = (0.7, 0.08, 0.08, 0.06, 0.04, 0.04)
MIXED_SHARE, ODD_COLUMN, DEGENERATE_SHARE = 0.4, 0.25, 0.15


class Case(NamedTuple):
    """A model with its data, as a user would give them.

    Attributes:
        seed: Of the campaign.
        number: Of the case.
        formula: With random effects or without.
        family: Of the response.
        link: Of the family.
        frame: The data.
        weights: A column, or None.
        oddities: What is unusual, in words.
        numeric: Numeric columns that may be rescaled without changing any prediction.
        shift: Whether they may be shifted too.
    """

    seed: int
    number: int
    formula: str
    family: str
    link: str
    frame: pd.DataFrame
    weights: str | None
    oddities: tuple[str, ...]
    numeric: tuple[str, ...]
    shift: bool

    @property
    def mixed(self) -> bool:
        """Whether there are random effects."""
        return "|" in self.formula

    @property
    def words(self) -> str:
        """One line about the case."""
        odd = f"; {', '.join(self.oddities)}" if self.oddities else ""
        return f"{self.formula}, {self.family} ({self.link}), {len(self.frame)} rows{odd}"


def draw_case(seed: int, number: int) -> Case:
    """Return a case; the same seed and number give the same data.

    Example:
        >>> draw_case(1, 0).frame.equals(draw_case(1, 0).frame)
        True
    """
    rng = np.random.default_rng([seed, number])
    family, link = FAMILIES[rng.integers(len(FAMILIES))]
    mixed = rng.uniform() < MIXED_SHARE
    odd: list[str] = []
    if mixed:
        layout = str(rng.choice(list(LAYOUTS), p=LAYOUT_ODDS))
        sizes = LAYOUTS[layout]
        g = np.repeat(np.arange(len(sizes)), sizes)
        odd += [f"groups: {layout}"] if layout in ("single rows", "one group", "two groups") else []
    else:
        few = rng.uniform() < 0.05
        n = int(rng.choice(FEW_ROWS) if few else rng.choice(ROWS, p=ROW_ODDS))
        odd += [f"{n} rows only"] if few else []
        g = np.zeros(n, int)
    right = (MIXED_FIXED if mixed else FIXED)[rng.integers(len(MIXED_FIXED if mixed else FIXED))]
    columns, eta = _covariates(len(g), right.levels, rng, odd)
    formula, shift = right.text, right.shift
    if mixed:
        random, free = RANDOM[rng.integers(len(RANDOM))]
        formula, shift = f"{formula} + {random}", shift and free
        columns["g"] = np.array([f"s{k}" for k in g]) if rng.uniform() < 0.5 else g
        eta = eta + rng.choice([0.0, 0.3, 1.5]) * rng.standard_normal(g.max() + 1)[g]
    extra = _offset(columns, len(g), rng, odd)
    eta = eta + extra
    trials = rng.integers(1, 13, len(g)) if family == "binomial" else np.ones(len(g), int)
    y = draw_response(family, link, eta + _level(family, rng), trials, rng)
    if rng.uniform() < DEGENERATE_SHARE:
        kind = str(rng.choice(DEGENERATE[family]))
        y = spoil(kind, family, y, eta, trials, rng)
        odd.append(f"response: {kind}")
    columns["y"] = y
    left = "y"
    if family == "binomial":
        columns["m"], left = trials, "p(y, m)"
    weights = _weights(columns, len(g), rng, odd)
    frame = pd.DataFrame(columns)
    _lose_values(frame, rng, odd)
    offset = " + offset(off)" if "off" in columns else ""
    formula = f"{left} ~ {formula}{offset}"
    return Case(seed, number, formula, family, link, frame, weights, tuple(odd), right.numeric, shift)


def _covariates(n: int, levels: int, rng: np.random.Generator, odd: list[str]) -> tuple[dict[str, Any], np.ndarray]:
    """Return columns x, z, f, h, and a predictor made of them."""
    columns: dict[str, Any] = {}
    for name in ("x", "z"):
        strange = rng.uniform() < ODD_COLUMN
        if name == "z" and strange and rng.uniform() < 0.4:
            kind, columns[name] = companion(columns["x"], rng)
        else:
            kind, columns[name] = draw_column(n, strange, rng)
        odd += [f"{name}: {kind}"] if strange else []
    columns["f"], columns["h"] = draw_factor(n, levels, rng), pd.Categorical(draw_factor(n, 2, rng))
    if n > 10 and rng.uniform() < 0.1:
        columns["f"][:] = "a"
        columns["f"][: levels - 1] = list("bcdefgh")[: levels - 1]
        odd.append("f: levels of one row")
    effects = rng.normal(0.0, 0.6, 4)
    codes = pd.factorize(columns["f"])[0]
    eta = effects[0] * standardise(columns["x"]) + effects[1] * standardise(columns["z"])
    eta = eta + effects[2] * (codes == 0) + effects[3] * (np.asarray(columns["h"]) == "a")
    return columns, eta


def _level(family: str, rng: np.random.Generator) -> float:
    return float(rng.choice([0.0, 1.0, -3.0]) if family in ("bernoulli", "binomial") else rng.choice([0.0, 2.0]))


def _offset(columns: dict[str, Any], n: int, rng: np.random.Generator, odd: list[str]) -> np.ndarray:
    if rng.uniform() > 0.2:
        return np.zeros(n)
    columns["off"] = 0.3 * rng.standard_normal(n) + rng.choice([0.0, 4.0])
    odd.append("offset")
    return columns["off"] - columns["off"].mean()  # the intercept makes up for its level


def _weights(columns: dict[str, Any], n: int, rng: np.random.Generator, odd: list[str]) -> str | None:
    if rng.uniform() > 0.15:
        return None
    kind = str(rng.choice(["whole", "fractions", "with zeros"]))
    values = rng.uniform(0.2, 3.0, n) if kind == "fractions" else rng.integers(1, 5, n).astype(float)
    if kind == "with zeros":
        values[: n // 8] = 0.0
    columns["w"] = values
    odd.append(f"weights: {kind}")
    return "w"


def _lose_values(frame: pd.DataFrame, rng: np.random.Generator, odd: list[str]) -> None:
    """Make some values missing, in rare cases infinite or a whole column."""
    if rng.uniform() > 0.12:
        return
    kind = str(rng.choice(["some", "some", "some", "all", "infinite"]))
    rows = np.arange(len(frame)) if kind == "all" else np.arange(len(frame))[2::9]
    column = str(rng.choice(["x", "y"])) if kind == "some" else "x"
    values = frame[column].astype(float)
    values.iloc[rows] = np.inf if kind == "infinite" else np.nan
    frame[column] = values
    odd.append(f"{column}: {kind} missing" if kind != "infinite" else "x: infinite values")
