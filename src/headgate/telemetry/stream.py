"""Stream: every second's numbers to whoever reads along, as server-sent events.

One task ticks and writes each second once, as bytes, for all readers. Nobody is waited for: a
reader that has fallen behind is told so and dropped.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Any

from .counts import PERMITS

if TYPE_CHECKING:
    from .events import Event
    from .watching import Telemetry

__all__ = ["CONTENT_TYPE", "Stream", "as_event", "second_of"]

CONTENT_TYPE = "text/event-stream; charset=utf-8"
BEHIND = 8
"""So many seconds a reader may fall behind."""
RECENT = 50
"""So many refusals are told at most."""
KEYS_EVERY = 5
"""Busiest keys are told each so many seconds."""


class Stream:
    """Seconds as they pass: `async for chunk in stream.read()`."""

    def __init__(self, telemetry: Telemetry, *, interval: float = 1.0, readers: int = 100) -> None:
        self._telemetry = telemetry
        self._interval = interval
        self._most = readers
        self._readers: set[asyncio.Queue[bytes | None]] = set()
        self._task: asyncio.Task[None] | None = None
        self._keep = False
        self._at = 0
        self._changed: Event | None = None
        self._told: set[Event] = set()
        """Refusals that were known a second ago; other workers' become known a little later."""
        self.dropped = 0
        """How many readers were too slow."""

    @property
    def readers(self) -> int:
        """How many read along now."""
        return len(self._readers)

    def start(self) -> None:
        """Tick from now on, whether or not anybody reads: so there is a history to show."""
        self._keep = True
        self._begin()

    async def stop(self) -> None:
        """Tick no more; every reader comes to its end."""
        self._keep = False
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task
        for queue in list(self._readers):
            self._drop(queue)

    def _begin(self) -> None:
        if self._task is None or self._task.done():
            self._task = asyncio.get_running_loop().create_task(self._run())

    async def _run(self) -> None:
        while self._keep or self._readers:
            clock = self._telemetry.clock
            await asyncio.sleep(self._interval - clock() % self._interval)
            try:
                self.step()
            except Exception:  # numbers of one second are not worth the others
                continue

    def step(self) -> bool:
        """Enter the second that has passed and offer it to all readers; False if it was done."""
        telemetry = self._telemetry
        telemetry.tick()  # whether or not somebody else has done so
        at = telemetry.rolling.at
        if at <= self._at:
            return False
        self._at = at
        recent, changes = telemetry.recent(RECENT), self._changes()
        if self._readers:
            new = [event.as_dict() for event in recent if event not in self._told]
            told = {**second_of(telemetry), "refusals": new, "changes": changes}
            chunk = as_event("second", told, at)
            if at % KEYS_EVERY == 0:
                chunk += as_event("keys", keys_of(telemetry))
            for queue in list(self._readers):
                try:
                    queue.put_nowait(chunk)
                except asyncio.QueueFull:
                    self.dropped += 1
                    self._drop(queue)
        self._told = set(recent)
        return True

    def _changes(self) -> list[dict[str, Any]]:
        """What changed in the policies of this process since the last time."""
        known, new = self._changed, []
        for change in self._telemetry.changes():
            if change is known:
                break
            new.append(change)
        self._changed = new[0] if new else known
        return [change.as_dict() for change in new]

    def _drop(self, queue: asyncio.Queue[bytes | None]) -> None:
        self._readers.discard(queue)
        while queue.full():  # what it has not read is old; only that it ends is news
            queue.get_nowait()
        queue.put_nowait(None)

    async def read(self, history: int = 60) -> AsyncIterator[bytes]:
        """What has been, then every second as it passes; ends when the reader is too slow."""
        if len(self._readers) >= self._most:
            yield as_event("full", {"readers": self._most})
            return
        queue: asyncio.Queue[bytes | None] = asyncio.Queue(BEHIND)
        self.step()
        first = as_event("history", history_of(self._telemetry, history))
        first += as_event("keys", keys_of(self._telemetry))
        self._readers.add(queue)
        self._begin()
        try:
            yield b"retry: 2000\n\n" + first
            while True:
                chunk = await queue.get()
                if chunk is None:
                    yield as_event("end", {})
                    return
                yield chunk
        finally:
            self._readers.discard(queue)


def second_of(telemetry: Telemetry) -> dict[str, Any]:
    """The last second: by rule and result, permits, times."""
    totals = telemetry.totals()
    rolling = telemetry.rolling
    counted = rolling.second()
    known = totals.as_dict()
    return {
        "at": rolling.at,
        "workers": totals.workers,
        "calls": counted.pop("", {}),
        "rules": counted,
        "permits": {
            rule: cells[PERMITS] for rule, cells in totals.rules.items() if cells[PERMITS] > 0
        },
        **rolling.times(10),
        "away": known["store"]["away"],
        "reload": known["reload"],
        "policies": known["policies"],
        "room": known["room"],
    }  # fmt: skip


def history_of(telemetry: Telemetry, seconds: int) -> dict[str, Any]:
    """The last seconds, as lists by rule and result, and the sums since the beginning."""
    return {
        "at": telemetry.rolling.at,
        "seconds": seconds,
        "rules": telemetry.rolling.history(seconds),
        "totals": telemetry.snapshot(),
        "refusals": [event.as_dict() for event in telemetry.recent(RECENT)],
        "changes": [event.as_dict() for event in telemetry.changes(RECENT)],
    }


def keys_of(telemetry: Telemetry, most: int = 10) -> dict[str, Any]:
    """The busiest keys by rule, with how much of their counts may not be theirs."""
    return {
        kind: {
            rule: [{"key": b.key, "count": b.count, "error": b.error} for b in keys]
            for rule, keys in telemetry.top(refused=kind == "refused", most=most).items()
            if keys
        }
        for kind in ("all", "refused")
    }


def as_event(event: str, thing: Any, number: int | None = None) -> bytes:
    """A server-sent event; JSON in ASCII has no line ends inside."""
    identity = "" if number is None else f"id: {number}\n"
    data = json.dumps(thing, separators=(",", ":"))
    return f"event: {event}\n{identity}data: {data}\n\n".encode()
