from libc.stdint cimport int64_t, uint64_t

from .reclaim cimport Reclaimer
from .table cimport Table


cdef class Prepared:
    """A prepared take of one limit."""

    cdef take_one(self, key, cost, partial)


cdef class Door:
    cdef Prepared way
