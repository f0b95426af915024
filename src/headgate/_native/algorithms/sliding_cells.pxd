cimport cython
from libc.stdint cimport int64_t

from .base cimport Spread

cdef int64_t FIRST, NEWEST, TOTAL


cdef class SlidingCells(Spread):
    cdef readonly int64_t cells

    @cython.locals(windows=int64_t, rest=int64_t)
    cpdef int64_t cell(self, int64_t now)
    @cython.locals(windows=int64_t, rest=int64_t)
    cpdef int64_t begin(self, int64_t cell)
    @cython.locals(row=int64_t[::1], cell=int64_t, total=int64_t)
    cpdef object hit(self, state, int64_t now, int64_t cost)
    @cython.locals(
        row=int64_t[::1], newest=int64_t, total=int64_t, over=int64_t, last=int64_t, cell=int64_t
    )
    cpdef object view(self, state, int64_t now, int64_t cost)
