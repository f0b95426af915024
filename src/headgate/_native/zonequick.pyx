# cython: boundscheck=False, wraparound=False
"""The short way into a zone: a take of three words in one crossing.

It keeps the interpreter from the first look to the last write, so other threads of this process
stay out; other processes are kept out by the zone's lock. Whatever is unusual goes the longer
way: a zone that is nearly full, or keeps the texts of keys and meets a new one; another limit's
state; a limit of the key's own; reservations that have expired.
"""

cimport cython
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from cpython.list cimport PyList_GET_SIZE
from cpython.long cimport PyLong_CheckExact
from cpython.unicode cimport PyUnicode_AsUTF8AndSize
from libc.stdint cimport int64_t, uint8_t, uint64_t
from libc.string cimport memcpy

from .algorithms.base cimport Algorithm, Words3, Words4
from .decision cimport Decision, Refusal
from .hashing cimport sip_begin, sip_end, sip_word, word_at
from .quick cimport Prepared
from .stores.zone.engine cimport Engine
from .zonelock cimport RobustLock

from headgate.decision import Ask
from headgate.keys import encode
from headgate.stores.zone import places

__all__ = ["InZone"]

cdef extern from *:
    """
    #include <time.h>
    #define HG_IS_ASCII(key) (PyUnicode_CheckExact(key) && PyUnicode_IS_ASCII(key))
    static inline int64_t hg_nanos(void) {
        struct timespec t;
        clock_gettime(CLOCK_MONOTONIC, &t);
        return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
    }
    """
    bint HG_IS_ASCII(object key)
    int64_t hg_nanos() nogil

cdef enum:
    LONGEST = 256  # bytes of a key that the short way has room for

cdef int64_t CEILING = 1 << 53
cdef int64_t MOST = 1 << 62
cdef object ONE = 1
cdef int64_t OWN = places.OWN, EARLIEST = places.EARLIEST, LATEST = places.LATEST
cdef int64_t IS_KEY = places.IS_KEY, LINK = places.LINK, KIND = places.KIND, COUNT = places.COUNT
cdef int64_t HAND = places.HAND, BUMP = places.BUMP, KEYS = places.KEYS
cdef int64_t NARROW = 64  # with fewer free chunks than this, room is made the longer way
cdef int STEPS = 8  # how many chunks are looked at for each new key


