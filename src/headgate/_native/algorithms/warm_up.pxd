# Its products need more than 64 bits, so only the frame is typed.
from libc.stdint cimport int64_t

from .base cimport Algorithm, Words4, Words3


cdef class WarmUp(Algorithm):
    cdef readonly object cold, scale, permit, most, threshold, slope, forgets
    cpdef Words4 take(self, int64_t a, int64_t b, int64_t c, int64_t now, int64_t cost, int64_t max_wait)
    cpdef Words3 look(self, int64_t a, int64_t b, int64_t c, int64_t now, int64_t cost)
