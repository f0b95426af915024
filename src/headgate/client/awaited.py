"""AsyncClient: a headgate service for tasks; the names of Client, awaited."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Iterable
from concurrent.futures import Future
from typing import Any

from ..errors import HeadgateError
from ..facts import Facts
from ..stores.client.http import Answer
from ..stores.steps import Verb, run_async
from ..verdict import Refused
from .base import Base, Call, Request, release_of, settle_of, told_of
from .plain import BEATS, outcome_of, reset_of
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
        found: list[str] = (await run_async(self._telling(reset_of(facts, known))))["reset"]
        return found

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


class AsyncHold:
    """A permit as a block."""

    def __init__(self, client: AsyncClient, facts: Facts | None, known: dict[str, Any]) -> None:
        self._client = client
        self._told, self._key = told_of(facts, known)
        self._task: asyncio.Task[None] | None = None
        self.verdict: Verdict | None = None
        self.held: Held | None = None
        self.lost = False
        """Whether the service let others have it, since it was not renewed in time."""

    async def __aenter__(self) -> AsyncHold:
        verdict = await run_async(self._client._checking("/v1/permits", self._told, self._key))
        if not verdict:
            raise Refused(verdict)  # type: ignore[arg-type] # it has what the error asks of one
        self.verdict, self.held, self.lost = verdict, verdict.held, False
        if self.held is not None and self.held.lease is not None:
            self._task = asyncio.get_running_loop().create_task(self._renewing())
        return self

    async def __aexit__(self, kind: type[BaseException] | None, *error: object) -> None:
        if self._task is not None:
            self._task.cancel()
            self._task = None
        held, self.held = self.held, None
        if held is not None:
            await _surely(self._client, release_of(held, outcome_of(kind)))

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


class AsyncReserve:
    """A reservation as a block."""

    def __init__(
        self, client: AsyncClient, facts: Facts | None, known: dict[str, Any], cost: int
    ) -> None:
        self._client = client
        self._told, self._key = told_of(facts, known)
        self._cost = self._estimate = cost
        self.verdict: Verdict | None = None
        self.held: Held | None = None

    def settle(self, cost: int) -> None:
        """What it has really cost; sent when the block ends."""
        self._cost = cost

    async def __aenter__(self) -> AsyncReserve:
        self._cost = self._estimate
        verdict = await run_async(self._client._checking("/v1/reserve", self._told, self._key))
        if not verdict:
            raise Refused(verdict)  # type: ignore[arg-type] # it has what the error asks of one
        self.verdict, self.held = verdict, verdict.held
        return self

    async def __aexit__(self, kind: type[BaseException] | None, *error: object) -> None:
        held, self.held = self.held, None
        if held is not None:
            await _surely(self._client, settle_of(held, self._cost if kind is None else 0))


async def _surely(client: AsyncClient, request: Request) -> None:
    """Give back, also if the task is cancelled meanwhile: the request is then on its way."""
    with contextlib.suppress(HeadgateError):  # it comes back by itself
        future = client._link.pool().submit(client._send, request)
        await asyncio.shield(asyncio.wrap_future(future))
