# The C types of machine.py, whose source is compiled as it is.
cdef class Probe:
    cdef public object ticket, started, due


cdef class Machine:
    cdef public object settings, since, slow_after, state, ticket, until, window
    cdef public object attempt, opened
    cdef public list changes
    cdef object _done, _failed, _lease, _live, _most, _ramp, _share, _slow
