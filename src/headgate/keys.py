"""Keys: who is being limited, as text, bytes, or a tuple of them.

A key has one canonical form, and different keys have different forms: a str and its UTF-8
bytes are the same key, a tuple never meets a plain key, and ("a", "b/c") never meets
("a/b", "c").
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

__all__ = ["Canonical", "Key", "canonical", "encode"]

Key: TypeAlias = str | bytes | tuple[str | bytes, ...]
Canonical: TypeAlias = str | bytes

# 0xFF never occurs in UTF-8, so text needs no escape and only foreign bytes pay for one.
_BYTES = b"\xff\x00"
_TUPLE = b"\xff\x01"


def canonical(key: Key) -> Canonical:
    """The form under which a key is stored: text as it is, everything else as tagged bytes."""
    if isinstance(key, str):
        if key.isascii():
            return key if type(key) is str else str(key)
        try:
            key.encode()
        except UnicodeEncodeError:  # lone surrogates: the same key as the bytes they stand for
            return _BYTES + key.encode("utf-8", "surrogatepass")
        return key if type(key) is str else str(key)
    if isinstance(key, bytes):
        try:
            return key.decode()
        except UnicodeDecodeError:
            return _BYTES + bytes(key)
    if isinstance(key, tuple):
        return _TUPLE + b"".join(_prefixed(part) for part in _checked(key))
    raise TypeError(f"a key is a str, bytes or a tuple of them, not {_named(key)}")


def encode(key: Key) -> bytes:
    """The canonical form as bytes, for stores that hold bytes."""
    form = canonical(key)
    return form.encode() if isinstance(form, str) else form


def _checked(parts: Sequence[object]) -> list[bytes]:
    encoded = []
    for part in parts:
        if isinstance(part, str):
            encoded.append(part.encode("utf-8", "surrogatepass"))
        elif isinstance(part, bytes):
            encoded.append(part)
        else:
            raise TypeError(f"a part of a tuple key is a str or bytes, not {_named(part)}")
    return encoded


def _prefixed(part: bytes) -> bytes:
    return b"%d:%b" % (len(part), part)


def _named(thing: object) -> str:
    hint = f"; write str({thing!r})" if isinstance(thing, int) else ""
    return f"{type(thing).__name__}{hint}"
