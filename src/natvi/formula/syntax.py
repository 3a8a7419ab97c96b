"""Syntax trees of formulas: formulae's parser with its gaps closed, and the way back to text."""

import math
import re
from collections.abc import Iterator
from typing import Any

import formulae.expr as syntax
import numpy as np
from formulae.parser import Parser
from formulae.scanner import Scanner
from formulae.token import Token

DOT = re.compile(r"(?<![\w.)\]])\.(?![\w.(])")  # a point that is no part of a name or a number
_POWER = re.compile(r"\^")
_QUOTED = re.compile(r"(`[^`]*`|'[^']*'|\"[^\"]*\")")
MOST_TERMS, LARGEST_POWER = 5000, 100


def replace_outside_quotes(pattern: re.Pattern[str], new: str, text: str) -> str:
    """Returns a text with a pattern replaced, but not within quotes and backquotes.

    Example:
        >>> replace_outside_quotes(re.compile("hat"), "**", "xhat2 + `hat`")
        'x**2 + `hat`'
    """
    parts = _QUOTED.split(text)
    return "".join(part if i % 2 else pattern.sub(lambda _: new, part) for i, part in enumerate(parts))


def parse(text: str) -> Any:
    """Parses with formulae's parser, which by itself ignores what it cannot read at the end.

    `^` is read as `**`, as R reads it.
    """
    if DOT.search(_QUOTED.sub("", text)):
        raise syntax_error(
            text, "'.' means all other columns, which only natvi.glm and natvi.glmm know: write the names"
        )
    try:
        tokens = Scanner(replace_outside_quotes(_POWER, "**", text)).scan(add_intercept=False)
    except IndexError as error:
        raise syntax_error(text, "a backquote is not closed") from error
    except Exception as error:
        raise syntax_error(text, str(error)) from error
    parser = Parser(_join_bars(text, tokens))
    try:
        tree = parser.parse()
    except Exception as error:
        reason = "it ends too early" if parser.at_end() else str(error)
        raise syntax_error(text, reason) from error
    if not parser.at_end():
        if parser.peek().lexeme in ("<", "<=", ">", ">=", "==", "!="):
            raise syntax_error(text, "comparisons stand in I(), as in I(x > 3), which is 1 where it is true and else 0")
        raise syntax_error(text, f"cannot read it from {parser.peek().lexeme!r} on")
    try:
        for node in walk(tree):
            _check_power(node)
        if num_terms(tree) > MOST_TERMS:
            raise ValueError(
                f"the formula {_shown(text)} leads to more than {MOST_TERMS:,} terms. Use fewer variables or a smaller "
                "power: (a + b + c)**2 means all interactions of two of them."
            )
    except RecursionError as error:
        raise syntax_error(text, "it is nested too deeply") from error
    return tree


def _shown(text: str) -> str:
    return repr(text if len(text) <= 200 else text[:200] + " ...")


def num_terms(node: Any) -> float:
    """Returns how many terms a formula leads to at most; infinity for a power that is no small number.

    Example:
        >>> num_terms(parse("(a + b + c)**2 + a*d"))
        9
    """
    if isinstance(node, syntax.Grouping):
        return num_terms(node.expression)
    if not isinstance(node, syntax.Binary):
        return 1
    if node.operator.kind in ("PLUS", "MINUS"):
        return sum(num_terms(part) for _, part in summands(node))
    kind, left = node.operator.kind, num_terms(node.left)
    if kind == "STAR_STAR":
        power = getattr(ungroup(node.right), "value", None)
        if left == 1 or not isinstance(power, int):
            return 1  # refused or explained elsewhere
        if left > MOST_TERMS or power > LARGEST_POWER:
            return math.inf
        return sum(math.comb(int(left), k) for k in range(1, min(power, int(left), 30) + 1))
    right = num_terms(node.right)
    if kind == "STAR":
        return left + right + left * right
    if kind in ("COLON", "SLASH"):
        return left * right + (left if kind == "SLASH" else 0)
    return left + right


