# The table of the compiled form: one array of 32-byte slots for each segment of a limit's keys.
from libc.stdint cimport int64_t, uint32_t, uint64_t

from .algorithms.base cimport Algorithm, Rule

cdef enum:
    BATCH = 16  # how many of a segment's keys are known in order of reset

cdef struct Slot:
    uint64_t hash  # 0: empty
    int64_t a  # OBJECT: b is a Python object, c the instant of its reset
    int64_t b
    int64_t c

cdef struct Candidate:
    int64_t reset
    uint64_t hash

cdef struct Segment:
    Slot* slots
    uint32_t room  # slots that hashes are spread over
    uint32_t size  # slots there are; the last one stays empty
    uint32_t used
    uint32_t known  # candidates
    int64_t rest  # no key that is not a candidate resets before this instant
    Candidate* candidates

cpdef uint64_t handle_of(object key) except 0

cdef class Table:
    cdef public object name, own, rule
    cdef Rule law
    cdef Algorithm words
    cdef int64_t tick
    cdef Segment* segments
    cdef int count, bits
    cdef readonly int64_t keys
    cdef int hand
    cdef uint32_t place
    cdef uint64_t hot[64]
    cdef int hottest

    cdef Slot* find(self, uint64_t hash) noexcept
    cdef Slot* enter(self, uint64_t hash) except NULL
    cdef int leave(self, uint64_t hash) except -1
    cdef int64_t reset_at(self, Slot* slot, int64_t micros) except? -2
    cdef object live(self, Slot* slot)
    cdef int note(self, uint64_t hash, int64_t reset) except -1
    cdef uint64_t idle(self, int64_t now, int tries, bint full, bint plain) except? 0
    cdef Candidate soonest(self, int64_t now, int64_t below) except *
    cdef bint keeps(self, Slot* slot)
    cdef int drop_candidate(self, uint64_t hash) except -1
    cdef Segment* segment_of(self, uint64_t hash) noexcept
    cdef int resize(self, Segment* segment, uint32_t room) except -1
    cdef int split(self) except -1
    cdef int scan(self, Segment* segment, int64_t now) except -1
    cdef int let_go(self, Slot* slot) except -1
    cdef int cool(self) except -1
