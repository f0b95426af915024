cimport cython
from libc.stdint cimport int64_t

from .algorithms.base cimport Words4


@cython.no_gc
cdef class Record:
    cdef public object _source, _seen
    cdef public Words4 _outcome
    cdef public int64_t _now, _cost
