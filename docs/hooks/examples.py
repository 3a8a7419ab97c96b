"""Docstrings write `Example:`, the reader of docstrings knows `Examples:`; without this, examples become quotations."""

import re
from typing import Any

import griffe

HEADING = re.compile(r"^(\s*)Example:$", re.MULTILINE)


class PluralExamples(griffe.Extension):
    """Rename the section before it is read."""

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        if obj.docstring is not None:
            obj.docstring.value = HEADING.sub(r"\1Examples:", obj.docstring.value)
