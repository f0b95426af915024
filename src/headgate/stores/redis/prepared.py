"""Prepared takes: the bytes of a call but for its key, and the way from a reply to a decision.

A reply that is not the plain one (a key with a limit of its own, an expired reservation, a state
that another limit wrote) is left to the planner.
"""

from __future__ import annotations

from collections.abc import Awaitable, Sequence
from struct import Struct
from typing import TYPE_CHECKING, Any

from ...algorithms import rule_of
from ...decision import Ask, Decision, JointDecision, decided, joined
from ...errors import StoreError
from ...keys import Key, canonical
from . import codec
from .answers import BODY, OUTCOME, WHOLE, answered, granted_together, own_rule, taken
from .change import unreadable
from .kinds import SPREAD
from .link.calls import Call, Flow, prepared, spelt
from .link.gathering import Way
from .merge import merging
from .plan import FAR
from .scripts import script

if TYPE_CHECKING:
    from ...limit import Limit
    from .store import RedisStore

__all__ = ["AsyncPrepared", "Prepared", "can_prepare"]

SPELT = 4
"""So many limits at once are spelt out in a script of their own."""
MANY = 64
"""Costs whose calls are kept ready."""


def can_prepare(store: RedisStore, limits: Sequence[Limit]) -> bool:
    """Whether every take of these limits is the same but for its key."""
    return store.given_clock is None and not any(
        limit.elastic or limit.calendar or limit.algorithm == "concurrency" for limit in limits
    )


def _remember(known: dict[int, Any], cost: int, value: Any) -> None:
    if len(known) >= MANY:
        known.clear()  # costs of all sizes: making them anew is cheap enough
    known[cost] = value


class Takes:
    """What both colours share: how a take is packed, and how its reply is read."""

    def __init__(self, store: RedisStore, space: str, limits: Sequence[Limit]) -> None:
        self.store = store
        self.space = space
        self.limits = tuple(limits)
        self.rules = [rule_of(limit) for limit in limits]
        self.single = len(limits) == 1
        self._names = [store.plan.names.under(space, limit.id) for limit in limits]
        self._tags = {codec.shape_tag(rule) for rule in self.rules}
        self._written = store.plan.written
        kinds = tuple(codec.kind_of(rule) for rule in self.rules)
        apart = len({limit.id for limit in limits}) == len(limits)
        self._spells = (
            1 < len(limits) <= SPELT and apart and not any(kind in SPREAD for kind in kinds)
        )
        """Whether the script of these takes spells them out one by one."""
        main = "take" if self.single else "together" if self._spells else "decide"
        self._script = script(main, kinds)
        self._reply = Struct(f"<{1 + 3 * len(limits)}q")
        self._packs: dict[int, Any] = {}
        self._arguments: dict[int, tuple[bytes, ...]] = {}

    def ready(self) -> bool:
        """Whether the server knows how to read what these takes write."""
        return self._tags <= self._written

    def asks(self, key: Key, cost: int, partial: bool) -> list[Ask]:
        """The same take said at length."""
        least = min(1, cost) if partial else -1
        return [Ask("take", x, key, cost, self.space, least=least) for x in self.limits]

    def arguments(self, cost: int) -> tuple[bytes, ...]:
        """What follows the keys."""
        plan = self.store.plan
        if self.single:
            return (codec.take_blob(plan.blob(self.rules[0]), cost, 0, -1, plan.slack),)
        words = [codec.time_blob(-1, plan.slack)]
        if self._spells:
            return (codec.together_blob(words[0], cost, [plan.blob(rule) for rule in self.rules]),)
        for rule, ask in zip(self.rules, self.asks("", cost, partial=False), strict=True):
            words += (plan.blob(rule), codec.op_blob(ask))
        return tuple(words)

    def call(self, key: Key, cost: int) -> Call:
        """The call of one take."""
        arguments = self._arguments.get(cost)
        if arguments is None:
            arguments = self.arguments(cost)
            _remember(self._arguments, cost, arguments)
        return Call(self._script, [name(key) for name in self._names], arguments)

    def _alike(self, names: Sequence[bytes]) -> bool:
        """Whether one call answers for all of these, by the kernels of the limits themselves."""
        store, odd = self.store, self.store.plan.odd
        if odd and not odd.keys().isdisjoint(names):
            return False
        return self.single or store.merges or len({*map(store.link.slot, names)}) == 1

    def pack(self, cost: int) -> Any:
        """A function from keys' names to the bytes of the call."""
        pack = self._packs.get(cost)
        if pack is None:
            pack = prepared(self._script, self.arguments(cost), len(self.limits))
            _remember(self._packs, cost, pack)
        return pack

    def read(self, reply: Any, key: Key, cost: int) -> Decision | None:
        """The decision in a reply; None if it has to be asked for at length."""
        if isinstance(reply, Exception):
            if unreadable(reply):
                return None
            raise reply
        if self.single:
            if reply.__class__ is bytes:
                return taken(reply, self.rules[0], cost)
            if reply[0].__class__ is bytes:
                rule = own_rule(reply[1].decode(), self.limits[0].id)
                return taken(reply[0], rule, cost)
            return None
        if reply.__class__ is bytes:
            return self._passed(reply, cost)
        if reply[0].__class__ is int:
            return None
        parts = []
        refused = 0
        for answer, rule in zip(reply, self.rules, strict=True):
            if len(answer) != WHOLE.size:  # a limit of its own
                return self._long_answers(reply, key, cost)
            wait, a, b, c, now, _, _ = WHOLE.unpack(answer)
            refused += wait < 0
            parts.append(decided(rule, (wait, a, b, c), now, cost))
        if refused:
            parts = [part.glance() for part in parts]
        return joined(tuple(parts))

    def _passed(self, reply: bytes, cost: int) -> Decision:
        """The decision on takes that all passed at once."""
        words = self._reply.unpack(reply)
        micros, at, parts = words[0], 1, []
        for rule in self.rules:
            now = micros if rule.tick == 1 else micros // rule.tick
            parts.append(decided(rule, (0, words[at], words[at + 1], words[at + 2]), now, cost))
            at += 3
        decision = JointDecision()
        decision._parts = tuple(parts)
        return decision

    def _long_answers(self, reply: Any, key: Key, cost: int) -> Decision:
        asks = self.asks(key, cost, partial=False)
        pairs = zip(reply, asks, self.rules, strict=True)
        decisions = [answered(answer, ask, rule) for answer, ask, rule in pairs]
        return joined(tuple(granted_together(asks, decisions)))


