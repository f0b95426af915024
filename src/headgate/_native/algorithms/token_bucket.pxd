cimport cython
from libc.stdint cimport int64_t

from .base cimport Algorithm, Words4, Words2, Words3

cdef int64_t NEVER, REFUSED


cdef class TokenBucket(Algorithm):
    cdef readonly int64_t capacity, full, step, first, forgets
    @cython.locals(elapsed=int64_t)
    cpdef Words2 drain(self, int64_t at, int64_t missing, int64_t now)
    @cython.locals(over=int64_t, ready=int64_t)
    cpdef int64_t wait(self, int64_t missing, int64_t at, int64_t now)
    @cython.locals(elapsed=int64_t, at=int64_t, missing=int64_t, wait=int64_t)
    cpdef Words4 take(self, int64_t a, int64_t b, int64_t c, int64_t now, int64_t cost, int64_t max_wait)
    @cython.locals(at=int64_t, missing=int64_t, retry=int64_t, reset=int64_t)
    cpdef Words3 look(self, int64_t a, int64_t b, int64_t c, int64_t now, int64_t cost)


cdef class DebtBucket(TokenBucket):
    @cython.locals(at=int64_t, missing=int64_t, wait=int64_t)
    cpdef Words4 take(self, int64_t a, int64_t b, int64_t c, int64_t now, int64_t cost, int64_t max_wait)
    @cython.locals(at=int64_t, missing=int64_t, left=int64_t)
    cpdef Words3 look(self, int64_t a, int64_t b, int64_t c, int64_t now, int64_t cost)
