"""What one Envoy was handed out: grants, and the buckets that they are for."""

from __future__ import annotations

from ...decision import Ask, Decision
from ...rules.compiled import Matched
from .quota_wire import Report

__all__ = ["Bucket", "Grant"]

INFINITY = float("inf")


class Grant:
    """So many requests, taken from the store and handed out to an Envoy."""

    __slots__ = ("answers", "asks", "count", "end", "gone", "left")

    def __init__(self, asks: list[Ask], answers: list[Decision], count: int, end: float) -> None:
        self.asks = asks
        self.answers = answers
        self.count = self.left = count
        self.end = end
        """When it is no longer to be used, because its window has passed."""
        self.gone = INFINITY
        """When another one was sent in its place."""

    def part(self, count: int) -> Grant:
        """So many of what is left, as a grant of their own."""
        self.left -= count
        return Grant(self.asks, self.answers, count, self.end)

    def back(self) -> list[Ask]:
        """What gives back what is left of it."""
        pairs = zip(self.asks, self.answers, strict=True)
        return [
            ask._replace(op="refund", cost=self.left, at=answer.at, least=-1)
            for ask, answer in pairs
            if self.left
        ]


class Bucket:
    """What one Envoy has of one limit."""

    __slots__ = (
        "due", "entries", "grants", "id", "interval", "matched", "rate", "seen", "ttl",
        "want",
    )  # fmt: skip

    def __init__(self, report: Report, now: float) -> None:
        self.id = report.id
        self.entries = report.entries
        self.matched = Matched(())
        self.seen = now
        """When it was last reported."""
        self.interval = 0.0
        """Seconds between the last two reports."""
        self.rate = -1.0
        """Requests per second, refused ones too; negative before it is known."""
        self.grants: list[Grant] = []
        """The one in use stands last; before it are those of which something may come back."""
        self.want = self.ttl = 1
        """What is likely to be needed, and for how many seconds."""
        self.due = INFINITY

    def current(self, now: float) -> Grant | None:
        """The grant in use, if it can still be used."""
        last = self.grants[-1] if self.grants else None
        return last if last is not None and last.gone == INFINITY and last.end > now else None

    def replaced(self, now: float) -> None:
        """Another assignment was sent."""
        if self.grants and self.grants[-1].gone == INFINITY:
            self.grants[-1].gone = now
