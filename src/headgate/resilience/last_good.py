"""Last good: when a call fails, the answer that the same call gave last, if it is not too old."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Hashable
from typing import Any

from ..clock import MICROSECONDS, Clock
from .bulkhead import whole
from .deadlines import clock_of, span_of
from .faces import Faces
from .forking import begin_anew
from .kinds import Kinds, key_of, test_of
from .notices import Listener, tell

__all__ = ["LastGood"]


class LastGood(Faces):
    """Keeps the last good result of each call, and gives it out when the call fails.

    max_age  how many seconds old a result may be when it is given out
    size     how many results are kept at most; the one that was not used for longest goes
    key      a function of the call's arguments; else the arguments themselves, which then have
             to be hashable. Results of different users need different keys
    on       which exceptions it stands in for: types, or a function of the exception
    good     a function of a result: whether it is worth keeping; all are, if there is none
    name, clock, listeners   as for every part

    It saves no calls: as long as they go well every one is made. Whoever gets an old result gets
    the same object as others before, so it must not be changed.
    """

    def __init__(
        self,
        max_age: float,
        *,
        size: int = 1024,
        key: Callable[..., Hashable] | None = None,
        on: Kinds = Exception,
        good: Callable[[Any], bool] | None = None,
        name: str = "",
        clock: Clock | None = None,
        listeners: list[Listener] | None = None,
    ) -> None:
        whole(size, "size", 1)
        self._ticks = span_of(max_age, "max_age")
        self._size = size
        self._key = key
        self._on = test_of(on, "on")
        self._good = good
        self.name = name
        self.listeners = [] if listeners is None else listeners
        self._clock = clock_of(clock)
        self._kept: OrderedDict[Hashable, tuple[int, Any]] = OrderedDict()
        # Reentrant: what a dropped result's finaliser does may end up here.
        self._lock = threading.RLock()
        begin_anew(self)

    def keep(self, function: Any, args: Any, kwargs: Any, result: Any) -> None:
        """Keep the result of a call, if it is good."""
        if self._good is not None and not self._good(result):
            return
        key = key_of(function, self._key, args, kwargs)
        kept = self._clock.micros(), result
        dropped = None
        with self._lock:
            self._kept[key] = kept
            self._kept.move_to_end(key)
            if len(self._kept) > self._size:
                dropped = self._kept.popitem(last=False)
        del dropped  # after the lock: a result may be large

    def instead(self, error: Exception, function: Any, args: Any, kwargs: Any) -> Any:
        """The last good result of a call that raised, or what it raised."""
        if not self._on(error):
            raise error
        key = key_of(function, self._key, args, kwargs)
        now = self._clock.micros()
        with self._lock:
            at, result = self._kept.get(key, (None, None))
            if at is not None and now - at > self._ticks:
                del self._kept[key]
                at = None
            if at is not None:
                self._kept.move_to_end(key)
        if at is None:
            raise error
        if self.listeners:
            age = (now - at) / MICROSECONDS
            tell(self.listeners, "last_good", self.name, now, age=age, error=error)
        return result

    def clear(self) -> None:
        """Forget every result."""
        with self._lock:
            kept, self._kept = self._kept, OrderedDict()
        del kept

    def __len__(self) -> int:
        return len(self._kept)

    def after_fork(self) -> None:
        """In a child: whoever held the lock stayed behind."""
        self._lock = threading.RLock()

    def _plain(self, function: Callable[..., Any]) -> Callable[..., Any]:
        def wrapper(*args: Any, **kwargs: Any) -> Any:
            try:
                result = function(*args, **kwargs)
            except Exception as error:
                return self.instead(error, function, args, kwargs)
            self.keep(function, args, kwargs, result)
            return result

        return wrapper

    def _async(self, function: Callable[..., Awaitable[Any]]) -> Callable[..., Awaitable[Any]]:
        async def wrapper(*args: Any, **kwargs: Any) -> Any:
            try:
                result = await function(*args, **kwargs)
            except Exception as error:
                return self.instead(error, function, args, kwargs)
            self.keep(function, args, kwargs, result)
            return result

        return wrapper

    def __repr__(self) -> str:
        return f"<LastGood {self.name!r} {len(self)} of {self._size}>"
