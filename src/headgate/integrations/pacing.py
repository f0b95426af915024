"""Pacing: the flow from one message to the next, and what a message holds meanwhile.

It is written once; `consumer` drives it in a thread or in a task.
"""

from __future__ import annotations

import contextlib
import inspect
import weakref
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeVar

from ..facts import Facts
from ..flows import Flow, Step, run, run_async
from ..gate import AsyncGate, Gate, Refused
from .common import pause_of
from .steps import Check, Enter, Leave, Release, Sleep

if TYPE_CHECKING:
    from ..keys import Key

__all__ = ["NOTHING", "AsyncHeld", "Held", "Pacing", "outcome_of"]

Message = TypeVar("Message")
Item = TypeVar("Item")
Give = Callable[[str], Step]
"""The step that gives back what was taken for a message, by how that went."""
NOTHING: Any = object()
POLL = 0.1
"""How often a gate is asked again for a permit, in seconds: a limiter would tell."""
LEAST = 0.001
"""Between two questions to a gate."""
INFINITY = float("inf")


class _Close(NamedTuple):
    """Close what has a way to be closed."""

    closed: Any

    def ask(self, store: Any) -> Any:
        close = getattr(self.closed, "close", None)
        return close() if callable(close) else None

    async def ask_async(self, store: Any) -> Any:
        close = getattr(self.closed, "aclose", None) or getattr(self.closed, "close", None)
        result = close() if callable(close) else None
        return await result if inspect.isawaitable(result) else result


class _Fetch(NamedTuple):
    """Take the next message from the source; NOTHING at its end."""

    source: Any

    def ask(self, store: Any) -> Any:
        return next(self.source, NOTHING)

    def ask_async(self, store: Any) -> Any:
        return anext(self.source, NOTHING)


class _Holding(Generic[Message]):
    """A message, and what it holds."""

    def __init__(self, message: Message, give: Give, near: bool) -> None:
        self.message = message
        self._give = [give]  # whoever takes it out gives back
        self._near = near

    def ending(self, outcome: str = "success") -> Flow[None]:
        """The flow of giving back, once."""
        try:
            give = self._give.pop()
        except IndexError:
            return
        yield give(outcome)

    def __del__(self) -> None:
        # Forgotten: on a store that blocks the lease sees to it, and no other store waits.
        if self._near and self._give:
            with contextlib.suppress(Exception):
                self._last()

    def _last(self) -> None:
        raise NotImplementedError


class Held(_Holding[Message]):
    """A message to be worked on while others are; `with held: ...` does what `done()` does."""

    def done(self, outcome: str = "success") -> None:
        """Say how it went (`success`, `failure`, `ignored`), and give back what it held."""
        run(self.ending(outcome), NOTHING)

    def __enter__(self) -> Message:
        return self.message

    def __exit__(self, kind: type[BaseException] | None, *error: object) -> None:
        self.done(outcome_of(kind))

    def _last(self) -> None:
        self.done("ignored")


class AsyncHeld(_Holding[Message]):
    """The same for tasks."""

    async def done(self, outcome: str = "success") -> None:
        """Say how it went (`success`, `failure`, `ignored`), and give back what it held."""
        await run_async(self.ending(outcome), NOTHING)

    async def __aenter__(self) -> Message:
        return self.message

    async def __aexit__(self, kind: type[BaseException] | None, *error: object) -> None:
        await self.done(outcome_of(kind))

    def _last(self) -> None:
        with contextlib.suppress(StopIteration):
            self.done("ignored").send(None)  # never waits here


def outcome_of(kind: type[BaseException] | None) -> str:
    """How it went, by the exception that ended it; an interrupt says nothing."""
    if kind is None:
        return "success"
    return "failure" if issubclass(kind, Exception) else "ignored"


