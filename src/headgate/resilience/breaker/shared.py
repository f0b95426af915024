"""Fleet, AsyncFleet: a breaker among many of its kind, reporting from a thread or a task."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from typing import TYPE_CHECKING, Any, Protocol

from .member import Member, Quorum, Standing, switch_command

if TYPE_CHECKING:
    from .breaker import Breaker

__all__ = ["AsyncClient", "AsyncFleet", "Client", "Fleet", "Quorum", "Standing", "switch_command"]


class Client(Protocol):
    """What a fleet needs of a Redis client, such as redis.Redis."""

    def execute_command(self, *words: Any) -> Any: ...


class AsyncClient(Protocol):
    """What an AsyncFleet needs, such as redis.asyncio.Redis."""

    async def execute_command(self, *words: Any) -> Any: ...


class Fleet(Member):
    """One node of a fleet, over a client such as redis.Redis; it reports from a thread.

    quorum       how many sick nodes open everybody's: (how many, share of the living)
    interval     seconds between reports; a change of state is reported at once
    ttl          seconds after which a node that is silent is taken for dead
    keep_switch  what was forced upon all stays forced while Redis is lost
    """

    _client: Client

    def __init__(self, breaker: Breaker, client: Client, **options: Any) -> None:
        super().__init__(breaker, client, **options)
        self._woken = threading.Event()
        self._ended = False
        self._thread: threading.Thread | None = None

    def report(self) -> bool:
        """Tell and learn once; the answer is whether Redis answered."""
        try:
            self._answered(self._client.execute_command(*self._question()))
        except Exception as error:  # whatever a client raises
            self._lost(error)
            return False
        return True

    def switch(self, state: str | None) -> None:
        """Force a state upon every instance of the fleet; None lets all go again."""
        self._client.execute_command(*switch_command(self.breaker.name, state))
        self.report()

    def start(self) -> Fleet:
        """Report from now on, in a thread."""
        if self._thread is None:
            self._ended = False
            self._thread = threading.Thread(
                target=self._run, name=f"headgate fleet {self.breaker.name}", daemon=True
            )
            self._thread.start()
        return self

    def stop(self) -> None:
        """Leave the fleet."""
        thread, self._thread = self._thread, None
        self._ended = True
        self._woken.set()
        if thread is not None:
            thread.join()
        self._leave()
        with contextlib.suppress(Exception):  # then the node's time to live ends it
            self._client.execute_command(*self._question(leaving=True))

    def _wake(self) -> None:
        self._woken.set()

    def _run(self) -> None:
        while not self._ended:
            self._woken.clear()
            self.report()
            self._woken.wait(self._interval)

    def __enter__(self) -> Fleet:
        return self.start()

    def __exit__(self, *error: object) -> None:
        self.stop()


class AsyncFleet(Member):
    """One node of a fleet, over a client such as redis.asyncio.Redis; it reports from a task.

    Its options are those of Fleet.
    """

    _client: AsyncClient

    def __init__(self, breaker: Breaker, client: AsyncClient, **options: Any) -> None:
        super().__init__(breaker, client, **options)
        self._woken = asyncio.Event()
        self._ended = False
        self._task: asyncio.Task[None] | None = None
        self._loop: asyncio.AbstractEventLoop | None = None

    async def report(self) -> bool:
        """Tell and learn once; the answer is whether Redis answered."""
        try:
            self._answered(await self._client.execute_command(*self._question()))
        except Exception as error:  # whatever a client raises
            self._lost(error)
            return False
        return True

    async def switch(self, state: str | None) -> None:
        """Force a state upon every instance of the fleet; None lets all go again."""
        await self._client.execute_command(*switch_command(self.breaker.name, state))
        await self.report()

    async def start(self) -> AsyncFleet:
        """Report from now on, in a task."""
        if self._task is None:
            self._ended = False
            self._loop = asyncio.get_running_loop()
            self._task = asyncio.create_task(self._run())
        return self

    async def stop(self) -> None:
        """Leave the fleet."""
        task, self._task, self._loop = self._task, None, None
        self._ended = True
        if task is not None:
            task.cancel()
            await asyncio.wait([task])
        self._leave()
        with contextlib.suppress(Exception):  # then the node's time to live ends it
            await self._client.execute_command(*self._question(leaving=True))

    def _wake(self) -> None:
        # A breaker may be used, and so trip, in any thread.
        if self._loop is not None:
            with contextlib.suppress(RuntimeError):  # the loop has ended
                self._loop.call_soon_threadsafe(self._woken.set)

    async def _run(self) -> None:
        while not self._ended:  # a client may swallow the cancellation
            self._woken.clear()
            await self.report()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._interval):
                    await self._woken.wait()

    async def __aenter__(self) -> AsyncFleet:
        return await self.start()

    async def __aexit__(self, *error: object) -> None:
        await self.stop()
