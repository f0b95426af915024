# The C types of base.py, whose source is compiled as it is.
from libc.stdint cimport int64_t

ctypedef (int64_t, int64_t) Words2
ctypedef (int64_t, int64_t, int64_t) Words3
ctypedef (int64_t, int64_t, int64_t, int64_t) Words4


cdef class Rule:
    cdef readonly object limit
    cdef readonly int64_t permille, tick, per_second, quota, window
    cdef readonly bint words, sticky, books
    cdef readonly int64_t horizon
    cdef readonly object shape


cdef class Algorithm(Rule):
    cpdef Words4 take(self, int64_t a, int64_t b, int64_t c, int64_t now, int64_t cost, int64_t max_wait)
    cpdef Words3 look(self, int64_t a, int64_t b, int64_t c, int64_t now, int64_t cost)


cdef class Spread(Rule):
    pass
