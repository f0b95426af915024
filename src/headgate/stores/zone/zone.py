"""Zone: one mapped file in this process, with everything that is made once for it.

Several stores of a process on one file share it. A record lock is lost when any descriptor of
its file is closed, so a file that is open already is never opened a second time.
"""

from __future__ import annotations

import mmap
import os
import sys
import threading
import time
import weakref
from collections.abc import Sequence
from typing import Any

from ...algorithms import Concurrency
from ...errors import StoreError
from ...limit import Limit
from ..base import Prepared
from .engine import Engine
from .form import this_form
from .holders import Holders, namespace
from .layout import KEPT, Shape, check_header
from .opening import (
    anonymous_file,
    boot_id,
    check_options,
    new_offset,
    open_file,
    read_header,
)
from .places import BOOT, IS_KEY, LATEST, OFFSET, OPTIONS, PIDS
from .registry import Registry
from .table import Nodes

try:
    import fcntl
except ImportError:
    fcntl = None  # type: ignore[assignment]

__all__ = ["Zone", "anonymous_zone", "open_zone"]

STAYS = sys.platform == "linux"
"""Whether a user can hold a lock of the whole file for as long as it lives: elsewhere that would
stand in the way of record locks, and is given up at once."""
APART = 300 * 10**9
"""Nanoseconds by which the time of day may differ where a restart cannot be seen otherwise."""

_zones: weakref.WeakValueDictionary[tuple[int, int], Zone] = weakref.WeakValueDictionary()
_opening = threading.RLock()
"""Held by who opens or closes a zone: else one could be closed for him who just found it, and
what is closed late would take the record locks of the same file with it. A finaliser may close a
store in the middle of either."""


def open_zone(path: str, size: int, mode: int, keep: bool, patience: float) -> Zone:
    """The zone at a path, made if there is none."""
    check_options(path, mode, keep, patience)
    form = this_form()
    with _opening:
        while True:
            try:
                status = os.stat(path)
                zone = _zones.get((status.st_dev, status.st_ino))
            except OSError:
                zone = None
            if zone is None:
                zone = _opened(path, *open_file(path, size, form, mode, keep), patience)
            zone.users += 1
            if not zone.closed:  # by a finaliser, at this very moment
                return zone


def anonymous_zone(size: int, keep: bool, patience: float) -> Zone:
    """A zone without a name, for this process and those it forks."""
    check_options("", 0o600, keep, patience)
    with _opening:
        zone = _opened("without a name", *anonymous_file(size, this_form(), keep), patience)
        zone.users += 1
        return zone


def _opened(path: str, file: int, shape: Shape, patience: float) -> Zone:
    status = os.fstat(file)
    known = _zones.get((status.st_dev, status.st_ino))
    if known is not None:  # it was moved to this path a moment ago
        known.spare.append(file)
        return known
    try:
        zone = Zone(path, file, shape)
    except (OSError, ValueError) as error:
        os.close(file)
        raise StoreError(f"the zone {path} cannot be mapped: {error}") from error
    except BaseException:
        os.close(file)
        raise
    try:
        zone.come_in(patience)
    except BaseException:
        zone.close()
        raise
    _zones[(status.st_dev, status.st_ino)] = zone
    return zone


