cimport cython
from libc.stdint cimport int64_t

from .base cimport Algorithm, Words2, Words3, Words4

cdef int64_t MOST, NEVER, REFUSED


cdef class Gcra(Algorithm):
    cdef readonly int64_t capacity, tolerance, step, step_rest, reach, reach_rest
    @cython.locals(since=int64_t, ahead=int64_t)
    cpdef Words2 ahead(self, int64_t at, int64_t arrival, int64_t rest, int64_t now)
    @cython.locals(arrival=int64_t, rest=int64_t, latest=int64_t)
    cpdef Words4 take(self, int64_t a, int64_t b, int64_t c, int64_t now, int64_t cost, int64_t max_wait)
    cpdef Words3 state(self, int64_t ahead, int64_t at)
    @cython.locals(ahead=int64_t, at=int64_t, over=int64_t, wait=int64_t, arrival=int64_t, rest=int64_t)
    cpdef Words4 book(self, int64_t a, int64_t b, int64_t c, int64_t now, int64_t cost, int64_t max_wait)
    @cython.locals(ahead=int64_t, at=int64_t, retry=int64_t, over=int64_t, left=int64_t)
    cpdef Words3 look(self, int64_t a, int64_t b, int64_t c, int64_t now, int64_t cost)