class Pacing(Generic[Item]):
    """What both colours share: the flow from one message to the next."""

    _held: Any

    def __init__(
        self,
        messages: Any,
        front: Any,
        own: bool,
        until_done: bool,
        *,
        key: Key | Callable[[Any], Key] = "",
        cost: int | Callable[[Any], int] = 1,
        facts: str | Facts | Callable[[Any], str | Facts] | None = None,
        wait: float | None = None,
        priority: int = 0,
        ahead: bool | None = None,
    ) -> None:
        self._gate = front if isinstance(front, Gate | AsyncGate) else None
        if (facts is None) != (self._gate is None) or (self._gate and (key != "" or cost != 1)):
            raise TypeError("a gate needs facts=, and no key= or cost=; limits take no facts=")
        asks_it = callable(key) or callable(cost) or callable(facts)
        if ahead is False and asks_it:
            raise TypeError("what depends on a message is known only after it was fetched")
        self._messages = messages
        self._source: Any = aiter(messages) if front.coloured else iter(messages)
        self._front, self._own = front, own
        self._until_done = until_done
        self._key, self._cost, self._facts = key, cost, facts
        self._wait, self._priority = wait, priority
        self._ahead = asks_it if ahead is None else ahead
        self._fetched = NOTHING
        """A message that waits for its limit."""
        self._out: weakref.WeakSet[Any] = weakref.WeakSet()
        self._last: Any = None
        self._closed = False

    def ending(self, outcome: str = "success") -> Flow[None]:
        """End the message that was handed out last; not those that end by themselves."""
        last, self._last = self._last, None
        if last is not None:
            yield from last.ending(outcome)

    def advancing(self) -> Flow[Any]:
        """From one message to the next; NOTHING at the end."""
        yield from self.ending()
        if self._closed:
            return NOTHING
        if self._ahead:
            if self._fetched is NOTHING:
                self._fetched = yield _Fetch(self._source)
                if self._fetched is NOTHING:
                    return NOTHING
            give = yield from self._taking(self._fetched)
            message, self._fetched = self._fetched, NOTHING
        else:
            give = yield from self._taking(None)
            try:
                message = yield _Fetch(self._source)
            except BaseException:
                yield give("ignored")
                raise
            if message is NOTHING:
                yield give("ignored")
                return NOTHING
        held = self._held(message, give, not self._front.store.blocking)
        self._out.add(held)
        if self._until_done:
            return held
        self._last = held
        return message

    def _taking(self, message: Any) -> Flow[Give]:
        """Take what a message needs, waiting for it."""
        if self._gate is None:
            key = self._key(message) if callable(self._key) else self._key
            cost = self._cost(message) if callable(self._cost) else self._cost
            hold = self._front.hold(key, cost, timeout=self._wait, priority=self._priority)
            yield Enter(hold)
            return lambda outcome: Leave(hold)
        facts: Any = self._facts(message) if callable(self._facts) else self._facts
        if isinstance(facts, str):
            facts = Facts(resource=facts, priority=self._priority)
        store = self._front.store
        end = None if self._wait is None else store.clock.micros() + round(self._wait * 1e6)
        while True:
            verdict = yield Check(self._gate, facts)
            if verdict.allowed:
                permit = verdict.permit
                return lambda outcome: Release(permit, outcome)
            pause, now = pause_of(verdict, POLL), store.clock.micros()
            if pause is None or pause == INFINITY:
                raise Refused(verdict)
            again = now + round(max(pause, LEAST) * 1e6)
            if end is not None and again > end:
                raise Refused(verdict)
            yield Sleep(store, again)

    def closing(self) -> Flow[None]:
        """Give everything back, and close the source, and the limiter if it was made here."""
        if self._closed:
            return
        self._closed = True
        try:
            yield from self.ending()
            for held in list(self._out):
                yield from held.ending("ignored")
        finally:
            yield _Close(self._source)
            if self._messages is not self._source:
                yield _Close(self._messages)
            if self._own:
                yield _Close(self._front)
