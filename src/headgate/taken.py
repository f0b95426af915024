"""What was taken: a permit, a reservation, an attempt under way, and how each is given back.

On a store that blocks a task cannot wait in the middle of a plain call. There such calls only
note what is to be given back, or send it ahead, and whoever leaves the block sees to it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .answers import given_back
from .callers import shielded
from .clock import ttl_of
from .decision import Ask, Decision, check_cost
from .heart import Beat, Heart, heart_of

if TYPE_CHECKING:
    from asyncio import AbstractEventLoop, Task

    from .front import Front
    from .keys import Key

__all__ = ["Permit", "Reservation", "Taken", "Try"]


def _taken_out(tickets: list[bool]) -> bool:
    """Take the only ticket; of several threads one succeeds."""
    try:
        return tickets.pop()
    except IndexError:
        return False


class Taken:
    """What was taken, and how it is given back."""

    def __init__(self, front: Front, key: Key, asks: list[Ask], decision: Decision) -> None:
        self._front = front
        self._asks = asks
        self._open = [True]  # whoever takes it out gives back
        self._late = False
        self._noted: list[Ask] = []
        self._sent: Task[Any] | None = None
        self.key = key
        self.decision = decision

    def put_off(self) -> None:
        """From now on only note what is to be given back; whoever leaves sends it."""
        self._late = True

    def _give(self, asks: list[Ask]) -> None:
        if self._late:
            self._noted = asks
        elif asks:
            self._front.give(asks, self.key)

    def parting(self, failed: bool) -> list[Ask]:
        """What is still to be given back on the way out."""
        if _taken_out(self._open):
            return self._left(failed)
        noted, self._noted = self._noted, []
        return noted

    def _left(self, failed: bool) -> list[Ask]:
        raise NotImplementedError

    @property
    def asks(self) -> list[Ask]:
        """What was asked for it."""
        return self._asks

    async def sent(self) -> None:
        """Wait for what was sent ahead."""
        if self._sent is not None:
            await shielded(self._sent)


class Permit(Taken):
    """What a hold gives: the decision and its token, until it is released."""

    _beat: Beat | None = None
    _number = 0
    _heart: Heart | None = None

    @property
    def token(self) -> int:
        """The fencing token: larger for each later permit."""
        fence = max(getattr(part, "fence", 0) for part in self.decision.parts)
        return fence or max(ask.token for ask in self._asks)

    @property
    def lost(self) -> bool:
        """Whether the permit is known to have come back while it was held, not renewed in time."""
        return self._beat is not None and self._beat.lost

    def keep(self, ttl: int, loop: AbstractEventLoop | None) -> None:
        """Have the lease renewed for as long as the permit is held."""
        asks = self._permits("renew", ttl)
        if asks:
            store: Any = self._front.store
            self._heart = heart_of(store, loop)
            self._number, self._beat = self._heart.keep(self, asks, ttl)

    def release(self) -> bool:
        """Give the permit back; False if that was done before, or its lease ran out."""
        if not _taken_out(self._open):
            return False
        asks = self._left(failed=False)
        if not asks:
            return False
        if self._late:
            self._sent = self._front.give_later(asks, self.key)
            return not self.lost
        try:
            return all(self._front.give(asks, self.key))
        except BaseException:
            self._open.append(True)  # it may still be held
            raise

    def renew(self, ttl: float) -> bool:
        """Let the lease run for `ttl` seconds from now; False if it was not held any more."""
        asks = self._permits("renew", ttl_of(ttl))
        if self._late:
            raise TypeError("this store blocks: `await permit.extend(ttl)`, not renew(ttl)")
        return all(self._front.give(asks, self.key)) if asks else False

    async def extend(self, ttl: float) -> bool:
        """The same as `renew`, awaited; for every store."""
        if not self._late:
            return self.renew(ttl)
        asks = self._permits("renew", ttl_of(ttl))
        return all(await shielded(self._front.give_later(asks, self.key))) if asks else False

    def _left(self, failed: bool) -> list[Ask]:
        if self._heart is not None:
            self._heart.drop(self._number)
        return self._permits("release", 0)

    def _permits(self, op: str, ttl: int) -> list[Ask]:
        return [
            ask._replace(op=op, ttl=ttl)
            for ask in self._asks
            if ask.limit.algorithm == "concurrency"
        ]


class Reservation(Taken):
    """An estimated cost that was taken, to be replaced by the real one."""

    @property
    def cost(self) -> int:
        """The estimate."""
        return self._asks[0].cost

    def settle(self, cost: int) -> bool:
        """Say what it really cost: the rest goes back, or the excess is charged.

        False, and nothing happens, if it was settled or cancelled before.
        """
        check_cost(cost)
        if not _taken_out(self._open):
            return False
        self._give(self._settled(cost))
        return True

    def cancel(self) -> bool:
        """Give all of it back."""
        return self.settle(0)

    def _settled(self, cost: int) -> list[Ask]:
        return [ask._replace(op="settle", cost=cost) for ask in self._asks]

    def _left(self, failed: bool) -> list[Ask]:
        return self._settled(0 if failed else self.cost)


class Try(Taken):
    """An attempt under way: one is counted until it turns out well."""

    def succeed(self) -> None:
        """It turned out well: what was counted goes back."""
        if _taken_out(self._open):
            self._give(given_back(self._asks, self.decision))

    def fail(self) -> None:
        """It failed: what was counted stays, whatever happens later."""
        _taken_out(self._open)

    def _left(self, failed: bool) -> list[Ask]:
        return [] if failed else given_back(self._asks, self.decision)
