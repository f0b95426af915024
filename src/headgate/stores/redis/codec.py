"""The bytes of the Redis store: rules and asks as scripts read them, values as they write them.

Every number is an integer below 2^53, little-endian. Arguments are written as doubles, which
hold all of them exactly and which scripts read in less time. The layouts are described on top of
the scripts (`lua/take.lua`, `lua/decide.lua`) and of `lua/value.lua`.
"""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import blake2b
from itertools import pairwise
from struct import Struct, error
from typing import Any, NamedTuple

from ...decision import Ask
from ...errors import StoreError
from .kinds import CLASSES, KINDS, MOST, NUMBERS, kept_ticks

__all__ = [
    "OPS", "Held", "Reservation", "Ticket", "blob", "join", "kind_of", "lives_ms", "op_blob",
    "shape_tag", "split", "tag_of", "take_blob", "time_blob", "together_blob", "token_bytes",
]  # fmt: skip

OPS = ("take", "check", "shadow", "charge", "refund", "settle", "release", "renew", "reset")
"""An op's number is its place here, from 1 on."""
EXTENDED = b"\xff\xff\xff\xff"
UNKNOWN_MS = 32 * 86_400_000
"""How long a state is kept whose rule is not known here: as long as the longest month."""
LONGEST_MS = 100_000_000_000_000
"""The longest time to live that is written: three thousand years."""

_NUMBER = {op: number for number, op in enumerate(OPS, 1)}
_RULE = {kind: Struct(f"<B{2 + len(numbers)}d") for kind, numbers in NUMBERS.items()}
_BOUNDS = Struct("<2d")
_TAKE = Struct("<4d")
_TIME = Struct("<2d")
_COST = Struct("<d")
_OP = Struct("<6d")
_TAG = Struct("<I")
_LENGTHS = Struct("<3I")
_SIZE = Struct("<H")
_RESERVATION = Struct("<16s3q")
_TICKET = Struct("<16s2q")
_HEAD = 23


class Reservation(NamedTuple):
    """Something taken that is settled later, or comes back when it expires."""

    token: bytes
    cost: int
    at: int
    expires: int


class Ticket(NamedTuple):
    """A place in the line for a permit."""

    token: bytes
    cost: int
    expires: int


class Held(NamedTuple):
    """All that is kept under one key."""

    own_blob: bytes = b""
    own_text: str = ""
    reservations: tuple[Reservation, ...] = ()
    tickets: tuple[Ticket, ...] = ()
    body: bytes = b""
    """The state; empty if nothing is used."""


# -- rules


def kind_of(rule: Any) -> str:
    """The name of the kernel that a rule needs."""
    kind = CLASSES.get(type(rule))
    if kind is None:
        raise StoreError(f"there is no script for {type(rule).__name__}")
    return kind


def shape_tag(rule: Any) -> int:
    """Four bytes that tell states of one shape from those of another; from 1 to 2^32 - 2."""
    try:
        return int(_tags[rule])
    except KeyError:
        digest = blake2b(repr(rule.shape).encode(), digest_size=8).digest()
        tag = int.from_bytes(digest, "little") % (2**32 - 2) + 1
        _remember(_tags, rule, tag)
        return tag


