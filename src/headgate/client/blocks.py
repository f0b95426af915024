"""Blocks: what `hold` and `reserve` are in both clients; each client brings the way in and out."""

from __future__ import annotations

from typing import Any, ClassVar, Generic, TypeVar

from ..facts import Facts
from ..stores.steps import Flow
from ..verdict import Refused
from .base import Base, Request, release_of, settle_of, told_of
from .verdicts import Held, Verdict

__all__ = ["BEATS", "Holding", "Reserving"]

BEATS = 3
"""How often a permit is renewed while its lease lasts."""
AnyClient = TypeVar("AnyClient", bound=Base)


class Block(Generic[AnyClient]):
    """Something that is asked for on the way in and ended on the way out."""

    path: ClassVar[str]

    def __init__(self, client: AnyClient, facts: Facts | None, known: dict[str, Any]) -> None:
        self._client = client
        self._told, self._key = told_of(facts, known)
        self.verdict: Verdict | None = None
        self.held: Held | None = None

    def _entering(self) -> Flow[None]:
        verdict = yield from self._client._checking(self.path, self._told, self._key)
        if not verdict:
            raise Refused(verdict)  # type: ignore[arg-type] # it has what the error asks of one
        self.verdict, self.held = verdict, verdict.held

    def _taken_out(self) -> Held | None:
        """What is held, which from now on is not this block's any more."""
        held, self.held = self.held, None
        return held


class Holding(Block[AnyClient]):
    """A permit as a block."""

    path = "/v1/permits"
    lost = False
    """Whether the service let others have it, since it was not renewed in time."""

    def _entering(self) -> Flow[None]:
        yield from super()._entering()
        self.lost = False

    def _end(self, kind: type[BaseException] | None) -> Request | None:
        """The request that gives it back; an interrupt is neither failure nor success."""
        held = self._taken_out()
        if held is None:
            return None
        if kind is None:
            return release_of(held, "success")
        return release_of(held, "failure" if issubclass(kind, Exception) else "ignored")


class Reserving(Block[AnyClient]):
    """A reservation as a block."""

    path = "/v1/reserve"

    def __init__(
        self, client: AnyClient, facts: Facts | None, known: dict[str, Any], cost: int
    ) -> None:
        super().__init__(client, facts, known)
        self._cost = self._estimate = cost

    def settle(self, cost: int) -> None:
        """What it has really cost; sent when the block ends."""
        self._cost = cost

    def _entering(self) -> Flow[None]:
        self._cost = self._estimate
        yield from super()._entering()

    def _end(self, kind: type[BaseException] | None) -> Request | None:
        """The request that settles it; after an exception nothing is left of it."""
        held = self._taken_out()
        return None if held is None else settle_of(held, self._cost if kind is None else 0)
