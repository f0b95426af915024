"""Patience: for how long an exchange may go on; one timer for all of its time-outs."""

from __future__ import annotations

import asyncio
import math

__all__ = ["Patience"]


class Patience:
    """A block that ends when a time is up, or when somebody says so.

    Inside, `allow` says what is waited for now and for how long. `why` says in the end what
    was not awaited; it is "" if nothing ran out. `waiting` is what was waited for last, also
    where the time of the whole ran out.
    """

    __slots__ = ("_end", "_loop", "_reason", "_timeout", "waiting", "why")

    def __init__(self, total: float = 0.0) -> None:
        self._loop = asyncio.get_running_loop()
        self._end = self._loop.time() + total if total else math.inf
        self._timeout: asyncio.Timeout | None = None
        self._reason = "total"
        self.waiting = self.why = ""

    async def __aenter__(self) -> Patience:
        when = None if self._end == math.inf else self._end
        self._timeout = asyncio.timeout_at(when)
        await self._timeout.__aenter__()
        return self

    async def __aexit__(self, *error: object) -> None:
        timeout, self._timeout = self._timeout, None
        assert timeout is not None  # entered
        try:
            await timeout.__aexit__(*error)  # type: ignore[arg-type] # as they were given
        except TimeoutError:
            self.why = self.why or self._reason
            raise

    def allow(self, seconds: float, what: str) -> None:
        """Wait for `what`, and no longer than this; 0 is without end."""
        if self.why:  # it is ending already
            return
        self.waiting = what
        when = self._loop.time() + seconds if seconds else math.inf
        if when < self._end:
            self._reason = what
        else:
            when, self._reason = self._end, "total"
        self._set(None if when == math.inf else when)

    def stop(self, why: str) -> None:
        """End the block now."""
        if not self.why:
            self.why = why
            self._set(self._loop.time())

    def _set(self, when: float | None) -> None:
        timeout = self._timeout
        if timeout is not None and not timeout.expired():
            timeout.reschedule(when)
