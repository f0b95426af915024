"""What servers asked of us: until when each key is to be left alone, and the error that says so."""

from __future__ import annotations

import heapq
import threading
from math import ceil
from typing import Any, NamedTuple

from ..decision import Seen, decided
from ..errors import LimitExceeded
from ..keys import Canonical, Key, canonical
from ..limit import Limit
from .told import Told

__all__ = ["Asked", "AskedToWait", "Asks"]


class Asked(NamedTuple):
    """A server wants no call of a key until an instant, in microseconds."""

    until: int
    wait: float
    words: str


class AskedToWait(LimitExceeded):
    """A call was not made because the server asked us to wait; `words` are its own."""

    def __init__(self, key: Key, words: str, retry_after: float, now: int = 0) -> None:
        limit = Limit(1, per=max(1, ceil(retry_after)))
        wait = round(retry_after * 1_000_000)
        refusal = decided(Seen(limit, 1_000_000), (-1, 0, wait, wait), now, 1)
        super().__init__(refusal, key)
        self.words = words
        self._made = key, words, retry_after, now

    def __str__(self) -> str:
        who = f"the server of {self.key!r}" if self.key else "the server"
        return f"{who} asked us to wait ({self.words!r}); retry after {self.retry_after:g} s"

    def __reduce__(self) -> tuple[Any, ...]:
        return AskedToWait, self._made


class Asks:
    """By key what was asked; it never grows beyond `most` keys, nor a wait beyond `longest`."""

    def __init__(self, longest: float, most: int) -> None:
        self.longest = longest
        self.most = most
        self._asked: dict[Canonical, Asked] = {}
        self._lock = threading.Lock()

    def note(self, key: Key, told: Told, now: int) -> None:
        """Leave a key alone from now on; what was asked for longer still holds."""
        form, wait = canonical(key), min(told.wait, self.longest)
        new = Asked(now + ceil(wait * 1_000_000), wait, told.words)
        with self._lock:
            old = self._asked.get(form)
            if old is not None and old.until >= new.until:
                return
            if old is None and len(self._asked) >= self.most:
                self._make_room(now)
            self._asked[form] = new

    def find(self, key: Key, now: int) -> Asked | None:
        """What still holds for a key."""
        if not self._asked:  # nearly always
            return None
        form = canonical(key)
        asked = self._asked.get(form)
        if asked is None or asked.until > now:
            return asked
        with self._lock:
            if self._asked.get(form) is asked:
                del self._asked[form]
        return None

    def forget(self, key: Key) -> None:
        """Ask for nothing any more."""
        with self._lock:
            self._asked.pop(canonical(key), None)

    def __len__(self) -> int:
        return len(self._asked)

    def _make_room(self, now: int) -> None:
        for form in [form for form, asked in self._asked.items() if asked.until <= now]:
            del self._asked[form]
        if len(self._asked) >= self.most:  # several at once, as it takes a look at all of them
            count = 1 + self.most // 8
            soonest = heapq.nsmallest(count, self._asked, key=lambda form: self._asked[form].until)
            for form in soonest:
                del self._asked[form]