class Prepared(Takes):
    """For threads and plain functions."""

    def __init__(self, store: RedisStore, space: str, limits: Sequence[Limit]) -> None:
        super().__init__(store, space, limits)
        self.hit = (
            self._single() if self.single else self._spelt() if self._spells else self._several
        )

    def _single(self) -> Any:
        """A hit on one limit, with everything at hand."""
        link, rule = self.store.link, self.rules[0]
        name, pack_one, written = self._names[0], self.pack(1), self.store.plan.written
        (tag,), odd = self._tags, self.store.plan.odd
        one, unpack, whole = link.one, OUTCOME.unpack, int.from_bytes

        def hit(key: Key = "", cost: int = 1, *, partial: bool = False) -> Decision:
            """Take `cost` or be refused; with `partial`, take what is there. Never sleeps."""
            if cost.__class__ is int and 0 < cost < FAR and not partial and tag in written:
                named = name(key)
                if odd and named in odd:  # a limit of its own that the short script cannot read
                    return self.longer(key, cost, partial)
                pack = pack_one if cost == 1 else self.pack(cost)
                try:
                    reply = one(pack(named), named)
                except StoreError as error:
                    if unreadable(error):
                        return self.longer(key, cost, partial)
                    raise
                if reply.__class__ is bytes:
                    if len(reply) == BODY:
                        now = whole(reply[4:11], "little")  # `taken`, without its frame
                        b, c = whole(reply[11:18], "little"), whole(reply[18:25], "little")
                        return decided(rule, (0, now, b, c), now, cost)
                    wait, a, b, c, now = unpack(reply)
                    return decided(rule, (wait, a, b, c), now, cost)
                decision = self.read(reply, key, cost)
                if decision is not None:
                    return decision
            return self.longer(key, cost, partial)

        return hit

    def _spelt(self) -> Any:
        """A hit on a few limits, with everything at hand."""
        link, tags, written = self.store.link, self._tags, self.store.plan.written
        odd, one, passed = self.store.plan.odd, link.one, self._passed
        name = self._names[0]
        ends = [self.store.plan.names.ends(self.space, limit.id) for limit in self.limits]
        pack = spelt(self._script, self.arguments(1), ends)

        def hit(key: Key = "", cost: int = 1, *, partial: bool = False) -> Decision:
            """Take `cost` of every limit or be refused; with `partial`, take what is there."""
            plain = key.__class__ is str and key and key[0] != "}" and key.isascii()
            if plain and cost == 1 and cost.__class__ is int and not partial and not odd:
                if tags <= written:
                    try:
                        reply = one(pack(str(key).encode()), name(key))
                    except StoreError as error:
                        reply = error
                    if reply.__class__ is bytes:
                        return passed(reply, 1)
                    decision = self.read(reply, key, 1)
                    if decision is not None:
                        return decision
                return self.longer(key, 1, partial=False)
            return self._several(key, cost, partial=partial)

        return hit

    def _several(self, key: Key = "", cost: int = 1, *, partial: bool = False) -> Decision:
        """Take `cost` of every limit or be refused; with `partial`, take what is there."""
        if cost.__class__ is int and 0 < cost < FAR and not partial and self.ready():
            names = [name(key) for name in self._names]
            store = self.store
            if self._alike(names):
                try:
                    reply = store.link.one(self.pack(cost)(*names), names[0])
                except StoreError as error:
                    reply = error
                decision = self.read(reply, key, cost)
                if decision is not None:
                    return decision
        return self.longer(key, cost, partial)

    def longer(self, key: Key, cost: int, partial: bool) -> Decision:
        """The planner's way."""
        return joined(tuple(self.store.decide(self.asks(key, cost, partial))))

    def hit_many(self, keys: list[Key], cost: int) -> list[Decision]:
        """Independent decisions, in order; the cost has been checked."""
        for key in keys:  # bad input is found before anything is taken
            canonical(key)
        return self.store.link.run(many_flow(self, keys, cost))


