"""The form of a zone: how its processes exclude each other, and how keys are named.

Compiled, where the platform has robust mutexes, the lock is one of those in the zone itself and
names are SipHash; in pure Python it is a record lock and names are BLAKE2. Processes of one form
cannot use a zone of the other.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from hashlib import blake2b
from importlib import import_module
from typing import Any

from ...limit import Limit
from .engine import Engine
from .layout import FILE_LOCKS, ROBUST
from .lock import FileLock, waited
from .places import HASH_KEY, MUTEX

__all__ = ["Form", "this_form"]

_chosen: list[Form] = []


class Form:
    """How this process makes and uses zones."""

    def __init__(self) -> None:
        self._native: Any = None
        if Engine.__module__.startswith("headgate._native"):
            self._native = import_module("headgate._native.zonelock")
        robust = self._native is not None and self._native.AVAILABLE
        self.number = ROBUST if robust else FILE_LOCKS
        self.mutex: bytes = self._native.new_mutex() if robust else b""
        """A mutex that nobody holds, as it stands in a new zone."""

    def bind(self, engine: Engine, memory: Any) -> None:
        """Let an engine's words be those of a mapping."""
        if self._native is None:
            engine.words = memoryview(memory).cast("q")
        else:
            self._native.bind(engine, memory)

    def unbind(self, engine: Engine) -> None:
        """Let go of the mapping."""
        if self._native is None:
            engine.words.release()
        else:
            self._native.unbind(engine)

    def lock(self, engine: Engine, file: int) -> Any:
        """What keeps other processes out."""
        if self.number == ROBUST:
            return self._native.RobustLock(engine, MUTEX, waited)
        return FileLock(engine, file)

    def namer(self, engine: Engine) -> Callable[[bytes], int]:
        """What gives keys their names, under the zone's own secret."""
        first, second = engine.get(HASH_KEY), engine.get(HASH_KEY + 1)
        if self.number == ROBUST:
            name: Callable[[bytes], int] = self._native.SipHash(first, second).name
            return name
        secret = b"".join(word.to_bytes(8, "little", signed=True) for word in (first, second))

        def name_of(data: bytes) -> int:
            digest = blake2b(data, digest_size=8, key=secret).digest()
            return int.from_bytes(digest, "little", signed=True)

        return name_of

    def quick(
        self, store: Any, zone: Any, tables: Sequence[Any], space: str, limits: Sequence[Limit]
    ) -> Any:
        """A prepared take of these limits, where there is a shorter way than decide."""
        if self.number != ROBUST:
            return None
        plain = import_module("headgate._native.quick").PLAIN
        for table, limit in zip(tables, limits, strict=True):
            # No Python code runs inside the lock on the short way.
            if type(table.rule) not in plain or table.rule.sticky or limit.elastic:
                return None
        secret = zone.engine.get(HASH_KEY), zone.engine.get(HASH_KEY + 1)
        native: Any = import_module("headgate._native.zonequick")
        ways = [
            native.InZone(store, zone, table, space, limit, *secret)
            for table, limit in zip(tables, limits, strict=True)
        ]
        return ways[0] if len(ways) == 1 else native.together(ways)


def this_form() -> Form:
    """The form of this process."""
    if not _chosen:
        _chosen.append(Form())
    return _chosen[0]
