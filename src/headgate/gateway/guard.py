"""Guard: what stands between the gateway and its upstream, and may hold calls back."""

from __future__ import annotations

from typing import Any

from ..clock import Clock, SystemClock
from ..facts import Facts
from ..integrations.asked import Asks
from ..integrations.common import rules_of
from ..integrations.told import Told, told
from ..rules.keys import key_reader

__all__ = ["Guard", "Heed", "Held"]

LONGEST = 3600.0
KEYS = 10_000


class Guard:
    """Lets everybody pass. A circuit breaker for the upstream takes this one's place.

    `enter` is called before an upstream is; each call that it lets pass gets one `leave`, as soon
    as its response begins or it is clear that none will.
    """

    def enter(self) -> Any:
        """What `leave` knows a call by. A `Held` if it may not be made."""
        return None

    def leave(self, token: Any, outcome: str, seconds: float) -> None:
        """How a call went, and for how long the upstream had to be waited for.

        outcome  `failure` if there was no response, or one from 500 on; `ignored` if the client
                 went away or was at fault; else `success`
        """


class Held(Exception):
    """A call that a guard holds back; it is told to come back after so many seconds."""

    def __init__(self, seconds: float) -> None:
        super().__init__(seconds)
        self.seconds = seconds


class Heed:
    """Remembers for how long an upstream wants no more calls: its 429 and 503 with Retry-After.

    key   what the upstream counts by: `all` for everybody together, or as in rules, `ip`, ...
    """

    def __init__(self, key: str, clock: Clock | None = None) -> None:
        self._reader = None if key == "all" else key_reader(rules_of((), key).rules[0].key)
        self._asks = Asks(LONGEST, KEYS)
        self._clock = clock or SystemClock()

    def key(self, facts: Facts) -> Any:
        """Whom the upstream will count a call to; None if nobody can tell."""
        return "all" if self._reader is None else self._reader(facts) or None

    def asked(self, key: Any) -> tuple[int, float] | None:
        """The status and the wait of a call that the upstream does not want; None if it may be."""
        now = self._clock.micros()
        found = None if key is None else self._asks.find(key, now)
        return None if found is None else (int(found.words), (found.until - now) / 1_000_000)

    def heard(self, key: Any, status: int, headers: dict[str, str]) -> None:
        """Note what a response says."""
        if key is not None and status in (429, 503) and "retry-after" in headers:
            found = told(status, {"retry-after": headers["retry-after"]}, self._clock.now())
            if found is not None:
                self._asks.note(key, Told(found.wait, str(status)), self._clock.micros())
