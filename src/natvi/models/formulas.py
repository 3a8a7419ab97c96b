"""One door for all formulas: with random effects a mixed model, without them a linear one."""

from typing import Any

from natvi.formula.syntax import DOT, is_binary, parse, replace_outside_quotes, walk
from natvi.models.linear.door import GlmModel, glm
from natvi.models.linear.spread.door import SpreadGlm
from natvi.models.mixed.crossed.door import CrossedModel
from natvi.models.mixed.door import MixedModel, glmm
from natvi.models.mixed.spread.door import SpreadMixed


def has_random_effects(formula: str) -> bool:
    """Tell whether a formula has a bar, as in `(1 | group)`.

    Example:
        >>> has_random_effects("y ~ x + (1 | g)"), has_random_effects("y ~ .")
        (True, False)
    """
    tree = parse(replace_outside_quotes(DOT, "everything", formula))
    return any(is_binary(node, "PIPE") for node in walk(tree))


def describe(formula: str, data: Any, **options: Any) -> GlmModel | MixedModel | CrossedModel | SpreadGlm | SpreadMixed:
    """Describe a model by the door that its formula needs; `structure` is for models without random effects."""
    if not has_random_effects(formula):
        return glm(formula, data, **options)
    if options.get("structure", "auto") == "auto":
        options.pop("structure", None)
    return glmm(formula, data, **options)
