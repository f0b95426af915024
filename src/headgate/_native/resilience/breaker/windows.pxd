# The C types of windows.py, whose source is compiled as it is.
cdef class CountWindow:
    cdef public long long total, failed, slow, edge
    cdef long long _size, _at
    cdef bytearray _ring


cdef class TimeWindow:
    cdef public long long total, failed, slow, edge
    cdef long long _size, _cell, _newest
    cdef list _total, _failed, _slow
