"""The options of all formula doors: one grammar, checked in one place before any work is done.

`method` is how a model is approximated, `optimizer` the rule that makes steps, `structure` the shape of the Gaussian.
The ascent takes exact steps, every other rule noisy ones. A door says which methods and structures its model has.
"""

import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from natvi.optimize import adam, ivon, nadam, nagm, pga, snngm, vogn
from natvi.optimize.rule import Rule, StepSize
from natvi.run.settings import check_count, check_seconds, check_seed

STRUCTURES = ("auto", "dense", "diagonal")  # of the covariance of a model without groups
ASCENT, FIRST_RULE = "ascent", "snngm"
NOISY = ("gva", "rvb1", "rvb2")  # methods that noisy steps can fit; rvb has no exact ones
RULES: dict[str, Callable[..., Rule]] = {
    "adam": adam,
    "nadam": nadam,
    "nagm": nagm,
    "pga": pga,
    "snngm": snngm,
    "vogn": vogn,
}
DIAGONAL_RULES: dict[str, Callable[..., Rule]] = {"ivon": ivon}  # for independent coordinates only
OLD_METHODS = {"exact": ("gva", ASCENT), "stochastic": ("gva", FIRST_RULE)}
USUAL = {"order": 1, "num_samples": 1, "seed": 0}  # what stands for nothing in settings that are never None


class Choice(NamedTuple):
    """A method with the optimizer that fits it."""

    method: str
    optimizer: str

    @property
    def is_noisy(self) -> bool:
        """Whether steps are noisy."""
        return self.optimizer != ASCENT


def check_structure(structure: str) -> str:
    """Return the structure of a model without groups, "dense" for "auto", or say what is wrong with it."""
    if structure not in STRUCTURES:
        raise ValueError(f"structure must be one of {_listed(STRUCTURES)}, not {structure!r}.")
    return "dense" if structure == "auto" else structure


def choose_method(
    methods: Sequence[str], method: str, optimizer: str | None, noise: Mapping[str, Any], structure: str
) -> Choice:
    """Return method and optimizer, or explain why they do not go together with the model or the settings.

    Args:
        methods: Those that the model has.
        method: As the user gave it; words of before are understood with a warning.
        optimizer: As the user gave it; None for the method's own.
        noise: Settings of noisy steps by name, as the user gave them: order, step_size, num_samples and the like.
        structure: The shape of the Gaussian.

    Example:
        >>> choose_method(("auto", "gva", "psis"), "gva", None, {"step_size": None}, "dense")
        Choice(method='gva', optimizer='ascent')
    """
    method, optimizer = understand(method, optimizer, stacklevel=4)
    if method not in methods:
        raise ValueError(f"method must be one of {_listed(methods)}, not {method!r}.")
    fitting, exact = [word for word in methods if word in NOISY], method not in ("rvb1", "rvb2")
    chosen = Choice(method, (ASCENT if exact else FIRST_RULE) if optimizer is None else optimizer)
    rules = _rules(structure)
    if chosen.optimizer in DIAGONAL_RULES and chosen.optimizer not in rules:
        raise ValueError(
            f"optimizer={optimizer!r} is for structure='diagonal', independent coordinates, and this model has "
            f"structure={structure!r}: 'vogn' is its like there."
        )
    if chosen.is_noisy and chosen.optimizer not in rules:
        raise ValueError(f"optimizer must be one of {_listed((ASCENT, *rules))}, not {optimizer!r}.")
    if not chosen.is_noisy and not exact:
        raise ValueError(
            f"optimizer='ascent' needs exact expectations, and method={method!r} has none: give one of "
            f"{_listed(rules)}, or method='gva' for the exact ascent."
        )
    if chosen.is_noisy and method not in NOISY:
        raise ValueError(
            f"optimizer={chosen.optimizer!r} is for noisy steps, and method={method!r} takes exact ones: give "
            f"method={_listed(fitting, 'or')} with it, or leave optimizer out."
        )
    given = [name for name, value in noise.items() if value is not None and value != USUAL.get(name)]
    if given and not chosen.is_noisy:
        raise ValueError(
            f"{given[0]} is for noisy steps: give an optimizer such as 'snngm' with method={_listed(fitting, 'or')}, "
            f"or leave {given[0]} out."
        )
    if noise.get("order", 1) not in (1, 2, "exact") or isinstance(noise.get("order"), bool):
        raise ValueError(f"order must be 1 (first derivatives) or 2 (second derivatives), not {noise['order']!r}.")
    check_count("num_samples", noise.get("num_samples", 1))
    check_seed(noise.get("seed", 0))
    return chosen


def understand(method: str, optimizer: str | None, stacklevel: int = 3) -> tuple[str, str | None]:
    """Return method and optimizer in the words of today; those of before come with a warning."""
    own = OLD_METHODS.get(method)
    if own is None:
        return method, optimizer
    if method == "exact" and optimizer not in (None, ASCENT):
        raise ValueError(
            f"method='exact' takes exact steps, and optimizer={optimizer!r} noisy ones. Both have new words: "
            f"method='gva' with optimizer='ascent' or optimizer={optimizer!r}."
        )
    new, rule = own[0], optimizer or own[1]
    words = f"method={method!r} is now method={new!r} with optimizer={rule!r}; the old word will go."
    warnings.warn(words, DeprecationWarning, stacklevel=stacklevel)
    return new, rule


def find_rule(optimizer: Rule | str, step_size: StepSize | None, structure: str = "dense") -> Rule:
    """Return the rule of that name; a rule comes back as it is."""
    if isinstance(optimizer, Rule):
        if step_size is not None:
            raise ValueError("step_size is for an optimizer given by name; this one came as a rule with its own.")
        return optimizer
    rules = _rules(structure)
    if optimizer not in rules:
        raise ValueError(f"optimizer must be a rule or one of {_listed(rules)}, not {optimizer!r}.")
    return rules[optimizer]() if step_size is None else rules[optimizer](step_size)


def _rules(structure: str) -> dict[str, Callable[..., Rule]]:
    return RULES | DIAGONAL_RULES if structure == "diagonal" else RULES


def _listed(words: Any, last: str | None = None) -> str:
    shown = list(map(repr, words))
    return ", ".join(shown) if last is None or len(shown) < 2 else f"{', '.join(shown[:-1])} {last} {shown[-1]}"


def check_options(max_steps: int | None, usual_steps: int, tolerance: float, **keeping: Any) -> dict[str, Any]:
    """Return the options of the loop, or say what is wrong with them.

    Args:
        max_steps: As the user gave it.
        usual_steps: What None stands for.
        tolerance: As the user gave it.
        keeping: `state`, `progress` and `checkpoint`, which the loop checks itself, and `checkpoint_seconds`.

    Returns:
        `max_steps` and what was in `keeping`; the tolerance is left out, since noisy steps have none.
    """
    steps = usual_steps if max_steps is None else max_steps
    if isinstance(steps, bool) or not isinstance(steps, int | np.integer) or steps < 1:
        raise ValueError(f"max_steps must be a whole number of at least 1; got {max_steps!r}.")
    if not isinstance(tolerance, float) or not 0 < tolerance < 1:
        raise ValueError(f"tolerance must be a number between 0 and 1, e.g. 1e-8; got {tolerance!r}.")
    if "checkpoint_seconds" in keeping:
        keeping["checkpoint_seconds"] = check_seconds("checkpoint_seconds", keeping["checkpoint_seconds"])
    return {"max_steps": int(steps), **keeping}
