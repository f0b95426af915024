"""YAML with its lines: only plain data, read event by event.

No tags, no aliases (a few lines of them can mean gigabytes), one document. Words mean what they
say: `off`, `no` and `on` are texts, as in YAML 1.2, and so are dates and `012`.
"""

from __future__ import annotations

import re
from typing import Any

from .lines import Growing, Node, shown

__all__ = ["parse_yaml"]

_WHOLE = re.compile(r"[-+]?(?:0|[1-9][0-9]{0,17})")
_DECIMAL = re.compile(r"[-+]?(?:0|[1-9][0-9]{0,17})(?:\.[0-9]{1,18})?(?:[eE][-+]?[0-9]{1,2})?")
_WORDS = {
    "": None, "~": None, "null": None, "Null": None, "NULL": None,
    "true": True, "True": True, "TRUE": True, "false": False, "False": False, "FALSE": False,
}  # fmt: skip


def parse_yaml(text: str, file: str) -> Node | None:
    """The nodes of a YAML text; None if there is nothing in it."""
    growing = Growing(file)
    try:
        import yaml
    except ImportError:
        raise growing.error(
            "YAML needs PyYAML: pip install 'headgate[rules]'; TOML and JSON need nothing", 0
        ) from None
    loader: Any = getattr(yaml, "CSafeLoader", None)
    if loader is None:  # in Python alone it is twenty times as slow
        loader, growing.most = yaml.SafeLoader, growing.most // 5
    try:
        documents = 0
        for event in yaml.parse(text, Loader=loader):
            if isinstance(event, yaml.DocumentStartEvent):
                documents += 1
                if documents > 1:
                    raise growing.error("a second document begins; there is one", _line(event))
            else:
                _feed(growing, event, yaml)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line = mark.line + 1 if mark is not None else 0
        raise growing.error(_problem(error, text, line), line) from None
    except yaml.reader.ReaderError as error:
        line = text.count("\n", 0, max(0, error.position)) + 1
        raise growing.error(f"a character that YAML does not have: {error.reason}", line) from None
    return growing.root


def _feed(growing: Growing, event: Any, yaml: Any) -> None:
    if isinstance(event, yaml.AliasEvent):
        name = shown("*" + str(event.anchor))
        raise growing.error(
            f"{name} is an alias, and aliases are not read: write it out, or in quotes if a star "
            "is meant", _line(event))  # fmt: skip
    if isinstance(event, yaml.CollectionEndEvent):
        growing.end()
        return
    if not isinstance(event, yaml.NodeEvent):
        return  # the stream's and the document's begin and end
    line = _line(event)
    tag = getattr(event, "tag", None)
    if tag is not None and tag != "!":
        raise growing.error(f"tags such as {shown(tag)} are not read", line)
    if isinstance(event, yaml.ScalarEvent):
        if growing.wants_key:
            growing.key(event.value, line)
        else:
            growing.put(event.value if not event.implicit[0] else _value(event.value), line)
        return
    if growing.wants_key:
        raise growing.error("a name is a text, not a list or a table", line)
    growing.begin({} if isinstance(event, yaml.MappingStartEvent) else [], line)


def _value(text: str) -> Any:
    """What a text without quotes means."""
    if text in _WORDS:
        return _WORDS[text]
    if text[0] in "+-0123456789":
        if _WHOLE.fullmatch(text):
            return int(text)
        if _DECIMAL.fullmatch(text):
            return float(text)
    return text


def _line(event: Any) -> int:
    line: int = event.start_mark.line
    return line + 1


def _problem(error: Any, text: str, line: int) -> str:
    problem = f"not YAML: {error.problem or error.context or 'unreadable'}"
    if error.context and error.problem and error.context_mark is not None:
        problem += f" ({error.context} that began on line {error.context_mark.line + 1})"
    lines = text.split("\n")
    at = lines[line - 1] if 0 < line <= len(lines) else ""
    if any(mark in at for mark in "{}[]*&%@`"):
        problem += "; a text with any of { } [ ] * & % @ ` in it is written in quotes"
    elif "\t" in at:
        problem += "; lines are indented by spaces, not by tabs"
    return problem
