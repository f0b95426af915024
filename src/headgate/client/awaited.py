"""AsyncClient: a headgate service for tasks; the names of Client, awaited."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Iterable
from concurrent.futures import Future
from typing import Any, Self

from ..errors import HeadgateError
from ..facts import Facts
from ..stores.client.http import Answer
from ..stores.steps import Verb, run_async
from .base import Base, Call, Request, release_of, settle_of, told_of
from .blocks import BEATS, Holding, Reserving
from .verdicts import Held, Verdict, held_in

__all__ = ["AsyncClient", "AsyncHold", "AsyncReserve"]


class AsyncClient(Base):
    """The same for tasks. Requests travel in threads of the client's, and tasks wait for them.

    A task that is cancelled leaves nothing held: what its request has got is given back.
    """

    def __init__(self, address: str, **options: Any) -> None:
        super().__init__(address, **options)
        self._verb = Verb(self._send, self._send_soon)

    async def check(self, facts: Facts | None = None, **known: Any) -> Verdict:
        """Take what a call costs, or be refused; by its facts, or by `rule` and `key`."""
        return await run_async(self._checking("/v1/check", *told_of(facts, known)))

    async def check_many(self, calls: Iterable[Call]) -> list[Verdict]:
        """Independent verdicts, in order: of facts, or of dicts such as `check` is given."""
        return await run_async(self._checking_many(calls))

    async def peek(self, facts: Facts | None = None, **known: Any) -> Verdict:
        """Would it pass? Takes nothing."""
        return await run_async(self._checking("/v1/peek", *told_of(facts, known)))

    def hold(
        self, facts: Facts | None = None, *, ttl: float | None = None, **known: Any
    ) -> AsyncHold:
        """A call as a block, whose permits are renewed while it lasts and then given back."""
        return AsyncHold(self, facts, {**known, "ttl": ttl})

    def reserve(
        self, facts: Facts | None = None, *, cost: int, ttl: float | None = None, **known: Any
    ) -> AsyncReserve:
        """An estimated cost as a block; unsettled it stays, after an exception nothing does."""
        return AsyncReserve(self, facts, {**known, "cost": cost, "ttl": ttl}, cost)

    async def release(self, held: Held | None, outcome: str = "success") -> bool:
        """End what `verdict.held` of a check names; False if it was ended before."""
        return held is not None and await run_async(self._ending(release_of(held, outcome)))

    async def renew(self, held: Held, ttl: float | None = None) -> Held | None:
        """Let a permit live on: what is held from now on, or None if it was held no longer."""
        return await run_async(self._renewing(held, ttl))

    async def settle(self, held: Held | None, cost: int) -> bool:
        """Replace what was reserved by what it has cost; False if that was done before."""
        return held is not None and await run_async(self._ending(settle_of(held, cost)))

    async def reset(self, facts: Facts | None = None, **known: Any) -> list[str]:
        """Forget what a key has used under a rule, or a call under its rules; asks the admin."""
        return await run_async(self._resetting(facts, known))

    async def rules(self) -> dict[str, Any]:
        """The rules in force, and how they were loaded."""
        found: dict[str, Any] = await run_async(self._telling(Request("GET", "/v1/rules")))
        return found

    async def close(self) -> None:
        """Let go of every connection."""
        self._close()

    async def __aenter__(self) -> AsyncClient:
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.close()

    async def _send_soon(self, request: Request) -> Answer:
        deadline = time.monotonic() + self._timeout
        future = self._link.pool().submit(self._send, request, deadline)
        try:
            return await asyncio.wrap_future(future)
        except asyncio.CancelledError:
            if request.takes:
                future.add_done_callback(self._abandon)
            raise

    def _abandon(self, future: Future[Answer]) -> None:
        """A request has got something that nobody waits for; in the thread that sent it."""
        if future.cancelled() or future.exception() is not None:
            return  # never sent; or lost, and back by itself
        with contextlib.suppress(ValueError, HeadgateError):
            for held in held_in(future.result().body):
                permit = held.kind == "permit"
                self._send(release_of(held, "ignored") if permit else settle_of(held, 0))


class AsyncHold(Holding[AsyncClient]):
    """A permit as a block."""

    _task: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        await run_async(self._entering())
        if self.held is not None and self.held.lease is not None:
            self._task = asyncio.get_running_loop().create_task(self._renewing())
        return self

    async def __aexit__(self, kind: type[BaseException] | None, *error: object) -> None:
        if self._task is not None:
            self._task.cancel()
            self._task = None
        await _give_back(self._client, self._end(kind))

    async def _renewing(self) -> None:
        while (held := self.held) is not None and held.lease is not None:
            await asyncio.sleep(held.lease / BEATS)
            try:
                kept = await self._client.renew(held)
            except HeadgateError:
                continue
            self.lost = kept is None
            if kept is None:
                return
            self.held = kept


class AsyncReserve(Reserving[AsyncClient]):
    """A reservation as a block."""

    async def __aenter__(self) -> Self:
        await run_async(self._entering())
        return self

    async def __aexit__(self, kind: type[BaseException] | None, *error: object) -> None:
        await _give_back(self._client, self._end(kind))


async def _give_back(client: AsyncClient, request: Request | None) -> None:
    """Give back, also if the task is cancelled meanwhile: the request is then on its way."""
    if request is not None:
        with contextlib.suppress(HeadgateError):  # it comes back by itself
            future = client._link.pool().submit(client._send, request)
            await asyncio.shield(asyncio.wrap_future(future))
