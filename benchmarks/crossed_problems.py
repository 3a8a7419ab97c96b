"""Data sets and models of the benchmark `crossed`: four that everybody fits, and three that are simulated."""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import pandas as pd

from natvi.data.external import data_folder


class Problem(NamedTuple):
    """A model with its data.

    Attributes:
        formula: The model, in words that R understands too.
        family: Of the responses.
        read: The data.
        peers: Who fits it too: glmmTMB, lme4.
        truth: Whether NUTS is asked.
        chains: For how many shorter chains, each kept when it is done; 0 for the usual ones.
    """

    formula: str
    family: str
    read: Callable[[], pd.DataFrame]
    peers: tuple[str, ...] = ()
    truth: bool = False
    chains: int = 0


def _file(name: str) -> pd.DataFrame:
    return pd.read_csv(data_folder() / name)


def _grouseticks() -> pd.DataFrame:
    return _file("grouseticks/grouseticks.csv").assign(YEAR=lambda frame: "y" + frame["YEAR"].astype(str))


def _insteval() -> pd.DataFrame:
    return _file("insteval/InstEval.csv.gz").assign(good=lambda frame: (frame["y"] >= 4).astype(int))


def crossed_binary(seed: int = 5, n: int = 30) -> pd.DataFrame:
    """Simulate yes/no rows of n x n levels, at most two rows a cell."""
    rng = np.random.default_rng(seed)
    a, b = (np.tile(part.ravel(), 2) for part in np.meshgrid(np.arange(n), np.arange(n)))
    keep = rng.uniform(size=len(a)) < 0.6
    a, b = a[keep], b[keep]
    x = rng.normal(size=len(a))
    eta = -0.3 + 0.7 * x + rng.normal(size=n)[a] + 0.6 * rng.normal(size=n)[b]
    return pd.DataFrame({"y": (rng.uniform(size=len(a)) < 1 / (1 + np.exp(-eta))).astype(int), "x": x, "a": a, "b": b})


def subjects_and_items(seed: int = 3) -> pd.DataFrame:
    """Simulate yes/no answers of 316 subjects to 24 items, as large as the data VerbAgg of lme4."""
    rng = np.random.default_rng(seed)
    subject, item = (part.ravel() for part in np.meshgrid(np.arange(316), np.arange(24), indexing="ij"))
    anger, kind = rng.normal(size=316)[subject], rng.integers(0, 3, 24)[item]
    eta = -0.2 + 0.3 * anger - 0.5 * (kind == 1) - 1.0 * (kind == 2)
    eta = eta + 1.2 * rng.normal(size=316)[subject] + 0.7 * rng.normal(size=24)[item]
    y = (rng.uniform(size=len(eta)) < 1 / (1 + np.exp(-eta))).astype(int)
    kinds = np.array(["curse", "scold", "shout"])[kind]
    return pd.DataFrame({"y": y, "anger": anger, "kind": kinds, "subject": subject, "item": item})


GROWTH = "hit ~ w + x + y + z + (1 | id) + (1 | city)"


def growing(rows: int, seed: int = 0) -> pd.DataFrame:
    """Simulate yes/no rows, ten of each id, in 500 cities."""
    rng = np.random.default_rng(seed)
    ids, city = np.repeat(np.arange(rows // 10), 10), rng.integers(0, 500, rows)
    X = rng.normal(size=(rows, 4))
    eta = -0.3 + X @ [0.5, -0.3, 0.2, 0.0] + rng.normal(size=rows // 10)[ids] + 0.5 * rng.normal(size=500)[city]
    hit = (rng.uniform(size=rows) < 1 / (1 + np.exp(-eta))).astype(int)
    return pd.DataFrame(X, columns=list("wxyz")).assign(hit=hit, id=ids, city=city)


BOTH = ("glmmTMB", "lme4")
PROBLEMS = {
    "penicillin": Problem(
        "diameter ~ 1 + (1 | plate) + (1 | sample)",
        "gaussian",
        lambda: _file("penicillin/penicillin.csv"),
        BOTH,
        True,
    ),
    "pastes": Problem("strength ~ 1 + (1 | batch/cask)", "gaussian", lambda: _file("pastes/pastes.csv"), BOTH, True),
    "grouseticks": Problem(
        "TICKS ~ YEAR + cHEIGHT + (1 | BROOD) + (1 | INDEX) + (1 | LOCATION)", "poisson", _grouseticks, BOTH, True, 2
    ),
    "binary": Problem("y ~ x + (1 | a) + (1 | b)", "bernoulli", crossed_binary, BOTH, True, 2),
    "subjects-items": Problem(
        "y ~ anger + kind + (1 | subject) + (1 | item)", "bernoulli", subjects_and_items, ("glmmTMB",)
    ),
    "insteval": Problem("y ~ service + (1 | s) + (1 | d)", "gaussian", _insteval, ("lme4",)),
    "insteval-binary": Problem("good ~ service + (1 | s) + (1 | d)", "bernoulli", _insteval, ("glmmTMB",)),
}
