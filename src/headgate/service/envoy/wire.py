"""The wire: protobuf, read and written by hand for the few messages that Envoy and we exchange.

What is read is strict about what is cut off or malformed, and lenient as protobuf is: unknown
fields are skipped, a known field of another type counts as unknown, the last value of a field
holds, and messages that come in pieces are put together.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

__all__ = [
    "Bytes", "Descriptor", "RateLimitRequest", "WireError", "fields", "flag", "message", "number",
    "read_request", "text", "uint32", "uint64", "varint",
]  # fmt: skip

VARINT, FIXED64, BYTES, GROUP, END, FIXED32 = range(6)
DEEP = 100
"""So many groups may lie in each other."""
LOW32, LOW64 = 2**32 - 1, 2**64 - 1


class WireError(ValueError):
    """What came is not the message it should be."""


# -- reading


def read_varint(data: bytes, at: int, end: int) -> tuple[int, int]:
    """A number of at most 64 bits, and where it ends."""
    value = shift = 0
    while at < end:
        byte = data[at]
        at += 1
        value |= (byte & 127) << shift
        if byte < 128:
            return value & LOW64, at
        shift += 7
        if shift == 70:
            raise WireError("a number has more than ten bytes")
    raise WireError("the message ends in the middle of a number")


def fields(data: bytes) -> Iterator[tuple[int, int, Any]]:
    """The fields of a message in their order: number, type, and an int or bytes."""
    at, end = 0, len(data)
    while at < end:
        tag = data[at]
        if tag < 128:
            at += 1
        else:
            start = at
            tag, at = read_varint(data, at, end)
            if at - start > 5 or tag > LOW32:
                raise WireError("the number of a field is too large")
        kind = tag & 7
        if tag < 8:
            raise WireError("there is no field 0")
        if kind == BYTES:
            size, at = read_varint(data, at, end)
            if size > end - at:
                raise WireError("the message ends in the middle of a field")
            yield tag >> 3, BYTES, data[at : at + size]
            at += size
        elif kind == VARINT:
            value, at = read_varint(data, at, end)
            yield tag >> 3, VARINT, value
        else:
            at = _skipped(data, at, end, tag, 0)


def _skipped(data: bytes, at: int, end: int, tag: int, depth: int) -> int:
    """Where a field ends that nobody here has a use for."""
    kind = tag & 7
    if kind == VARINT:
        return read_varint(data, at, end)[1]
    if kind == BYTES:
        size, at = read_varint(data, at, end)
    elif kind == FIXED64:
        size = 8
    elif kind == FIXED32:
        size = 4
    elif kind == GROUP:
        return _group(data, at, end, tag >> 3, depth + 1)
    else:
        raise WireError("a group ends that did not begin" if kind == END else f"no type {kind}")
    if size > end - at:
        raise WireError("the message ends in the middle of a field")
    return at + size


def _group(data: bytes, at: int, end: int, name: int, depth: int) -> int:
    if depth > DEEP:
        raise WireError("groups are nested too deep")
    while at < end:
        start = at
        tag, at = read_varint(data, at, end)
        if at - start > 5 or not 8 <= tag <= LOW32:
            raise WireError("there is no such field")
        if tag & 7 == END:
            if tag >> 3 != name:
                raise WireError("a group ends that did not begin")
            return at
        at = _skipped(data, at, end, tag, depth)
    raise WireError("the message ends in the middle of a group")


def utf8(value: bytes) -> str:
    """A text, which must be one."""
    try:
        return value.decode()
    except UnicodeDecodeError:
        raise WireError("a text is not UTF-8") from None


def signed(value: int, bits: int) -> int:
    """The number that a varint stands for where it may be negative."""
    value &= (1 << bits) - 1
    return value - (1 << bits) if value >> (bits - 1) else value


class Descriptor(NamedTuple):
    """What one limit may apply to: pairs of key and value, and what Envoy says of the limit."""

    entries: tuple[tuple[str, str], ...]
    limit: tuple[int, int] | None = None
    """An override: requests per unit, and the unit."""
    hits: int | None = None
    """Its own addend; 0 only looks."""
    negative: bool = False
    """Whether the addend is to be given back."""


class RateLimitRequest(NamedTuple):
    """A question of Envoy's."""

    domain: str
    descriptors: tuple[Descriptor, ...]
    hits: int = 0
    """0: not said."""


