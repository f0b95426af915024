# distutils: extra_compile_args = -fno-tree-slp-vectorize
# (Outcomes are written in words and read at once: a read of two words would wait for the writes.)
"""The compiled form's short way: one take of one limit, without a frame or a lock.

A take of three words runs no Python code between the first look at the table and the last
write, so the interpreter's own lock keeps others out; where a longer decision is under way
(`Guard.busy`), or anything is unusual, it goes that longer way and waits its turn. The few
algorithms that need larger numbers than C has, or a calendar, hold the lock.
"""

cimport cython
from cpython.bytearray cimport PyByteArray_AS_STRING, PyByteArray_FromStringAndSize
from cpython.list cimport PyList_GET_ITEM, PyList_GET_SIZE, PyList_New, PyList_SET_ITEM
from cpython.long cimport PyLong_CheckExact
from cpython.ref cimport Py_INCREF
from cpython.tuple cimport PyTuple_New, PyTuple_SET_ITEM
from libc.stdint cimport int64_t, uint64_t

from .algorithms.base cimport Algorithm, Spread, Words3, Words4
from .decision cimport Decision, Glance, Refusal
from .making cimport in_bulk, put
from .reclaim cimport Reclaimer
from .table cimport HG_FETCH, Slot, Table, borrowed, fetch_slots, handle_of, lent_name, slot_of

import threading

from .algorithms.even import Even
from .algorithms.fixed_window import FirstHitWindow, FixedWindow
from .algorithms.gcra import Gcra
from .algorithms.leaky_bucket import LeakyMeter, LeakyQueue
from .algorithms.sliding_window import SlidingWindow
from .algorithms.token_bucket import TokenBucket
from .clock import SystemClock
from .decision import Ask, joined

__all__ = ["Door", "Guard", "Prepared", "quick_spread", "quick_together", "quick_words"]

cdef extern from *:
    """
    #include <time.h>
    #define HG_IS_ASCII(key) (PyUnicode_CheckExact(key) && PyUnicode_IS_ASCII(key))
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
    bint HG_IS_ASCII(object key)
    bint HG_CLOCK
    void PyObject_GC_Track(object o) noexcept
    void PyObject_GC_UnTrack(object o) noexcept
    Py_ssize_t PyDict_GET_SIZE(object d)
    int64_t hg_nanos() nogil

cdef enum:
    AHEAD = 16  # how many keys before its turn a slot is fetched into the cache
    MANY = 8  # limits that are decided together on the short way

cdef int64_t CEILING = 1 << 53
cdef object ONE = 1
cdef bint BULK = in_bulk()
# Whose takes are C alone.
PLAIN = frozenset(
    (Even, FirstHitWindow, FixedWindow, Gcra, LeakyMeter, LeakyQueue, SlidingWindow, TokenBucket)
)


@cython.final
cdef class Guard:
    """A lock that its own thread may take again, and that shows whether it is held."""

    cdef object lock
    cdef bint busy
    cdef int depth

    def __cinit__(self):
        self.lock = threading.RLock()

    cpdef acquire(self):
        """Wait for it, and take it."""
        self.lock.acquire()
        self.depth += 1
        self.busy = True

    cpdef release(self):
        """Let others in."""
        self.depth -= 1
        if self.depth == 0:
            self.busy = False
        self.lock.release()

    def __enter__(self):
        self.acquire()

    def __exit__(self, *error):
        self.release()

    def _is_owned(self):
        return self.lock._is_owned()

    def _at_fork_reinit(self):
        self.lock._at_fork_reinit()
        self.busy = False
        self.depth = 0


cdef class Prepared:
    """A prepared take of one limit, for whoever comes through the door."""

    cdef take_one(self, key, cost, partial):
        raise NotImplementedError

    def hit(self, key="", cost=1, *, partial=False):
        """Take `cost` or be refused; with `partial`, take what is there. Never sleeps."""
        return self.take_one(key, cost, partial)


cdef class Door:
    """What a Limiter's hit is."""

    def open(self):
        """Let hits take the prepared way, if there is one."""
        self.way = self._prepared

    def hit(self, key="", cost=1, *, partial=False):
        """Take `cost` or be refused; with `partial`, take what is there. Never sleeps."""
        if self.way is not None:
            return self.way.take_one(key, cost, partial)
        return self._take(key, cost, partial)


