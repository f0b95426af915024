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
from cpython.ref cimport Py_INCREF
from cpython.tuple cimport PyTuple_New, PyTuple_SET_ITEM
from cpython.unicode cimport PyUnicode_AsUTF8AndSize
from libc.stdint cimport int64_t, uint8_t, uint64_t
from libc.string cimport memcpy

from .algorithms.base cimport Algorithm, Words3, Words4
from .decision cimport Decision, Glance, Refusal
from .hashing cimport sip_begin, sip_end, sip_word, word_at
from .quick cimport Prepared
from .stores.zone.engine cimport Engine
from .zonelock cimport RobustLock

from headgate.decision import Ask, joined
from headgate.keys import encode
from headgate.stores.zone import places

__all__ = ["InZone", "InZoneTogether", "together"]

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
    MANY = 8  # limits that are decided together on the short way
    LONGEST = 256  # bytes of a key that the short way has room for

cdef int64_t CEILING = 1 << 53
cdef int64_t MOST = 1 << 62
cdef object ONE = 1
cdef int64_t OWN = places.OWN, EARLIEST = places.EARLIEST, LATEST = places.LATEST
cdef int64_t IS_KEY = places.IS_KEY, LINK = places.LINK, KIND = places.KIND, COUNT = places.COUNT
cdef int64_t HAND = places.HAND, BUMP = places.BUMP, KEYS = places.KEYS
cdef int64_t NARROW = 64  # with fewer free chunks than this, room is made the longer way
cdef int STEPS = 8  # how many chunks are looked at for each new key

cdef struct Found:
    int64_t at  # where the key is; 0 if it is new
    int64_t a
    int64_t b
    int64_t c
    Words4 outcome
    bint new  # whether it was entered


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

    cdef int64_t instant(self) except? -1:
        """The time in microseconds."""
        if self.timed:
            return <uint64_t>(hg_nanos() + self.offset) // 1000
        return self.micros()

    cdef int64_t now(self) except? -1:
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

    cdef bint takes(self, int64_t name, int64_t now, int64_t cost, Found* found) except -1:
        """Ask for a key as it is; False where the longer way must be gone. The lock is held."""
        cdef Engine engine = self.engine
        cdef int64_t first = engine.words[EARLIEST], a = 0, b = 0, c = 0
        if engine.words[OWN] or (0 < first <= now * self.tick):
            return False
        found.at = engine.find(name, IS_KEY)
        if found.at == 0:
            if self.keeps or engine.free() < NARROW:
                return False
        elif engine.words[found.at + 2] & LINK != self.number:
            return False
        else:
            a, b, c = (
                engine.words[found.at + 3], engine.words[found.at + 4], engine.words[found.at + 5]
            )
            if not (0 <= a <= MOST and 0 <= b <= MOST and 0 <= c <= MOST):
                raise engine.damaged("a count")
        found.a, found.b, found.c, found.new = a, b, c, False
        found.outcome = self.rule.take(a, b, c, now, cost, 0)
        return True

    cdef int keep(self, int64_t name, int64_t now, Found* found) except -1:
        """Write what a take left of a key, which may be new."""
        cdef Engine engine = self.engine
        if found.at == 0:
            found.at = engine.insert(name, IS_KEY)
            engine.put(found.at + 2, self.number)
            engine.put(KEYS, engine.words[KEYS] + 1)
            found.new = True
        engine.put(found.at + 3, found.outcome[1])
        engine.put(found.at + 4, found.outcome[2])
        engine.put(found.at + 5, found.outcome[3])
        return 0

    cdef int note(self, int64_t now, Found* found, bint passed) except -1:
        """Count, where keys are kept, and note the time."""
        if self.keeps and found.at:
            self.engine.words[found.at + (6 if passed else 7)] += 1
        if self.timed:
            self.engine.words[LATEST] = now * self.tick
        return 0

    cdef Decision take(self, int64_t name, int64_t now, int64_t cost):
        """A decision, or None where the longer way must be gone; the lock is held."""
        cdef Found found
        cdef Decision decision
        if not self.takes(name, now, cost, &found):
            return None
        if found.outcome[0] == 0 or (found.at != 0 and found.outcome[1] != found.a):
            self.keep(name, now, &found)
            if found.new:
                self.sweep(now, found.at)
            self.engine.commit()
        self.note(now, &found, found.outcome[0] == 0)
        if found.outcome[0] == 0:
            decision = Decision.__new__(Decision)
        else:
            decision = Refusal.__new__(Refusal)
        decision._source = self.rule
        decision._outcome = found.outcome
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
        engine.poke(HAND, hand)  # wherever it is, it goes on: nothing to undo
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
        keys = list(keys)  # the caller's own, which others may change
        for key in keys:  # bad input is found before anything is taken
            self.name(key, &name)
        for key in keys:
            decision = None
            if self.name(key, &name) and cost:
                decision = self.alone(name, cost)
            found.append(decision if decision is not None else self.longer(key, cost, False))
        return found


