"""Response distributions: a family is a row of data.

Each row names how log p(y | eta, dispersion) is computed, its exact expectation under a Gaussian for the
predictor (and the dispersion parameter), mean and variance of the response, and a rough predictor to start from.
"""

import copyreg
import difflib
from collections.abc import Sequence
from typing import Any

from natvi.families.beta import BETA
from natvi.families.binary import BINOMIAL, CLOGLOG, LOGIT, PROBIT
from natvi.families.count import GEOMETRIC, NEGATIVE_BINOMIAL, POISSON
from natvi.families.family import Family
from natvi.families.ordinal import ordinal
from natvi.families.parts import with_parts, without_parts
from natvi.families.positive import EXPONENTIAL, GAUSSIAN_LOG, LOGNORMAL, weibull
from natvi.families.real import GAMMA, GAUSSIAN
from natvi.families.student import STUDENT_T, student_t
from natvi.families.zeros import HURDLE_POISSON, ZERO_INFLATED_POISSON
from natvi.families.zeros_negative_binomial import HURDLE_NEGATIVE_BINOMIAL, ZERO_INFLATED_NEGATIVE_BINOMIAL

__all__ = ["FAMILIES", "Family", "find_family", "find_streamed", "links_of"]

# every family with its default link
FAMILIES = {family.name: family for family in (POISSON, LOGIT, GAUSSIAN, NEGATIVE_BINOMIAL, GAMMA)}

# whose numbers the data decide: the categories and their first code; the unit of time
OPEN = {"ordinal": ordinal(3), "weibull": weibull(0.0)}
_MORE = (
    *(GEOMETRIC, LOGNORMAL, EXPONENTIAL, STUDENT_T, BETA, *OPEN.values(), ordinal(3, link="probit"), GAUSSIAN_LOG),
    *(ZERO_INFLATED_POISSON, HURDLE_POISSON, ZERO_INFLATED_NEGATIVE_BINOMIAL, HURDLE_NEGATIVE_BINOMIAL),
)
_ALL = {(family.name, family.link): family for family in (*FAMILIES.values(), PROBIT, CLOGLOG, *BINOMIAL, *_MORE)}
_NAMES = tuple(dict.fromkeys(name for name, _ in _ALL))

# what other programs call them, in small letters and without spaces, hyphens or underscores
_OTHER_NAMES = {
    "gaussian": ("normal", "norm", "lm", "linear"),
    "bernoulli": ("binary", "logistic", "logit"),
    "ordinal": ("cumulative", "ordered", "polr", "clm", "sratio"),
    "student_t": ("student", "t", "robust"),
    "lognormal": ("log_normal",),
    "zero_inflated_poisson": ("zip",),
    "zero_inflated_negative_binomial": ("zinb", "zinegbinomial", "zeroinflatednegbinomial"),
    "hurdle_negative_binomial": ("hurdlenegbinomial", "hurdlenb", "truncatednbinom2"),
    "hurdle_poisson": ("truncatedpoisson",),
    "negative_binomial": ("nbinom", "nbinom2", "negbin", "negbinomial", "neg.binomial", "nb", "nb2"),
}
_NAME_OF = {"".join(name.split("_")): name for name in _NAMES}
_NAME_OF |= {"".join(other.split("_")): name for name, others in _OTHER_NAMES.items() for other in others}
CATEGORICAL = (
    "Unordered categories have a predictor each in every row, which is not there. Fit each category against a "
    "reference with family='bernoulli' on the rows of these two, whose estimates stay close to the joint ones (Begg "
    "and Gray 1984); ordered categories are family='ordinal'."
)
_ELSEWHERE = {
    "probit": "Write family='bernoulli', link='probit'.",
    "cloglog": "Write family='bernoulli', link='cloglog'.",
    "nbinom1": "Its variance grows in proportion to the mean; 'negative_binomial' is offered, with mu + mu^2 / phi.",
    "categorical": CATEGORICAL,
    "multinomial": CATEGORICAL,
    "zerooneinflatedbeta": "Model zeros and ones apart with family='bernoulli', and the shares between with 'beta'.",
    "inversegaussian": "'gamma' and 'lognormal' are skew too; compare them by result.loo().",
    "tweedie": "Model the zeros apart with family='bernoulli', and what is positive with 'gamma' or 'lognormal'.",
    "cox": "'weibull' has proportional hazards too, with a baseline of its own shape.",
    "quasipoisson": "It has no likelihood; 'negative_binomial' allows for overdispersion.",
    "quasibinomial": "It has no likelihood; a random effect for each row, (1 | row), allows for overdispersion.",
}


