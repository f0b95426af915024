"""A checker of whole zones, written apart from the code that keeps them.

It reads a copy of a zone's words and asks of every chunk that it is exactly one thing: free, in
the chain of one bucket, in one chain of data, or not used yet; and of every count in the header
that it is what can be counted.
"""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

from headgate import Limit
from headgate.algorithms import rule_of
from headgate.stores.zone import ZoneStore
from headgate.stores.zone import places as at
from headgate.stores.zone.layout import shape_of

__all__ = ["Broken", "check_zone", "picture", "words_of"]

VOLATILE = (
    *range(at.MUTEX, at.MUTEX + 32), at.PENDING, at.HOLDER, at.WAITING, at.RECOVERIES, at.LATEST,
    at.HAND,
)  # fmt: skip
"""Words that say nothing about any key: the lock, a clock, where idle keys are looked for next."""


class Broken(AssertionError):
    """A zone whose parts do not agree."""


def words_of(store: ZoneStore, *, alone: bool = True) -> array[int]:
    """A copy of a zone's words; unless said otherwise, while nobody else decides."""
    mapped: Any = store._zone._map
    if not alone:
        return array("q", mapped[:])
    words = array("q", store._alone(lambda: mapped[:]))
    words[at.HOLDER] = 0  # that was this process
    return words


def picture(words: array[int], *, counted: bool = False) -> bytes:
    """The words that make up the state of all keys, with zeros in place of the others.

    Where hits are counted, those counts are left out: they are not part of a decision.
    """
    zone = _Zone(words)
    shown = words[:]
    for place in VOLATILE:
        shown[place] = 0
    shown[at.JOURNAL : zone.heads] = array("q", bytes(8 * (zone.heads - at.JOURNAL)))
    if counted:
        for chunk in range(1, zone.chunks):
            place = zone.place(chunk)
            if shown[place] & at.KIND == at.IS_KEY or chunk >= words[at.BUMP]:
                shown[place + 6] = shown[place + 7] = 0
    return shown.tobytes()


def check_zone(words: Sequence[int]) -> Counter[str]:
    """What a zone holds; Broken if it contradicts itself."""
    return _Zone(words).check()


