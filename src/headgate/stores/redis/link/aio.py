"""The async link: all tasks of an event loop share one connection to each node."""

from __future__ import annotations

import asyncio
import os
import weakref
from collections.abc import Awaitable, Sequence
from threading import get_ident
from typing import Any, TypeVar

from ....errors import StoreError, StoreUnavailable
from .calls import AnyCall, Flow, Raw, slot_key_of
from .coalesce import Merge
from .gathering import Way
from .hub import Hub
from .routes import Node, Routes, routes_to
from .target import Target

__all__ = ["AsyncLink"]

T = TypeVar("T")


class AsyncLink:
    """Carries flows to the servers of a target, for tasks of any number of event loops.

    Each loop has its own connections. A loop's first call may take `connect_timeout` seconds;
    from then on every call returns or raises within `budget` seconds.
    """

    def __init__(
        self,
        target: Target,
        *,
        budget: float = 0.020,
        connect_timeout: float = 1.0,
        routes: Routes | None = None,
        merge: Merge | None = None,
    ) -> None:
        self.target = target
        self.budget = budget
        self.connect_timeout = connect_timeout
        self.routes = routes or routes_to(target, connect_timeout)
        self.slot = self.routes.slot
        self.merge = merge
        self.closed = False
        self._hubs: dict[asyncio.AbstractEventLoop, Hub] = {}
        self._latest: Hub | None = None
        _links.add(self)

    async def run(self, flow: Flow[T], budget: float | None = None) -> T:
        """Drive a flow to its result, all of its steps within one budget."""
        hub = self._hub()
        unmet = None if hub.met else await self._meet(hub)
        deadline = hub.loop.time() + (self.budget if budget is None else budget)
        try:
            calls = next(flow)
            while True:
                if unmet is not None or not calls:
                    calls = flow.send([unmet] * len(calls))
                else:
                    calls = flow.send(await self._submit(hub, calls, deadline))
        except StopIteration as done:
            return done.value  # type: ignore[no-any-return]

    async def one(self, data: bytes, key: bytes | None = None) -> Any:
        """The reply to one packed call, whose key is needed in a cluster only."""
        [reply] = await self.ask([Raw(data, key)])
        if isinstance(reply, Exception):
            raise reply
        return reply

    async def ask(self, calls: Sequence[AnyCall]) -> list[Any]:
        """Replies to calls, or an exception in place of each that failed."""
        hub = self._hub()
        unmet = None if hub.met else await self._meet(hub)
        if unmet is not None:
            return [unmet] * len(calls)
        return await self._submit(hub, calls, hub.loop.time() + self.budget)

    def soon(self, call: AnyCall) -> Awaitable[list[Any]]:
        """The same for one call, without a step of its own once the server was met."""
        hub = self._met()
        if hub is None:
            return self.ask([call])
        return self._submit(hub, (call,), hub.loop.time() + self.budget)

    def take(self, way: Way, name: bytes) -> Awaitable[Any] | None:
        """The reply to one take, or an exception in its place; None if it must go as a call."""
        hub = self._met()
        if hub is None or self.merge is None:
            return None
        return hub.home(None).lane.take(way, name, hub.loop.time() + self.budget)

    def _met(self) -> Hub | None:
        """What this loop has, if it has met the server."""
        hub = self._latest
        # The loop that runs in this thread, as far as it says so itself: asking asyncio for it is
        # a call of the system's in Python 3.11.
        if hub is None or getattr(hub.loop, "_thread_id", None) != get_ident():
            hub = self._latest = self._hubs.get(asyncio.get_running_loop())
        return hub if hub is not None and hub.met else None

    async def close(self) -> None:
        """Close the connections of this loop; those of others close with their loops."""
        self.closed = True
        self._latest = None
        hub = self._hubs.pop(asyncio.get_running_loop(), None)
        if hub is not None:
            hub.close()
            await asyncio.sleep(0)  # transports close in the loop's next turn

    def _submit(self, hub: Hub, calls: Sequence[AnyCall], deadline: float) -> Awaitable[list[Any]]:
        """Where calls are gathered: the lane of the one node, or a lane for each."""
        if self.routes.slots is None:
            return hub.home(None).lane.submit(calls, deadline)
        groups: dict[Node, list[int]] = {}
        for index, call in enumerate(calls):
            groups.setdefault(self.routes.node(slot_key_of(call)), []).append(index)
        if len(groups) == 1:
            return hub.home(next(iter(groups))).lane.submit(calls, deadline)
        return self._spread(hub, calls, deadline, groups)

    async def _spread(
        self, hub: Hub, calls: Sequence[AnyCall], deadline: float, groups: dict[Node, list[int]]
    ) -> list[Any]:
        futures = [
            hub.home(node).lane.submit([calls[i] for i in group], deadline)
            for node, group in groups.items()
        ]
        replies: list[Any] = [None] * len(calls)
        for group, future in zip(groups.values(), futures, strict=True):
            for index, reply in zip(group, await future, strict=True):
                replies[index] = reply
        return replies

    def _hub(self) -> Hub:
        loop = asyncio.get_running_loop()
        hub = self._hubs.get(loop)
        if hub is None:
            if self.closed:
                raise StoreError("the store was closed")
            for old in [old for old in self._hubs if old.is_closed()]:
                del self._hubs[old]
            self._hubs[loop] = hub = Hub(self, loop)
        return hub

    async def _meet(self, hub: Hub) -> StoreUnavailable | None:
        """A loop's first connection; what it failed for."""
        if self.closed:
            raise StoreError("the store was closed")
        try:
            await hub.meet()
        except StoreUnavailable as error:
            return error
        return None


_links: weakref.WeakSet[AsyncLink] = weakref.WeakSet()
_parents: list[object] = []


def _after_fork() -> None:
    """In a child: the parent's loops and connections are left alone, and never used."""
    for link in list(_links):
        _parents.append(link._hubs)
        link._hubs, link._latest = {}, None
        link.routes.reset()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
