"""Ranks of true values among posterior draws, and what chance allows them.

If truth and data come from prior and model, the rank of the truth among L posterior draws is uniform on 0, ..., L
(Talts, Betancourt, Simpson, Vehtari and Gelman 2018).
"""

from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from scipy.stats import binom

import natvi
from experiments.calibration_data import Design, kind_of, simulate
from experiments.kept import keep
from experiments.memory import Arrays, recall
from experiments.verdict_outcomes import source_digest

NUM_DRAWS = 999
PROB = 0.9
SETTINGS = {"draws": NUM_DRAWS, "version": 1}


class Ranked(NamedTuple):
    """What came out for one data set.

    Attributes:
        design: Which of the designs.
        number: Which of its data sets.
        method: With which `auto` ended; empty where the data were refused.
        trust: The verdict, or the words of the refusal.
        names: Of the parameters; random effects have one name for all groups.
        ranks: Of the true values, in the order of the names.
    """

    design: Design
    number: int
    method: str
    trust: str
    names: tuple[str, ...]
    ranks: np.ndarray

    def of_kind(self, kind: str) -> np.ndarray:
        """Return the ranks of the parameters of one kind."""
        return self.ranks[[kind_of(name) == kind for name in self.names]]


def ranked(design: Design, number: int, seed: int, sources: str | None = None) -> Ranked:
    """Simulate, fit with the defaults and rank; what came out is kept by `experiments.memory`."""
    settings = SETTINGS | {"design": [str(part) for part in design], "number": number, "seed": seed}
    settings |= {"sources": sources or source_digest()}
    found = recall("calibration", settings, lambda: fit_and_rank(design, number, seed))
    names = tuple(map(str, found["names"]))
    return Ranked(design, number, str(found["method"]), str(found["trust"]), names, found["ranks"])


def kept_ranks(design: Design, number: int, seed: int, sources: str) -> tuple[list[Ranked], str]:
    """Return what came out for all data sets of a design, and the digest of the sources with which it was found.

    A finished design is kept in the repository, since all of them take hours: what is kept stands until it is deleted,
    and says for itself with which sources it was made.
    """
    settings = SETTINGS | {"design": design.name, "data_sets": number, "data_seed": seed}
    settings |= {"prior": {name: str(value) for name, value in design.prior.items()}}

    def compute(_: Path) -> dict[str, Any]:
        found = [ranked(design, k, seed, sources) for k in range(number)]
        rows = [
            {"method": one.method, "trust": one.trust, "names": ";".join(one.names), "ranks": _written(one.ranks)}
            for one in found
        ]
        return {"sources": sources, "outcomes": rows}

    kept = keep("calibration", design.name.replace(", random", "").replace(" ", "-"), settings, compute)
    outcomes = [
        Ranked(design, k, row["method"], row["trust"], _names(row["names"]), np.array(row["ranks"].split(), dtype=int))
        for k, row in enumerate(kept["outcomes"])
    ]
    return outcomes, kept["sources"]


def _written(ranks: np.ndarray) -> str:
    return " ".join(map(str, ranks.tolist()))


def _names(written: str) -> tuple[str, ...]:
    return tuple(filter(None, written.split(";")))


def fit_and_rank(design: Design, number: int, seed: int) -> Arrays:
    """Fit one data set with the defaults and count the draws below each true value."""
    frame, truth = simulate(design, number, seed)
    try:
        result = natvi.glmm(design.formula, frame, family=design.family, prior=design.prior).fit()
    except ValueError as error:
        return {"names": np.array([], str), "ranks": np.array([], int), "method": "", "trust": str(error)}
    draws = result.sample(NUM_DRAWS, seed=number)
    names, ranks = [], []
    for name, values in draws.items():
        below = np.atleast_1d(np.sum(values < truth[name], axis=0))
        # a draw that is not a number lies nowhere: such a parameter is as wrong as can be
        ranks.append(np.where(np.all(np.isfinite(values), axis=0), below, NUM_DRAWS))
        names += [name] * len(below)
    return {"names": names, "ranks": np.concatenate(ranks), "method": result.method, "trust": result.trust}


def covered(ranks: np.ndarray) -> np.ndarray:
    """Tell whether the central 90% interval of the draws holds the true value: 900 of 1,000 ranks."""
    tail = round((0.5 - PROB / 2) * (NUM_DRAWS + 1))
    return (ranks >= tail) & (ranks <= NUM_DRAWS - tail)


def histogram(ranks: np.ndarray, bins: int) -> np.ndarray:
    """Count ranks in bins of equal width."""
    return np.bincount(ranks * bins // (NUM_DRAWS + 1), minlength=bins)


class Band(NamedTuple):
    """The counts that all bins together keep to with the given probability, and the level of a single bin."""

    low: int
    high: int
    level: float


@cache
def simultaneous_band(n: int, bins: int, prob: float = 0.99) -> Band:
    """Return the band of n uniform ranks, found from simulated ones.

    The level of a single bin is chosen such that the least likely count of all bins lies within its binomial
    interval with the given probability (Säilynoja, Bürkner and Vehtari 2022, for histograms).
    """
    counts = np.random.default_rng(0).multinomial(n, np.full(bins, 1 / bins), size=40_000)
    level = float(np.quantile(tail_probability(counts, n, bins).min(axis=1), 1 - prob, method="lower"))
    allowed = np.flatnonzero(tail_probability(np.arange(n + 1), n, bins) >= level)
    return Band(int(allowed[0]), int(allowed[-1]), level)


def tail_probability(count: np.ndarray, n: int, bins: int) -> np.ndarray:
    """Return how likely a bin's count is at least as far out: twice the smaller tail of the binomial."""
    return 2 * np.minimum(binom.cdf(count, n, 1 / bins), binom.sf(count - 1, n, 1 / bins))


def within(counts: np.ndarray, band: Band) -> bool:
    """Tell whether all bins keep to the band."""
    return bool(np.all((counts >= band.low) & (counts <= band.high)))
