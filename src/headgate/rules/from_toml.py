"""TOML with its lines, as far as they can be had: the standard reader forgets them."""

from __future__ import annotations

import re
import tomllib
from typing import Any

from .lines import DEPTH, Growing, Node

__all__ = ["parse_toml"]

_PART = r"""(?:[\w-]++|"(?:[^"\\\n]|\\.)*+"|'[^'\n]*+')"""
# The standard reader takes a time that grows with the square of such a name's length.
_LONG = re.compile(rf"(?<![\w-])(?:{_PART}[ \t]*+\.[ \t]*+){{{DEPTH}}}")
_HEADER = re.compile(r"[ \t]*+(\[{1,2})([^][\n]++)\]")
_KEY = re.compile(rf"[ \t]*+({_PART}(?:[ \t]*+\.[ \t]*+{_PART})*+)[ \t]*+=")
_PARTS = re.compile(_PART)
_LINE = re.compile(r"\s*\(at (?:line (\d+), column \d+|end of document)\)")

Path = tuple[str | int, ...]


def parse_toml(text: str, file: str) -> Node | None:
    """The nodes of a TOML text."""
    growing = Growing(file)
    long = _LONG.search(text)
    if long is not None:
        line = text.count("\n", 0, long.start()) + 1
        raise growing.error(f"more than {DEPTH} names are joined by dots", line)
    try:
        data = tomllib.loads(text)
    except RecursionError:
        problem = f"lists and tables lie more than {DEPTH} deep in each other"
        raise growing.error(problem, 0) from None
    except ValueError as error:  # also of numbers with thousands of digits
        said = str(error)
        found = _LINE.search(said)
        line = int(found[1]) if found and found[1] else text.count("\n") + 1
        raise growing.error(f"not TOML: {_LINE.sub('', said)[:200]}", line) from None
    _grow(growing, data, (), _lines(text), 1)
    return growing.root


def _grow(growing: Growing, value: Any, path: Path, lines: dict[Path, int], line: int) -> None:
    line = lines.get(path, line)
    if isinstance(value, dict):
        growing.begin({}, line)
        for name, held in value.items():
            growing.key(name, lines.get((*path, name), line))
            _grow(growing, held, (*path, name), lines, line)
        growing.end()
    elif isinstance(value, list):
        growing.begin([], line)
        for index, held in enumerate(value):
            _grow(growing, held, (*path, index), lines, line)
        growing.end()
    else:
        growing.put(value, line)


def _lines(text: str) -> dict[Path, int]:
    """Where tables begin and names stand; a name inside a text of several lines may mislead."""
    found: dict[Path, int] = {}
    counts: dict[Path, int] = {}
    here: Path = ()
    for line, content in enumerate(text.split("\n"), 1):
        header = _HEADER.match(content)
        if header is not None:
            here = ()
            parts = _names(header[2])
            for place, part in enumerate(parts):
                here = (*here, part)
                if header[1] == "[[" and place == len(parts) - 1:
                    counts[here] = counts.get(here, 0) + 1
                    found.setdefault(here, line)
                if here in counts:
                    here = (*here, counts[here] - 1)
                found.setdefault(here, line)
            continue
        key = _KEY.match(content)
        if key is not None:
            path = here
            for part in _names(key[1]):
                path = (*path, part)
                found.setdefault(path, line)
    return found


def _names(text: str) -> list[str]:
    return [part.strip("\"'") for part in _PARTS.findall(text)][:DEPTH]
