"""Response distributions: a family is a row of data.

Each row names how log p(y | eta, dispersion) is computed, its exact expectation under a Gaussian for the
predictor (and the dispersion parameter), mean and variance of the response, and a rough predictor to start from.
"""

import copyreg
import difflib
from collections.abc import Sequence
from typing import Any

from natvi.families.binary import BINOMIAL, CLOGLOG, LOGIT, PROBIT
from natvi.families.count import NEGATIVE_BINOMIAL, POISSON
from natvi.families.family import Family
from natvi.families.real import GAMMA, GAUSSIAN

__all__ = ["FAMILIES", "Family", "find_family", "links_of"]

# every family with its default link
FAMILIES = {family.name: family for family in (POISSON, LOGIT, GAUSSIAN, NEGATIVE_BINOMIAL, GAMMA)}

_ALL = {(family.name, family.link): family for family in (*FAMILIES.values(), PROBIT, CLOGLOG, *BINOMIAL)}
_NAMES = tuple(dict.fromkeys(name for name, _ in _ALL))

# what other programs call them, in small letters and without spaces, hyphens or underscores
_OTHER_NAMES = {
    "gaussian": ("normal", "norm", "lm", "linear"),
    "bernoulli": ("binary", "logistic", "logit"),
    "negative_binomial": ("nbinom", "nbinom2", "negbin", "negbinomial", "neg.binomial", "nb", "nb2"),
}
_NAME_OF = {"".join(name.split("_")): name for name in _NAMES}
_NAME_OF |= {other: name for name, others in _OTHER_NAMES.items() for other in others}
_ELSEWHERE = {
    "probit": "Write family='bernoulli', link='probit'.",
    "cloglog": "Write family='bernoulli', link='cloglog'.",
    "nbinom1": "Its variance grows in proportion to the mean; 'negative_binomial' is offered, with mu + mu^2 / phi.",
    "quasipoisson": "It has no likelihood; 'negative_binomial' allows for overdispersion.",
    "quasibinomial": "It has no likelihood; a random effect for each row, (1 | row), allows for overdispersion.",
}


def links_of(name: str) -> tuple[str, ...]:
    """Return the links of a family, the default one first.

    Example:
        >>> links_of("binomial")
        ('logit', 'probit', 'cloglog')
    """
    return tuple(link for known, link in _ALL if known == name)


def find_family(name: str, link: str | None = None) -> Family:
    """Return the family of a name, with its default link unless another is given.

    Args:
        name: "gaussian", "bernoulli", "binomial", "poisson", "negative_binomial" or "gamma"; names that other programs
            use, such as "normal", "binary" or "nbinom2", are understood.
        link: For "bernoulli" and "binomial" one of "logit", "probit", "cloglog".

    Returns:
        The family.

    Example:
        >>> find_family("bernoulli", "probit").link
        'probit'
    """
    if not isinstance(name, str):
        raise ValueError(f"Unknown family {name!r}. A family is a text such as 'gaussian'.")
    plain = name.lower().replace(" ", "").replace("-", "").replace("_", "")
    if plain not in _NAME_OF:
        hint = f" {_ELSEWHERE[plain]}" if plain in _ELSEWHERE else _near(name, _NAMES)
        raise ValueError(f"Unknown family {name!r}.{hint} Known: {', '.join(_NAMES)}.")
    name = _NAME_OF[plain]
    links = list(links_of(name))
    if link is None:
        return _ALL[name, links[0]]
    if link not in links:
        hint = _near(link, links) if len(links) > 1 else ""
        known = f"Its links: {', '.join(links)}." if len(links) > 1 else f"Its only link is {links[0]!r}."
        raise ValueError(f"The family {name!r} has no link {link!r}.{hint} {known} Leave link out for {links[0]!r}.")
    return _ALL[name, link]


def _near(word: object, known: Sequence[str]) -> str:
    near = difflib.get_close_matches(str(word), known, n=1, cutoff=0.4)
    return f" Did you mean {near[0]!r}?" if near else ""


def _reduce(family: Family) -> tuple[Any, ...]:
    """A family of the table travels by its name: compiled functions among its fields cannot be pickled."""
    if _ALL.get((family.name, family.link)) == family:
        return find_family, (family.name, family.link)
    return Family, tuple(family)


copyreg.pickle(Family, _reduce)  # also for copies
