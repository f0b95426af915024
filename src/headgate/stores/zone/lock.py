"""FileLock: one process at a time, by a record lock that the kernel takes back at death.

A record lock belongs to a process, is not inherited over a fork, and is lost when the process
closes any descriptor of the file; so there is one of these for each zone of a process, and
threads take turns before they come here.
"""

from __future__ import annotations

import os
import random
import struct
import sys
import time

from ...errors import StoreError
from .engine import Engine
from .holders import is_stopped
from .places import HOLDER, RECOVERIES, WAITING

try:
    import fcntl
except ImportError:  # a platform without record locks has no zones of this form
    fcntl = None  # type: ignore[assignment]

__all__ = ["FileLock", "waited"]

NAP = 50e-6
LONGEST = 250e-6
LOOK = 0.01
"""Every so many seconds a waiter looks who it is waiting for."""


def waited(path: str, holder: int, patience: float, enough: bool) -> StoreError | None:
    """The error of somebody who need not wait on, or has waited enough."""
    if is_stopped(holder):
        return StoreError(f"the zone {path} is held by process {holder}, which is stopped")
    if not enough:
        return None
    return StoreError(
        f"the zone {path} was held by others for {patience:g} s (last by process {holder})"
    )


class FileLock:
    """Keeps other processes out, and undoes what a dead one left half done."""

    def __init__(self, engine: Engine, file: int) -> None:
        if fcntl is None:
            raise StoreError("a zone needs POSIX record locks, which this platform has not")
        self._engine = engine
        self._file = file
        self._held = False

    def enter(self, patience: float) -> None:
        """Be the only one; StoreError if that cannot be had in time."""
        engine = self._engine
        if not self._held:  # an interrupt may have kept this process from leaving
            self._acquire(patience)
            self._held = True
        engine.poke(HOLDER, os.getpid())
        if engine.pending():
            engine.rollback()
            engine.poke(RECOVERIES, engine.get(RECOVERIES) + 1)

    def leave(self) -> None:
        """Let others in; what was not committed is undone. Nothing if this is not the one."""
        if not self._held:
            return
        engine = self._engine
        try:
            if engine.pending():
                engine.rollback()
        finally:
            waiting = engine.get(WAITING)
            engine.poke(HOLDER, 0)
            self._held = False
            fcntl.lockf(self._file, fcntl.LOCK_UN)
        if waiting and waiting != os.getpid():
            time.sleep(NAP)  # nobody is told that the lock is free: let somebody find it so

    def renew(self) -> None:
        """After a restart of the machine there is nothing left to make anew."""

    def forked(self) -> None:
        """In a new process nothing is held."""
        self._held = False

    def _acquire(self, patience: float) -> None:
        if self._try():
            return
        begin = time.monotonic()
        me, look, nap = os.getpid(), LOOK, NAP
        while True:
            self._engine.poke(WAITING, me)
            time.sleep(nap * random.uniform(0.5, 1))
            if self._try():
                break
            nap = min(LONGEST, nap * 1.1)
            spent = time.monotonic() - begin
            if spent > patience or spent > look:
                look += LOOK
                holder = self._owner()
                error = waited(self._engine.path, holder, patience, spent > patience)
                if error is not None:
                    raise error
        if self._engine.get(WAITING) == me:
            self._engine.poke(WAITING, 0)

    def _owner(self) -> int:
        """Who holds the lock, as the kernel knows it where it can be asked."""
        if sys.platform == "linux":
            asked = struct.pack("hhqqi4x", fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)
            try:
                kind, _, _, _, owner = struct.unpack(
                    "hhqqi4x", fcntl.fcntl(self._file, fcntl.F_GETLK, asked)
                )
            except OSError:
                kind = fcntl.F_UNLCK
            if kind != fcntl.F_UNLCK and owner > 0:
                return int(owner)
        return self._engine.get(HOLDER)

    def _try(self) -> bool:
        try:
            fcntl.lockf(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        except PermissionError:  # as some systems say it
            return False
        return True
