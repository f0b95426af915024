# The C types of core.py, whose source is compiled as it is.
from .machine cimport Machine


cdef class Core:
    cdef public Machine _machine
    cdef public object _lock
    cdef public object _calm, _easy, _name, _outcomes
    cdef public list _listeners
    cdef public long long _mark, _successes, _failures, _ignored, _slow, _refused
    cdef object _entered, _good, _judge, _nanos
    cdef bint _timed
    cdef long long _edge, _offset, _slow_after, _entered_reads, _good_reads

    cpdef enter(self)
    cpdef passed(self, token, result)
    cpdef failed(self, token, error)
    cpdef told(self, token, outcome, seconds=*)
    cdef _enter(self)