cdef class InMemory(Prepared):
    """What both kinds of takes from a table know."""

    cdef object store, space, limit, micros
    cdef Table table
    cdef Reclaimer books
    cdef Guard guard
    cdef list put_off, expiries
    cdef dict own
    cdef bint system
    cdef int64_t offset, tick

    def __cinit__(self, store, Table table, space, limit):
        self.store, self.table, self.space, self.limit = store, table, space, limit
        self.books, self.guard = store._reclaimer, store._lock
        self.put_off, self.expiries = store._put_off, store._reservations.expiries
        self.own, self.tick = table.own, table.tick
        self.micros = store._micros
        self.system = HG_CLOCK and type(store.clock) is SystemClock
        self.offset = store.clock.offset if self.system else 0

    cdef inline int64_t now(self) except? -1:
        """The time in ticks."""
        cdef int64_t nanos
        if self.system:
            nanos = hg_nanos() + self.offset
            # Divisions by constants, which cost a multiplication.
            if self.tick == 1:
                return <uint64_t>nanos // 1000
            if self.tick == 1000:
                return <uint64_t>nanos // 1000000
            return <uint64_t>nanos // 1000000000
        nanos = self.micros()
        return nanos // self.tick

    cdef int64_t instant(self) except? -1:
        """The time in microseconds."""
        if self.system:
            return <uint64_t>(hg_nanos() + self.offset) // 1000
        return self.micros()

    cdef inline bint plain(self):
        """Whether nothing stands in the way of a short decision."""
        return not (
            self.guard.busy
            or PyList_GET_SIZE(self.expiries)
            or PyList_GET_SIZE(self.put_off)
            or PyDict_GET_SIZE(self.own)
            or self.books.closed
        )

    def longer(self, key, cost, partial):
        """The same take by way of decide."""
        ask = Ask("take", self.limit, key, cost, self.space, 0, 1 if partial else -1)
        return self.store.decide((ask,))[0]


