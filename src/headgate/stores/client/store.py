"""ClientStore: the limits of a headgate service, asked for over HTTP."""

from __future__ import annotations

import os
import secrets
import threading
import weakref
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ...clock import Clock, SystemClock
from ...decision import Ask, Decision
from ...errors import StoreError
from ...keys import Key
from ...limit import Limit
from .address import read_address
from .codec import decode_own, encode_change
from .http import Answer, problem_of, unavailable
from .link import Link
from .plan import call_of, pieces, results

if TYPE_CHECKING:
    import asyncio

    from .lane import Lane

__all__ = ["ClientStore"]


class ClientStore:
    """State in a headgate service: every call is one request, and the service tells the time.

    `address` is a URL: `headgate://host:8080`, `headgates://` by TLS, or
    `headgate+unix:///run/headgate.sock`. A clock given here is what waits are planned by.
    """

    blocking = True
    shared = True
    lease_ttl = 10.0
    """Seconds after which a permit comes back whose holder died."""

    def __init__(self, address: str, *, clock: Clock | None = None, **options: Any) -> None:
        place, found = read_address(address)
        self.options = found.changed(**options)
        self.link = Link(place, self.options)
        self._clock = clock or SystemClock()
        self._skew = 0
        self._token = 0
        self._lanes: dict[asyncio.AbstractEventLoop, Lane] = {}
        self._lock = threading.Lock()
        self.closed = False
        _stores.add(self)

    @property
    def clock(self) -> Clock:
        """What waits are planned by; decisions go by the service's time."""
        return self._clock

    # -- the contract, for threads

    def decide(self, asks: Sequence[Ask]) -> list[Decision]:
        """Answer the asks in order; takes pass together or not at all."""
        self._check()
        return self._learnt(results(self.link.ask([call_of(asks)])))[0]

    def decide_many(self, groups: Sequence[Sequence[Ask]]) -> list[list[Decision]]:
        """Answer groups of asks, each all-or-nothing by itself, in as few requests as they fit."""
        self._check()
        parts = pieces([call_of(asks) for asks in groups])
        return self._learnt(results([reply for part in parts for reply in self.link.ask(part)]))

    def assign(self, space: str, limit_id: str, key: Key, limit: Limit | None) -> None:
        """Give a key a limit of its own, or take it away."""
        self._change("/v1/assign", encode_change(space, limit_id, key, limit))

    def assigned(self, space: str, limit_id: str, key: Key) -> Limit | None:
        """The limit a key was given, if any."""
        body = self._change("/v1/assigned", encode_change(space, limit_id, key))
        try:
            return decode_own(body, limit_id)
        except ValueError as error:
            raise StoreError(f"{self.link.place} answered nonsense: {error}") from None

    def quick(self, space: str, limits: Sequence[Limit], on_error: str = "") -> None:
        """None: a prepared request would hardly be shorter."""
        return

    def close(self) -> None:
        """Let go of every connection; later calls raise StoreError."""
        self.closed = True
        self.link.close()

    # -- the contract, for tasks

    async def decide_async(self, asks: Sequence[Ask]) -> list[Decision]:
        """Answer the asks in order; takes pass together or not at all."""
        self._check()
        return self._learnt(results(await self._lane().submit([call_of(asks)])))[0]

    async def decide_many_async(self, groups: Sequence[Sequence[Ask]]) -> list[list[Decision]]:
        """Answer groups of asks, each all-or-nothing by itself, in as few requests as they fit."""
        self._check()
        lane, replies = self._lane(), []
        for part in pieces([call_of(asks) for asks in groups]):
            replies += await lane.submit(part)
        return self._learnt(results(replies))

    async def assign_async(self, space: str, limit_id: str, key: Key, limit: Limit | None) -> None:
        """Give a key a limit of its own, or take it away."""
        import asyncio

        future = self.link.pool().submit(self.assign, space, limit_id, key, limit)
        await asyncio.wrap_future(future)

    async def assigned_async(self, space: str, limit_id: str, key: Key) -> Limit | None:
        """The limit a key was given, if any."""
        import asyncio

        future = self.link.pool().submit(self.assigned, space, limit_id, key)
        return await asyncio.wrap_future(future)

    def quick_async(self, space: str, limits: Sequence[Limit], on_error: str = "") -> None:
        """None: a prepared request would hardly be shorter."""
        return

    async def close_async(self) -> None:
        """Let go of every connection; later calls raise StoreError."""
        self.close()

    # -- what needs no service

    def forecast(self, asks: Sequence[Ask], ahead: int) -> int:
        """Nothing is known without asking."""
        return 0

    def deciding(self) -> bool:
        """Never: nothing of this store is held while it decides."""
        return False

    def token(self) -> int:
        """A token that no other process makes, larger than every earlier one of this process."""
        about = self._clock.micros() + self._skew
        with self._lock:
            self._token = max(self._token + 1, about << 64 | secrets.randbits(64))
            return self._token

    def after_fork(self) -> None:
        """In a child: locks and event loops are the parent's."""
        self._lock = threading.Lock()
        self._lanes = {}

    # -- parts

    def _check(self) -> None:
        if self.closed:
            raise StoreError("this store is closed")

    def _learnt(self, found: list[list[Decision]]) -> list[list[Decision]]:
        """What the service says of the time: tokens of all clients go by it."""
        if found and found[0]:
            self._skew = found[0][0].at - self._clock.micros()
        return found

    def _change(self, path: str, body: bytes) -> bytes:
        self._check()
        answer: Answer = self.link.exchange("POST", path, body)
        if answer.status in (200, 204):
            return answer.body
        if answer.status < 500 and answer.status not in (401, 403, 429):
            raise StoreError(f"{self.link.place} answered {problem_of(answer)}")
        raise unavailable(self.link.place, answer)

    def _lane(self) -> Lane:
        import asyncio

        loop = asyncio.get_running_loop()
        lane = self._lanes.get(loop)
        if lane is None:
            from .lane import Lane

            for old in [old for old in self._lanes if old.is_closed()]:
                del self._lanes[old]
            lane = self._lanes[loop] = Lane(loop, self.link)
        return lane

    def __repr__(self) -> str:
        return f"ClientStore({str(self.link.place)!r})"


_stores: weakref.WeakSet[ClientStore] = weakref.WeakSet()


def _after_fork() -> None:
    for store in list(_stores):
        store.after_fork()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
