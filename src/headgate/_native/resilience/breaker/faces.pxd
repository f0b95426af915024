# The C types of faces.py, whose source is compiled as it is.
from .core cimport Core


cdef class Permit:
    cdef readonly Faces _breaker
    cdef object _token


cdef class Faces(Core):
    pass
