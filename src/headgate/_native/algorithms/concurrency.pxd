from .base cimport Spread


cdef class Concurrency(Spread):
    pass
