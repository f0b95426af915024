"""Layout: how a zone's bytes are shared out, and what its header says.

All of it follows from the size, so a header can be checked against the file it is in.
"""

from __future__ import annotations

import struct
from typing import NamedTuple

from ...errors import StoreError
from .places import BUCKETS, CHUNKS, ENTRIES, FORM, JOURNAL, MAGIC, NODE, SIZE, VERSION

__all__ = [
    "FILE_LOCKS",
    "FORMS",
    "HEADER",
    "KEPT",
    "LARGEST",
    "ROBUST",
    "SIGN",
    "SMALLEST",
    "THIS_VERSION",
    "Shape",
    "check_header",
    "check_size",
    "header_words",
    "shape_of",
]  # fmt: skip

SIGN = int.from_bytes(b"hg-zone\n", "little", signed=True)
THIS_VERSION = 1
ROBUST, FILE_LOCKS = 1, 2
FORMS = {
    ROBUST: "the compiled form (a robust mutex)",
    FILE_LOCKS: "the pure Python form (file locks)",
}
KEPT = 1
"""The option of a zone that keeps the text of keys."""
HEADER = JOURNAL * 8
"""The bytes of the header page."""
PAGE = 4096
SMALLEST = 64 << 10
LARGEST = 1 << 37


class Shape(NamedTuple):
    """What a size is shared out into."""

    size: int
    """In bytes, whole pages."""
    entries: int
    """How many words the journal can undo."""
    buckets: int
    chunks: int


def shape_of(size: int) -> Shape:
    """How a zone of this many bytes, rounded up to whole pages, is shared out."""
    size = -(-size // PAGE) * PAGE
    entries = max(512, size // 256)  # a sixteenth of the zone
    words = size // 8 - JOURNAL - 2 * entries
    # As many buckets as half of the chunks or more: a walk is two steps or less on average.
    buckets = 1 << ((words // (NODE + 1)).bit_length() - 1)
    # One is lost to alignment; and the first chunk has number 1.
    return Shape(size, entries, buckets, (words - buckets) // NODE)


def check_size(size: int) -> int:
    """A size as it is, or an error that says what it may be."""
    if isinstance(size, bool) or not isinstance(size, int):
        raise TypeError(f"size is a number of bytes, not {type(size).__name__}")
    if not SMALLEST <= size <= LARGEST:
        raise ValueError(f"a zone has from {SMALLEST} to {LARGEST} bytes, not {size}")
    return size


def header_words(header: bytes) -> tuple[int, ...]:
    """The words of a header page."""
    return struct.unpack(f"={JOURNAL}q", header)


def check_header(path: str, header: bytes, size: int, form: int | None) -> Shape:
    """The shape of the zone with this header; StoreError if it is none that can be used.

    Without a form, a zone of either form will do.
    """
    advice = "remove it, or give another path"
    if len(header) < HEADER:
        raise StoreError(f"{path} is not a zone: it has only {size} bytes; {advice}")
    words = header_words(header)
    if words[MAGIC] != SIGN:
        raise StoreError(f"{path} is not a zone; {advice}")
    if words[VERSION] != THIS_VERSION:
        raise StoreError(
            f"{path} is a zone of version {words[VERSION]}, and this headgate writes version "
            f"{THIS_VERSION}; remove it once nobody uses it any more, or give another path"
        )
    if words[FORM] not in FORMS:
        raise StoreError(f"{path} is a damaged zone (its form is {words[FORM]}); {advice}")
    if form is not None and words[FORM] != form:
        raise StoreError(
            f"{path} is a zone of {FORMS[words[FORM]]}, and this process runs {FORMS[form]}: they "
            f"lock in different ways; let all processes run one form (see headgate.compiled), or "
            f"give another path"
        )
    if words[SIZE] != size or not SMALLEST <= size <= LARGEST:
        raise StoreError(
            f"{path} is a damaged zone: it has {size} bytes where {words[SIZE]} are meant; {advice}"
        )
    shape = shape_of(size)
    if (words[ENTRIES], words[BUCKETS], words[CHUNKS]) != shape[1:] or shape.size != size:
        raise StoreError(f"{path} is a damaged zone: its header contradicts its size; {advice}")
    return shape
