"""Settings: when a breaker trips, how long it stays open, how it comes back."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields, replace
from typing import Any

from ...clock import ticks_of
from .outcomes import Judge, Kinds, Outcomes

__all__ = ["Settings"]


_WAIT = 60.0
_LONGEST = 10**8
"""Seconds that a window holds at most: three years, or its microseconds leave a C number."""
_MOST_CELLS = 3600
_DERIVED = ("failure_ratio", "slow_ratio", "minimum", "cells")


class _Given:
    """What was said of the settings that follow from others, before they did."""

    __slots__ = ("_given",)
    _given: dict[str, Any]


@dataclass(frozen=True, kw_only=True, slots=True)
class Settings(_Given):
    """When a breaker trips, how long it stays open, how it comes back; checked when made.

    failure_ratio   trips at this share of failures; None: never by ratio. 0.5 unless a
                    failure_count is given
    failure_count   trips at so many failures in the window
    slow_ratio      trips at this share of slow calls; 1.0 if only slow_after is given
    slow_after      a call that takes more than so many seconds is slow
    window          the last so many calls are looked at
    window_seconds  the calls of the last so many seconds, in place of `window`
    cells           how many cells a window of seconds has; one for each second, up to 3,600
    minimum         nothing is judged before so many calls are in the window: 100, no more than
                    `window`; with a failure_count alone, that count
    wait            seconds it stays open; or a function that takes how often it has opened in
                    a row (1, 2, ...)
    probes          how many calls may pass while it is half open
    judge_early     probes are judged when `minimum` of them have ended, if that is not all
    probe_failures  so many failed probes open it again at once; None: they are judged together
    probe_lease     a probe without an outcome after so many seconds has failed
    half_open_for   if probes are not judged within so many seconds, it opens again; None: any time
    ramp            after the probes a growing share of calls passes, for so many seconds
    ramp_from       the share at the beginning of the ramp
    automatic       a look at the state is enough for open to become half open after the wait;
                    else only a call is
    above           thresholds trip when they are passed, not when they are reached; a slow_ratio
                    of 1 always when it is reached
    at_wait         it may be tried at the very instant the wait is over, not just after it
    failures, ignored, failed   see Outcomes
    """

    failure_ratio: float | None = -1.0
    failure_count: int | None = None
    slow_ratio: float | None = None
    slow_after: float | None = None
    window: int = 100
    window_seconds: float | None = None
    cells: int | None = None
    minimum: int | None = None
    wait: float | Callable[[int], float] = _WAIT
    probes: int = 10
    judge_early: bool = False
    probe_failures: int | None = None
    half_open_for: float | None = None
    probe_lease: float = 60.0
    ramp: float = 0.0
    ramp_from: float = 0.1
    automatic: bool = True
    above: bool = False
    at_wait: bool = False
    failures: Kinds | Judge = Exception
    ignored: Kinds | Judge = ()
    failed: Judge | None = None

    def __post_init__(self) -> None:
        put = object.__setattr__
        put(self, "_given", {name: getattr(self, name) for name in _DERIVED})
        for name in ("failures", "ignored"):  # read more than once, so not an iterator
            kinds = getattr(self, name)
            if isinstance(kinds, Iterator):
                put(self, name, tuple(kinds))
        if self.failure_ratio == -1.0:
            put(self, "failure_ratio", 0.5 if self.failure_count is None else None)
        if self.slow_after is None and self.slow_ratio is not None:
            raise ValueError("slow_ratio needs slow_after: from how many seconds on a call is slow")
        if self.slow_after is not None and self.slow_ratio is None:
            put(self, "slow_ratio", 1.0)
        least = 0 if self.above else 1  # what must be passed may be nothing
        _share("ramp_from", self.ramp_from)
        for name in ("failure_ratio", "slow_ratio"):
            _share(name, getattr(self, name), least)
        _count("failure_count", self.failure_count, least)
        for name in ("window", "cells", "minimum", "probes", "probe_failures"):
            _count(name, getattr(self, name))
        if self.failure_ratio is None and self.failure_count is None and self.slow_ratio is None:
            raise ValueError("a breaker trips by a failure_ratio, failure_count or slow_ratio")
        for name in ("slow_after", "window_seconds", "probe_lease", "half_open_for"):
            value = getattr(self, name)
            if value is not None and ticks_of(value, name) < 1:
                raise ValueError(f"{name} is a number of seconds above 0, not {value!r}")
        for name in ("wait", "ramp"):
            value = getattr(self, name)
            if ticks_of(value(1) if callable(value) else value, name) < 0:
                raise ValueError(f"{name} is a number of seconds, not {value!r}")
        if self.minimum is None:
            alone = self.failure_count is not None and self.failure_ratio is None
            count = max(1, self.failure_count or 0)
            put(self, "minimum", count if alone and self.slow_ratio is None else 100)
        if self.window_seconds is not None:
            if self.window_seconds > _LONGEST:
                raise ValueError(f"window_seconds is up to {_LONGEST}, not {self.window_seconds!r}")
            if self.cells is None:
                put(self, "cells", min(_MOST_CELLS, max(1, round(self.window_seconds))))
        else:
            put(self, "minimum", min(self.least, self.window))
            if (self.failure_count or 0) > self.window:
                raise ValueError(
                    f"{self.failure_count} failures do not fit into a window of {self.window} calls"
                )
        Outcomes(self.failures, self.ignored, self.failed)  # an error now, not at the first call

    @property
    def least(self) -> int:
        """How many calls the window holds before it is judged."""
        assert self.minimum is not None  # made so above
        return self.minimum

    def changed(self, options: dict[str, Any]) -> Settings:
        """The same with some of them replaced."""
        if not options:
            return self
        unknown = sorted(options.keys() - {field.name for field in fields(self)})
        if unknown:
            known = ", ".join(field.name for field in fields(self))
            raise TypeError(f"a breaker has no setting {unknown[0]!r}; there are: {known}")
        # What followed from other settings follows from the new ones.
        return replace(self, **(getattr(self, "_given", {}) | options))

    def wait_micros(self, attempt: int) -> int:
        """How long it stays open when it opens for the n-th time in a row."""
        if callable(self.wait):
            try:
                wait = ticks_of(max(0.0, self.wait(attempt)), "wait")
            except Exception:  # a breaker that could not open would be worse
                wait = ticks_of(_WAIT, "wait")
        else:
            wait = ticks_of(self.wait, "wait")
        return wait + (0 if self.at_wait else 1)

    def exceeded(self, total: int, failed: int, slow: int, least: int) -> bool:
        """Whether these numbers trip a breaker."""
        if total < least or not total:
            return False
        above = self.above
        if self.failure_ratio is not None:
            # A quotient rounds as the number that was written for it: 3 of 5 are 0.6.
            share = failed / total
            if share > self.failure_ratio or (share == self.failure_ratio and not above):
                return True
        if self.failure_count is not None and failed >= self.failure_count + above:
            return True
        if self.slow_ratio is not None:
            share = slow / total
            if share > self.slow_ratio:
                return True
            return share == self.slow_ratio and (not above or share == 1.0)
        return False

    @property
    def enough(self) -> int:
        """How many probes have to end before they are judged."""
        return min(self.probes, self.least) if self.judge_early else self.probes

    def judged(self, done: int, failed: int, slow: int) -> bool | None:
        """Whether probes that ended so say that nothing is better; None if it is too early."""
        if self.probe_failures is not None and failed >= self.probe_failures:
            return True
        return self.sick(done, failed, slow) if done >= self.enough else None

    def sick(self, done: int, failed: int, slow: int) -> bool:
        """Whether probes that ended so, all of them, say that nothing is better."""
        if self.exceeded(done, failed, slow, done):
            return True
        counted = self.failure_ratio is not None or self.failure_count is not None
        if counted and failed >= min(done, self.failure_count or done):
            return True
        return self.slow_ratio is not None and slow == done


def _share(name: str, value: Any, least: int = 1) -> None:
    if value is None:
        return
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise TypeError(f"{name} is a share between 0 and 1, not {type(value).__name__}")
    if not math.isfinite(value) or not 0 <= value <= 1 or (least and not value):
        above = "from 0" if least == 0 else "above 0 and"
        raise ValueError(f"{name} is a share {above} up to 1 (0.5 is half), not {value!r}")


def _count(name: str, value: Any, least: int = 1) -> None:
    if value is None:
        return
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError(f"{name} is a whole number, not {type(value).__name__}")
    if value < least:
        above = "from 0 on" if least == 0 else "above 0"
        raise ValueError(f"{name} is a whole number {above}, not {value}")
