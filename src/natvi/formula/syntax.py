"""Syntax trees of formulas: formulae's parser with its gaps closed, and the way back to text."""

from collections.abc import Iterator
from typing import Any

import formulae.expr as syntax
import numpy as np
from formulae.parser import Parser
from formulae.scanner import Scanner
from formulae.token import Token


def parse(text: str) -> Any:
    """Parses with formulae's parser, which by itself ignores what it cannot read at the end."""
    try:
        tokens = Scanner(text).scan(add_intercept=False)
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
        raise syntax_error(text, f"cannot read it from {parser.peek().lexeme!r} on")
    for node in walk(tree):
        _check_power(node)
    return tree


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
        f"cannot read the formula {text!r}: {reason.rstrip('.')}. A formula looks like "
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
