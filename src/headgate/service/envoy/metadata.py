"""Metadata: what Envoy's other filters may read of an answer, as a google.protobuf.Struct.

It is told where a rule of `quota_mode` is met: such a rule refuses nobody, and whoever stands
behind the filter chooses another way by `quotaModeViolations`, the places of the descriptors
that are over. The names are those of envoyproxy/ratelimit.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from struct import pack
from typing import Any

from .matching import UNITS
from .wire import Descriptor, RateLimitRequest, message, text

__all__ = ["about", "violations"]

DYNAMIC_METADATA = 6
"""The field of a RateLimitResponse."""
_NAMES = {number: name.upper() for name, number in UNITS.items()}


def about(request: RateLimitRequest) -> bytes:
    """What is the same for every answer to a request: the fields of the struct but the last."""
    found: dict[str, Any] = {
        "domain": request.domain,
        "descriptors": [_about(each) for each in request.descriptors],
        "quotaModeEnabled": True,
    }
    if request.hits:
        found["hitsAddend"] = float(request.hits)
    return _fields(found)


def violations(known: bytes, over: Sequence[int]) -> bytes:
    """The field of the response: what is known of the request, and which of it is over."""
    if over:
        known += _fields({"quotaModeViolations": [float(place) for place in over]})
    return message(DYNAMIC_METADATA, known)


def _about(each: Descriptor) -> dict[str, Any]:
    found: dict[str, Any] = {"entries": [f"{key}={value}" for key, value in each.entries]}
    if each.limit is not None:
        amount, unit = each.limit
        found["limit"] = f"requests_per_unit:{amount} unit:{_NAMES.get(unit, unit)}"
    if each.hits is not None:
        found["hitsAddend"] = float(each.hits)
    return found


def _fields(values: dict[str, Any]) -> bytes:
    pairs = (text(1, name) + message(2, _value(value)) for name, value in values.items())
    return b"".join(message(1, pair) for pair in pairs)


def _value(value: Any) -> bytes:
    """A google.protobuf.Value; each is there even if it is 0 or empty."""
    if isinstance(value, bool):
        return b"\x20\x01" if value else b"\x20\x00"
    if isinstance(value, float):
        return b"\x11" + pack("<d", value)
    if isinstance(value, str):
        return message(3, value.encode())
    if isinstance(value, dict):
        return message(5, _fields(value))
    return message(6, _list(value))


def _list(values: Iterable[Any]) -> bytes:
    return b"".join(message(1, _value(value)) for value in values)