@cython.final
cdef class InZoneTogether(Prepared):
    """Takes of several limits from a zone: all of them or none."""

    cdef list parts
    cdef InZone first

    def __init__(self, parts):
        self.parts = parts
        self.first = parts[0]

    cdef take_one(self, key, cost, partial):
        cdef int64_t names[MANY]
        cdef int64_t micros
        cdef int i, count = <int>PyList_GET_SIZE(self.parts)
        if partial or not PyLong_CheckExact(cost) or not 0 < cost < CEILING:
            return self.longer(key, cost, partial)
        for i in range(count):
            if not (<InZone>self.parts[i]).name(key, &names[i]):
                return self.longer(key, cost, partial)
        micros = self.first.instant()
        found = PyTuple_New(count)
        for i in range(count):  # after the clock, which may run Python code
            if not (<InZone>self.parts[i]).ready():
                return self.longer(key, cost, partial)
        if not self.first.lock.enter_quickly():
            return self.longer(key, cost, partial)
        try:
            done = self.take(names, micros, cost, found)
        finally:
            if self.first.engine.pending():
                self.first.engine.rollback()
            self.first.lock.leave_quickly()
        return joined(found) if done else self.longer(key, cost, partial)

    cdef bint take(self, int64_t* names, int64_t micros, int64_t cost, tuple decisions) except -1:
        """Fill in the decisions; False where the longer way must be gone."""
        cdef Found found[MANY]
        cdef InZone part
        cdef Decision decision
        cdef int64_t now
        cdef int i, count = <int>PyList_GET_SIZE(self.parts)
        cdef bint passed = True
        for i in range(count):
            part = <InZone>self.parts[i]
            if not part.takes(names[i], micros // part.tick, cost, &found[i]):
                return False
            passed = passed and found[i].outcome[0] == 0
        for i in range(count):
            part = <InZone>self.parts[i]
            now = micros // part.tick
            if passed or (
                found[i].outcome[0] != 0 and found[i].at and found[i].outcome[1] != found[i].a
            ):
                part.keep(names[i], now, &found[i])
        for i in range(count):  # once all are written: none of them is idle now
            part = <InZone>self.parts[i]
            if found[i].new:
                part.sweep(micros // part.tick, found[i].at)
        self.first.engine.commit()
        for i in range(count):
            part = <InZone>self.parts[i]
            now = micros // part.tick
            if passed or found[i].outcome[0] != 0:
                part.note(now, &found[i], passed)
            if passed:
                decision = Decision.__new__(Decision)
            elif found[i].outcome[0] == 0:  # it would have passed alone: what is left is as before
                found[i].outcome[1] = found[i].a
                found[i].outcome[2] = found[i].b
                found[i].outcome[3] = found[i].c
                decision = Glance.__new__(Glance)
            else:
                decision = Refusal.__new__(Refusal)
            decision._source = part.rule
            decision._outcome = found[i].outcome
            decision._now = now
            decision._cost = cost
            Py_INCREF(decision)
            PyTuple_SET_ITEM(decisions, i, decision)
        return True

    def longer(self, key, cost, partial):
        """The same take by way of decide."""
        least = 1 if partial else -1
        asks = [
            Ask("take", (<InZone>part).limit, key, cost, (<InZone>part).space, 0, least)
            for part in self.parts
        ]
        return joined(tuple(self.first.store.decide(asks)))

    def hit_many(self, list keys, cost):
        """Independent decisions, in order; others get in between them."""
        cdef int64_t name = 0
        keys = list(keys)  # the caller's own, which others may change
        for key in keys:  # bad input is found before anything is taken
            self.first.name(key, &name)
        return [self.take_one(key, cost, False) for key in keys]


def together(ways):
    """A take of several limits at once, if they are not too many."""
    return InZoneTogether(ways) if len(ways) <= MANY else None
