"""Overload: what a call hears that is not let in because there is too much already."""

from __future__ import annotations

from .errors import Unavailable

__all__ = ["REASONS", "Overloaded", "Refusal", "TooLate"]

REASONS = {
    "limit": "its limit of {bound:g} calls at once is reached",
    "line": "{bound:g} calls wait already",
    "pushed": "a more important call took its place in the line",
    "timeout": "its turn did not come in time",
    "late": "it would take about {value:.3g} s, and only {bound:.3g} s are left",
    "cpu": "the CPU is busy ({value:.0%}, at most {bound:.0%})",
    "load": "the load average of each CPU is {value:.2f}, at most {bound:.2f}",
    "memory": "memory is full ({value:.0%}, at most {bound:.0%})",
    "lag": "the event loop lags {value:.3g} s behind, at most {bound:.3g} s",
    "in_flight": "{value:g} calls are under way, at most {bound:g}",
    "response": "calls take {value:.3g} s on average, at most {bound:.3g} s",
}


class Refusal:
    """A call that was not let in: why, by which value and bound, and when to try again.

    It is false, as a permit is true.
    """

    __slots__ = ("bound", "name", "reason", "retry_after", "value")

    def __init__(
        self,
        reason: str,
        name: str = "",
        value: float = 0.0,
        bound: float = 0.0,
        retry_after: float | None = None,
    ) -> None:
        self.reason = reason
        self.name = name
        self.value = value
        self.bound = bound
        self.retry_after = retry_after
        """Seconds until it may be worthwhile to try again; None if nobody knows."""

    def __bool__(self) -> bool:
        return False

    def why(self) -> str:
        """What was wrong, and what would have been right, as a sentence."""
        why = REASONS[self.reason].format(value=self.value, bound=self.bound)
        return f"the call was not let in: {why}"

    def __repr__(self) -> str:
        return f"<Refusal {self.reason} {self.name!r}: {self.why()}>"

    def error(self) -> Overloaded:
        """The same as an exception."""
        return (TooLate if self.reason == "late" else Overloaded)(self)


class Overloaded(Unavailable):
    """There is too much under way, so a call was not let in; `refusal` says why."""

    def __init__(self, refusal: Refusal) -> None:
        wait = refusal.retry_after
        super().__init__(refusal.why(), refusal.name, None if wait is None else round(wait, 6))
        self.args = (refusal,)  # what it is made of, so that it can be pickled
        self.refusal = refusal

    @property
    def reason(self) -> str:
        """A word for why, one of `REASONS`."""
        return self.refusal.reason


class TooLate(Overloaded):
    """A call was not begun, as it could not have finished in time."""
