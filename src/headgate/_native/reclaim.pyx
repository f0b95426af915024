"""The compiled form's Reclaimer: which key to forget, without a word kept for it.

Idle keys are found by looking at a few slots further on at each insert. Who resets soonest is
known to each segment of a table for a few of its keys, and found anew when those are used up.
"""

from libc.stdint cimport INT64_MAX, int64_t, uint64_t

from .table cimport Candidate, Table

__all__ = ["Reclaimer"]


cdef class Reclaimer:
    """How many keys a store has, how many it may have, and which of them can go."""

    def __cinit__(self, reset, most):
        self.most = most
        self.tables = []

    cdef int add(self, Table table) except -1:
        if table not in self.tables:
            self.tables.append(table)
        return 0

    def file(self, Table table, uint64_t key, int64_t reset):
        """Enter a key that resets at an instant, or must be kept."""
        self.add(table)
        table.note(key, reset)

    def idle(self, int64_t now, int tries):
        """A key that is as if never used, if one turns up within so many tries."""
        cdef Table table
        cdef uint64_t found
        cdef int i
        for i in range(len(self.tables)):
            self.turn = (self.turn + 1) % len(self.tables)
            table = self.tables[self.turn]
            found = table.idle(now, tries, self.keys >= self.most, False)
            if found:
                return table, found
            if i == 3:
                break
        return None

    def soonest(self, int64_t now):
        """The key that resets first, and when; it leaves these books."""
        cdef Table table, best = None
        cdef Candidate found, first
        first.hash, first.reset = 0, INT64_MAX
        for table in self.tables:
            found = table.soonest(now, first.reset)
            if found.hash:
                best, first = table, found
        if best is None:
            return None
        best.drop_candidate(first.hash)
        return best, first.hash, first.reset

    cdef int sweep(self, Table table, int64_t now) except -1:
        """After an insert by a prepared take: forget one or two idle keys, if they turn up.

        No lock is held here, so no Python code may run.
        """
        cdef uint64_t found = table.idle(now, 3, False, True)
        cdef Table other
        if found:
            table.leave(found)
            self.keys -= 1
        if len(self.tables) > 1:
            self.turn = (self.turn + 1) % len(self.tables)
            other = self.tables[self.turn]
            if other is not table:
                found = other.idle(now, 1, False, True)
                if found:
                    other.leave(found)
                    self.keys -= 1
        return 0
