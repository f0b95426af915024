"""Exchanges: what is sent again, and where, when a server redirects or has lost a script.

No I/O in here: `exchange` yields trips (bytes for nodes) or a `Renew`, and is sent the answers;
the sync link and the async one carry them.

Only what a server said it did not carry out is ever sent again. A call that was written and not
answered is not: it may have been carried out.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from typing import Any, NamedTuple, TypeAlias

from ....errors import StoreUnavailable
from .calls import AnyCall, Command, packed, script_of, slot_key_of
from .replies import ReplyError, error_of
from .routes import Node, Routes

__all__ = ["Answer", "Renew", "Steps", "Trip", "exchange"]


class Trip(NamedTuple):
    """Bytes for one node, and how many replies they bring."""

    node: Node
    data: bytes
    replies: int


class Renew(NamedTuple):
    """Learn anew where the servers are, and reach `node` by a new connection if `drop`."""

    node: Node
    pause: float
    drop: bool


Answer: TypeAlias = list[Any] | StoreUnavailable
Steps: TypeAlias = Generator[list[Trip] | Renew, Any, list[Any]]

PAUSE = 0.002
"""Seconds before a second try of what the server could not do just then."""
# Which part of the topology is old: the connection leads to a server that may not write.
_DROP = frozenset(["READONLY", "MASTERDOWN"])
_PAUSE = frozenset(["TRYAGAIN", "CLUSTERDOWN", "LOADING"])
_AGAIN = _DROP | _PAUSE
STALE: Any = object()
"""The node of a call whose node must be looked up again."""
_ASKING = packed(Command((b"ASKING",)))


class _Item:
    """A call on its way: where to, what goes before it, and what was tried already."""

    __slots__ = ("asking", "before", "call", "index", "loaded", "moves", "node", "waited")

    def __init__(self, index: int, call: AnyCall, node: Node) -> None:
        self.index = index
        self.call = call
        self.node = node
        self.before: list[bytes] = []
        self.asking = False
        self.loaded = False
        self.moves = 0
        self.waited = False


def exchange(routes: Routes, calls: Sequence[AnyCall]) -> Steps:
    """Carry calls to their nodes; returns a reply, or an exception, for each."""
    if routes.slots is None:
        # The common case, first: one node, and nothing went wrong.
        data = packed(calls[0]) if len(calls) == 1 else b"".join(map(packed, calls))
        [answer] = yield [Trip(None, data, len(calls))]
        if answer.__class__ is list and not any(r.__class__ is ReplyError for r in answer):
            return answer
        items = [_Item(index, call, None) for index, call in enumerate(calls)]
        groups = [items]
        answers = [answer]
    else:
        items = [_Item(i, c, routes.node(slot_key_of(c))) for i, c in enumerate(calls)]
        groups, answers = yield from _send(items)
    replies: list[Any] = [None] * len(calls)
    while True:
        again: list[_Item] = []
        renew: Renew | None = None
        for group, answer in zip(groups, answers, strict=True):
            for item, reply in zip(group, _replies(group, answer), strict=True):
                if reply.__class__ is ReplyError:
                    verdict = _verdict(routes, item, reply)
                    if verdict is not None:
                        again.append(item)
                        renew = verdict or renew
                        continue
                    reply = error_of(reply, routes.shown(item.node))
                replies[item.index] = reply
        if not again:
            return replies
        if renew:
            yield renew
            for item in again:
                if item.node is STALE:
                    item.node = routes.node(slot_key_of(item.call))
        groups, answers = yield from _send(again)


def _send(
    items: list[_Item],
) -> Generator[list[Trip] | Renew, Any, tuple[list[list[_Item]], list[Answer]]]:
    """One trip for each node that has items, all at once."""
    by_node: dict[Node, list[_Item]] = {}
    for item in items:
        by_node.setdefault(item.node, []).append(item)
    trips = []
    for node, group in by_node.items():
        parts: list[bytes] = []
        count = 0
        for item in group:
            parts += item.before
            parts.append(packed(item.call))
            count += len(item.before) + 1
        trips.append(Trip(node, b"".join(parts), count))
    answers = yield trips
    return list(by_node.values()), answers


def _replies(group: list[_Item], answer: Answer) -> list[Any]:
    """A reply for each item; what went before an item counts only if it failed."""
    if isinstance(answer, StoreUnavailable):
        return [answer] * len(group)
    replies = []
    at = 0
    for item in group:
        extra = len(item.before)
        reply = answer[at + extra]
        if reply.__class__ is ReplyError:  # SCRIPT LOAD refused says more than NOSCRIPT after it
            for early in answer[at : at + extra]:
                if early.__class__ is ReplyError:
                    reply = early
        replies.append(reply)
        at += extra + 1
    return replies


def _verdict(routes: Routes, item: _Item, error: ReplyError) -> Renew | tuple[()] | None:
    """How an item is to be sent again: at once (empty), after a renewal, or not at all (None)."""
    code = error.code
    if code == "NOSCRIPT":
        script = script_of(item.call)
        if script is None or item.loaded:
            return None
        item.loaded = True
        routes.forgot()  # a server that lost its scripts may have lost the rest
        item.before = [packed(Command((b"SCRIPT", b"LOAD", script.text.encode())))]
        if item.asking:  # holds for one command only
            item.before.append(_ASKING)
        return ()
    item.before = []
    if code in ("MOVED", "ASK"):
        if item.moves == 2 or routes.slots is None:  # moved, and then asked on the way
            return None
        item.moves += 1
        words = error.text.split()
        item.node = routes.named(words[2], item.node)
        item.asking = code == "ASK"
        if item.asking:
            item.before = [_ASKING]
        else:
            routes.moved(int(words[1]), item.node)
        return ()
    if item.waited or code not in _AGAIN:
        return None
    item.waited = True
    item.asking = False
    old, item.node = item.node, STALE
    return Renew(old, PAUSE if code in _PAUSE else 0.0, code in _DROP)
