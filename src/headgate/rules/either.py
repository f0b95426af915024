"""Either: rules of our own, or a configuration of envoyproxy/ratelimit, whichever a text is."""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING

from ..errors import RulesError
from .model import RuleSet
from .reading import Foreign, read_rules, read_text

if TYPE_CHECKING:
    from .envoy import EnvoySnapshot

__all__ = ["load_either", "read_either"]

_THEIRS = re.compile(r"^(?:domain|descriptors)[ \t]*:", re.MULTILINE)
_OURS = re.compile(r"^(?:version|rules)[ \t]*:", re.MULTILINE)


def read_either(
    text: str | bytes,
    *,
    name: str = "rules.yaml",
    format: str | None = None,  # noqa: A002 # the plain word for it
) -> RuleSet | EnvoySnapshot:
    """The rules of a text; what names a domain in place of a version is Envoy's."""
    if format not in (None, "yaml"):
        return read_rules(text, name=name, format=format)
    known = text.decode("utf-8", "replace") if isinstance(text, bytes) else text
    if not _THEIRS.search(known) or _OURS.search(known):
        try:
            return read_rules(text, name=name, format=format)
        except Foreign:  # in JSON, or all on one line
            pass
    from .envoy import read_envoy

    try:
        return read_envoy(text.decode() if isinstance(text, bytes) else text, name)
    except UnicodeDecodeError:
        raise RulesError("is not a text in UTF-8", name) from None


def load_either(path: str | os.PathLike[str]) -> RuleSet | EnvoySnapshot:
    """The rules of a file."""
    return read_either(read_text(path), name=os.fspath(path))
