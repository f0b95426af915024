"""Naming: keys as people may see them. Keys are personal data, so not everybody may."""

from __future__ import annotations

from collections.abc import Callable
from hashlib import blake2b
from typing import Any

__all__ = ["KINDS", "Namer", "namer", "text_of"]

Namer = Callable[[Any], str]
KINDS = ("plain", "hashed", "masked", "hidden")
LONGEST = 120
SHOWN = 3
"""So many characters of a masked key are shown."""


def text_of(key: Any) -> str:
    """A key as a line of text, cut off if it is long."""
    if isinstance(key, tuple):
        text = f"({', '.join(map(text_of, key))})"
    elif isinstance(key, bytes):
        text = key.decode("utf-8", "backslashreplace")
    else:
        text = str(key)
    if not text.isprintable():  # a key may hold line ends and escapes; a terminal must not
        text = "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)
    return text if len(text) <= LONGEST else f"{text[: LONGEST - 1]}…"


def namer(keys: str | Namer, salt: bytes) -> Namer:
    """How keys are shown.

    plain   as they are
    hashed  by 16 digits that are the same for the same key and salt, and tell nothing else
    masked  by their first characters
    hidden  not at all
    """
    if callable(keys):
        return keys
    if keys == "plain":
        return text_of
    if keys == "hashed":

        def hashed(key: Any) -> str:
            form = repr(key).encode("utf-8", "backslashreplace")
            return blake2b(form, digest_size=8, key=salt[:64]).hexdigest()

        return hashed
    if keys == "masked":
        return _masked
    if keys == "hidden":
        return lambda key: ""
    raise ValueError(f"keys are {', '.join(KINDS)} or a function, not {keys!r}")


def _masked(key: Any) -> str:
    if isinstance(key, tuple):
        return f"({', '.join(map(_masked, key))})"
    text = text_of(key)
    shown = min(SHOWN, len(text) // 3)
    return f"{text[:shown]}***"
