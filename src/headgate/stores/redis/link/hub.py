"""Hubs: the connections of one event loop."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from functools import partial
from typing import TYPE_CHECKING, Any

from ....errors import StoreError, StoreUnavailable
from .channel import Channel
from .coalesce import Lane
from .dialing import INTEREST, backoff
from .exchange import Answer, Renew, Steps, Trip
from .greeting import HELLO, REPLIES, greeted
from .routes import Node

if TYPE_CHECKING:
    from .aio import AsyncLink

__all__ = ["Hub"]


class _Home:
    """One node as one loop knows it: its lane, and how connecting goes."""

    def __init__(self, lane: Lane) -> None:
        self.lane = lane
        self.ready: asyncio.Future[None] | None = None
        self.task: asyncio.Task[None] | None = None
        self.down: StoreError | None = None
        self.asked = 0.0


class Hub:
    """What one event loop has: a home for each node."""

    def __init__(self, link: AsyncLink, loop: asyncio.AbstractEventLoop) -> None:
        self._link = link
        self.loop = loop
        self.homes: dict[Node, _Home] = {}
        self.met = False
        self._keeper: AsyncGenerator[None, None] | None = None

    def home(self, node: Node) -> _Home:
        found = self.homes.get(node)
        if found is None:
            lane = Lane(self.loop, self._link.routes, node, self.drive)
            lane.merge = self._link.merge
            self.homes[node] = found = _Home(lane)
        return found

    # -- carrying

    async def drive(self, steps: Steps, step: Any, deadline: float) -> list[Any]:
        """Do what an exchange asks for, from a given step on, until it has its replies."""
        try:
            while True:
                if isinstance(step, Renew):
                    await self._renew(step, deadline)
                    answers = None
                else:
                    answers = await self._carry(step, deadline)
                step = steps.send(answers)
        except StopIteration as done:
            return done.value  # type: ignore[no-any-return]

    async def _carry(self, trips: list[Trip], deadline: float) -> list[Answer]:
        """Write to every node, then wait for all."""
        futures: list[asyncio.Future[Answer]] = []
        for trip in trips:
            future: asyncio.Future[Answer] = self.loop.create_future()
            futures.append(future)
            try:
                channel = await self._channel(trip.node, deadline)
            except StoreUnavailable as error:
                future.set_result(error)
            else:
                channel.ask(trip.data, trip.replies, deadline, partial(_settle, future))
        return [await future for future in futures]

    async def _renew(self, step: Renew, deadline: float) -> None:
        """Learn where the servers are, in the background, and wait for it within the deadline."""
        if step.drop:
            home = self.home(step.node)
            if home.lane.channel is not None:
                home.lane.channel.close()
                home.lane.channel = None
        start = self.loop.time()
        flight = asyncio.wrap_future(self._link.routes.renewed())
        await asyncio.wait([flight], timeout=max(0.0, deadline - start))
        if step.pause:
            left = min(step.pause - (self.loop.time() - start), (deadline - self.loop.time()) / 2)
            if left > 0:
                await asyncio.sleep(left)

    # -- connecting

    async def _channel(self, node: Node, deadline: float) -> Channel:
        """The node's connection, waited for until the deadline if the server seems to be up."""
        home = self.home(node)
        while home.lane.channel is None:
            if self._link.closed:
                raise StoreUnavailable("the store was closed", sent=False)
            home.asked = self.loop.time()
            if home.task is None or home.task.done():  # cancelled, perhaps before it began
                home.ready = self.loop.create_future()
                home.task = self.loop.create_task(self._dial(home))
            if home.down is not None:
                raise StoreUnavailable(str(home.down), sent=False)
            if home.asked >= deadline:
                shown = self._link.routes.shown(node)
                raise StoreUnavailable(f"no connection to {shown} in time", sent=False)
            assert home.ready is not None
            either: list[asyncio.Future[None]] = [home.ready, home.task]
            left = deadline - home.asked
            await asyncio.wait(either, timeout=left, return_when=asyncio.FIRST_COMPLETED)
        return home.lane.channel

    async def meet(self) -> None:
        """The first connection, in the caller's time."""
        node = self._link.routes.masters()[0]
        await self._channel(node, self.loop.time() + self._link.connect_timeout)
        self.met = True
        if self._keeper is None:
            # A generator that is left open is closed with its loop: so is what it keeps.
            self._keeper = keeper = self._keep()
            await keeper.__anext__()

    async def _keep(self) -> AsyncGenerator[None, None]:
        try:
            yield
        finally:
            self.close()

    async def _dial(self, home: _Home) -> None:
        """Connect, again and again if need be, until there is a connection or nobody asks."""
        failures = 0
        link, node = self._link, home.lane.node
        try:
            while not link.closed:
                try:
                    home.lane.channel = await self._connected(node)
                    home.down = None
                    return
                except StoreError as error:
                    home.down = error
                    task = asyncio.current_task()
                    if task is not None and task.cancelling():
                        return  # `wait_for` of Python 3.11 may swallow a cancellation
                finally:
                    self._wake(home)
                link.routes.renewed()  # it may be somewhere else by now
                failures += 1
                await asyncio.sleep(backoff(failures))
                idle = self.loop.time() - home.asked > INTEREST
                if idle or (node is not None and node not in link.routes.masters()):
                    home.down = None  # unknown again: the next call finds out
                    return
        finally:
            home.task = None
            self._wake(home)

    def _wake(self, home: _Home) -> None:
        if home.ready is not None and not home.ready.done():
            home.ready.set_result(None)
        home.ready = self.loop.create_future()

    async def _connected(self, node: Node) -> Channel:
        """A new connection, which answers."""
        link = self._link
        shown = link.routes.shown(node)
        connection: Any = None
        try:
            if not link.routes.known(node):
                await asyncio.wrap_future(link.routes.renewed())
            place = link.routes.place(node)
            if place is None and not link.routes.known(node):
                raise StoreUnavailable(f"where {shown} is cannot be learnt", sent=False)
            connection = link.target.connection(place, link.connect_timeout, aio=True)
            await asyncio.wait_for(connection.connect(), 2 * link.connect_timeout)
            channel = Channel(self.loop, connection, node, shown, self._lost)
            greeting: asyncio.Future[Answer] = self.loop.create_future()
            deadline = self.loop.time() + link.connect_timeout
            channel.ask(HELLO, REPLIES, deadline, partial(_settle, greeting))
            answer = await greeting
        except StoreError:
            raise
        except Exception as error:
            raise StoreUnavailable(f"cannot connect to {shown}: {error}", sent=False) from None
        finally:
            writer = getattr(connection, "_writer", None)
            if writer is not None and not isinstance(writer.transport.get_protocol(), Channel):
                writer.transport.abort()
                connection._reader = connection._writer = None
        if isinstance(answer, StoreUnavailable):
            raise answer
        try:
            greeted(answer, shown)
        except StoreError:
            channel.close()
            raise
        return channel

    def _lost(self, channel: Channel, error: StoreUnavailable) -> None:
        """A connection failed: calls raise at once until there is another."""
        home = self.home(channel.node)
        if home.lane.channel is channel:
            home.lane.channel = None
            home.down = error
            if (home.task is None or home.task.done()) and not self._link.closed:
                home.asked = self.loop.time()
                home.task = self.loop.create_task(self._dial(home))

    def close(self) -> None:
        """Close all connections of this loop."""
        for home in self.homes.values():
            if home.task is not None:
                home.task.cancel()
            channel, home.lane.channel = home.lane.channel, None
            if channel is not None:
                channel.close()
        self.met = False


def _settle(future: asyncio.Future[Answer], answer: Answer) -> None:
    if not future.done():
        future.set_result(answer)
