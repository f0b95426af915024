"""The planner: asks become script calls, and replies become decisions; no I/O in here.

Everything is a flow: a generator that yields the calls of one round trip, is sent their replies
in order, and returns its result. Nearly every flow has one step. More are taken only when the
store says that something must be known first: the calendar's window at the server's time, a
state that another limit wrote, a kernel that the script did not bring along.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeVar

from ...algorithms import rule_of
from ...clock import Clock, SystemClock
from ...decision import Ask, Decision
from ...errors import StoreError
from ...limit import Limit
from ..local import check_op
from . import codec
from .answers import answered, granted_together, own_rule, taken
from .change import converted, healing, unreadable
from .link.calls import Call, Command, Flow
from .link.gathering import LONG
from .naming import Names
from .scripts import script

__all__ = ["Part", "Planner", "side_by_side"]

Result = TypeVar("Result")

CALENDAR, SHAPE, OWN = -1, -2, -4
MOST_STEPS = 16
"""How often a store may send an ask back before something is plainly wrong."""
SLACK = 3_600_000
"""Milliseconds that a state outlives its reset when its time is not the server's."""
REMEMBERED = 4096
"""Keys whose odd limits are remembered, so that the next ask goes the right way at once."""
FAR = 1 << 52
"""The longest wait or lease that is sent, in microseconds: nobody waits for 142 years."""


class Part(NamedTuple):
    """An ask, the name of its key, and the rule that its limiter means for it."""

    ask: Ask
    name: bytes
    rule: Any


