"""The compiled form's packing: rows of whole numbers in as few bytes as hold them.

What algorithms/packing.py does, by pointers into the rows. A number's `width` bytes are those of
its eight that matter: the first ones in memory where the lowest byte comes first, else the last.
"""

from cpython cimport array
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from libc.stdint cimport INT64_MAX, UINT32_MAX, int64_t, uint8_t, uint32_t, uint64_t
from libc.string cimport memcpy

import sys
from array import array as row_of

__all__ = ["narrowest", "number", "pack", "span_width", "unpack", "whole"]

cdef bint LITTLE = sys.byteorder == "little"
cdef array.array NONE = row_of("q")


def narrowest(int64_t largest):
    """The bytes that hold every number up to `largest`: 1, 2, 4 or 8."""
    if largest < 1 << 8:
        return 1
    if largest < 1 << 16:
        return 2
    return 4 if largest <= UINT32_MAX else 8


def span_width(int64_t largest):
    """The bytes for differences of instants up to `largest`: 4, 5, 6 or 8."""
    if largest <= UINT32_MAX:
        return 4
    if largest < <int64_t>1 << 40:
        return 5
    return 6 if largest < <int64_t>1 << 48 else 8


def number(int64_t value):
    """One whole number in eight bytes."""
    return PyBytes_FromStringAndSize(<char*>&value, 8)


def whole(bytes data not None, Py_ssize_t at):
    """The whole number in the eight bytes at a place."""
    cdef int64_t value
    if at < 0 or at > PyBytes_GET_SIZE(data) - 8:
        raise ValueError("a packed number ends too early")
    memcpy(&value, PyBytes_AS_STRING(data) + at, 8)
    return value


def pack(
    array.array row not None, Py_ssize_t first, Py_ssize_t last, int64_t base, Py_ssize_t width,
    bytes head not None=b"",
):
    """A head, then the numbers from `first` up to `last` of a row, less `base`, in `width` bytes."""
    cdef const int64_t* words = <const int64_t*>row.data.as_voidptr
    cdef Py_ssize_t i, skip = 0 if LITTLE else 8 - width
    cdef uint64_t rest, over = 0
    cdef uint32_t narrow
    cdef bint less = False
    cdef bytes packed
    cdef char* to
    _check(row, width)
    if last <= first:
        return head
    if first < 0 or last > len(row):
        raise IndexError("a row has fewer numbers")
    # In one piece: pieces that are put together leave holes in memory that nothing fits.
    packed = PyBytes_FromStringAndSize(NULL, PyBytes_GET_SIZE(head) + (last - first) * width)
    to = PyBytes_AS_STRING(packed)
    memcpy(to, PyBytes_AS_STRING(head), PyBytes_GET_SIZE(head))
    to += PyBytes_GET_SIZE(head)
    if width == 4:
        for i in range(first, last):
            rest = <uint64_t>words[i] - <uint64_t>base
            over |= rest
            narrow = <uint32_t>rest
            memcpy(to, &narrow, 4)
            to += 4
    elif width == 1:
        for i in range(first, last):
            rest = <uint64_t>words[i] - <uint64_t>base
            over |= rest
            to[0] = <char>rest
            to += 1
    else:
        for i in range(first, last):
            rest = <uint64_t>words[i] - <uint64_t>base
            over |= rest
            less = less or words[i] < base
            memcpy(to, <char*>&rest + skip, width)
            to += width
    if less or (width < 8 and over >> (8 * width)):  # a number less than `base` is large, unsigned
        raise OverflowError("a number does not fit into its bytes")
    return packed


def unpack(bytes data not None, Py_ssize_t at, Py_ssize_t count, int64_t base, Py_ssize_t width):
    """So many numbers of `width` bytes each from a place on, plus `base`."""
    cdef Py_ssize_t i, skip = 0 if LITTLE else 8 - width
    cdef uint64_t rest
    cdef uint32_t narrow
    cdef array.array row
    cdef int64_t* words
    cdef const char* source
    _check(NONE, width)
    if at < 0 or count < 0 or at > PyBytes_GET_SIZE(data):
        raise ValueError("a packed row ends too early")
    if count > (PyBytes_GET_SIZE(data) - at) // width:
        raise ValueError("a packed row ends too early")
    row = array.clone(NONE, count, False)
    words = <int64_t*>row.data.as_voidptr
    source = PyBytes_AS_STRING(data) + at
    if width == 4 and base <= INT64_MAX - UINT32_MAX:
        for i in range(count):
            memcpy(&narrow, source, 4)
            words[i] = base + <int64_t>narrow
            source += 4
    elif width == 1 and base <= INT64_MAX - UINT32_MAX:
        for i in range(count):
            words[i] = base + <int64_t><uint8_t>source[i]
    else:
        for i in range(count):
            rest = 0
            memcpy(<char*>&rest + skip, source, width)
            if rest > <uint64_t>INT64_MAX - <uint64_t>base:
                raise OverflowError("a packed number is too large")
            words[i] = <int64_t>(<uint64_t>base + rest)
            source += width
    return row


cdef int _check(array.array row, Py_ssize_t width) except -1:
    if row.ob_descr.typecode != c"q":
        raise TypeError("a row is an array of type 'q'")
    if not 1 <= width <= 8:
        raise ValueError(f"a width is 1 to 8 bytes, not {width}")
    return 0