class _Zone:
    def __init__(self, words: Sequence[int]) -> None:
        shape = shape_of(words[at.SIZE])
        self.words = words
        self.chunks = shape.chunks
        self.buckets = shape.buckets
        self.heads = at.JOURNAL + 2 * shape.entries
        self.first = -(-(self.heads + shape.buckets) // at.NODE) * at.NODE
        self.use: dict[int, str] = {}
        self.rules: dict[int, Any] = {}
        if self.first + (self.chunks - 1) * at.NODE > len(words):
            raise Broken("the chunks do not fit")

    def place(self, chunk: int) -> int:
        if not 0 < chunk < self.chunks:
            raise Broken(f"a link to {chunk}, which is no chunk")
        return self.first + (chunk - 1) * at.NODE

    def check(self) -> Counter[str]:
        words, found = self.words, Counter[str]()
        if words[at.PENDING] or words[at.HOLDER]:
            raise Broken(f"{words[at.PENDING]} words pending, held by {words[at.HOLDER]}")
        bump = words[at.BUMP]
        if not 0 < bump <= self.chunks:
            raise Broken(f"used up to {bump} of {self.chunks} chunks")
        for chunk in self.chain(words[at.FREE], at.IS_FREE, "free"):
            found["free"] += bool(chunk)
        nodes = list(self.nodes())
        for chunk, kind in nodes:
            if kind == at.IS_RULE:
                self.rules[chunk] = self.rule(chunk)
        for chunk, kind in nodes:
            found[{at.IS_KEY: "keys", at.IS_OWN: "own", at.IS_RESERVED: "reserved"}.get(
                kind, "rules"
            )] += 1  # fmt: skip
            if kind == at.IS_KEY:
                self.key(chunk)
            elif kind == at.IS_OWN and words[self.place(chunk) + 2] not in self.rules:
                raise Broken(f"the own limit {chunk} names no rule")
        self.reservations(nodes)
        self.counts(found)
        return found

    def counts(self, found: Counter[str]) -> None:
        words = self.words
        bump = words[at.BUMP]
        lost = set(range(1, bump)) ^ self.use.keys()
        if lost:
            raise Broken(f"chunks {sorted(lost)[:10]} are nowhere, or not used yet")
        end = self.first + (self.chunks - 1) * at.NODE
        if any(words[self.first + (bump - 1) * at.NODE : end : at.NODE]):
            raise Broken("a chunk that is not used yet has a kind")
        found["data"] = sum(use == "data" for use in self.use.values())
        used = len(self.use) - found["free"]
        for name, place, counted in (
            ("used", at.USED, used),
            ("keys", at.KEYS, found["keys"]),
            ("own", at.OWN, found["own"]),
            ("reserved", at.RESERVED, found["reserved"]),
            ("rules", at.RULES, found["rules"]),
        ):
            if words[place] != counted:
                raise Broken(f"{name}: {words[place]} in the header, {counted} counted")

    def mark(self, chunk: int, use: str) -> int:
        place = self.place(chunk)
        if chunk in self.use:
            raise Broken(f"chunk {chunk} is {self.use[chunk]} and {use}")
        self.use[chunk] = use
        return place

    def chain(self, chunk: int, kind: int, use: str) -> Iterator[int]:
        while chunk:
            word = self.words[self.mark(chunk, use)]
            if word & at.KIND != kind:
                raise Broken(f"chunk {chunk} of a {use} chain has kind {word & at.KIND}")
            yield chunk
            chunk = word >> at.NEXT & at.LINK

    def data(self, chunk: int, length: int) -> bytes:
        """The bytes of a chain, which has as many chunks as they need."""
        chunks = list(self.chain(chunk, at.IS_DATA, "data"))
        if len(chunks) != -(-length // (at.PAYLOAD * 8)):
            raise Broken(f"{length} bytes in {len(chunks)} chunks")
        row = array("q")
        for link in chunks:
            place = self.place(link)
            row.extend(self.words[place + 1 : place + at.NODE])
        return row.tobytes()[:length]

    def nodes(self) -> Iterator[tuple[int, int]]:
        """The nodes of the hash table, each in the bucket of its name, no name twice."""
        names = set()
        for bucket in range(self.buckets):
            chunk = self.words[self.heads + bucket]
            while chunk:
                place = self.mark(chunk, "node")
                word, name = self.words[place], self.words[place + 1]
                kind = word & at.KIND
                if kind not in (at.IS_KEY, at.IS_OWN, at.IS_RESERVED, at.IS_RULE):
                    raise Broken(f"chunk {chunk} of a bucket has kind {kind}")
                if name & (self.buckets - 1) != bucket or (name, kind) in names:
                    raise Broken(f"node {chunk} is in the wrong bucket, or there twice")
                names.add((name, kind))
                yield chunk, kind
                chunk = word >> at.NEXT & at.LINK

    def rule(self, chunk: int) -> Any:
        place = self.place(chunk)
        permille, text = self.words[place + 2], self.words[place + 3]
        limit = Limit.parse(self.data(text & at.LINK, text >> 32).decode())
        return rule_of(limit, permille)

    def key(self, chunk: int) -> None:
        """A key: its rule is known, its state can be read, its text is a chain."""
        place = self.place(chunk)
        number, text = self.words[place + 2] & at.LINK, self.words[place + 2] >> 32
        rule = self.rules.get(number)
        if rule is None:
            raise Broken(f"key {chunk} was written under {number}, which is no rule")
        if text:
            list(self.chain(text, at.IS_DATA, "data"))
        if rule.words:
            if any(not 0 <= word < 1 << 62 for word in self.words[place + 3 : place + 6]):
                raise Broken(f"key {chunk} has an impossible count")
        else:
            chain = self.words[place + 3]
            rule.load(self.data(chain & at.LINK, chain >> 32))

    def reservations(self, nodes: Sequence[tuple[int, int]]) -> None:
        """The list of reservations: in order, linked both ways, and counted by their keys."""
        words = self.words
        listed: list[int] = []
        counts: Counter[int] = Counter()
        before, chunk = 0, words[at.FIRST]
        while chunk:
            place = self.place(chunk)
            if chunk in listed or words[place] & at.KIND != at.IS_RESERVED:
                raise Broken(f"chunk {chunk} in the list of reservations")
            if words[place + 6] & at.LINK != before:
                raise Broken(f"reservation {chunk} does not follow {before}")
            if before and words[self.place(before) + 5] > words[place + 5]:
                raise Broken(f"reservation {chunk} is out of order")
            listed.append(chunk)
            counts[words[place + 7]] += 1
            before, chunk = chunk, words[place + 6] >> 32
        if words[at.LAST] != before:
            raise Broken(f"the last reservation is {before}, not {words[at.LAST]}")
        earliest = words[self.place(listed[0]) + 5] if listed else 0
        if words[at.EARLIEST] != earliest:
            raise Broken(f"the first expiry is {earliest}, not {words[at.EARLIEST]}")
        if sorted(listed) != sorted(chunk for chunk, kind in nodes if kind == at.IS_RESERVED):
            raise Broken("the list of reservations is not complete")
        for chunk, kind in nodes:
            if kind == at.IS_KEY:
                place = self.place(chunk)
                if words[place] >> at.COUNT != counts.pop(words[place + 1], 0):
                    raise Broken(f"key {chunk} has another number of reservations")
        if counts:
            raise Broken("a reservation of no key")
