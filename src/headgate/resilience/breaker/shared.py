"""Fleet, AsyncFleet: a breaker among many of its kind, reporting from a thread or a task."""

from __future__ import annotations

import asyncio
import contextlib
import threading
import weakref
from typing import TYPE_CHECKING, Any, Protocol

from ...clock import MICROSECONDS
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
    space        what the names of keys in Redis begin with; the same on every node

    The thread ends when nobody has the breaker any more.
    """

    _client: Client

    def __init__(self, breaker: Breaker, client: Client, **options: Any) -> None:
        super().__init__(breaker, client, **options)
        self._woken = threading.Event()
        self._ended = threading.Event()
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
        self._client.execute_command(*switch_command(self.breaker.name, state, self._space))
        self.report()

    def start(self) -> Fleet:
        """Report from now on, in a thread."""
        if self._thread is None:
            self._listen()
            self._ended = threading.Event()
            self._thread = threading.Thread(
                target=_run, args=(weakref.ref(self), self._ended), daemon=True,
                name=f"headgate fleet {self.breaker.name}",
            )  # fmt: skip
            self._thread.start()
        return self

    def stop(self) -> None:
        """Leave the fleet."""
        thread, self._thread = self._thread, None
        self._leave()
        if thread is None:
            self._goodbye()
            return
        self._ended.set()
        self._woken.set()
        thread.join(self._ttl / MICROSECONDS)  # no longer: by then the node is taken for dead

    def _wake(self) -> None:
        self._woken.set()

    def _once(self, ended: threading.Event) -> tuple[threading.Event, float]:
        """Report once; what to wait for until the next time, and how long at most."""
        self._woken.clear()
        if not ended.is_set():
            self.report()
        return self._woken, 0.0 if ended.is_set() else self._interval

    def _goodbye(self) -> None:
        with contextlib.suppress(Exception):  # then the node's time to live ends it
            self._client.execute_command(*self._question(leaving=True))

    def after_fork(self) -> None:
        """In a child: the thread stayed behind; `start` makes another one."""
        super().after_fork()
        self._thread = None
        self._woken = threading.Event()

    def __enter__(self) -> Fleet:
        return self.start()

    def __exit__(self, *error: object) -> None:
        self.stop()


def _run(reference: weakref.ref[Fleet], ended: threading.Event) -> None:
    """Report again and again, as long as somebody has the fleet: its breaker, if nobody else."""
    while (fleet := reference()) is not None:
        if ended.is_set():
            fleet._goodbye()
            return
        woken, seconds = fleet._once(ended)
        del fleet
        woken.wait(seconds)


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
        await self._client.execute_command(*switch_command(self.breaker.name, state, self._space))
        await self.report()

    async def start(self) -> AsyncFleet:
        """Report from now on, in a task."""
        if self._task is None:
            self._listen()
            self._ended = False
            self._woken = asyncio.Event()  # it belongs to the loop that waits for it
            self._loop = asyncio.get_running_loop()
            self._task = asyncio.create_task(self._run())
        return self

    async def stop(self) -> None:
        """Leave the fleet."""
        task, self._task, self._loop = self._task, None, None
        self._ended = True
        self._leave()
        # No longer than this: by then the node is taken for dead.
        most = self._ttl / MICROSECONDS
        if task is not None:
            task.cancel()
            await asyncio.wait([task], timeout=most)
        with contextlib.suppress(Exception):
            async with asyncio.timeout(most):
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

    def after_fork(self) -> None:
        """In a child: the loop and its task stayed behind; `start` makes another one."""
        super().after_fork()
        self._task = self._loop = None

    async def __aenter__(self) -> AsyncFleet:
        return await self.start()

    async def __aexit__(self, *error: object) -> None:
        await self.stop()