class Planner:
    """What one store's asks become; shared by its sync and its async side."""

    def __init__(
        self, names: Names, clock: Clock | None, slot: Callable[[bytes], int | None]
    ) -> None:
        self.names = names
        self._clock = clock
        self._wall = SystemClock()
        self._slot = slot
        self._skew = 0
        self.slack = SLACK if clock is not None else 0
        self.limits: dict[tuple[str, str], Limit] = {}
        """The limit last asked for under a namespace and id."""
        self.written: set[int] = set()
        """Shapes that the server's register is known to hold."""
        self.odd: dict[bytes, str] = {}
        """Keys with an own limit of another kind than their limiter's."""

    # -- time

    def now(self) -> int:
        """The time to decide at, if a clock was given; else -1: the server's."""
        return -1 if self._clock is None else self._clock.micros()

    def about(self) -> int:
        """What time it is by the store, nearly."""
        return self._wall.micros() + self._skew if self._clock is None else self._clock.micros()

    def learn(self, micros: int) -> None:
        """The store has just said what time it is."""
        self._skew = micros - self._wall.micros()

    # -- what is sent

    def part(self, ask: Ask) -> Part:
        """An ask made ready, or an error for what cannot be asked."""
        check_op(ask)
        limit = ask.limit
        self.limits[ask.space, limit.id] = limit
        name = self.names.key(ask.space, limit.id, ask.key)
        return Part(ask, name, rule_of(limit, ask.room if limit.elastic else 0))

    def registering(self, rules: Sequence[Any]) -> list[Command]:
        """What lets every node read the states of these rules; the first time only."""
        commands = []
        for rule in rules:
            tag = codec.shape_tag(rule)
            if tag not in self.written:
                self.written.add(tag)
                words = (b"HSET", self.names.register, b"%08x" % tag, rule.limit.text.encode())
                commands.append(Command(words, self.names.register))
        return commands

    def take(self, part: Part) -> Call:
        """The short script, for one plain take."""
        kind = codec.kind_of(part.rule)
        ask = part.ask
        blob, wait = self.blob(part.rule), min(ask.max_wait, FAR)
        how = codec.take_blob(blob, ask.cost, wait, self.now(), self.slack)
        return Call(script("take", (kind,)), (part.name,), (how,))

    def decide(self, parts: Sequence[Part], kinds: Sequence[str]) -> Call:
        """The script for everything else, with these kernels."""
        arguments = [codec.time_blob(self.now(), self.slack)]
        for part in parts:
            ask = part.ask
            ask = ask._replace(max_wait=min(ask.max_wait, FAR), ttl=min(ask.ttl, FAR))
            arguments += (self.blob(part.rule), codec.op_blob(ask))
        names = tuple(part.name for part in parts)
        return Call(script("decide", tuple(kinds)), names, tuple(arguments))

    def blob(self, rule: Any) -> bytes:
        """A rule as the scripts read it."""
        return codec.blob(rule, self.about())

    # -- one group of asks

    def deciding(self, asks: Sequence[Ask]) -> Flow[list[Decision]]:
        """All of the takes, or none."""
        parts = [self.part(ask) for ask in asks]
        groups = self._by_slot(parts)
        if len(groups) <= 1:
            return granted_together(asks, (yield from self._together(parts)))
        return granted_together(asks, (yield from self._apart(parts, groups)))

    def deciding_many(self, groups: Sequence[Sequence[Ask]]) -> Flow[list[list[Decision]]]:
        """Groups that stand alone, in as few round trips as one of them needs."""
        return (yield from side_by_side([self.deciding(group) for group in groups]))

    def _by_slot(self, parts: Sequence[Part]) -> list[list[int]]:
        """Which asks can be decided by one script: one slot, so one node."""
        slots: dict[int | None, list[int]] = {}
        for number, part in enumerate(parts):
            slots.setdefault(self._slot(part.name), []).append(number)
        return list(slots.values())

    def _together(self, parts: Sequence[Part]) -> Flow[list[Decision]]:
        """One script call for all of them; more only if the store sends it back."""
        if not parts:
            return []
        kinds = {codec.kind_of(part.rule) for part in parts}
        kinds.update(self._kind(self.odd[p.name]) for p in parts if p.name in self.odd)
        simple = len(parts) == 1 and len(kinds) == 1 and _is_simple(parts[0])
        for _ in range(MOST_STEPS):
            call = self.take(parts[0]) if simple else self.decide(parts, sorted(kinds))
            *_, reply = yield [*self.registering([part.rule for part in parts]), call]
            if isinstance(reply, Exception):
                self.written.clear()  # perhaps it is another server now, or an empty one
                if not unreadable(reply):
                    raise reply
                yield from healing(self, [(part.name, part.rule) for part in parts])
                continue
            if not isinstance(reply, list) or not isinstance(reply[0], int):
                return self._answers(parts, reply, simple)
            code, number = reply[0], reply[1] - 1 if len(reply) > 1 else 0
            if code == LONG:
                simple = False
            elif code == OWN:
                simple = False
                try:
                    kinds.add(self._note_odd(parts[number].name, reply[2].decode()))
                except ValueError:  # no limit, and no text
                    yield from healing(self, [(part.name, part.rule) for part in parts])
            elif code == SHAPE:
                yield from self._convert(parts[number], reply[2])
            elif code == CALENDAR:
                self.learn(reply[2])
                if len(reply) > 3:  # of a key's own limit, whose window is kept beside its state
                    yield from self._convert(parts[number], reply[3])
            else:
                raise StoreError(f"the store answered {reply!r}, which means nothing here")
        raise StoreError(f"the store sent the same ask back {MOST_STEPS} times")

    def _answers(self, parts: Sequence[Part], reply: Any, simple: bool) -> list[Decision]:
        if not simple:
            pairs = zip(reply, parts, strict=True)
            return [answered(answer, part.ask, part.rule) for answer, part in pairs]
        ask, rule = parts[0].ask, parts[0].rule
        if isinstance(reply, list):
            reply, text = reply
            rule = own_rule(text.decode(), ask.limit.id)
        return [taken(reply, rule, ask.cost)]

    def _kind(self, text: str) -> str:
        return codec.kind_of(rule_of(Limit.parse(text)))

    def _note_odd(self, name: bytes, text: str) -> str:
        if len(self.odd) >= REMEMBERED:
            self.odd.clear()
        kind = self._kind(text)
        self.odd[name] = text
        return kind

    # -- several slots: taken side by side, and given back if one refuses

    def _apart(self, parts: Sequence[Part], groups: list[list[int]]) -> Flow[list[Decision]]:
        asks = [part.ask for part in parts]
        if any(ask.least >= 0 for ask in asks):
            parts = yield from self._shared_out(parts, groups)
        flows = [self._together([parts[number] for number in group]) for group in groups]
        found: list[Decision] = [None] * len(parts)  # type: ignore[list-item] # filled below
        answers: list[Any] = yield from side_by_side(flows, whole=False)
        failed = next((answer for answer in answers if isinstance(answer, Exception)), None)
        for group, answer in zip(groups, answers, strict=True):
            for number, decision in zip(group, answer if failed is None else (), strict=False):
                found[number] = decision
        refused = failed is not None or any(
            not decision.allowed and part.ask.op == "take"
            for part, decision in zip(parts, found, strict=True)
        )
        if refused:
            yield from self._undo(parts, groups, answers)
        if failed is not None:
            raise failed
        return found

    def _undo(
        self, parts: Sequence[Part], groups: list[list[int]], answers: list[Any]
    ) -> Flow[None]:
        """Give back what the groups took that did not refuse."""
        back = []
        for group, answer in zip(groups, answers, strict=True):
            asks = [parts[number].ask for number in group]
            if isinstance(answer, Exception) or any(
                not d.allowed and ask.op == "take" for ask, d in zip(asks, answer, strict=True)
            ):
                continue
            pairs = zip(asks, answer, strict=True)
            asks = [_given_back(ask, d) for ask, d in pairs if ask.op in ("take", "shadow") and d]
            if asks:
                back.append(self._together([self.part(ask) for ask in asks]))
        yield from side_by_side(back, whole=False)

    def _shared_out(self, parts: Sequence[Part], groups: list[list[int]]) -> Flow[list[Part]]:
        """A partial take of several slots: as much as all of them have left."""
        looks = [part._replace(ask=part.ask._replace(op="check", cost=0)) for part in parts]
        flows = [self._together([looks[number] for number in group]) for group in groups]
        found = yield from side_by_side(flows)
        room = min(
            decision.remaining
            for group, answer in zip(groups, found, strict=True)
            for number, decision in zip(group, answer, strict=True)
            if parts[number].ask.op == "take"
        )
        shared = []
        for part in parts:
            ask = part.ask
            if ask.op == "take":
                ask = ask._replace(cost=min(ask.cost, max(room, ask.least)), least=-1)
            shared.append(part._replace(ask=ask))
        return shared

    # -- limits that change under a state

    def _convert(self, part: Part, value: bytes) -> Flow[None]:
        """Rewrite a state that a limit of another shape left, unless somebody did already."""
        yield from converted(self, part.name, part.rule, value, part.ask.limit.id)


