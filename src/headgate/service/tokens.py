"""Tokens: what a caller holds over HTTP, written so that any worker on any node can read it.

A token is no secret. It says what was taken and under which number; whether that is still held
only the store knows.
"""

from __future__ import annotations

import binascii
import json
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Sequence
from typing import Any, NamedTuple

from ..decision import Ask
from ..errors import HeadgateError
from ..keys import Key
from ..limit import Limit
from .faults import Fault

__all__ = ["Held", "key_from", "key_told", "limit_of", "unknown"]

LONGEST = 4096
KEPT = 4096
VERSION = 1
_limits: dict[tuple[str, str], Limit] = {}


def limit_of(text: str, limit_id: str) -> Limit:
    """A limit under its id, made once."""
    name = (text, limit_id)
    limit = _limits.get(name)
    if limit is None:
        limit = Limit.parse(text)
        if limit_id:
            limit = limit.named(limit_id)
        if len(_limits) >= KEPT:
            _limits.clear()
        _limits[name] = limit
    return limit


def key_told(key: Key) -> Any:
    """A key as JSON has it: a text, {"b": base64} for bytes, or a list of such."""
    if isinstance(key, tuple):
        return [key_told(part) for part in key]
    if isinstance(key, str):
        return key
    return {"b": binascii.b2a_base64(key, newline=False).decode()}


def key_from(told: Any) -> Key:
    """The key that JSON told; ValueError if it is none."""
    if isinstance(told, str):
        return told
    if isinstance(told, list):
        parts = [key_from(part) for part in told]
        if all(isinstance(part, str | bytes) for part in parts):
            return tuple(parts)  # type: ignore[arg-type] # just seen
    elif isinstance(told, dict) and told.keys() == {"b"} and isinstance(told["b"], str):
        return binascii.a2b_base64(told["b"], strict_mode=True)
    raise ValueError('a text, {"b": base64}, or a list of such')


def unknown() -> Fault:
    """Nobody holds anything under such a token, or no longer."""
    return Fault(404, "nothing is held under this token; it may have run out", field="token")


class Held(NamedTuple):
    """What a caller holds."""

    number: int
    """Names this holding, once for all."""
    kind: str
    """permit or reservation"""
    until: int
    """When the token is of no more use, in microseconds of the store's clock."""
    space: str
    asks: Sequence[Ask]
    """What was taken under a number: permits of concurrent limits, and reservations."""
    counted: Sequence[Ask]
    """What a success gives back."""

    def text(self) -> str:
        """The token."""
        told = [
            VERSION, self.number, self.kind, self.until, self.space,
            [[a.limit.text, a.limit.id, key_told(a.key), a.cost, a.token] for a in self.asks],
            [[a.limit.text, a.limit.id, key_told(a.key), a.cost, a.at] for a in self.counted],
        ]  # fmt: skip
        return urlsafe_b64encode(json.dumps(told, separators=(",", ":")).encode()).decode()

    @classmethod
    def read(cls, text: Any) -> Held:
        """What a token says; a Fault if it is none of ours."""
        if not isinstance(text, str) or not text or len(text) > LONGEST:
            raise unknown()
        try:
            told = json.loads(urlsafe_b64decode(text))
            version, number, kind, until, space, asks, counted = told
            if version != VERSION or kind not in ("permit", "reservation"):
                raise unknown()
            if not (_whole(number) and _whole(until) and isinstance(space, str)):
                raise unknown()
            return cls(
                number, kind, until, space,
                [_ask(each, space, "release", "token") for each in asks],
                [_ask(each, space, "refund", "at") for each in counted],
            )  # fmt: skip
        except (ValueError, TypeError, KeyError, RecursionError, HeadgateError):
            raise unknown() from None


def _whole(number: Any) -> bool:
    return type(number) is int and 0 <= number < 1 << 160  # some stores have long tokens


def _ask(told: Any, space: str, op: str, last: str) -> Ask:
    text, limit_id, key, cost, number = told
    if not (_whole(cost) and cost < 1 << 53 and _whole(number)):
        raise unknown()
    ask = Ask(op, limit_of(text, limit_id), key_from(key), cost, space)
    return ask._replace(token=number) if last == "token" else ask._replace(at=number)
