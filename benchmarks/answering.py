"""The other end of `workers`: commands come in lines of words parted by tabs, answers go out as JSON after an @."""

import json
import sys
from collections.abc import Callable, Mapping
from typing import Any

Answer = dict[str, Any]


def answer_commands(commands: Mapping[str, Callable[..., Answer]], versions: dict[str, str]) -> None:
    """Say which versions are here, then answer commands until there are no more; an error is an answer too."""
    _reply({"versions": versions})
    for line in sys.stdin:
        command, *words = line.rstrip("\n").split("\t")
        try:
            _reply(commands[command](*words))
        except Exception as error:
            _reply({"error": f"{type(error).__name__}: {error}"})


def _reply(values: Answer) -> None:
    print("@" + json.dumps(values), flush=True)
