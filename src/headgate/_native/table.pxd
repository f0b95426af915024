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

cdef extern from *:
    """
    #define HG_PLACE(hash, room) ((uint32_t)(((unsigned __int128)(hash) * (room)) >> 64))
    #if defined(__GNUC__)
    #define HG_FETCH(at) __builtin_prefetch(at)
    #else
    #define HG_FETCH(at) ((void)(at))
    #endif
    """
    uint32_t HG_PLACE(uint64_t hash, uint32_t room) nogil
    void HG_FETCH(const void* at) noexcept nogil

cdef extern from "Python.h":
    Py_hash_t PyObject_Hash(object o) except -1

cdef bint borrowed  # whether Python's own hash is good enough

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


cdef inline uint64_t lent_name(object key) except 0:
    """What handle_of says of text that is ASCII, where the hash is `borrowed`."""
    cdef uint64_t found = <uint64_t>PyObject_Hash(key)
    return found if found else 1


cdef inline Slot* place_of(Table table, uint64_t hash) noexcept:
    """The first slot that may be a key's; NULL if there is none."""
    cdef Segment* segment = &table.segments[(hash >> 1) >> (63 - table.bits)]
    if segment.size == 0:
        return NULL
    return &segment.slots[HG_PLACE(hash << table.bits, segment.room)]


cdef inline Slot* slot_of(Table table, uint64_t hash) noexcept:
    """A key's slot; NULL if it has none."""
    cdef Slot* slot = place_of(table, hash)
    if slot is NULL:
        return NULL
    # Most are among the first four, but which cannot be foreseen: a sum costs less than branches
    # that are guessed wrong. There are 16 slots behind every place; an empty one counts as large.
    slot += (
        (slot[0].hash - 1 < hash - 1) + (slot[1].hash - 1 < hash - 1)
        + (slot[2].hash - 1 < hash - 1) + (slot[3].hash - 1 < hash - 1)
    )
    while slot.hash - 1 < hash - 1:
        slot += 1
    return slot if slot.hash == hash else NULL


cdef inline void fetch_slots(Table table, uint64_t hash) noexcept:
    """Let the slots that may be a key's come into the cache."""
    cdef Slot* slot = place_of(table, hash)
    if slot is not NULL:
        HG_FETCH(slot)
        HG_FETCH(slot + 2)
