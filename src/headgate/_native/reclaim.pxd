from libc.stdint cimport int64_t

from .table cimport Table


cdef class Reclaimer:
    cdef public int64_t keys, most, evicted
    cdef public bint closed
    cdef list tables
    cdef int turn

    cdef int add(self, Table table) except -1
    cdef int sweep(self, Table table, int64_t now) except -1
