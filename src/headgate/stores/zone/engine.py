"""Engine: the words of a zone, changed so that death at any moment leaves no trace.

A zone is one row of 64-bit words: a header page, a journal, the heads of the buckets of a hash
table, and chunks of eight words, of which everything else is made. Before a word is overwritten
its place and its old value are noted in the journal; a decision ends by emptying the journal.
Whoever finds one that is not empty puts the old values back, newest first. So a decision
happens as a whole or not at all, wherever its process was killed.

Every place that is read from the zone is checked and every walk is bounded: a damaged zone is
an error, and neither a crash nor a loop. A node is named by the place of its first word; links
between chunks are numbers of chunks, which take half a word.
"""

from __future__ import annotations

from array import array

from ...errors import StoreError
from .places import (
    BUMP,
    FREE,
    IS_DATA,
    IS_FREE,
    JOURNAL,
    KIND,
    LINK,
    NEXT,
    NODE,
    PAYLOAD,
    PENDING,
    USED,
)  # fmt: skip

__all__ = ["Damaged", "Engine", "Full"]


class Damaged(StoreError):
    """A zone whose words contradict each other."""


class Full(StoreError):
    """A zone without a free chunk."""


class Engine:
    """A zone's words, and the few ways they change."""

    def __init__(self, path: str, entries: int, buckets: int, chunks: int) -> None:
        self.path = path
        self.entries = entries
        self.heads = JOURNAL + 2 * entries
        self.mask = buckets - 1
        self.chunks = chunks
        # There is no chunk 0: as a link it means none.
        self.base = -(-(self.heads + buckets) // NODE) * NODE - NODE
        self.end = self.base + chunks * NODE

    def damaged(self, what: str) -> Damaged:
        """An error for words that cannot be."""
        return Damaged(
            f"the zone {self.path} is damaged ({what}); stop the processes that use it and remove "
            "it, and it will be made anew"
        )

    # -- single words

    def get(self, place: int) -> int:
        """A word."""
        return self.words[place]

    def put(self, place: int, value: int) -> None:
        """Change a word, so that it can be changed back."""
        old = self.words[place]
        if old != value:
            number = self.words[PENDING]
            if number >= self.entries:
                raise self._too_much()
            entry = JOURNAL + 2 * number
            self.words[entry] = place
            self.words[entry + 1] = old
            self.words[PENDING] = number + 1
            self.words[place] = value

    def _too_much(self) -> StoreError:
        return StoreError(
            f"a decision changes more than the journal of the zone {self.path} can undo "
            f"({self.entries} words); a larger zone has a larger journal"
        )

    def poke(self, place: int, value: int) -> None:
        """Change a word for good."""
        self.words[place] = value

    def add(self, place: int, value: int) -> None:
        """Add to a word, so that it can be changed back."""
        self.put(place, self.words[place] + value)

    def commit(self) -> None:
        """What was changed stays."""
        self.words[PENDING] = 0

    def pending(self) -> int:
        """How many words can be changed back."""
        number = self.words[PENDING]
        if not 0 <= number <= self.entries:
            raise self.damaged("the length of its journal")
        return number

    def rollback(self) -> None:
        """Change back whatever was not committed; may itself be cut short and done again."""
        number = self.pending()
        while number:
            number -= 1
            entry = JOURNAL + 2 * number
            place = self.words[entry]
            if not (FREE <= place < JOURNAL or self.heads <= place < self.end):
                raise self.damaged("a place in its journal")
            self.words[place] = self.words[entry + 1]
            self.words[PENDING] = number

    # -- chunks

    def at(self, chunk: int) -> int:
        """The place of a chunk's first word."""
        if not 0 < chunk < self.chunks:
            raise self.damaged("a link")
        return self.base + chunk * NODE

    def chunk(self, at: int) -> int:
        """The number of the chunk at a place."""
        return (at - self.base) // NODE

    def kind(self, at: int) -> int:
        """What a chunk is used for."""
        return self.words[at] & KIND

    def next(self, at: int) -> int:
        """The number of the chunk that follows, or 0."""
        return self.words[at] >> NEXT & LINK

    def join(self, at: int, chunk: int) -> None:
        """Let a chunk follow."""
        self.put(at, (self.words[at] & ~(LINK << NEXT)) | chunk << NEXT)

    def free(self) -> int:
        """How many chunks are free."""
        return self.chunks - 1 - self.words[USED]

    def alloc(self, kind: int) -> int:
        """The place of a chunk that was free, or 0."""
        chunk = self.words[FREE]
        if chunk:
            at = self.at(chunk)
            if self.words[at] & KIND != IS_FREE:
                raise self.damaged("its list of free chunks")
            self.put(FREE, self.next(at))
        else:
            chunk = self.words[BUMP]
            if chunk >= self.chunks:
                return 0
            at = self.at(chunk)
            self.put(BUMP, chunk + 1)
        self.put(USED, self.words[USED] + 1)
        self.put(at, kind)
        return at

    def release(self, at: int) -> None:
        """Make a chunk free."""
        self.put(at, IS_FREE | self.words[FREE] << NEXT)
        self.put(FREE, self.chunk(at))
        self.put(USED, self.words[USED] - 1)

    # -- the hash table

    def find(self, name: int, kind: int) -> int:
        """The place of the node of this name and kind, or 0."""
        chunk = self.words[self.heads + (name & self.mask)]
        left = self.chunks
        while chunk:
            at = self.at(chunk)
            link = self.words[at]
            if self.words[at + 1] == name and link & KIND == kind:
                return at
            chunk = link >> NEXT & LINK
            left -= 1
            if left < 0:
                raise self.damaged("a bucket without an end")
        return 0

    def insert(self, name: int, kind: int) -> int:
        """The place of a new node of this name and kind, its other words 0; 0 if it is full."""
        at = self.alloc(kind)
        if at:
            head = self.heads + (name & self.mask)
            self.put(at, kind | self.words[head] << NEXT)
            self.put(at + 1, name)
            for place in range(at + 2, at + NODE):
                self.put(place, 0)
            self.put(head, self.chunk(at))
        return at

    def remove(self, at: int) -> None:
        """Take a node out of its bucket and make it free."""
        head = self.heads + (self.words[at + 1] & self.mask)
        chunk, goal, left = self.words[head], self.chunk(at), self.chunks
        if chunk == goal:
            self.put(head, self.next(at))
        else:
            while True:
                before = self.at(chunk)
                chunk = self.next(before)
                left -= 1
                if left < 0:
                    raise self.damaged("a bucket without an end")
                if chunk == goal:
                    self.join(before, self.next(at))
                    break
        self.release(at)

    # -- rows of bytes in chains of chunks

    def load(self, chunk: int, length: int) -> bytes:
        """The bytes of a chain."""
        if not 0 <= length <= self.chunks * PAYLOAD * 8:
            raise self.damaged("a length")
        row = array("q", bytes(-(-length // (PAYLOAD * 8)) * PAYLOAD * 8))
        view = row
        done, count = 0, len(row)
        while done < count:
            at = self._data(chunk)
            for place in range(at + 1, at + NODE):
                view[done] = self.words[place]
                done += 1
            chunk = self.next(at)
        return row.tobytes()[:length]

    def save(self, chunk: int, data: bytes) -> int:
        """Let a chain hold these bytes; the number of its first chunk."""
        view = array("q", data + bytes(-len(data) % (PAYLOAD * 8)))
        done, count, first, last = 0, len(view), chunk, 0
        while done < count:
            if chunk:
                at = self._data(chunk)
            else:
                at = self.alloc(IS_DATA)
                if not at:
                    raise Full(f"the zone {self.path} is full")
                chunk = self.chunk(at)
                if last:
                    self.join(last, chunk)
                else:
                    first = chunk
            for place in range(at + 1, at + NODE):
                self.put(place, view[done])
                done += 1
            last, chunk = at, self.next(at)
        if chunk:
            if last:
                self.join(last, 0)
            else:
                first = 0
            self.drop(chunk)
        return first

    def drop(self, chunk: int) -> None:
        """Make a chain free."""
        left = self.chunks
        while chunk:
            at = self._data(chunk)
            chunk = self.next(at)
            self.release(at)
            left -= 1
            if left < 0:
                raise self.damaged("a chain without an end")

    def _data(self, chunk: int) -> int:
        at = self.at(chunk)
        if self.words[at] & KIND != IS_DATA:
            raise self.damaged("a chain")
        return at

    words: memoryview[int]
    """The words themselves; bound when the zone is mapped."""
