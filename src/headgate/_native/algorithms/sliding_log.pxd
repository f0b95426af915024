from .base cimport Spread


cdef class SlidingLog(Spread):
    pass
