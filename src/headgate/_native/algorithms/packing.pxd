# The C types of packing.py, whose source is compiled as it is.
cimport cython
from libc.stdint cimport int64_t, uint64_t


@cython.locals(packed=cython.uchar[::1], at=Py_ssize_t, place=Py_ssize_t, byte=Py_ssize_t, rest=uint64_t)
cpdef bytes pack(const int64_t[::1] row, Py_ssize_t first, Py_ssize_t last, int64_t base, Py_ssize_t width)

@cython.locals(place=Py_ssize_t, byte=Py_ssize_t, rest=uint64_t, numbers=int64_t[::1])
cpdef object unpack(const cython.uchar[::1] data, Py_ssize_t at, Py_ssize_t count, int64_t base, Py_ssize_t width)
