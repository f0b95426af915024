# The C types of decision.py, whose source is compiled as it is.
from .record cimport Record


cdef class Decision(Record):
    pass


cdef class Refusal(Decision):
    pass


cdef class Glance(Decision):
    pass
