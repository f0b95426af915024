cimport cython
from libc.stdint cimport int64_t

from .base cimport Algorithm, Words4, Words2, Words3

cdef int64_t NEVER, REFUSED


cdef class Even(Algorithm):
    cdef readonly int64_t forgets
    @cython.locals(elapsed=int64_t)
    cpdef Words2 owing(self, int64_t at, int64_t owed, int64_t now)
    cpdef int64_t wait(self, int64_t owed, int64_t at, int64_t now)
    @cython.locals(at=int64_t, owed=int64_t, wait=int64_t, passes=int64_t)
    cpdef Words4 take(self, int64_t a, int64_t b, int64_t c, int64_t now, int64_t cost, int64_t max_wait)
    @cython.locals(at=int64_t, owed=int64_t, wait=int64_t)
    cpdef Words3 look(self, int64_t a, int64_t b, int64_t c, int64_t now, int64_t cost)
