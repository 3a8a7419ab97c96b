"""A regression in words, in mathematics, and as the call that makes it: for the page about a fit."""

import html
import re
from typing import Any, NamedTuple

from natvi.families.table import Family
from natvi.formula.syntax import is_binary, parse, render, summands, ungroup

RESPONSES = {
    "gaussian": "a measurement, normally distributed about its expectation",
    "poisson": "a count with a Poisson distribution",
    "negative_binomial": "a count that varies more than a Poisson count (negative binomial)",
    "bernoulli": "yes or no",
    "binomial": "the number of successes among some trials",
    "gamma": "a positive measurement whose sd grows with its expectation (gamma)",
    "lognormal": "a positive measurement whose logarithm is normally distributed",
    "exponential": "a waiting time whose hazard does not change (exponential)",
    "weibull": "a waiting time with proportional hazards (Weibull)",
    "student_t": "a measurement with outliers (Student's t)",
    "beta": "a share between 0 and 1 (beta)",
    "ordinal": "one of several ordered categories (cumulative model)",
    "geometric": "a count with a geometric distribution",
    "zero_inflated_poisson": "a Poisson count with further zeros (zero-inflated)",
    "zero_inflated_negative_binomial": "a negative binomial count with further zeros (zero-inflated)",
    "hurdle_poisson": "zero, or a Poisson count of at least one (hurdle)",
    "hurdle_negative_binomial": "zero, or a negative binomial count of at least one (hurdle)",
}
DISTRIBUTIONS = {
    "gaussian": "Normal({mean}, σ<sup>2</sup>)",
    "poisson": "Poisson({mean})",
    "negative_binomial": "NegativeBinomial({mean}, φ)",
    "bernoulli": "Bernoulli({mean})",
    "binomial": "Binomial(n<sub>i</sub>, {mean})",
    "gamma": "Gamma(shape, mean {mean})",
    "lognormal": "LogNormal(log {mean}, σ<sup>2</sup>)",
    "exponential": "Exponential(mean {mean})",
    "weibull": "Weibull(shape, hazard {mean})",
    "student_t": "t<sub>ν</sub>({mean}, σ)",
    "beta": "Beta(mean {mean}, precision φ)",
    "ordinal": "Categories({mean})",
    "zero_inflated_poisson": "ZeroInflated(π, Poisson({mean}))",
    "zero_inflated_negative_binomial": "ZeroInflated(π, NegativeBinomial({mean}, φ))",
    "hurdle_poisson": "Hurdle(π, Poisson({mean}) > 0)",
    "hurdle_negative_binomial": "Hurdle(π, NegativeBinomial({mean}, φ) > 0)",
}
LINKS = {
    "identity": "{mean}",
    "log": "log {mean}",
    "log hazard": "log {mean}",
    "logit": "logit {mean}",
    "probit": "Φ<sup>-1</sup>({mean})",
}
SUBJECTS = {"ordinal": "Its chance to lie above each category", "weibull": "Its hazard"}  # where it is no expectation
MOST_TERMS = 12


class Description(NamedTuple):
    """What was fitted.

    Attributes:
        words: A sentence or two.
        equations: Lines of HTML.
        call: Python that fits it.
    """

    words: str
    equations: tuple[str, ...]
    call: str


class Bar(NamedTuple):
    """Random effects of one grouping: `(effects | group)`."""

    effects: tuple[str, ...]
    group: str
    correlated: bool


def describe(formula: str | None, family: Family, names: tuple[str, ...], num_rows: int, options: Any) -> Description:
    """Describe a model.

    Args:
        formula: Its formula, or None for a model from arrays.
        family: The response distribution.
        names: Of the coefficients.
        num_rows: The number of rows in use.
        options: Other arguments of the door that were given, by name.
    """
    response, bars = "y", []
    if formula is not None:
        try:
            tree = parse(formula)
        except ValueError:  # of a file that was changed: it is shown, not read
            return Description(_words(response, family, names, bars, num_rows), (), formula)
        response, bars = re.sub(r"^(?:cens|p)\((.*?),.*", r"\1", _plain(render(tree.left))), find_bars(tree.right)
    door = "natvi.glm_arrays(X, y" if formula is None else f"natvi.{'glmm' if bars else 'glm'}({formula!r}, data"
    call = f'{door}, family="{family.name}"{"".join(f", {k}={v!r}" for k, v in options.items())}).fit()'
    return Description(_words(response, family, names, bars, num_rows), _equations(response, family, names, bars), call)


