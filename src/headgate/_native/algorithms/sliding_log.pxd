# The C types of sliding_log.py, whose source is compiled as it is.
cimport cython
from libc.stdint cimport int64_t

from .base cimport Spread


@cython.no_gc  # rows of numbers take no part in a cycle
cdef class Log:
    cdef public object events, costs
    cdef public int64_t head, total, first, last, seen

    cpdef object mark(self)


cdef class SlidingLog(Spread):
    @cython.locals(head=int64_t, place=int64_t)
    cpdef int64_t roll(self, Log state, int64_t now) except? -1
    @cython.locals(total=int64_t, last=int64_t, leaves=int64_t, over=int64_t)
    cpdef object hit(self, Log state, int64_t now, int64_t cost)
    @cython.locals(total=int64_t, over=int64_t)
    cpdef object view(self, Log state, int64_t now, int64_t cost)
    @cython.locals(retry=int64_t)
    cpdef object look(self, int64_t a, int64_t b, int64_t c, int64_t now, int64_t cost)
    @cython.locals(place=int64_t)
    cpdef int64_t leaving(self, Log state, int64_t needed) except? -1
    @cython.locals(head=int64_t, end=int64_t, base=int64_t, width=int64_t, priced=int64_t)
    cpdef bytes dump(self, Log state)
    @cython.locals(state=Log, width=int64_t, priced=int64_t, count=int64_t, rest=int64_t)
    cpdef object load(self, bytes data)