@cython.final
cdef class Words(InMemory):
    """Takes of an algorithm of three words."""

    cdef Algorithm rule
    cdef bint guarded

    def __init__(self, store, Table table, space, limit):
        self.rule = table.rule
        self.guarded = type(self.rule) not in PLAIN

    cdef Decision take(self, uint64_t hash, int64_t now, int64_t cost):
        """A decision, or None where the longer way must be gone."""
        cdef Slot* slot = self.table.find(hash)
        cdef Words4 outcome
        cdef Words3 seen
        cdef Decision decision
        if slot is NULL:
            if self.rule.sticky or self.books.keys >= self.books.most:
                return None
            outcome = self.rule.take(0, 0, 0, now, cost, 0)
            if outcome[0] == 0:
                slot = self.table.enter(hash)
                slot.a, slot.b, slot.c = outcome[1], outcome[2], outcome[3]
                seen = self.rule.look(outcome[1], outcome[2], outcome[3], now, 0)
                self.came_in(hash, now, (now + seen[2]) * self.tick)
        elif slot.a < 0:
            return None
        else:
            outcome = self.rule.take(slot.a, slot.b, slot.c, now, cost, 0)
            if outcome[0] == 0 or outcome[1] != slot.a:
                slot.a, slot.b, slot.c = outcome[1], outcome[2], outcome[3]
        if outcome[0] == 0:
            decision = Decision.__new__(Decision)
        else:
            decision = Refusal.__new__(Refusal)
        decision._source = self.rule
        decision._outcome = outcome
        decision._now = now
        decision._cost = cost
        return decision

    cdef int keep(self, uint64_t hash, int64_t now, Words4* outcome) except -1:
        """Write what a take left of a key, which may be new."""
        cdef Slot* slot = self.table.find(hash)
        cdef Words3 seen
        cdef bint new = slot is NULL
        if new:
            slot = self.table.enter(hash)
        slot.a, slot.b, slot.c = outcome[0][1], outcome[0][2], outcome[0][3]
        if new:
            seen = self.rule.look(slot.a, slot.b, slot.c, now, 0)
            self.came_in(hash, now, (now + seen[2]) * self.tick)
        return 0

    cdef int came_in(self, uint64_t hash, int64_t now, int64_t reset) except -1:
        self.table.note(hash, reset)
        self.books.keys += 1
        self.books.add(self.table)
        self.books.sweep(self.table, now * self.tick)
        return 0

    cdef take_one(self, key, cost, partial):
        cdef Decision decision
        cdef int64_t amount = 1, now
        cdef uint64_t hash = handle_of(key)
        if cost is not ONE:
            if not PyLong_CheckExact(cost) or not 0 < cost < CEILING:
                return self.longer(key, cost, partial)
            amount = cost
        now = self.now()  # a clock may run Python code: nothing is looked at before it
        if self.plain() and not partial:
            if self.guarded:
                with self.guard:
                    decision = self.take(hash, now, amount)
            else:
                decision = self.take(hash, now, amount)
            if decision is not None:
                return decision
        return self.longer(key, cost, partial)

    def hit_many(self, list keys, cost):
        """Independent decisions of one instant, in order; the cost has been checked.

        The keys are the caller's own list: before any Python code can run, which might change
        it, it is copied. Plain text has its hash, and the system its time, without any.
        """
        cdef list found = PyList_New(PyList_GET_SIZE(keys))
        cdef Py_ssize_t i, count = PyList_GET_SIZE(found)
        cdef bytearray hashes = PyByteArray_FromStringAndSize(NULL, 8 * count)
        cdef uint64_t* names = <uint64_t*>PyByteArray_AS_STRING(hashes)
        cdef Table table = self.table  # names of this function's own need no counting of references
        cdef Algorithm rule = self.rule
        cdef int64_t amount = cost, now, wait, a, b, c
        cdef bint plain, lent = borrowed, ours = False
        cdef Decision decision
        cdef Words4 outcome
        cdef Slot* slot
        PyObject_GC_UnTrack(found)  # nobody is to come upon its empty places
        if not self.system or PyList_GET_SIZE(keys) != count:
            keys, ours = copied(keys, count), True
        for i in range(count):  # bad input is found before anything is taken
            if i + AHEAD < count:
                HG_FETCH(PyList_GET_ITEM(keys, i + AHEAD))
            if lent and HG_IS_ASCII(<object>PyList_GET_ITEM(keys, i)):
                names[i] = lent_name(<object>PyList_GET_ITEM(keys, i))
                continue
            if not ours:
                keys, ours = copied(keys, count), True
            names[i] = handle_of(keys[i])
        now = self.now()  # a clock may run Python code: nothing is looked at before it
        plain = amount and self.plain()
        for i in range(count):
            if plain and BULK and not self.guarded:
                if i + AHEAD < count:
                    fetch_slots(table, names[i + AHEAD])
                slot = slot_of(table, names[i])
                if slot is not NULL and slot.a >= 0:
                    outcome = rule.take(slot.a, slot.b, slot.c, now, amount, 0)
                    wait, a, b, c = outcome[0], outcome[1], outcome[2], outcome[3]
                    if wait == 0 or a != slot.a:
                        slot.a, slot.b, slot.c = a, b, c
                    if wait == 0:
                        put(found, i, Decision, rule, wait, a, b, c, now, amount)
                    else:
                        put(found, i, Refusal, rule, wait, a, b, c, now, amount)
                    continue
            decision = None
            if plain:
                if self.guarded:
                    with self.guard:
                        decision = self.take(names[i], now, amount)
                else:
                    decision = self.take(names[i], now, amount)
            if decision is None:
                if not ours:
                    keys, ours = copied(keys, count), True
                decision = self.longer(keys[i], cost, False)
            Py_INCREF(decision)
            PyList_SET_ITEM(found, i, decision)
            plain = amount and self.plain()  # Python code may have run
        PyObject_GC_Track(found)
        return found


cdef list copied(list keys, Py_ssize_t count):
    """Keys that nobody else can change."""
    keys = list(keys)
    if PyList_GET_SIZE(keys) != count:
        raise RuntimeError("the list of keys changed its size meanwhile")
    return keys


