from .base cimport Spread


cdef class SlidingCells(Spread):
    cdef readonly object cells
