"""Desk: how a gate asks its store, waits in front of it and gives back; a front for many keys.

A call may ask for limits of several keys at once. It waits in a line of calls that ask for the
very same, is told when something comes back for any of its keys, and gives way to those in other
lines who are more important and wait for one of its limits.
"""

from __future__ import annotations

import contextlib
import threading
import weakref
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

from ..answers import by_token, given_back
from ..callers import TaskCaller, shielded
from ..clock import ttl_of
from ..decision import Ask, Decision, joined
from ..flows import Assigned, Decide, Flow
from ..front import Front
from ..keys import Canonical, canonical
from ..queues import queues_of
from ..waiting import lines_of

if TYPE_CHECKING:
    from asyncio import AbstractEventLoop, Task

    from ..keys import Key
    from ..limit import Limit
    from ..stores.base import Store
    from .watched import Watch

__all__ = ["Back", "Desk", "Patience", "Together", "Wait", "undone"]

Places = dict[tuple[str, Canonical], Counter[Canonical]]
_others: weakref.WeakKeyDictionary[Any, Places] = weakref.WeakKeyDictionary()
"""By lines, then by key: in the lines of which other keys somebody waits for this one as well."""
_making = threading.Lock()


class Desk(Front):
    """What a gate does at its store; it has no limits of its own."""

    coloured = False

    def __init__(self, store: Store, name: str, room: Callable[[], float] | None) -> None:
        if room is not None and not callable(room):
            raise TypeError(f"room is a function that says how much room there is, not {room!r}")
        self.limits = ()
        self.name = name
        self.store = store
        blocks = store.blocking
        self._room = room
        self.watch: Watch | None = None
        """Who is told how long the store takes, and what is held."""
        self._share = 1.0  # whoever is over the line is refused
        self._lines = queues_of(store) if blocks else lines_of(store)
        with _making:
            self._places = _others.setdefault(self._lines, {})
        far: Any = store
        self.lease = ttl_of(far.lease_ttl) if blocks else 0
        """The time to live of permits, which are renewed as long as they are held; 0 if they
        live for ever."""

    def room(self) -> int:
        """How many thousandths of the elastic part are open now."""
        return self._permille()

    def follow(self, room: Callable[[], float] | None) -> None:
        """Have somebody else say how much room there is."""
        self._room = room

    def catch_up(self) -> None:
        """Tell those who wait what came back in the middle of a decision."""
        if self._lines.put_off:
            self._lines.catch_up()

    def crowded(self) -> bool:
        """Whether anybody waits for anything."""
        return bool(self._lines._lines or self._lines.put_off)

    def queueing(self, wait: Wait, priority: int) -> bool:
        """Whether somebody has to wait who goes before a newcomer."""
        lines, name = self._lines, wait.line
        there = lines.known(name) is not None if self.store.blocking else lines.waiting(name)
        return bool(there or lines.outranked(wait.asked, priority))

    # -- giving back

    def giving(self, asks: Sequence[Ask], key: Key) -> Flow[list[bool]]:
        """The flow of giving back: whether each was still there to be given."""
        decisions = yield Decide(asks)
        self.came_back(asks)
        return [decision.allowed for decision in decisions]

    def send_back(self, asks: Sequence[Ask]) -> None:
        """Give back in a task that has failed, or that somebody gave up."""
        if not self.store.blocking:
            self.give(asks, "")
            return
        import asyncio

        with contextlib.suppress(RuntimeError):  # no loop runs: what is leased comes back by itself
            asyncio.get_running_loop()
            self.give_later(asks, "")

    def came_back(self, asks: Iterable[Ask]) -> None:
        """Tell those who wait for what was given back."""
        for form in {canonical(ask.key) for ask in asks}:
            places = [form, *self._places.get((self.name, form), ())]
            for place in places:
                if self.store.deciding():  # a finaliser, in the middle of another decision
                    self._lines.put_off.append((self.name, place))
                else:
                    self._lines.kick(self.name, place)