class Zone:
    """A mapped zone."""

    def __init__(self, path: str, file: int, shape: Shape) -> None:
        self.path = path
        self.size = shape.size
        self.users = 0
        self.spare: list[int] = []
        self.closed = False
        self._file = file
        self._map = mmap.mmap(file, shape.size)
        self.engine = Engine(path, shape.entries, shape.buckets, shape.chunks)
        self._form = this_form()
        self._form.bind(self.engine, self._map)
        self.lock = self._form.lock(self.engine, file)
        self.name = self._form.namer(self.engine)
        self.local = threading.RLock()
        """Threads take turns here, before this process asks the others."""
        self.registry = Registry(self.engine, self.name)
        self.nodes = Nodes(self.engine, self.registry)
        self.holders = Holders(known=self.engine.get(PIDS) == namespace())

    @property
    def keeps(self) -> bool:
        """Whether the texts of keys are kept."""
        return bool(self.engine.get(OPTIONS) & KEPT)

    def quick(
        self, store: Any, tables: Sequence[Any], space: str, limits: Sequence[Limit]
    ) -> Prepared | None:
        """A prepared take of these limits, where there is a shorter way than decide."""
        way: Prepared | None = self._form.quick(store, self, tables, space, limits)
        return way

    @property
    def offset(self) -> int:
        """Nanoseconds from the monotonic clock to the zone's time."""
        return self.engine.get(OFFSET)

    # -- who else is here

    def come_in(self, patience: float) -> None:
        """Say that this process uses the zone. Who finds nobody there, and that the machine was
        started anew since, or the processes live in another container now, puts things right:
        what was half done is undone, no permit has a holder, and time goes on from where it was.
        """
        begin = time.monotonic()
        while True:
            if self._flock(fcntl.LOCK_EX):
                if self._is_old() or self.engine.get(PIDS) != namespace():
                    self._renew()
                if not STAYS:
                    fcntl.flock(self._file, fcntl.LOCK_UN)
                    return
            if self._flock(fcntl.LOCK_SH):
                return
            if time.monotonic() - begin > patience:
                raise StoreError(f"the zone {self.path} is being opened by another process")
            time.sleep(0.001)

    def _flock(self, kind: int) -> bool:
        try:
            fcntl.flock(self._file, kind | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True

    def _is_old(self) -> bool:
        boot, engine = boot_id(), self.engine
        if any(boot):
            return (engine.get(BOOT), engine.get(BOOT + 1)) != boot
        return abs(time.time_ns() - time.monotonic_ns() - self.offset) > APART

    def _renew(self) -> None:
        engine = self.engine
        self.lock.renew()
        engine.rollback()
        for chunk in range(1, engine.chunks):
            at = engine.at(chunk)
            if engine.kind(at) == IS_KEY:
                rule = self.nodes.rule(at)
                if isinstance(rule, Concurrency):
                    self._forget_holders(at, rule)
        engine.poke(OFFSET, new_offset(engine.get(LATEST)))
        engine.poke(PIDS, namespace())
        self.holders = Holders(known=True)
        first, second = boot_id()
        engine.poke(BOOT + 1, second)
        engine.poke(BOOT, first)

    def _forget_holders(self, at: int, rule: Any) -> None:
        permits = self.nodes.state(at, rule)
        for token in list(permits.holders):
            rule.release(permits, token)
        self.nodes.write(at, rule, permits, rule.dump(permits), -1 if permits.held else 1)
        self.engine.commit()

    # -- the end

    def forked(self) -> None:
        """In a new process nobody is inside."""
        self.local = threading.RLock()
        self.lock.forked()
        self.holders.forked()
        self.registry.forget()

    def leave(self) -> None:
        """One user less; the last one closes the zone."""
        with _opening:
            self.users -= 1
            if self.users > 0:
                return
        with self.local, _opening:  # in this order: who decides may come to close another store
            if self.users <= 0:
                self.close()

    def close(self) -> None:
        """Unmap the file."""
        if self.closed:
            return
        self.closed = True
        _zones.pop(_key_of(self._file), None)
        self._form.unbind(self.engine)
        self._map.close()
        for file in (self._file, *self.spare):
            os.close(file)

    def __del__(self) -> None:
        if hasattr(self, "holders") and not self.closed:
            self.close()

    # -- for those who look without taking part

    def header(self) -> bytes:
        """The header page, as it is now."""
        data, size = read_header(self.path, self._file)
        check_header(self.path, data, size, None)
        return data


def _key_of(file: int) -> tuple[int, int]:
    status = os.fstat(file)
    return status.st_dev, status.st_ino


def _after_fork() -> None:
    global _opening
    _opening = threading.RLock()
    for zone in list(_zones.values()):
        zone.forked()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
