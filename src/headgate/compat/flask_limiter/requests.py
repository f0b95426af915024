"""What is known of the present request: by which limits it was counted, and what is pending."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ...decision import Ask, Decision
from ..limits import RateLimitItem, WindowStats

if TYPE_CHECKING:
    from ..limits.strategies import RateLimiter, Wanted
    from .limits import Part

__all__ = ["Context", "RequestLimit"]


class RequestLimit:
    """A limit that the present request was counted by."""

    def __init__(
        self, limiter: RateLimiter, part: Part, wanted: Wanted, decision: Decision
    ) -> None:
        self._limiter = limiter
        self._wanted = wanted
        self.part = part
        self.decision = decision
        self.limit: RateLimitItem = wanted.item
        self.key: str = wanted.item.key_for(*wanted.identifiers)
        self.breached = not decision.allowed
        self.shared: bool = part.shared

    @property
    def window(self) -> WindowStats:
        """What is left, and when there is more."""
        return self._limiter.get_window_stats(self.limit, *self._wanted.identifiers)

    @property
    def reset_at(self) -> int:
        """The instant at which there is more, in whole seconds since the epoch."""
        return int(-(-self.window.reset_time // 1))

    @property
    def remaining(self) -> int:
        """What is left after this request."""
        return self.window.remaining

    def settle(self, *, keep: bool) -> None:
        """Keep what was taken, or give it back."""
        if keep or self.breached:
            return
        storage, wanted = self._limiter.storage, self._wanted
        back: list[Ask] = [
            ask._replace(at=self.decision.at) for ask in self._limiter.asks(wanted, "refund")
        ]
        storage.store.decide(back)
        look = self._limiter.deciding([wanted._replace(cost=0)], "check")
        (self.decision,) = storage.run(look)


@dataclass
class Context:
    """What one limiter knows of a request."""

    current: RequestLimit | None = None
    limits: list[RequestLimit] = field(default_factory=list)
    pending: list[RequestLimit] = field(default_factory=list)
    seen: set[int] = field(default_factory=set)
    """The defaults that were counted already."""