def blob(rule: Any, now: int) -> bytes:
    """A rule as scripts read it; `now`, in microseconds, chooses the window of a calendar."""
    try:
        fixed = _blobs[rule]
    except KeyError:
        kind = kind_of(rule)
        numbers = (shape_tag(rule), rule.tick, *(number(rule) for number in NUMBERS[kind]))
        if not all(0 <= number <= MOST for number in numbers):
            raise StoreError(f"{rule.limit} has a number that a script cannot count to") from None
        fixed = _RULE[kind].pack(KINDS.index(kind) + 1, *numbers)
        _remember(_blobs, rule, fixed)
    if fixed[0] != _CALENDAR:
        return fixed
    return fixed + _BOUNDS.pack(*rule.bounds(0, 0, now // rule.tick))


_CALENDAR = KINDS.index("calendar") + 1
_MANY = 4096
_tags: dict[Any, int] = {}
_blobs: dict[Any, bytes] = {}


def _remember(known: dict[Any, Any], rule: Any, value: Any) -> None:
    if len(known) >= _MANY:  # limits made for each call: worked out again when needed
        known.clear()
    known[rule] = value


# -- asks


def take_blob(rule: bytes, cost: int, max_wait: int, now: int, slack: int) -> bytes:
    """A rule's bytes, and how the short script is to take; times in us, slack in ms."""
    return rule + _TAKE.pack(cost, max_wait, now, slack)


def time_blob(now: int, slack: int) -> bytes:
    """When `decide` is to decide: microseconds, or -1 for the server's time; slack in ms."""
    return _TIME.pack(now, slack)


def together_blob(time: bytes, cost: int, rules: Sequence[bytes]) -> bytes:
    """When `together` is to decide, the cost, and the rules."""
    return b"".join((time, _COST.pack(cost), *rules))


def op_blob(ask: Ask) -> bytes:
    """An ask without its key and limit."""
    numbers = (_NUMBER[ask.op], ask.cost, ask.max_wait, ask.least, ask.ttl, ask.at)
    return _OP.pack(*numbers) + token_bytes(ask.token)


def token_bytes(token: int) -> bytes:
    """A token as scripts compare it."""
    return token.to_bytes(16, "big")


# -- values


def split(value: bytes) -> Held:
    """What a value holds; an empty one is that of a key never seen."""
    if value[:4] != EXTENDED:
        return Held(body=value)
    try:
        own, reserved, tickets = _LENGTHS.unpack_from(value, 4)
        ends = [_HEAD]
        for length in (own, reserved, tickets):
            ends.append(ends[-1] + length)
        if len(value) < ends[-1] or reserved % _RESERVATION.size or tickets % _TICKET.size:
            raise ValueError
        parts = [value[begin:end] for begin, end in pairwise(ends)]
        size = 2 + _SIZE.unpack_from(parts[0])[0] if own else 0
        return Held(
            parts[0][2:size],
            parts[0][size:].decode(),
            tuple(map(Reservation._make, _RESERVATION.iter_unpack(parts[1]))),
            tuple(map(Ticket._make, _TICKET.iter_unpack(parts[2]))),
            value[ends[-1] :],
        )
    except (ValueError, error):
        raise StoreError("a value of this store was written by somebody else") from None


def join(held: Held) -> bytes:
    """The value again; empty if there is nothing to keep."""
    if not (held.own_text or held.reservations or held.tickets):
        return held.body
    own = b""
    if held.own_text:
        own = _SIZE.pack(len(held.own_blob)) + held.own_blob + held.own_text.encode()
    reserved = b"".join(_RESERVATION.pack(*each) for each in held.reservations)
    tickets = b"".join(_TICKET.pack(*each) for each in held.tickets)
    first = min((each.expires for each in held.reservations), default=0)
    lengths = _LENGTHS.pack(len(own), len(reserved), len(tickets))
    head = EXTENDED + lengths + first.to_bytes(7, "little", signed=True)
    return head + own + reserved + tickets + held.body


def tag_of(body: bytes) -> int:
    """The shape under which a state was written; 0 for none."""
    return int(_TAG.unpack_from(body)[0]) if len(body) >= 4 else 0


def lives_ms(held: Held, rule: Any | None, now: int) -> int:
    """Milliseconds until a key without an own limit is as if never used; 0: no end."""
    ends = [each.expires - now for each in held.reservations]
    ends += [each.expires - now for each in held.tickets]
    if held.body and (rule is None or tag_of(held.body) != shape_tag(rule)):
        ends.append(UNKNOWN_MS * 1000)
    elif held.body:
        reset = _reset(held.body, rule, now)
        if reset < 0:
            return 0
        ends.append(reset)
    return int(min(LONGEST_MS, max(0, 0, *ends) // 1000 + 2))


def _reset(body: bytes, rule: Any, now: int) -> int:
    """In how many microseconds a state is as if never used; -1 if that is not foreseen."""
    from .bodies import load_body  # which needs the tags of this module

    now //= rule.tick
    state = load_body(rule, body)
    ticks = rule.look(*state, now, 0)[2] if rule.words else rule.read(state, now, 0)[2]
    return int((ticks + kept_ticks(rule)) * rule.tick) if ticks >= 0 else -1
