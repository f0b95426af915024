"""Packing: rows of whole numbers in as few bytes as hold them.

A row is kept as differences from a base, each in the same number of bytes, in the byte order of
the machine: packed states never leave it. The compiled form has a packing of its own.
"""

from __future__ import annotations

import sys
from array import array
from collections.abc import Sequence

__all__ = ["narrowest", "number", "pack", "span_width", "unpack", "whole"]

CODES = {1: "B", 2: "H", 4: "I", 8: "Q"}
assert all(array(code).itemsize == width for width, code in CODES.items())


def narrowest(largest: int) -> int:
    """The bytes that hold every number up to `largest`: 1, 2, 4 or 8."""
    if largest < 1 << 8:
        return 1
    if largest < 1 << 16:
        return 2
    return 4 if largest < 1 << 32 else 8


def span_width(largest: int) -> int:
    """The bytes for differences of instants up to `largest`: 4, 5, 6 or 8."""
    if largest < 1 << 32:
        return 4
    if largest < 1 << 40:
        return 5
    return 6 if largest < 1 << 48 else 8


def number(value: int) -> bytes:
    """One whole number in eight bytes."""
    return value.to_bytes(8, sys.byteorder, signed=True)


def whole(data: bytes, at: int) -> int:
    """The whole number in the eight bytes at a place."""
    if not 0 <= at <= len(data) - 8:
        raise ValueError("a packed number ends too early")
    return int.from_bytes(data[at : at + 8], sys.byteorder, signed=True)


def pack(
    row: Sequence[int], first: int, last: int, base: int, width: int, head: bytes = b""
) -> bytes:
    """A head, then the numbers of a row from `first` to `last`, less `base`, in `width` bytes."""
    rests = [row[place] - base for place in range(first, last)]
    if width in CODES:
        return head + array(CODES[width], rests).tobytes()
    return head + b"".join([rest.to_bytes(width, sys.byteorder) for rest in rests])


def unpack(data: bytes, at: int, count: int, base: int, width: int) -> array[int]:
    """So many numbers of `width` bytes each from a place on, plus `base`."""
    end = at + count * width
    if at < 0 or count < 0 or end > len(data):
        raise ValueError("a packed row ends too early")
    if width in CODES:
        narrow = array(CODES[width], data[at:end])
        return array("q", [base + rest for rest in narrow] if base else narrow)
    places = range(at, end, width)
    return array("q", [base + int.from_bytes(data[i : i + width], sys.byteorder) for i in places])
