"""What a protected call raises when it was not made, or not waited for to its end."""

from __future__ import annotations

from ..errors import HeadgateError

__all__ = ["BreakerOpen", "BulkheadFull", "TimeLimitExceeded", "Unavailable"]


class Unavailable(HeadgateError):
    """What was called is not to be had now; `name` says what, `retry_after` when to come back.

    `retry_after` is None where nobody can tell.
    """

    def __init__(self, problem: str, name: str = "", retry_after: float | None = None) -> None:
        super().__init__(problem, name, retry_after)
        self.problem = problem
        self.name = name
        self.retry_after = retry_after

    def __str__(self) -> str:
        text = f"{self.name}: {self.problem}" if self.name else self.problem
        if self.retry_after is None:
            return text
        return f"{text}; retry after {self.retry_after:g} s"


class BreakerOpen(Unavailable):
    """A circuit breaker is open: the call was not made."""

    @property
    def wait(self) -> float | None:
        """`retry_after` for a header, which has whole seconds.

        A wait of 9 s is over the microsecond after it; that is no reason to tell of 10.
        """
        if self.retry_after is None:
            return None
        micros = round(self.retry_after * 1_000_000)
        return (micros - (micros % 1_000_000 == 1)) / 1_000_000


class BulkheadFull(Unavailable):
    """As many calls as may be are under way, and no more may wait: the call was not made."""


class TimeLimitExceeded(Unavailable, TimeoutError):
    """A call took longer than it may; whether it was carried out is not known."""
