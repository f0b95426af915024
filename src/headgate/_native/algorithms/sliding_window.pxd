cimport cython
from libc.stdint cimport int64_t

from .base cimport Algorithm, Words4, Words3

cdef int64_t NEVER, REFUSED


cdef class SlidingWindow(Algorithm):
    cdef readonly int64_t most
    @cython.locals(window=int64_t, begin=int64_t)
    cpdef Words4 roll(self, int64_t start, int64_t count, int64_t before, int64_t now)
    @cython.locals(window=int64_t, elapsed=int64_t, start=int64_t, count=int64_t, before=int64_t)
    cpdef Words4 take(self, int64_t a, int64_t b, int64_t c, int64_t now, int64_t cost, int64_t max_wait)
    @cython.locals(start=int64_t, count=int64_t, before=int64_t, elapsed=int64_t, window=int64_t, free=int64_t, reset=int64_t)
    cpdef Words3 look(self, int64_t a, int64_t b, int64_t c, int64_t now, int64_t cost)
    @cython.locals(window=int64_t, room=int64_t, needed=int64_t)
    cpdef int64_t retry(self, int64_t count, int64_t before, int64_t lag, int64_t elapsed, int64_t cost)