def find_streamed(name: str, link: str | None = None) -> Family:
    """Return a family that needs no look at all responses before the first step, as batches ask for it.

    Example:
        >>> find_streamed("poisson").name
        'poisson'
    """
    family = find_family(name, link)
    if family.name not in (*FAMILIES, "binomial") or (family.name, family.link) == ("gaussian", "log"):
        raise ValueError(
            f"The family {family.full_name!r} needs all rows at once. Batches take {', '.join(FAMILIES)} and binomial; "
            "natvi.glm and natvi.glmm take every family."
        )
    return family


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
        name: Such as "gaussian", "poisson" or "ordinal" (docs/guide/families.md has all); names that other programs
            use, such as "normal", "binary" or "nbinom2", are understood. Numbers that belong to a family stand in
            parentheses: "student_t(4)".
        link: For families that have several.

    Returns:
        The family.

    Example:
        >>> find_family("bernoulli", "probit").link
        'probit'
    """
    if not isinstance(name, str):
        raise ValueError(f"Unknown family {name!r}. A family is a text such as 'gaussian'.")
    name, settings = _settings(name)
    plain = name.lower().replace(" ", "").replace("-", "").replace("_", "")
    if plain not in _NAME_OF:
        hint = f" {_ELSEWHERE[plain]}" if plain in _ELSEWHERE else _near(name, _NAMES)
        raise ValueError(f"Unknown family {name!r}.{hint} Known: {', '.join(_NAMES)}.")
    name = _NAME_OF[plain]
    links = list(links_of(name))
    if link is None:
        return _completed(_ALL[name, links[0]], settings)
    if name == "gamma" and link == "inverse":
        raise ValueError(INVERSE)
    if link not in links:
        hint = _near(link, links) if len(links) > 1 else ""
        known = f"Its links: {', '.join(links)}." if len(links) > 1 else f"Its only link is {links[0]!r}."
        raise ValueError(f"The family {name!r} has no link {link!r}.{hint} {known} Leave link out for {links[0]!r}.")
    return _completed(_ALL[name, link], settings)


INVERSE = (
    "A gamma response with the inverse link needs a predictor that is positive in every row; under a Gaussian it never "
    "is for certain, and the bound is minus infinity. Use link='log', whose coefficients are logarithms of ratios."
)


def _settings(name: str) -> tuple[str, tuple[float, ...]]:
    """Split "student_t(4)" into the name and its numbers."""
    head, bracket, rest = name.strip().partition("(")
    if not bracket:
        return name, ()
    try:
        return head, tuple(float(part) for part in rest.removesuffix(")").split(","))
    except ValueError:
        raise ValueError(f"The family {name!r} has something other than numbers in parentheses.") from None


def _completed(family: Family, settings: tuple[float, ...]) -> Family:
    """Return the family with its numbers."""
    if not settings:
        return family
    if family.name == "student_t" and len(settings) == 1:
        if not (0.5 <= settings[0] < float("inf")):
            raise ValueError(f"The degrees of freedom of student_t must be at least 0.5, not {settings[0]:g}.")
        return student_t(settings[0])
    if family.name == "ordinal" and len(settings) == 2 and settings[0] >= 3 and settings[0] == int(settings[0]):
        return ordinal(int(settings[0]), int(settings[1]), family.link)
    if family.name == "weibull" and len(settings) == 1:
        return weibull(settings[0])
    raise ValueError(
        f"The family {family.name!r} takes no numbers {settings}. student_t takes its degrees of freedom, as in "
        "'student_t(4)', or none, and estimates them."
    )


def _near(word: object, known: Sequence[str]) -> str:
    near = difflib.get_close_matches(str(word), known, n=1, cutoff=0.4)
    return f" Did you mean {near[0]!r}?" if near else ""


def _reduce(family: Family) -> tuple[Any, ...]:
    """A family of the table travels by its name: compiled functions among its fields cannot be pickled."""
    if family.parts:
        return with_parts, (without_parts(family), family.parts)
    if family.settings or _ALL.get((family.name, family.link)) == family:
        return find_family, (family.full_name, family.link)
    return Family, tuple(family)


copyreg.pickle(Family, _reduce)  # also for copies
