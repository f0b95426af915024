"""JSON with its lines."""

from __future__ import annotations

import json
import re
from typing import Any

from .lines import Growing, Node, shown

__all__ = ["parse_json"]

_SPACE = re.compile(r"[ \t\r\n]*")
_TOKEN = re.compile(
    r"""[][{}:,]
    | "(?:[^"\\\x00-\x1f]|\\.)*+"
    | (?P<number>-?(?:0|[1-9][0-9]*+)(?P<rest>(?:\.[0-9]++)?(?:[eE][-+]?[0-9]++)?))
    | true\b | false\b | null\b""",
    re.VERBOSE,
)
_WORDS = {"true": True, "false": False, "null": None}


def parse_json(text: str, file: str) -> Node | None:
    """The nodes of a JSON text; None if there is nothing in it."""
    growing = Growing(file)
    line, place = 1, 0
    expected = "value"  # or "first" or "key" or "colon" or "comma" or "end"
    while True:
        space = _SPACE.match(text, place)
        assert space is not None
        line += text.count("\n", place, space.end())
        place = space.end()
        if place == len(text):
            break
        token = _TOKEN.match(text, place)
        if token is None:
            raise growing.error(f"not JSON: {shown(text[place : place + 20])}", line)
        place = token.end()
        expected = _step(growing, token, expected, line)
    if growing.inside is not None:
        what = "a table" if growing.inside is dict else "a list"
        raise growing.error(f"not JSON: the text ends inside {what}", line)
    return growing.root


def _step(growing: Growing, token: re.Match[str], expected: str, line: int) -> str:
    """Take one token, and say what must follow it."""
    mark = token[0]
    if expected in ("colon", "comma") and mark in (":", ","):
        if (mark == ":") is (expected == "colon"):
            return "key" if mark == "," and growing.inside is dict else "value"
    elif mark in ("}", "]") and expected in ("comma", "first"):
        if (mark == "}") is (growing.inside is dict):
            growing.end()
            return "end" if growing.inside is None else "comma"
    elif expected == "key" or (expected == "first" and growing.inside is dict):
        if mark[0] == '"':
            growing.key(_text(growing, mark, line), line)
            return "colon"
    elif expected in ("value", "first") and mark not in ("}", "]", ":", ","):
        if mark in ("{", "["):
            growing.begin({} if mark == "{" else [], line)
            return "first"
        growing.put(_scalar(growing, token, line), line)
        return "end" if growing.inside is None else "comma"
    wanted = {
        "value": "a value", "key": "a name in quotes", "colon": "':'", "end": "the end",
        "comma": f"',' or {'}' if growing.inside is dict else ']'!r}",
        "first": "a name in quotes or '}'" if growing.inside is dict else "a value or ']'",
    }[expected]  # fmt: skip
    raise growing.error(f"not JSON: {wanted} was expected, not {shown(mark)}", line)


def _scalar(growing: Growing, token: re.Match[str], line: int) -> Any:
    mark = token[0]
    if mark[0] == '"':
        return _text(growing, mark, line)
    if mark in _WORDS:
        return _WORDS[mark]
    if len(mark) > 40:  # int() is slow on very long texts
        raise growing.error(f"a number has at most 40 characters, not {shown(mark)}", line)
    return float(mark) if token["rest"] else int(mark)


def _text(growing: Growing, mark: str, line: int) -> str:
    try:
        text = json.loads(mark)
        text.encode()  # half of a pair, as in "\ud800", is no text
    except ValueError:
        raise growing.error(f"not JSON: the text {shown(mark)} is not one", line) from None
    return str(text)
