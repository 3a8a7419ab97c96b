"""How well a model describes its data: statistics of the responses beside those of replicated responses.

Draws of the parameters give replicated responses; a statistic of the data that lies outside what they show is a sign
that another distribution of the responses, or another predictor, would describe the data better (posterior predictive
checks, Gelman, Meng and Stern 1996). Plain functions of arrays.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from jaxtyping import Float

GOOD, DOUBTFUL, UNCHECKED = "good", "doubtful", "not checked"

TAIL = 0.01  # share of the replicated statistics beyond the observed one, from which it is doubtful
FAR = 3.0  # sds of the replicated statistics from their mean, from which it is doubtful
LARGEST_GAP = 0.05  # of a mean or an sd in sds of the responses, of a share in shares: less does not matter
WILD, UNEVEN = 1.2, 0.8  # Pearson dispersion relative to the replicated one
FEW_VALUES, LEAST_ROWS = 10, 30  # different whole numbers of a rating; rows from which that is looked at
OUTSIDE = 0.01  # share of replicated responses beyond the range of a rating
BINS = 10  # of fitted probabilities
LEAST_EXCESS = 0.03  # of zeros over those of a negative binomial, from which inflation is named
SHARE_GAP = 0.03  # of a category: less does not matter
NO_INFLATION = ("poisson", "geometric", "negative_binomial")
COUNTS = (
    *NO_INFLATION,
    *("zero_inflated_poisson", "zero_inflated_negative_binomial", "hurdle_poisson", "hurdle_negative_binomial"),
)


class Replicated(NamedTuple):
    """Responses, replicated ones, and what each draw expected.

    Attributes:
        y: Observed responses; of trials the successes.
        drawn: Replicated responses, a line for each draw.
        mean: Expected responses given each draw.
        variance: Variances given each draw.
        by: What rows are put into bins by; by default their expected responses. Not by effects of groups: these were
            estimated from the same responses and drawn towards their mean, so that bins of them would have gaps.
    """

    y: Float[np.ndarray, " n"]
    drawn: Float[np.ndarray, "s n"]
    mean: Float[np.ndarray, "s n"]
    variance: Float[np.ndarray, "s n"]
    by: Float[np.ndarray, " n"] | None = None


class ModelCheck(NamedTuple):
    """The verdict on the model: "good", "doubtful" or "not checked", and why."""

    level: str
    reasons: tuple[str, ...]
    numbers: tuple[tuple[str, float], ...] = ()


class _Statistic(NamedTuple):
    """A number of the data, the same of every replication, and how large a gap between them is."""

    observed: float
    replicated: np.ndarray
    matters: bool

    @property
    def doubtful(self) -> bool:
        spread = max(float(np.std(self.replicated)), 1e-12 * max(abs(self.observed), 1e-300))
        below, above = np.mean(self.replicated <= self.observed), np.mean(self.replicated >= self.observed)
        away = abs(self.observed - float(np.mean(self.replicated))) / spread
        return bool(self.matters and min(below, above) < TAIL and away > FAR)

    @property
    def high(self) -> bool:
        return self.observed > float(np.mean(self.replicated))


def check_model(data: Replicated, family: str) -> ModelCheck:
    """Hold the responses against replicated ones.

    Args:
        data: Both, with what each draw expected.
        family: Name of the response distribution.

    Returns:
        The verdict.
    """
    found = _statistics(data, family)
    reasons = [_words(name)(found[name], family) for name in found if found[name].doubtful]
    special = _rating(data, family) or (_zero_inflation(data, family) if reasons else "")
    # what a rating or a count with further zeros lacks says it all; extremes and sd only repeat that
    reasons = [special] if special else reasons
    numbers = [(f"{name}, observed", part.observed) for name, part in found.items()]
    numbers += [(f"{name}, replicated", float(np.mean(part.replicated))) for name, part in found.items()]
    if reasons:
        return ModelCheck(DOUBTFUL, tuple(reasons), tuple(numbers))
    listed = list(found)
    words = f"{', '.join(listed[:-1])} and {listed[-1]} of the responses look like those that the model generates"
    return ModelCheck(GOOD, (words,), tuple(numbers))


def _statistics(data: Replicated, family: str) -> dict[str, _Statistic]:
    y, drawn, mean, variance, _ = data
    sd, sds = float(np.std(y)), np.std(drawn, axis=1)
    scale = max(sd, float(np.mean(sds)), 1e-300)

    def gap(a: float, b: np.ndarray) -> bool:
        return abs(a - float(np.mean(b))) > LARGEST_GAP * scale

    means = drawn.mean(axis=1)
    found = {"mean": _Statistic(float(y.mean()), means, gap(float(y.mean()), means))}
    if family in ("bernoulli", "binomial"):
        found["calibration"] = _calibration(data)
        if family == "bernoulli":
            return found
    found["sd"] = _Statistic(sd, sds, gap(sd, sds))
    if family == "ordinal":
        return found | _category_shares(y, drawn)
    if family in COUNTS or family == "binomial":
        zeros = np.mean(drawn == 0, axis=1)
        share = float(np.mean(y == 0))
        found["zeros"] = _Statistic(share, zeros, abs(share - float(zeros.mean())) > LARGEST_GAP)
    for name, end in (("smallest", np.min), ("largest", np.max)):
        ends = end(drawn, axis=1)
        found[name] = _Statistic(float(end(y)), ends, gap(float(end(y)), ends))
    # sum of squared Pearson residuals, of the data and of the replication under the same draw
    with np.errstate(divide="ignore", invalid="ignore"):
        own = np.nanmean((y - mean) ** 2 / variance, axis=1)
        other = np.nanmean((drawn - mean) ** 2 / variance, axis=1)
    ratio = own / other
    # the data lie beyond where all ratios are above one, or below
    typical = float(np.median(ratio))
    matters = typical > WILD or typical < UNEVEN
    found["dispersion"] = _Statistic(float(np.mean(own)), other, matters)
    return found


def _category_shares(y: np.ndarray, drawn: np.ndarray) -> dict[str, _Statistic]:
    found = {}
    for code in np.unique(y):
        share, shares = float(np.mean(y == code)), np.mean(drawn == code, axis=1)
        found[f"share of {code:g}"] = _Statistic(share, shares, abs(share - float(shares.mean())) > SHARE_GAP)
    return found


def _zero_inflation(data: Replicated, family: str) -> str:
    """Say so where counts have more zeros than a negative binomial of their means and their spread would have."""
    if family not in NO_INFLATION:
        return ""
    y, mean = data.y, data.mean.mean(axis=0)
    share, own = float(np.mean(y == 0)), float(np.mean(data.drawn == 0))
    # Var y = mu + mu^2 / phi
    excess = float(np.sum((y - mean) ** 2 - mean))
    phi = float(np.sum(mean**2)) / excess if excess > 0 else np.inf
    spread = np.exp(-mean) if not phi < 1e8 else (1.0 + mean / phi) ** -phi
    other = max(own, float(np.mean(spread)))
    if share - other <= max(LEAST_EXCESS, 3.0 * np.sqrt(share * (1.0 - share) / len(y))):
        return ""
    kind = "poisson" if family in ("poisson", "geometric") else "negative_binomial"
    beside = f" and {np.mean(spread):.0%} of a negative binomial with this spread" if kind == "poisson" else ""
    return (
        f"{share:.0%} of the responses are zero, {own:.0%} of what the model generates{beside}: zero inflation "
        f"describes that; try family='zero_inflated_{kind}', or 'hurdle_{kind}' if all zeros have one cause"
    )


def _calibration(data: Replicated) -> _Statistic:
    """Squared gaps between observed and expected successes, in bins of the fitted probability."""
    y, drawn, mean, variance, by = data
    centre = mean.mean(axis=0) if by is None else by
    edges = np.quantile(centre, np.linspace(0, 1, BINS + 1)[1:-1])
    bins = np.searchsorted(edges, centre)
    member = np.equal.outer(bins, np.unique(bins)).astype(float)
    member = member[:, member.sum(axis=0) > 0]
    spread = np.maximum(variance @ member, 1e-300)
    own = np.mean(((y - mean) @ member) ** 2 / spread, axis=1)
    other = np.mean(((drawn - mean) @ member) ** 2 / spread, axis=1)
    return _Statistic(float(np.mean(own)), other, True)


def _rating(data: Replicated, family: str) -> str:
    """Say so where a continuous response is a rating: few whole numbers in a row."""
    y = data.y
    if family not in ("gaussian", "gamma", "student_t", "lognormal") or len(y) < LEAST_ROWS:
        return ""
    values = np.unique(y)
    if len(values) > FEW_VALUES or np.any(values != np.round(values)):
        return ""
    low, high = values[0], values[-1]
    outside = float(np.mean((data.drawn < low) | (data.drawn > high)))
    if len(values) == 2:
        return (
            f"the responses take the values {low:g} and {high:g} only: family='bernoulli' describes that, with the "
            "response coded as 0 and 1"
        )
    beyond = f", and {outside:.0%} of what the model generates lies beyond" if outside > OUTSIDE else ""
    return (
        f"the responses take only the whole values {low:g} to {high:g}, as ratings do, where a {family} response can "
        f"be any number{beyond}: an ordinal model describes ratings; try family='ordinal'"
    )


# --- words ---------------------------------------------------------------------------------------------------


def _mean_words(found: _Statistic, family: str) -> str:
    return (
        f"the model expects a mean response of {np.mean(found.replicated):.3g}, the data have {found.observed:.3g}: "
        "look for a missing term, a missing offset, or a prior that pulls"
    )


def _sd_words(found: _Statistic, family: str) -> str:
    return _spread_words(f"the sd of the responses is {found.observed:.3g}", found, family, "sd")


def _spread_words(head: str, found: _Statistic, family: str, what: str) -> str:
    side = "more" if found.high else "less"
    cures = {
        ("poisson", True): "try family='negative_binomial', or a random effect for every row",
        ("geometric", True): "try family='negative_binomial'",
        ("geometric", False): "try family='negative_binomial', or 'poisson'",
        ("exponential", False): "try family='weibull' or 'gamma'",
        ("exponential", True): "try family='weibull' or 'lognormal'",
        ("zero_inflated_poisson", True): "try family='zero_inflated_negative_binomial'",
        ("hurdle_poisson", True): "try family='hurdle_negative_binomial'",
        ("gaussian", True): "look for outliers: family='student_t' allows for them",
        ("binomial", True): "try a random effect for every row; beta-binomial responses are in glmmTMB and brms",
    }
    cure = cures.get((family, found.high), "try other terms, a transformed response or another family")
    replicated = float(np.mean(found.replicated))
    return f"{head}, and {replicated:.3g} in what the model generates: the responses vary {side}; {cure}"


def _dispersion_words(found: _Statistic, family: str) -> str:
    return _spread_words(
        f"the dispersion (mean squared residual over its variance) is {found.observed:.3g}", found, family, "dispersion"
    )


def _zero_words(found: _Statistic, family: str) -> str:
    side = "more" if found.high else "fewer"
    cure = (
        "zero inflation describes that; try family='zero_inflated_negative_binomial'"
        if found.high and family == "negative_binomial"
        else "try family='negative_binomial'; if zeros remain too many, 'zero_inflated_negative_binomial'"
        if found.high and family in NO_INFLATION
        else "look for a column that tells where the zeros come from"
        if found.high
        else "a response that starts at one, or family='hurdle_poisson', may describe them"
    )
    shares = f"{found.observed:.0%} of the responses are zero, and {np.mean(found.replicated):.0%} of what the model"
    return f"{shares} generates: {side} zeros than it can explain; {cure}"


def _end_words(which: str) -> Callable[[_Statistic, str], str]:
    def words(found: _Statistic, family: str) -> str:
        outer = found.high == (which == "largest")
        head = (
            f"the {which} response is {found.observed:.3g}, and about {np.mean(found.replicated):.3g} in what the model"
        )
        cures = {
            "gaussian": "look for outliers; family='student_t' has heavy tails, or transform the response",
            "gamma": "look for outliers, or try family='lognormal', whose tails are heavier",
            "exponential": "try family='weibull' or 'lognormal'",
            "poisson": "try family='negative_binomial'",
            "geometric": "try family='negative_binomial'",
            "zero_inflated_poisson": "try family='zero_inflated_negative_binomial'",
            "hurdle_poisson": "try family='hurdle_negative_binomial'",
        }
        cure = cures.get(family, "look for outliers or a missing term")
        if not outer:
            cure = "the responses may have a limit that the model does not know; transform them, or take another family"
        return f"{head} generates: {'heavier' if outer else 'lighter'} tails than the model has; {cure}"

    return words


def _share_words(name: str) -> Callable[[_Statistic, str], str]:
    def words(found: _Statistic, family: str) -> str:
        return (
            f"the {name} is {found.observed:.0%}, and {np.mean(found.replicated):.0%} in what the model generates: "
            "thresholds that are the same in all rows do not describe it; look for a column that moves them, or a group"
        )

    return words


def _words(name: str) -> Callable[[_Statistic, str], str]:
    return _share_words(name) if name.startswith("share") else _WORDS[name]


def _calibration_words(found: _Statistic, family: str) -> str:
    return (
        "observed shares of successes do not follow the fitted probabilities: try another link, products or curves of "
        "the columns such as bs(x), or a missing column"
    )


_WORDS: dict[str, Callable[[_Statistic, str], str]] = {
    "mean": _mean_words,
    "sd": _sd_words,
    "zeros": _zero_words,
    "smallest": _end_words("smallest"),
    "largest": _end_words("largest"),
    "dispersion": _dispersion_words,
    "calibration": _calibration_words,
}