class AsyncPrepared(Takes):
    """For tasks; takes of one moment travel together."""

    def __init__(self, store: RedisStore, space: str, limits: Sequence[Limit]) -> None:
        super().__init__(store, space, limits)
        self._ways: dict[int, Way] = {}

    def begin(self, key: Key, cost: int, partial: bool) -> Awaitable[Any] | None:
        """Send a take, whose reply is to be awaited; None if it must be said at length."""
        if cost.__class__ is int and 0 < cost < FAR and not partial and self.ready():
            if self.single:
                name = self._names[0](key)
                if not self.store.plan.odd or name not in self.store.plan.odd:
                    way = self._ways.get(cost) or self._way(cost)
                    sent = self.store.alink.take(way, name)
                    if sent is not None:
                        return sent
            call = self.call(key, cost)
            if self._alike(call.keys):
                return self._first(self.store.alink.soon(call))
        return None

    def _way(self, cost: int) -> Way:
        way = Way(self._script, self.arguments(cost))
        _remember(self._ways, cost, way)
        return way

    async def _first(self, sent: Awaitable[list[Any]]) -> Any:
        return (await sent)[0]

    async def hit(self, key: Key = "", cost: int = 1, *, partial: bool = False) -> Decision:
        """Take `cost` or be refused; with `partial`, take what is there. Never sleeps."""
        sent = self.begin(key, cost, partial)
        if sent is not None:
            decision = self.read(await sent, key, cost)
            if decision is not None:
                return decision
        return joined(tuple(await self.store.decide_async(self.asks(key, cost, partial))))

    async def hit_many(self, keys: list[Key], cost: int) -> list[Decision]:
        """Independent decisions, in order; the cost has been checked."""
        for key in keys:  # bad input is found before anything is taken
            canonical(key)
        return await self.store.alink.run(many_flow(self, keys, cost))


def many_flow(takes: Takes, keys: Sequence[Key], cost: int) -> Flow[list[Decision]]:
    """Independent decisions on many keys: in few calls where one script can see them all."""
    found: list[Any] = [None] * len(keys)
    if takes.single and cost and takes.ready() and takes.store.merges:
        sent, apart = merging([takes.call(key, cost) for key in keys])
        replies = yield sent
        for number, reply in enumerate(apart(replies)):
            found[number] = takes.read(reply, keys[number], cost)
    left = [number for number, decision in enumerate(found) if decision is None]
    if left:
        groups = [takes.asks(keys[number], cost, partial=False) for number in left]
        answers = yield from takes.store.plan.deciding_many(groups)
        for number, decisions in zip(left, answers, strict=True):
            found[number] = joined(tuple(decisions))
    return found
