"""The compiled form's Table: what stores/table.py is, with 32 bytes a key.

Keys are known by a keyed 64-bit hash. A table is one segment while it is small, then 16, then
256, each an array in which keys stand in the order of their hashes, as near as they can to the place
their hash names; so a key that is not there is missed early, a key that goes leaves no gap, and
a large segment grows by a 32nd in one pass over itself. Three words of state stand in the slot;
the state of a spread algorithm is a Python object, packed into bytes unless it was used lately.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_CheckExact, PyBytes_GET_SIZE
from cpython.ref cimport PyObject, Py_DECREF, Py_INCREF
from libc.stdint cimport INT64_MAX, int64_t, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport free, realloc
from libc.string cimport memmove, memset

from .algorithms.base cimport Algorithm, Rule, Words3
from .hashing cimport siphash

import os
import sys

from ..algorithms import carried, rule_of
from .keys import canonical, encode

__all__ = ["Table", "handle_of"]

cdef extern from *:
    """
    #include <stdlib.h>
    #include <string.h>
    #if defined(__linux__)
    #include <sys/mman.h>
    #define HG_MAPPED 4096
    #else
    #define HG_MAPPED ((size_t)-1)
    #endif
    /* A large block is a mapping of its own, which grows without a copy and leaves no hole. */
    static void *hg_resized(void *old, size_t before, size_t after) {
    #if defined(__linux__)
        int was = before >= HG_MAPPED, is = after >= HG_MAPPED;
        void *made;
        if (was && is) {
            made = mremap(old, before, after, MREMAP_MAYMOVE);
            return made == MAP_FAILED ? NULL : made;
        }
        if (was || is) {
            if (is) {
                made = mmap(NULL, after, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
                if (made == MAP_FAILED) return NULL;
            } else if (after) {
                made = malloc(after);
                if (made == NULL) return NULL;
            } else {
                made = NULL;
            }
            if (old && made) memcpy(made, old, before < after ? before : after);
            if (was) munmap(old, before); else free(old);
            return made;
        }
    #endif
        (void)before;
        if (after == 0) { free(old); return NULL; }
        return realloc(old, after);
    }
    #define HG_IS_ASCII(key) (PyUnicode_CheckExact(key) && PyUnicode_IS_ASCII(key))
    """
    void* hg_resized(void* old, size_t before, size_t after) nogil
    bint HG_IS_ASCII(object key)

cdef extern from "Python.h":
    Py_ssize_t Py_REFCNT(object o)

cdef int64_t OBJECT = -1
cdef uint32_t SMALL = 1024  # keys in a segment that make a table of 1 one of 16, then of 256

# Python's own hash is keyed and kept in each str, unless somebody has fixed its seed.
borrowed = (
    sys.flags.hash_randomization
    and os.environ.get("PYTHONHASHSEED", "random") in ("", "random")
    and sys.hash_info.width == 64
)
cdef uint64_t key0 = int.from_bytes(os.urandom(8), "little")
cdef uint64_t key1 = int.from_bytes(os.urandom(8), "little")


cpdef uint64_t handle_of(object key) except 0:
    """What a key is known by: a number that only this process can foresee."""
    cdef uint64_t found
    cdef bytes data
    if borrowed and HG_IS_ASCII(key):
        found = <uint64_t>PyObject_Hash(key)
    else:
        # The hash of text goes by its width in memory, so text beyond ASCII is taken as UTF-8.
        data = encode(key)
        if borrowed:
            found = <uint64_t>PyObject_Hash(data)
        else:
            found = siphash(
                <const uint8_t*>PyBytes_AS_STRING(data), PyBytes_GET_SIZE(data), key0, key1, 1, 3
            )
    return found if found else 1


def sip(bytes data, uint64_t k0, uint64_t k1, int rounds, int last):
    """SipHash, for those who check it."""
    return siphash(
        <const uint8_t*>PyBytes_AS_STRING(data), PyBytes_GET_SIZE(data), k0, k1, rounds, last
    )


cdef class Table:
    """The state of every key of one limit in one namespace."""

    def __cinit__(self, name, limit, own):
        self.name = name
        self.own = own
        self.rule = rule_of(limit)
        self.law = self.rule
        self.tick = self.law.tick
        if self.law.words:
            self.words = self.rule
        self.segments = <Segment*>realloc(NULL, sizeof(Segment))
        if self.segments is NULL:
            raise MemoryError
        self.count = 1
        _make(self.segments)

    def __dealloc__(self):
        cdef int i
        if self.segments is not NULL:
            for i in range(self.count):
                _unmake(&self.segments[i])
            free(self.segments)

    # -- what the pure Table offers

    def handle(self, key):
        """What a key is known by in this table."""
        return handle_of(key)

    def known(self, uint64_t hash):
        """Whether a key has a state here."""
        return self.find(hash) is not NULL

    def own_limit(self, hash):
        """The limit a key was given, if any."""
        return self.own.get(hash) if self.own else None

    def read(self, uint64_t hash, rule, micros):
        """A key's state as this rule sees it; None if the key was never seen."""
        cdef Slot* slot = self.find(hash)
        if slot is NULL:
            return None
        old = self.rule
        if slot.a != OBJECT:
            state = slot.a, slot.b, slot.c
        else:
            state = self.live(slot)
            if type(state) is tuple:
                old, state = state
        return state if old is rule else carried(old, state, rule, micros)

    def rule_at(self, uint64_t hash):
        """The rule a key was written under."""
        cdef Slot* slot = self.find(hash)
        if slot is not NULL and slot.a == OBJECT:
            state = <object><PyObject*>slot.b
            if type(state) is tuple:
                return state[0]
        return self.rule

    def write(self, uint64_t hash, rule, state):
        """Keep a key's state, written under a rule."""
        cdef int64_t a, b, c
        cdef Slot* slot = self.find(hash)
        if rule is not self.rule:
            state = rule, state
        elif self.words is not None:
            a, b, c = state
            if slot is NULL:
                slot = self.enter(hash)
            else:
                if slot.a == OBJECT:
                    self.let_go(slot)
                self.note(hash, 0)
            slot.a, slot.b, slot.c = a, b, c
            return
        if slot is NULL:
            if type(state) is not tuple:
                self.cool()
                self.hot[self.hottest] = hash
            slot = self.enter(hash)
        else:
            self.note(hash, 0)  # it may reset earlier than it did; when its turn comes it shows
            if slot.a == OBJECT:
                if <PyObject*>slot.b == <PyObject*>state:
                    return
                self.let_go(slot)
        Py_INCREF(state)
        slot.a, slot.b, slot.c = OBJECT, <int64_t><PyObject*>state, 0

    def forget(self, uint64_t hash):
        """Drop a key."""
        self.leave(hash)

    def reset(self, uint64_t hash, int64_t micros):
        """The rule a key was written under and the instant of its reset (-1: not foreseen)."""
        cdef Slot* slot = self.find(hash)
        if slot is NULL:
            return None
        return self.rule_at(hash), self.reset_at(slot, micros)

    def clear(self):
        """Forget every key."""
        cdef int i
        for i in range(self.count):
            _unmake(&self.segments[i])
            _make(&self.segments[i])
        self.keys = 0
        memset(self.hot, 0, sizeof(self.hot))

    def __len__(self):
        return self.keys

    def bytes(self):
        """How much memory the slots take."""
        cdef int i
        cdef int64_t total = self.count * sizeof(Segment)
        for i in range(self.count):
            total += self.segments[i].size * sizeof(Slot)
        return total

    # -- slots

    cdef Segment* segment_of(self, uint64_t hash) noexcept:
        return &self.segments[(hash >> 1) >> (63 - self.bits)]

    cdef Slot* find(self, uint64_t hash) noexcept:
        return slot_of(self, hash)

    cdef Slot* enter(self, uint64_t hash) except NULL:
        """A slot for a key that has none, all zero."""
        cdef Segment* segment = self.segment_of(hash)
        cdef uint64_t spread = hash << self.bits
        cdef Slot* slot
        cdef Slot* end
        if segment.used == SMALL and self.bits < 8:
            self.split()
            return self.enter(hash)
        # Small tables have room to spare; of large ones at most a twelfth is empty.
        if segment.used >= segment.room - (segment.room >> (4 if segment.room > 1024 else 3)):
            self.resize(segment, segment.room + max(8, segment.room >> _growth(self.bits, segment)))
        while True:
            slot = &segment.slots[HG_PLACE(spread, segment.room)]
            while slot.hash != 0 and slot.hash < hash:
                slot += 1
            end = slot
            while end.hash != 0:
                end += 1
            if end + 1 < segment.slots + segment.size:
                break
            self.resize(segment, segment.room + max(8, segment.room >> 5))
        memmove(slot + 1, slot, (end - slot) * sizeof(Slot))
        slot.hash, slot.a, slot.b, slot.c = hash, 0, 0, 0
        segment.used += 1
        self.keys += 1
        return slot

    cdef int leave(self, uint64_t hash) except -1:
        """Take a key out; those behind it move up."""
        cdef Slot* slot = self.find(hash)
        cdef Segment* segment = self.segment_of(hash)
        cdef int shift = self.bits
        cdef Slot* end
        if slot is NULL:
            return 0
        if slot.a == OBJECT:
            held = <object><PyObject*>slot.b
            self.let_go(slot)  # `held` keeps it until the slots are in order again
        end = slot + 1
        while end.hash != 0 and HG_PLACE(end.hash << shift, segment.room) < end - segment.slots:
            end += 1
        memmove(slot, slot + 1, (end - slot - 1) * sizeof(Slot))
        memset(end - 1, 0, sizeof(Slot))
        segment.used -= 1
        self.keys -= 1
        if segment.room > 64 and segment.used < segment.room >> 1:
            self.resize(segment, segment.used + (segment.used >> 2) + 8)
        return 0

    cdef int resize(self, Segment* segment, uint32_t room) except -1:
        """Spread a segment over so many slots: to the end with them, then each to its place."""
        cdef int shift = self.bits
        cdef uint32_t used = segment.used, size, i
        cdef uint32_t place, after
        cdef Slot* slots = segment.slots
        cdef Slot slot
        while True:
            size = room + 16 + (room >> 7)
            if size >= 128:  # whole pages
                size = (size + 127) & ~127
            if size < segment.size:  # smaller: close ranks before the end is cut off
                after = 0
                for i in range(segment.size):
                    if slots[i].hash != 0:
                        slots[after] = slots[i]
                        after += 1
                memset(slots + after, 0, (segment.size - after) * sizeof(Slot))
            slots = <Slot*>hg_resized(
                segment.slots, segment.size * sizeof(Slot), size * sizeof(Slot)
            )
            if slots is NULL:
                raise MemoryError
            segment.slots = slots
            if size > segment.size:
                memset(slots + segment.size, 0, (size - segment.size) * sizeof(Slot))
            segment.size, segment.room = size, room
            after = size
            i = size
            while i > 0:
                i -= 1
                if slots[i].hash != 0:
                    after -= 1
                    if after != i:
                        slots[after] = slots[i]
                        slots[i].hash = 0
            i, after = after, 0
            while i < size:
                slot = slots[i]
                place = HG_PLACE(slot.hash << shift, room)
                if place < after:
                    place = after
                if place >= i:
                    break  # they crowd at the end, and the last slot must stay empty: more room
                slots[i].hash = 0
                slots[place] = slot
                after = place + 1
                i += 1
            if i == size:
                return 0
            room += max(8, room >> 5)

    cdef int split(self) except -1:
        """Sixteen times as many segments, by four more of the first bits of the hash."""
        cdef Segment* old = self.segments
        cdef Segment* segments
        cdef Segment* segment
        cdef int before = self.count, bits = self.bits + 4, i
        cdef uint32_t place, number
        cdef uint64_t hash
        segments = <Segment*>realloc(NULL, 16 * before * sizeof(Segment))
        if segments is NULL:
            raise MemoryError
        for i in range(16 * before):
            segment = &old[i // 16]
            _make(&segments[i])
            segments[i].rest = segment.candidates[0].reset if segment.known else segment.rest
        for i in range(before):  # how many go where
            for place in range(old[i].size):
                hash = old[i].slots[place].hash
                if hash != 0:
                    segments[(hash >> 1) >> (63 - bits)].used += 1
        for i in range(16 * before):
            segment = &segments[i]
            number = segment.used
            if number == 0:
                continue
            segment.size = number + (number >> 3) + 16
            segment.slots = <Slot*>hg_resized(NULL, 0, segment.size * sizeof(Slot))
            if segment.slots is NULL:
                for i in range(16 * before):
                    hg_resized(segments[i].slots, segments[i].size * sizeof(Slot), 0)
                free(segments)
                raise MemoryError
            memset(segment.slots, 0, segment.size * sizeof(Slot))
            segment.used = 0
        for i in range(before):  # in the order of their hashes, which is that of the slots
            for place in range(old[i].size):
                hash = old[i].slots[place].hash
                if hash != 0:
                    segment = &segments[(hash >> 1) >> (63 - bits)]
                    segment.slots[segment.used] = old[i].slots[place]
                    segment.used += 1
            hg_resized(old[i].slots, old[i].size * sizeof(Slot), 0)
            free(old[i].candidates)
        free(old)
        self.segments, self.count, self.bits = segments, 16 * before, bits
        self.hand = self.place = 0
        for i in range(self.count):
            if segments[i].used:
                self.resize(&segments[i], segments[i].used + (segments[i].used >> 3) + 8)
        return 0

    # -- objects in slots

    cdef object live(self, Slot* slot):
        """The object in a slot; a packed state is unpacked, and stays so while it is hot."""
        cdef object held = <object><PyObject*>slot.b
        if not PyBytes_CheckExact(held):
            return held
        cdef uint64_t hash = slot.hash
        self.cool()
        state = self.law.load(held)
        slot = self.find(hash)
        Py_INCREF(state)
        slot.b = <int64_t><PyObject*>state
        Py_DECREF(held)
        self.hot[self.hottest] = hash
        return state

    cdef int cool(self) except -1:
        """Pack the state that has been hot for longest, unless somebody works on it."""
        cdef Slot* slot
        cdef uint64_t hash
        self.hottest = (self.hottest + 1) & 63
        hash = self.hot[self.hottest]
        slot = self.find(hash) if hash else NULL
        if slot is NULL or slot.a != OBJECT:
            return 0
        state = <object><PyObject*>slot.b
        if PyBytes_CheckExact(state) or type(state) is tuple or Py_REFCNT(state) > 2:
            return 0
        data = self.law.dump(state)
        slot = self.find(hash)
        slot.c = self.reset_at(slot, 0)  # for as long as nobody uses it
        Py_INCREF(data)
        slot.b = <int64_t><PyObject*>data
        Py_DECREF(state)
        return 0

    cdef int let_go(self, Slot* slot) except -1:
        cdef PyObject* held = <PyObject*>slot.b
        slot.a = slot.b = slot.c = 0
        Py_DECREF(<object>held)
        return 0

    # -- who may go

    cdef int64_t reset_at(self, Slot* slot, int64_t micros) except? -2:
        """The instant at which a key is as if never used; -1 if that is not foreseen."""
        cdef Words3 seen
        cdef int64_t now, ticks
        if slot.a != OBJECT:
            now = micros // self.tick
            seen = self.words.look(slot.a, slot.b, slot.c, now, 0)
            return (now + seen[2]) * self.tick if seen[2] >= 0 else -1
        held = <object><PyObject*>slot.b
        if PyBytes_CheckExact(held):
            return slot.c
        rule = self.rule
        if type(held) is tuple:
            rule, held = held
        if rule.words:
            now = micros // rule.tick
            ticks = rule.look(*held, now, 0)[2]
            return (now + ticks) * rule.tick if ticks >= 0 else -1
        # A view tells the instant itself, when it is looked at from the epoch.
        ticks = rule.look(*rule.view(held, 0, 0), 0, 0)[2]
        return ticks * rule.tick if ticks >= 0 else -1

    cdef uint64_t idle(self, int64_t now, int tries, bint full, bint plain) except? 0:
        """A key that is as if never used, among the next few; 0 if there is none.

        With `plain` no Python code is run: states that would need it are passed over.
        """
        cdef Segment* segment
        cdef Slot* slot
        cdef uint64_t hash
        cdef int64_t reset
        cdef int empty = 0
        while tries > 0 and empty <= self.count:
            segment = &self.segments[self.hand]
            if self.place >= segment.size:
                self.place = 0
                self.hand = (self.hand + 1) % self.count
                empty += 1
                continue
            slot = &segment.slots[self.place]
            self.place += 1
            if slot.hash == 0:
                continue
            tries -= 1
            if plain and slot.a == OBJECT and not PyBytes_CheckExact(<object><PyObject*>slot.b):
                continue
            hash = slot.hash
            reset = self.reset_at(slot, now)
            if 0 <= reset <= now and (full or not self.keeps(slot)):
                self.place -= 1
                return hash
        return 0

    cdef bint keeps(self, Slot* slot):
        """Whether a key's first sight must be remembered, so that it stays while it can."""
        if slot.a == OBJECT:
            held = <object><PyObject*>slot.b
            if type(held) is tuple:
                return held[0].sticky
        return self.law.sticky

    cdef int note(self, uint64_t hash, int64_t reset) except -1:
        """A key has come in, or resets earlier than it did."""
        cdef Segment* segment = self.segment_of(hash)
        cdef uint32_t i
        if reset < 0 or reset >= segment.rest:
            return 0
        if segment.candidates is NULL:
            segment.rest = reset
            return 0
        if segment.known == BATCH:
            segment.known -= 1
            if segment.candidates[segment.known].reset <= reset:
                segment.rest = reset
                segment.known += 1
                return 0
            segment.rest = segment.candidates[segment.known].reset
        i = segment.known
        while i > 0 and segment.candidates[i - 1].reset > reset:
            segment.candidates[i] = segment.candidates[i - 1]
            i -= 1
        segment.candidates[i].reset, segment.candidates[i].hash = reset, hash
        segment.known += 1
        return 0

    cdef Candidate soonest(self, int64_t now, int64_t below) except *:
        """The key that resets first, if it does before `below`; hash 0 if there is none."""
        cdef Candidate found
        cdef Segment* segment
        cdef Segment* best
        cdef Slot* slot
        cdef int64_t first, reset
        cdef int i
        while True:
            best, first = NULL, below
            for i in range(self.count):
                segment = &self.segments[i]
                reset = segment.candidates[0].reset if segment.known else segment.rest
                if reset < first:
                    best, first = segment, reset
            found.hash, found.reset = 0, 0
            if best is NULL:
                return found
            if best.known == 0:
                self.scan(best, now)
                continue
            found = best.candidates[0]
            slot = self.find(found.hash)
            reset = self.reset_at(slot, now) if slot is not NULL else -1
            if reset == found.reset:
                return found
            self.drop_candidate(found.hash)
            self.note(found.hash, reset)

    cdef int drop_candidate(self, uint64_t hash) except -1:
        """A candidate is one no more."""
        cdef Segment* segment = self.segment_of(hash)
        if segment.known and segment.candidates[0].hash == hash:
            segment.known -= 1
            memmove(
                segment.candidates, segment.candidates + 1, segment.known * sizeof(Candidate)
            )
        return 0

    cdef int scan(self, Segment* segment, int64_t now) except -1:
        """Find a segment's next candidates."""
        cdef uint32_t i
        cdef int64_t reset
        if segment.candidates is NULL:
            segment.candidates = <Candidate*>realloc(NULL, BATCH * sizeof(Candidate))
            if segment.candidates is NULL:
                raise MemoryError
        segment.known, segment.rest = 0, INT64_MAX
        for i in range(segment.size):
            if segment.slots[i].hash != 0:
                reset = self.reset_at(&segment.slots[i], now)
                if reset >= 0:
                    self.note(segment.slots[i].hash, reset)
        return 0


cdef int _growth(int bits, Segment* segment) noexcept:
    """By which part a segment grows, as a power of two."""
    if bits == 0:
        return 1
    return 5 if segment.room > 1024 else 3


cdef void _make(Segment* segment) noexcept:
    memset(segment, 0, sizeof(Segment))
    segment.rest = INT64_MAX


cdef void _unmake(Segment* segment) noexcept:
    cdef uint32_t i
    for i in range(segment.size):
        if segment.slots[i].hash != 0 and segment.slots[i].a == OBJECT:
            Py_DECREF(<object><PyObject*>segment.slots[i].b)
    hg_resized(segment.slots, segment.size * sizeof(Slot), 0)
    free(segment.candidates)