def find_bars(right: Any) -> list[Bar]:
    """Return the random effects on the right side of a formula."""
    found = []
    for _, item in summands(right):
        bar = ungroup(item)
        if is_binary(bar, "PIPE"):
            parts = [render(part) for sign, part in summands(ungroup(bar.left)) if sign == "+"]
            given = [part for part in parts if part not in ("0", "1")]
            intercept = [] if "0" in parts or ("-", "1") in [(s, render(p)) for s, p in summands(bar.left)] else ["1"]
            effects = tuple(map(_plain, (*intercept, *given)))
            nested = [_plain(name.strip()) for name in render(ungroup(bar.right)).split("/")]
            for depth in range(len(nested)):  # a/b: every a, and every b within a
                found.append(Bar(effects, ":".join(nested[depth::-1]), bar.operator.lexeme == "|"))
    return found


def _plain(name: str) -> str:
    """Return a name without the backquotes that only a formula needs."""
    return name.replace("`", "")


def _words(response: str, family: Family, names: tuple[str, ...], bars: list[Bar], num_rows: int) -> str:
    kind = RESPONSES.get(family.name, f"a {family.name.replace('_', ' ')} response")
    others = [name for name in names if name != "Intercept"]
    shown = ", ".join(others[:MOST_TERMS]) + (
        f" and {len(others) - MOST_TERMS} more" if len(others) > MOST_TERMS else ""
    )
    text = f"{response} is {kind}. "
    subject = SUBJECTS.get(family.name, "Its expectation")
    how = "is linear in" if family.link == "identity" else f"depends, through a {family.link.split()[0]} link, on"
    text += f"{subject} {how} {shown}" if others else f"{subject} is the same for all rows"
    for bar in bars:
        effects = ["level" if effect == "1" else f"effect of {effect}" for effect in bar.effects]
        text += f"; every {bar.group} has its own {' and '.join(effects)}"
    return f"{text}. {num_rows:,} rows were used."


def _equations(response: str, family: Family, names: tuple[str, ...], bars: list[Bar]) -> tuple[str, ...]:
    name, ordered = html.escape(response), family.name == "ordinal"
    mean = f"P({name}<sub>i</sub> > k)" if ordered else "μ<sub>i</sub>"
    law = DISTRIBUTIONS.get(family.name, html.escape(family.name) + "({mean})").format(mean=mean)
    link = LINKS.get(family.link, html.escape(family.link) + "({mean})").format(mean=mean)
    terms = [
        f"β<sub>{at}</sub>{'' if term == 'Intercept' else ' ' + html.escape(term)}"
        for at, term in enumerate(names[:MOST_TERMS])
    ]
    terms += ["…"] if len(names) > MOST_TERMS else []
    below = " − width(2) − … − width(k)" if ordered else ""
    lines, letters = [], "uvwst"
    for at, bar in enumerate(bars):
        letter, group = letters[at % len(letters)], html.escape(bar.group)
        several = len(bar.effects) > 1
        for k, effect in enumerate(bar.effects):
            index = f"{k}, " if several else ""
            terms.append(f"{letter}<sub>{index}{group}[i]</sub>" + ("" if effect == "1" else f" {html.escape(effect)}"))
        spread = "Σ" if bar.correlated else "diag(σ<sup>2</sup>)"
        lines.append(
            f"{letter}<sub>{group}</sub> ~ Normal(0, {spread if several else f'σ<sub>{group}</sub><sup>2</sup>'})"
        )
    return (f"{name}<sub>i</sub> ~ {law}", f"{link} = {' + '.join(terms) or '0'}{below}", *lines)