def read_request(data: bytes) -> RateLimitRequest:
    """envoy.service.ratelimit.v3.RateLimitRequest."""
    domain, hits = "", 0
    descriptors = []
    for name, kind, value in fields(data):
        if name == 1 and kind == BYTES:
            domain = utf8(value)
        elif name == 2 and kind == BYTES:
            descriptors.append(_descriptor(value))
        elif name == 3 and kind == VARINT:
            hits = value & LOW32
    return RateLimitRequest(domain, tuple(descriptors), hits)


def _descriptor(data: bytes) -> Descriptor:
    entries: list[tuple[str, str]] = []
    limit: bytes | None = None
    hits: bytes | None = None
    negative = False
    for name, kind, value in fields(data):
        if name == 1 and kind == BYTES:
            entries.append(pair(value))
        elif name == 2 and kind == BYTES:
            limit = value if limit is None else limit + value
            _numbers(value)  # each piece is a message by itself
        elif name == 3 and kind == BYTES:
            hits = value if hits is None else hits + value
            _numbers(value)
        elif name == 4 and kind == VARINT:
            negative = bool(value)
    found = None if limit is None else _numbers(limit)
    return Descriptor(
        tuple(entries),
        None if found is None else (found.get(1, 0) & LOW32, signed(found.get(2, 0), 32)),
        None if hits is None else _numbers(hits).get(1, 0),
        negative,
    )


def pair(data: bytes) -> tuple[str, str]:
    """An entry of a descriptor, or of a map of texts."""
    key = text_value = ""
    for name, kind, value in fields(data):
        if kind == BYTES:
            if name == 1:
                key = utf8(value)
            elif name == 2:
                text_value = utf8(value)
    return key, text_value


def _numbers(data: bytes) -> dict[int, int]:
    return {name: value for name, kind, value in fields(data) if kind == VARINT}


def read_duration(data: bytes) -> float:
    """google.protobuf.Duration, in seconds."""
    found = _numbers(data)
    return signed(found.get(1, 0), 64) + signed(found.get(2, 0), 32) / 1e9


# -- writing; what has its default value is left out

Bytes = bytes
_SMALL = [bytes((n,)) if n < 128 else bytes((n & 127 | 128, n >> 7)) for n in range(1 << 14)]


def varint(value: int) -> bytes:
    """A number, not negative, of at most 64 bits."""
    if value < 1 << 14:
        return _SMALL[value]
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    out.append(value)
    return bytes(out)


def number(name: int, value: int) -> bytes:
    """A field with a number; two's complement where it is negative."""
    return varint(name << 3) + varint(value & LOW64) if value else b""


def uint32(name: int, value: int) -> bytes:
    """A field with a number of 32 bits; a larger one is written as the largest."""
    return number(name, min(value, LOW32))


def uint64(name: int, value: int) -> bytes:
    """A field with a number of 64 bits; a larger one is written as the largest."""
    return number(name, min(value, LOW64))


def flag(name: int, value: bool) -> bytes:
    """A field with a yes or no."""
    return number(name, int(value))


def message(name: int, data: bytes) -> bytes:
    """A field with a message, which is there even if it is empty."""
    return varint(name << 3 | BYTES) + varint(len(data)) + data


def text(name: int, value: str | bytes) -> bytes:
    """A field with a text or bytes."""
    data = value.encode() if isinstance(value, str) else value
    return message(name, data) if data else b""
