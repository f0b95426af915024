"""Random traces: limits of every kind, steps of a clock that is not always right, and asks."""

from __future__ import annotations

import importlib
import os
from collections.abc import Iterator, Sequence
from random import Random
from typing import Any

from headgate.stores.redis.scripts import Script
from twin import pure

__all__ = ["TRACES", "Reference", "Wire", "instants", "limit_text", "reference"]

TRACES = int(os.environ.get("HEADGATE_TRACES", "10000"))
"""How many traces of each kind; 10^6 where there is time."""
WINDOWS = (7, 1_000, 60_000, 1_000_000, 60_000_000, 3_600_000_000, 86_400_000_000)
ZONES = ("Asia/Shanghai", "Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "UTC")
UNITS = ("second", "minute", "hour", "day", "week", "month", "year")


def reference(module: str) -> Any:
    """A module of the pure form, which shows the words of a decision."""
    return importlib.import_module(f"{pure().__name__}.{module}")


def limit_text(kind: str, random: Random) -> str:
    """A limit of a kind; small ones most often, because there the edges are near."""
    window = random.choice(WINDOWS)
    amount = random.choice((1, 2, 3, 5, 10, random.randint(1, 100), random.randint(1, 10_000)))
    if random.random() < 0.05:  # near the largest numbers that a limit may have
        amount = random.randint(2**50, 2**52 - 1) // (window + window // 100)
    if kind == "calendar":
        unit, zone = random.choice(UNITS), random.choice(ZONES)
        return f"{min(amount, 10_000)}/{unit} fixed-window tz {zone}"
    rate, burst = f"{amount}/{window}us", random.choice((1, 2, 7, amount))
    if kind == "gcra":
        return f"{rate} gcra burst {burst}"
    if kind in ("bucket", "debt"):
        text = f"{rate} {'token-bucket' if kind == 'bucket' else 'debt'} burst {burst}"
        if random.random() < 0.3:
            text += f" initial {random.randint(0, burst)}"
        if random.random() < 0.3:
            text += f" refill {random.choice((window, max(1, window // 3), 2 * window))}us"
        return text
    if kind == "meter":
        return f"{rate} leaky-bucket burst {random.randint(0, 7)}"
    if kind == "queue":
        size = random.randint(0, 7)
        return f"{rate} leaky-bucket queue {size} delay {random.randint(0, size)}"
    if kind == "fixed" and random.random() < 0.5:
        return f"{rate} fixed-window anchor 2026-01-01T00:30Z"
    if kind == "warm":
        span = random.choice((window, 10 * window, max(1, window // 3)))
        return f"{min(amount, 10_000)}/{window}us warm-up {span}us cold {random.randint(1, 9)}"
    names = {"fixed": "fixed-window", "first": "first-hit", "sliding": "", "even": "even"}
    return f"{rate} {names[kind]}"


def instants(random: Random, window: int, count: int) -> Iterator[int]:
    """Times by a clock that stands, runs, jumps far ahead and goes back."""
    now = random.choice((0, window, 1_767_225_000_000_000, random.randint(0, 2**50)))
    for _ in range(count):
        chance = random.random()
        if chance < 0.6:
            now += random.choice((0, 1, random.randint(0, window), random.randint(0, window // 4)))
        elif chance < 0.75:
            now += random.choice((window, 2 * window, random.randint(0, 5 * window)))
        elif chance < 0.8:
            now += random.randint(0, 2**40)
        elif chance < 0.95:
            now -= random.choice((1, random.randint(0, window), window, window + 1))
        else:
            now -= random.choice((3 * window, random.randint(0, 2**45)))
        now = min(max(0, now), 2**51)
        yield now


class Time:
    """A clock that is simply told."""

    def __init__(self) -> None:
        self.at = 0

    def micros(self) -> int:
        return self.at


def _reference() -> type[Any]:
    store = reference("stores.memory").MemoryStore

    class Reference(store):  # type: ignore[misc, valid-type] # found at run time
        """A memory store that forgets and reaps as a server with keys of its own does."""

        def __init__(self) -> None:
            self.time = Time()
            self.touched: set[Any] = set()
            super().__init__(clock=self.time)

        def decide(self, asks: Sequence[Any]) -> list[Any]:
            self.touched = {((ask.space, ask.limit.id), ask.key) for ask in asks}
            return list(super().decide(asks))

        def _expired(self) -> Iterator[Any]:
            # Reservations come back when their key is touched.
            held = self._reservations
            due = sorted(e for e in held.expiries if e[0] <= self._now)
            for end, _, name in due:
                if name[1:] in self.touched and held._taken.get(name, (0, 0, 0))[2] == end:
                    yield self._tables[name[1]], name[2], *held._pop(name)

        def _restore(self, cell: Any, before: Any) -> None:
            super()._restore(cell, before)
            if not (cell.seen or cell.rule.sticky) and cell.table.known(cell.handle):
                self._drop(cell.table, cell.handle)

        def _answer(self, ask: Any, place: Any, undo: Any) -> Any:
            decision = super()._answer(ask, place, undo)
            table, handle, rule = place
            if ask.op == "reset" and table.known(handle) and not rule.sticky:
                self._drop(table, handle)
            return decision

        def _file(self, table: Any, key: Any, reset: int) -> None:
            self._reclaimer.keys += 1  # and nobody is forgotten for it

        def _move(self, table: Any, key: Any) -> None:
            pass

    return Reference


Reference = _reference()


class Wire:
    """Script calls sent in one go over a connection of redis-py."""

    def __init__(self, client: Any) -> None:
        self._pool = client.connection_pool
        self._connection = self._pool.get_connection()
        self._loaded: set[str] = set()
        self._calls: list[bytes] = []

    def call(self, script: Script, keys: Sequence[bytes], arguments: Sequence[bytes]) -> None:
        """One more call."""
        if script.sha not in self._loaded:
            self._loaded.add(script.sha)
            self._connection.send_command("SCRIPT", "LOAD", script.text)
            assert self._connection.read_response() == script.sha.encode()
        words = (b"EVALSHA", script.sha.encode(), b"%d" % len(keys), *keys, *arguments)
        parts = [b"$%d\r\n%b\r\n" % (len(word), word) for word in words]
        self._calls.append(b"*%d\r\n%b" % (len(words), b"".join(parts)))

    def send(self) -> list[Any]:
        """The replies to all calls since the last time."""
        self._connection.send_packed_command(self._calls)
        replies = [
            self._connection.read_response(disable_decoding=True) for _ in range(len(self._calls))
        ]
        self._calls = []
        return replies

    def close(self) -> None:
        self._pool.release(self._connection)
