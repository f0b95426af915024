cimport cython
from libc.stdint cimport int64_t

from .base cimport Words4, Words3
from .token_bucket cimport TokenBucket

cdef int64_t NEVER, REFUSED


cdef class LeakyMeter(TokenBucket):
    pass


cdef class LeakyQueue(TokenBucket):
    cdef readonly int64_t free
    cdef readonly bint spaced
    @cython.locals(at=int64_t, level=int64_t)
    cpdef Words3 levels(self, int64_t a, int64_t b, int64_t c, int64_t now)
    cpdef int64_t turn(self, int64_t late, int64_t at, int64_t now)
    @cython.locals(at=int64_t, level=int64_t, late=int64_t, wait=int64_t, added=int64_t)
    cpdef Words4 take(self, int64_t a, int64_t b, int64_t c, int64_t now, int64_t cost, int64_t max_wait)
    @cython.locals(at=int64_t, level=int64_t, late=int64_t, retry=int64_t, reset=int64_t, room=int64_t, undelayed=int64_t)
    cpdef Words3 look(self, int64_t a, int64_t b, int64_t c, int64_t now, int64_t cost)