@cython.final
cdef class Together(Prepared):
    """Takes of several limits of three words: all of them or none."""

    cdef list parts
    cdef Words first

    def __init__(self, parts):
        self.parts = parts
        self.first = parts[0]

    cdef take_one(self, key, cost, partial):
        cdef uint64_t hash = handle_of(key)
        cdef Words4 outcomes[MANY]
        cdef Words part
        cdef Slot* slot
        cdef Decision decision
        cdef int64_t amount, micros, now
        cdef int i, count = <int>PyList_GET_SIZE(self.parts), new = 0
        cdef bint passed = True
        if partial or not PyLong_CheckExact(cost) or not 0 < cost < CEILING:
            return self.longer(key, cost, partial)
        amount = cost
        micros = self.first.instant()
        found = PyTuple_New(count)
        for i in range(count):
            if not (<Words>self.parts[i]).plain():
                return self.longer(key, cost, partial)
        # From here to the last write no Python code runs.
        for i in range(count):
            part = <Words>self.parts[i]
            slot = part.table.find(hash)
            if slot is NULL:
                if part.rule.sticky:
                    return self.longer(key, cost, partial)
                new += 1
                outcomes[i] = part.rule.take(0, 0, 0, micros // part.tick, amount, 0)
            elif slot.a < 0:
                return self.longer(key, cost, partial)
            else:
                outcomes[i] = part.rule.take(
                    slot.a, slot.b, slot.c, micros // part.tick, amount, 0
                )
            passed = passed and outcomes[i][0] == 0
        if passed and new and self.first.books.keys + new > self.first.books.most:
            return self.longer(key, cost, partial)
        for i in range(count):
            part = <Words>self.parts[i]
            now = micros // part.tick
            if passed:
                part.keep(hash, now, &outcomes[i])
                decision = Decision.__new__(Decision)
            elif outcomes[i][0] == 0:  # it would have passed alone: what is left is as before
                slot = part.table.find(hash)
                outcomes[i] = (0, 0, 0, 0)
                if slot is not NULL:
                    outcomes[i] = (0, slot.a, slot.b, slot.c)
                decision = Glance.__new__(Glance)
            else:
                slot = part.table.find(hash)
                if slot is not NULL and outcomes[i][1] != slot.a:
                    part.keep(hash, now, &outcomes[i])
                decision = Refusal.__new__(Refusal)
            decision._source = part.rule
            decision._outcome = outcomes[i]
            decision._now = now
            decision._cost = amount
            Py_INCREF(decision)
            PyTuple_SET_ITEM(found, i, decision)
        return joined(found)

    def longer(self, key, cost, partial):
        """The same take by way of decide."""
        least = 1 if partial else -1
        asks = [
            Ask("take", (<Words>part).limit, key, cost, (<Words>part).space, 0, least)
            for part in self.parts
        ]
        return joined(tuple(self.first.store.decide(asks)))

    def hit_many(self, list keys, cost):
        """Independent decisions, in order; the cost has been checked."""
        keys = list(keys)  # the caller's own, which others may change
        for key in keys:  # bad input is found before anything is taken
            handle_of(key)
        return [self.take_one(key, cost, False) for key in keys]


@cython.final
cdef class Spreads(InMemory):
    """Takes of an algorithm whose state is one object, behind the lock: they run Python code."""

    cdef object rule

    def __init__(self, store, Table table, space, limit):
        self.rule = table.rule

    cdef Decision take(self, uint64_t hash, int64_t cost):
        cdef Slot* slot
        cdef Decision decision
        cdef int64_t now
        now = self.now()
        if not self.plain():
            return None
        self.guard.acquire()  # `with` would look for its two methods each time
        try:
            if PyDict_GET_SIZE(self.own) or self.books.closed:  # meanwhile
                return None
            slot = self.table.find(hash)
            if slot is NULL:
                if self.books.keys >= self.books.most:
                    return None
                state = self.rule.empty()
            elif slot.a != -1:
                return None
            else:
                state = self.table.live(slot)
                if type(state) is tuple:
                    return None
            outcome = self.rule.hit(state, now, cost)
            if outcome[0] == 0 and slot is NULL:
                self.table.write(hash, self.rule, state)
                self.books.keys += 1
                self.books.add(self.table)
                self.table.note(hash, self.table.reset_at(self.table.find(hash), now * self.tick))
                self.books.sweep(self.table, now * self.tick)
        finally:
            self.guard.release()
        if outcome[0] == 0:
            decision = Decision.__new__(Decision)
        else:
            decision = Refusal.__new__(Refusal)
        decision._source = self.rule
        decision._outcome = outcome
        decision._now = now
        decision._cost = cost
        return decision

    cdef take_one(self, key, cost, partial):
        cdef Decision decision
        cdef uint64_t hash = handle_of(key)
        if not PyLong_CheckExact(cost) or not 0 < cost < CEILING or partial:
            return self.longer(key, cost, partial)
        decision = self.take(hash, cost)
        return decision if decision is not None else self.longer(key, cost, partial)

    def hit_many(self, list keys, cost):
        """Independent decisions, in order; the cost has been checked."""
        cdef Decision decision
        found = []
        keys = list(keys)  # the caller's own, which others may change
        for key in keys:  # bad input is found before anything is taken
            handle_of(key)
        for key in keys:
            decision = self.take(handle_of(key), cost) if cost else None
            found.append(decision if decision is not None else self.longer(key, cost, False))
        return found


def quick_words(store, table, space, limit):
    """A take for an algorithm of three words."""
    return Words(store, table, space, limit)


def quick_spread(store, table, space, limit):
    """A take for an algorithm whose state is one object."""
    return Spreads(store, table, space, limit)


def quick_together(ways):
    """A take of several limits at once, if each has a way of three words that is C alone."""
    if len(ways) > MANY or not all(type(way) is Words and not (<Words>way).guarded for way in ways):
        return None
    return Together(ways)
