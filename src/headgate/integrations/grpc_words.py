"""What gRPC's words mean: whose fault a status code is, and when to come back; pure.

Of the latter a server tells by a pushback, or by google.rpc.RetryInfo.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from .told import Told

__all__ = ["outcome_of", "retry_of"]

RETRY_INFO = b"/google.rpc.RetryInfo"
MISTAKES = frozenset(
    ("CANCELLED", "INVALID_ARGUMENT", "NOT_FOUND", "ALREADY_EXISTS", "PERMISSION_DENIED",
     "RESOURCE_EXHAUSTED", "FAILED_PRECONDITION", "ABORTED", "OUT_OF_RANGE", "UNAUTHENTICATED")
)  # fmt: skip
"""Codes that HTTP has a status from 400 to 499 for: the caller's own doing."""


def outcome_of(code: Any) -> str:
    """How a call ended, by its status code."""
    return "success" if code.name == "OK" else "mistake" if code.name in MISTAKES else "failure"


def retry_of(metadata: Mapping[str, str]) -> Told | None:
    """How long to wait, by the trailing metadata of a call; values of bytes are as Latin-1."""
    pushback = metadata.get("grpc-retry-pushback-ms", "")
    if pushback.isascii() and pushback.isdigit() and len(pushback) < 16:  # below 0: do not retry
        return Told(int(pushback) / 1_000, f"grpc-retry-pushback-ms: {pushback}")
    status = metadata.get("grpc-status-details-bin", "").encode("latin-1", "replace")
    for number, detail in _fields(status):
        if number == 3 and isinstance(detail, bytes):
            parts = dict(_fields(detail))
            kind, value = parts.get(1), parts.get(2)
            if isinstance(kind, bytes) and kind.endswith(RETRY_INFO):
                delay = dict(_fields(value)).get(1) if isinstance(value, bytes) else None
                length = dict(_fields(delay)) if isinstance(delay, bytes) else {}
                seconds, nanos = length.get(1, 0), length.get(2, 0)
                if isinstance(seconds, int) and isinstance(nanos, int) and seconds < 1 << 63:
                    wait = seconds + min(nanos, 10**9) / 1e9
                    return Told(wait, f"google.rpc.RetryInfo: {wait:g} s")
    return None


def _fields(data: bytes) -> Iterator[tuple[int, int | bytes]]:
    """The fields of a protobuf message, by number; it ends where the bytes make no sense."""
    place = 0
    while place < len(data):
        tag, place = _varint(data, place)
        kind = tag & 7
        value: int | bytes
        if kind == 0:
            value, place = _varint(data, place)
        elif kind in (1, 2, 5):
            size = {1: 8, 5: 4}.get(kind, 0)
            if kind == 2:
                size, place = _varint(data, place)
            value, place = data[place : place + size], place + size
        else:
            return
        if place > len(data):
            return
        yield tag >> 3, value


def _varint(data: bytes, place: int) -> tuple[int, int]:
    """A number, and where it ends; behind the data if it does not."""
    value = 0
    for shift in range(0, 70, 7):
        if place >= len(data):
            break
        byte = data[place]
        place += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, place
    return 0, len(data) + 1
