"""The compiled form of Near: no Python code runs between a look at a lease and what it leaves."""

cimport cython
from cpython.dict cimport PyDict_GetItemWithError
from cpython.long cimport PyLong_CheckExact
from cpython.object cimport PyObject
from cpython.unicode cimport PyUnicode_CheckExact
from libc.stdint cimport int64_t, uint64_t

from .decision cimport Decision, Refusal
from .quick cimport Prepared

import time

from .clock import SystemClock
from .keys import canonical

__all__ = ["Entry", "Leased", "Near"]

cdef extern from *:
    """
    #include <time.h>
    #if defined(__linux__)
    #define HG_CLOCK 1
    static inline int64_t hg_nanos(void) {
        struct timespec t;
        clock_gettime(CLOCK_MONOTONIC, &t);
        return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
    }
    #else
    #define HG_CLOCK 0
    static inline int64_t hg_nanos(void) { return 0; }
    #endif
    """
    bint HG_CLOCK
    int64_t hg_nanos() nogil

cdef int64_t CEILING = 1 << 53
cdef object ONE = 1


@cython.final
cdef class Entry:
    """What is known of a key. Instants are in nanoseconds of this process."""

    cdef public int64_t left, until, known, reset, ahead
    cdef public int64_t least, most, shut, a, b, c, since, nanos
    cdef public object source, refuser
    cdef public bint touched
    # For whoever leases.
    cdef public int64_t at, began, chunk, granted, ends
    cdef public bint busy, debited
    cdef public object refusal, key

    def __cinit__(self):
        self.nanos = 1


@cython.final
cdef class Leased:
    """The source of decisions on a lease: what is left of it, and of the limit when last seen."""

    cdef readonly object limit, per_second, degraded

    def __init__(self, limit, degraded=False):
        self.limit, self.per_second, self.degraded = limit, 1_000_000, degraded

    def look(self, int64_t a, int64_t b, int64_t c, int64_t now, cost):
        return a + b, 0, max(0, c - now)

    def __reduce__(self):
        return Leased, (self.limit, self.degraded)


cdef class Near(Prepared):
    """Takes that are answered here if they can be."""

    cdef readonly dict entries
    cdef object micros
    cdef bint system

    def __cinit__(self, clock, *others, **more):
        self.entries = {}
        self.micros = clock.micros
        self.system = type(clock) is SystemClock

    def __init__(self, clock):
        pass

    cdef inline int64_t now(self) except? -1:
        cdef int64_t found
        if self.system:
            if HG_CLOCK:
                return hg_nanos()
            return time.monotonic_ns()
        found = self.micros()
        return found * 1000

    def nanos(self):
        """The time here: by the monotonic clock, or by a clock that was given."""
        return self.now()

    cdef Decision answer(self, key, cost, partial):
        cdef PyObject* found
        cdef Entry entry
        cdef Decision decision
        cdef int64_t amount = 1, now
        if cost is not ONE:
            if not PyLong_CheckExact(cost) or not 0 < cost < CEILING:
                return None
            amount = cost
        if partial:
            return None
        if not PyUnicode_CheckExact(key):
            key = canonical(key)
        now = self.now()  # a clock may run Python code: nothing is looked at before it
        found = PyDict_GetItemWithError(self.entries, key)
        if found is NULL:
            return None
        entry = <Entry>found
        if entry.left >= amount and now < entry.until:
            entry.left -= amount
            entry.touched = True
            decision = Decision.__new__(Decision)
            decision._source = entry.source
            decision._outcome = (0, entry.left, entry.known, entry.reset)
            decision._now = <uint64_t>(now + entry.ahead) // 1000
            decision._cost = amount
            return decision
        if entry.least <= amount <= entry.most and now < entry.shut:
            entry.touched = True
            decision = Refusal.__new__(Refusal)
            decision._source = entry.refuser
            decision._outcome = (-1, entry.a, entry.b, entry.c)
            decision._now = <uint64_t>(now + entry.since) // <uint64_t>entry.nanos
            decision._cost = amount
            return decision
        return None

    cdef take_one(self, key, cost, partial):
        cdef Decision decision = self.answer(key, cost, partial)
        return decision if decision is not None else self.longer(key, cost, partial)

    def near(self, key, cost, partial):
        """The answer that can be given here, if there is one."""
        return self.answer(key, cost, partial)

    def longer(self, key, cost, partial):
        """The answer of whoever is asked instead."""
        raise NotImplementedError

    # -- changes that hits of other threads must not get in between of: none of them runs
    # Python code before it is done

    def drain(self, Entry entry not None):
        """End a lease; what was left of it."""
        cdef int64_t left = entry.left
        entry.left = entry.until = 0
        return left

    def give(self, Entry entry not None, int64_t cost):
        """Give back to a lease; False if it has ended."""
        cdef int64_t now = self.now()
        if now >= entry.until or entry.left + cost > entry.granted:
            return False
        entry.left += cost
        return True

    def lease(
        self, Entry entry not None, source, int64_t left, int64_t known, int64_t reset,
        int64_t ahead, int64_t until,
    ):
        """Begin a lease: so much, until then; the rest is what decisions say."""
        entry.until = 0
        entry.source = source
        entry.left, entry.known, entry.reset, entry.ahead = left, known, reset, ahead
        entry.until = until

    def refuse(
        self, Entry entry not None, refuser, outcome, costs, int64_t nanos, int64_t since,
        int64_t until,
    ):
        """Refuse costs of these sizes until then, as the outcome has it."""
        cdef int64_t a = outcome[1], b = outcome[2], c = outcome[3]
        cdef int64_t least = costs[0], most = costs[1]
        entry.shut = 0
        entry.refuser = refuser
        entry.a, entry.b, entry.c = a, b, c
        entry.least, entry.most, entry.nanos, entry.since = least, most, nanos, since
        entry.shut = until

    def after_fork(self):
        """In a child: what is leased is the parent's."""
        self.entries.clear()