class Wait(Desk):
    """The desk as somebody finds it who has to wait there."""

    def __init__(self, desk: Desk, asks: list[Ask]) -> None:
        vars(self).update(vars(desk))
        self.asked = asks
        # What comes back at any time tells the line of its own key soonest.
        permits = (ask for ask in asks if ask.limit.algorithm == "concurrency")
        self.key = next(permits, asks[0]).key
        forms = [canonical(ask.key) for ask in asks]
        self._form = canonical(self.key)
        self._forms = {form for form in forms if form != self._form}
        parts: list[Any] = [ask.limit.id for ask in asks]
        self._ids = tuple(parts + forms if self._forms else parts)
        self.line = (self.name, self._form, self._ids)

    def getting(self, key: Key) -> Flow[tuple[Limit, ...]]:
        """The flow that finds the limits which hold."""
        found = []
        for ask in self.asked:
            own = yield Assigned(ask.space, ask.limit.id, ask.key)
            found.append(own or ask.limit)
        return tuple(found)

    def block(self, timeout: float, priority: int) -> Decision:
        """Take, blocking this thread until it can be."""
        self._stand(1)
        try:
            return self.wait_for(self.key, self.asked, timeout, priority)
        finally:
            self._stand(-1)

    async def pause(self, timeout: float, priority: int) -> Decision:
        """Take, letting other tasks run until it can be."""
        self._stand(1)
        try:
            return await self.await_for(self.key, self.asked, timeout, priority)
        finally:
            self._stand(-1)

    def left(self) -> None:
        """Somebody gave up, and what came back with them may be what others wait for."""
        self.came_back(self.asked)

    def _stand(self, change: int) -> None:
        """Note that somebody in this line waits for its other keys too, or does so no longer."""
        if not self._forms:
            return
        with _making:
            for form in self._forms:
                place = self.name, form
                lines = Counter(self._places.get(place, ()))
                lines[self._form] += change
                if not +lines:
                    self._places.pop(place, None)
                else:  # another one, as others may be reading
                    self._places[place] = +lines


# -- steps


class Together:
    """The step that asks for everything at once, on a store of either kind."""

    __slots__ = ("asks", "undo")

    def __init__(self, asks: Sequence[Ask], undo: Desk | None = None) -> None:
        self.asks = asks
        self.undo = undo
        """Where to give back what was taken for a task that was cancelled; None if it stays."""

    def ask(self, store: Any) -> list[Decision]:
        answers: list[Decision] = store.decide(self.asks)
        return answers

    async def ask_async(self, store: Any) -> list[Decision]:
        if not store.blocking:
            return self.ask(store)
        if self.undo is None:
            answers: list[Decision] = await store.decide_async(self.asks)
            return answers
        import asyncio

        return await _Shielded(self.undo, asyncio.get_running_loop()).take(self.asks)


class Back:
    """The step that gives back, and goes on if whoever waits for it is cancelled."""

    __slots__ = ("asks", "desk")

    def __init__(self, desk: Desk, asks: Sequence[Ask]) -> None:
        self.desk = desk
        self.asks = asks

    def ask(self, store: Any) -> list[bool]:
        return self.desk.give(self.asks, "")

    async def ask_async(self, store: Any) -> list[bool]:
        if not store.blocking:
            return self.ask(store)
        return await shielded(self.desk.give_later(self.asks, ""))


class Patience:
    """The step that waits."""

    __slots__ = ("priority", "timeout", "wait")

    def __init__(self, wait: Wait, timeout: float, priority: int) -> None:
        self.wait = wait
        self.timeout = timeout
        self.priority = priority

    def ask(self, store: Any) -> Any:
        return self.wait.block(self.timeout, self.priority)

    def ask_async(self, store: Any) -> Any:
        return self.wait.pause(self.timeout, self.priority)


class _Shielded(TaskCaller):
    """A task whose asks are not all takes."""

    def __init__(self, desk: Desk, loop: AbstractEventLoop) -> None:
        store: Any = desk.store
        super().__init__(store, lambda: None, loop)
        self._desk = desk

    async def _undo(self, call: Task[list[Decision]], asks: Sequence[Ask]) -> None:
        import asyncio

        try:
            back = undone(asks, await call)
        except (Exception, asyncio.CancelledError):
            back = by_token([ask for ask in asks if ask.op in ("take", "shadow")])
        if back:
            await self._give(back)
            self._desk.came_back(back)


def undone(asks: Sequence[Ask], answers: Sequence[Decision]) -> list[Ask]:
    """The asks that undo what was taken by others; none if a take was refused."""
    pairs = list(zip(asks, answers, strict=True))
    if any(ask.op == "take" and not answer.allowed for ask, answer in pairs):
        return []
    taken = [(a, d) for a, d in pairs if a.op in ("take", "shadow") and d.allowed and a.cost]
    if not taken:
        return []
    return given_back([ask for ask, _ in taken], joined(tuple(answer for _, answer in taken)))
