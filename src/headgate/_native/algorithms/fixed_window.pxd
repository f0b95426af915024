cimport cython
from libc.stdint cimport int64_t

from .base cimport Algorithm, Words4, Words2, Words3

cdef int64_t NEVER, REFUSED


cdef class FixedWindow(Algorithm):
    cdef readonly int64_t anchor
    @cython.locals(begin=int64_t)
    cpdef Words2 bounds(self, int64_t start, int64_t used, int64_t now)
    @cython.locals(begin=int64_t, end=int64_t)
    cpdef Words3 roll(self, int64_t start, int64_t used, int64_t now)
    @cython.locals(used=int64_t, start=int64_t, end=int64_t)
    cpdef Words4 take(self, int64_t a, int64_t b, int64_t c, int64_t now, int64_t cost, int64_t max_wait)
    @cython.locals(used=int64_t, end=int64_t, reset=int64_t, left=int64_t)
    cpdef Words3 look(self, int64_t a, int64_t b, int64_t c, int64_t now, int64_t cost)


cdef class FirstHitWindow(FixedWindow):
    @cython.locals(begin=int64_t)
    cpdef Words2 bounds(self, int64_t start, int64_t used, int64_t now)


cdef class CalendarWindow(FixedWindow):
    cdef object last
    @cython.locals(begin=int64_t, end=int64_t)
    cpdef Words2 bounds(self, int64_t start, int64_t used, int64_t now)
    @cython.locals(start=int64_t, used=int64_t, end=int64_t)
    cpdef Words4 take(self, int64_t a, int64_t b, int64_t c, int64_t now, int64_t cost, int64_t max_wait)
