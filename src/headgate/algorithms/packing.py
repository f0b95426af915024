"""Packing: rows of whole numbers in as few bytes as hold them.

A row is kept as differences from a base, each in the same number of bytes, in the byte order of
the machine: packed states never leave it.
"""

from __future__ import annotations

import sys
from array import array
from collections.abc import Sequence

__all__ = ["narrowest", "number", "pack", "span_width", "unpack", "whole"]

TYPED = __name__.startswith("headgate._native")
"""Whether this runs compiled, where a plain loop is the fastest way."""
LITTLE = sys.byteorder == "little"
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
    return int.from_bytes(data[at : at + 8], sys.byteorder, signed=True)


def pack(row: Sequence[int], first: int, last: int, base: int, width: int) -> bytes:
    """The numbers from `first` up to `last` of a row, less `base`, each in `width` bytes."""
    if not TYPED and width in CODES:
        return array(CODES[width], [row[place] - base for place in range(first, last)]).tobytes()
    packed = bytearray((last - first) * width)
    at = 0
    for place in range(first, last):
        rest = row[place] - base
        if LITTLE:
            for byte in range(at, at + width):
                packed[byte] = rest & 255
                rest >>= 8
        else:
            for byte in range(at + width - 1, at - 1, -1):
                packed[byte] = rest & 255
                rest >>= 8
        at += width
    return bytes(packed)


def unpack(data: bytes, at: int, count: int, base: int, width: int) -> array[int]:
    """So many numbers of `width` bytes each from a place on, plus `base`."""
    if at + count * width > len(data):
        raise ValueError("a packed row ends too early")
    if not TYPED and width in CODES:
        narrow = array(CODES[width], data[at : at + count * width])
        return array("q", [base + rest for rest in narrow] if base else narrow)
    row = array("q", bytes(8 * count))
    numbers = row
    for place in range(count):
        rest = 0
        if LITTLE:
            for byte in range(at + width - 1, at - 1, -1):
                rest = rest << 8 | data[byte]
        else:
            for byte in range(at, at + width):
                rest = rest << 8 | data[byte]
        numbers[place] = base + rest
        at += width
    return row