def _is_simple(part: Part) -> bool:
    ask, rule = part.ask, part.rule
    return (
        ask.op == "take"
        and ask.cost > 0
        and ask.least < 0
        and not ask.token
        and codec.kind_of(rule) != "permits"
    )


def _given_back(ask: Ask, decision: Decision) -> Ask:
    if ask.limit.algorithm == "concurrency":
        return ask._replace(op="release")
    if ask.token and ask.ttl:
        return ask._replace(op="settle", cost=0)
    at = decision.at + round(decision.delay * 1_000_000)
    return ask._replace(op="refund", cost=decision.granted, at=at)


def side_by_side(flows: Sequence[Flow[Result]], whole: bool = True) -> Flow[list[Result]]:
    """Run flows together: each step of all of them is one round trip.

    With `whole` the first error is raised once all are done; without, errors stand in place.
    """
    done: list[Any] = [None] * len(flows)
    sent: dict[int, Any] = dict.fromkeys(range(len(flows)))
    while sent:
        wanted: dict[int, Sequence[Any]] = {}
        for number, replies in sent.items():
            try:
                wanted[number] = flows[number].send(replies)
            except StopIteration as stop:
                done[number] = stop.value
            except Exception as error:
                done[number] = error
        calls = [call for step in wanted.values() for call in step]
        replies = (yield calls) if calls else []
        sent, at = {}, 0
        for number, step in wanted.items():
            sent[number] = replies[at : at + len(step)]
            at += len(step)
    if whole:
        for result in done:
            if isinstance(result, Exception):
                raise result
    return done
