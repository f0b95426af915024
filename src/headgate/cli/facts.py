"""Facts on a command line: JSON, as the service's API has it."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from ..errors import HeadgateError
from ..facts import Facts

__all__ = ["HELP", "FactsError", "facts_of", "rules_of"]

HELP = 'JSON such as {"method": "GET", "path": "/login", "ip": "192.0.2.7"}; @FILE, or - for stdin'


class FactsError(HeadgateError):
    """What was given is no call."""


def facts_of(text: str) -> Facts:
    """The facts that a text, a file or the standard input tells."""
    from ..service.api.calls import FIELDS
    from ..service.faults import Fault

    try:
        if text == "-":
            text = sys.stdin.read()
        elif text.startswith("@"):
            text = Path(text[1:]).read_text(encoding="utf-8")
        told = json.loads(text)
    except (OSError, ValueError, RecursionError) as error:
        raise FactsError(f"facts are JSON: {error}") from None
    if not isinstance(told, dict):
        raise FactsError('facts are an object, such as {"path": "/login"}')
    known: dict[str, Any] = {}
    for field, value in told.items():
        if field not in FIELDS:
            raise FactsError(f"there is no fact {field!r}; known are {', '.join(FIELDS)}")
        try:
            known[field] = FIELDS[field](field, value)
        except Fault as fault:
            raise FactsError(fault.detail) from None
    return Facts(**known)


def rules_of(path: str) -> Any:
    """The rules of a file in headgate's format or in Envoy's."""
    from ..rules.either import read_either
    from ..rules.reading import read_text

    return read_either(read_text(path), name=path)