def _join_bars(text: str, tokens: list[Any]) -> list[Any]:
    """Makes one bar of `||`, which formulae's scanner reads as two; bars in strings and names are not tokens."""
    joined: list[Any] = []
    for token in tokens:
        if token.kind != "PIPE" or not joined or joined[-1].kind != "PIPE":
            joined.append(token)
        elif joined[-1].lexeme == "||":
            raise syntax_error(text, "there are more than two '|' in a row")
        else:
            joined[-1] = Token("PIPE", "||")
    return joined


def syntax_error(text: str, reason: str) -> ValueError:
    """Returns the error for a formula that cannot be read."""
    return ValueError(
        f"cannot read the formula {_shown(text)}: {reason.rstrip('.')}. A formula looks like "
        "'y ~ x*z + log(w) + (1 | g)'. Put random effects in parentheses and column names with unusual "
        "characters in backquotes."
    )


def _check_power(node: Any) -> None:
    # formulae reads -x**2 as (-x)**2 and a**b**c as (a**b)**c; Python reads both the other way.
    if is_binary(node, "STAR_STAR"):
        if isinstance(node.left, syntax.Unary) or is_binary(node.left, "STAR_STAR"):
            raise ValueError(f"{render(node)!r} is ambiguous. Use parentheses: -(x**2), (a**b)**c.")


def walk(tree: Any, into_calls: bool = True) -> Iterator[Any]:
    """Yields all nodes of a syntax tree; calls can be left closed."""
    waiting = [tree]
    while waiting:
        node = waiting.pop()
        yield node
        children = [getattr(node, name, None) for name in ("left", "right", "expression", "value")]
        children += getattr(node, "args", []) if into_calls else []
        waiting += [child for child in children if type(child).__module__ == syntax.__name__]


def is_binary(node: Any, kind: str) -> bool:
    """Tells whether a node is an operation of one kind, such as `PIPE`."""
    return isinstance(node, syntax.Binary) and node.operator.kind == kind


def ungroup(node: Any) -> Any:
    """Returns what stands inside parentheses."""
    return ungroup(node.expression) if isinstance(node, syntax.Grouping) else node


def summands(node: Any) -> list[tuple[str, Any]]:
    """Returns the signed summands of a sum."""
    found = []
    while is_binary(node, "PLUS") or is_binary(node, "MINUS"):
        found.append((node.operator.lexeme, node.right))
        node = node.left
    unary = isinstance(node, syntax.Unary)
    found.append((node.operator.lexeme, node.right) if unary else ("+", node))
    return found[::-1]


def render(node: Any, calls: dict[str, Any] | None = None) -> str:
    """Returns the text of a syntax tree, parentheses kept.

    With `calls`, function calls are stored there and stand in the text as names: formulae cannot compare
    all calls with each other, as it must to expand terms.
    """
    match node:
        case syntax.Grouping():
            return f"({render(node.expression, calls)})"
        case syntax.Binary():
            space = " " if node.operator.kind in ("PLUS", "MINUS", "PIPE", "TILDE") else ""
            operator = f"{space}{node.operator.lexeme}{space}"
            return render(node.left, calls) + operator + render(node.right, calls)
        case syntax.Unary():
            return f"{node.operator.lexeme}{render(node.right, calls)}"
        case syntax.Call():
            text = f"{render(node.callee)}({', '.join(render(arg) for arg in node.args)})"
            if calls is None:
                return text
            name = "call " + text.replace("`", "'")
            calls[name] = node
            return f"`{name}`"
        case syntax.Assign():
            return f"{render(node.name)}={render(node.value)}"
        case syntax.QuotedName():
            return node.expression.lexeme
        case syntax.Variable():
            return node.name.lexeme + (f"[{render(node.level)}]" if node.level is not None else "")
    if isinstance(node.value, float):
        return np.format_float_positional(node.value, trim="-")
    return node.lexeme or str(node.value)