@cython.final
cdef class InZone(Prepared):
    """Takes of one limit from a zone."""

    cdef object store, space, limit, micros, registry
    cdef Engine engine
    cdef RobustLock lock
    cdef Algorithm rule
    cdef list put_off
    cdef int64_t number, tick, offset
    cdef bint timed, keeps
    cdef uint64_t begun[4]
    cdef uint8_t rest[8]
    cdef Py_ssize_t resting, before

    def __init__(self, store, zone, table, space, limit, int64_t k0, int64_t k1):
        cdef bytes prefix = table.prefix
        cdef const uint8_t* data = <const uint8_t*>PyBytes_AS_STRING(prefix)
        cdef Py_ssize_t i
        self.store, self.space, self.limit, self.rule = store, space, limit, table.rule
        self.engine, self.lock, self.registry = zone.engine, zone.lock, zone.registry
        self.put_off, self.keeps, self.timed = store._put_off, zone.keeps, store._timed
        self.micros, self.offset, self.tick = store._micros, zone.offset, self.rule.tick
        # Every name begins with the same bytes: they are taken in once.
        self.before = len(prefix)
        self.resting = self.before & 7
        sip_begin(self.begun, <uint64_t>k0, <uint64_t>k1)
        for i in range(0, self.before - self.resting, 8):
            sip_word(self.begun, word_at(data + i, 8), 1)
        memcpy(self.rest, data + self.before - self.resting, self.resting)

    cdef bint name(self, key, int64_t* name) except -1:
        """The name of a key, if it is not too long for the short way."""
        cdef uint8_t room[LONGEST + 8]
        cdef uint64_t v[4]
        cdef const char* text
        cdef Py_ssize_t length
        cdef bytes data
        if HG_IS_ASCII(key):
            text = PyUnicode_AsUTF8AndSize(key, &length)
        else:
            data = encode(key)
            text, length = PyBytes_AS_STRING(data), PyBytes_GET_SIZE(data)
        if length > LONGEST:
            return False
        memcpy(room, self.rest, 8)
        memcpy(room + self.resting, text, length)
        memcpy(v, self.begun, sizeof(v))
        name[0] = <int64_t>sip_end(v, room, self.resting + length, self.before + length, 1, 3)
        return True

    cdef int64_t now(self) except -1:
        """The time in ticks."""
        cdef int64_t nanos
        if self.timed:
            nanos = hg_nanos() + self.offset
            if self.tick == 1:
                return <uint64_t>nanos // 1000
            if self.tick == 1000:
                return <uint64_t>nanos // 1000000
            return <uint64_t>nanos // 1000000000
        nanos = self.micros()
        return nanos // self.tick

    cdef Decision take(self, int64_t name, int64_t now, int64_t cost):
        """A decision, or None where the longer way must be gone; the lock is held."""
        cdef Engine engine = self.engine
        cdef int64_t at, a, b, c, first = engine.words[EARLIEST]
        cdef Words4 outcome
        cdef Decision decision
        if engine.words[OWN] or (0 < first <= now * self.tick):
            return None
        at = engine.find(name, IS_KEY)
        a = b = c = 0
        if at == 0:
            if self.keeps or engine.free() < NARROW:
                return None
        elif engine.words[at + 2] & LINK != self.number:
            return None
        else:
            a, b, c = engine.words[at + 3], engine.words[at + 4], engine.words[at + 5]
            if not (0 <= a <= MOST and 0 <= b <= MOST and 0 <= c <= MOST):
                raise engine.damaged("a count")
        outcome = self.rule.take(a, b, c, now, cost, 0)
        if outcome[0] == 0 or (at != 0 and outcome[1] != a):
            if at == 0:
                at = engine.insert(name, IS_KEY)
                engine.put(at + 2, self.number)
                engine.put(KEYS, engine.words[KEYS] + 1)
                self.sweep(now, at)
            engine.put(at + 3, outcome[1])
            engine.put(at + 4, outcome[2])
            engine.put(at + 5, outcome[3])
            engine.commit()
        if self.keeps:
            engine.words[at + (6 if outcome[0] == 0 else 7)] += 1
        if self.timed:
            engine.words[LATEST] = now * self.tick
        if outcome[0] == 0:
            decision = Decision.__new__(Decision)
        else:
            decision = Refusal.__new__(Refusal)
        decision._source = self.rule
        decision._outcome = outcome
        decision._now = now
        decision._cost = cost
        return decision

    cdef int sweep(self, int64_t now, int64_t new) except -1:
        """Forget keys of this limit that are as if never used, if the hand meets some."""
        cdef Engine engine = self.engine
        cdef int64_t hand = engine.words[HAND], at
        cdef Words3 seen
        cdef int step
        for step in range(STEPS):
            hand += 1
            if not 0 < hand < engine.words[BUMP]:
                hand = 1
            at = engine.at(hand)
            # Neither with another rule or a text of its key, nor with a reservation.
            if (
                at == new
                or engine.words[at] & KIND != IS_KEY
                or engine.words[at + 2] != self.number
                or engine.words[at] >> COUNT
            ):
                continue
            seen = self.rule.look(
                engine.words[at + 3], engine.words[at + 4], engine.words[at + 5], now, 0
            )
            if seen[2] == 0:
                engine.remove(at)
                engine.put(KEYS, engine.words[KEYS] - 1)
        engine.put(HAND, hand)
        return 0

    cdef bint ready(self):
        """Whether nothing in this process stands in the way."""
        if self.number == 0:
            self.number = self.registry.known(self.rule)
        return not (
            self.number == 0
            or self.lock.held
            or PyList_GET_SIZE(self.put_off)
            or self.engine.view is None
        )

    cdef Decision alone(self, int64_t name, int64_t cost):
        cdef Decision decision = None
        cdef int64_t now = self.now()
        if self.ready() and self.lock.enter_quickly():
            try:
                decision = self.take(name, now, cost)
            finally:
                if self.engine.pending():
                    self.engine.rollback()
                self.lock.leave_quickly()
        return decision

    cdef take_one(self, key, cost, partial):
        cdef Decision decision = None
        cdef int64_t amount = 1, name = 0
        if cost is not ONE:
            if not PyLong_CheckExact(cost) or not 0 < cost < CEILING:
                return self.longer(key, cost, partial)
            amount = cost
        if self.name(key, &name) and not partial:
            decision = self.alone(name, amount)
        return decision if decision is not None else self.longer(key, cost, partial)

    def longer(self, key, cost, partial):
        """The same take by way of decide."""
        ask = Ask("take", self.limit, key, cost, self.space, 0, 1 if partial else -1)
        return self.store.decide((ask,))[0]

    def hit_many(self, list keys, cost):
        """Independent decisions, in order; others get in between them."""
        cdef Decision decision
        cdef int64_t name = 0
        found = []
        for key in keys:  # bad input is found before anything is taken
            self.name(key, &name)
        for key in keys:
            decision = None
            if self.name(key, &name) and cost:
                decision = self.alone(name, cost)
            found.append(decision if decision is not None else self.longer(key, cost, False))
        return found
