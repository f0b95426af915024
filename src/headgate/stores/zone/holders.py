"""Holders: which process holds something, and whether it is still there.

A process is known by its id and the moment of its start, so a later process of the same id is
another one. Both fit into one word.
"""

from __future__ import annotations

import os
import time

__all__ = ["Holders", "is_stopped", "namespace"]

PID_BITS = 22  # the largest process id there can be, and a little more
FRESH = 0.005
"""For so many seconds a process that was there is taken to be there still."""


def _stat(pid: int) -> list[str] | None:
    """The fields of a process or thread after its name; None if that cannot be known."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            text = file.read().decode("ascii", "replace")
    except OSError:
        return None
    return text[text.rfind(")") + 2 :].split()


def is_stopped(pid: int) -> bool:
    """Whether a process stands still because somebody stopped it."""
    fields = _stat(pid) if pid > 0 else None
    return fields is not None and fields[0] in ("T", "t")


def namespace() -> int:
    """A number of the world in which process ids have their meaning; 0 if there is only one."""
    try:
        return os.stat("/proc/self/ns/pid").st_ino
    except OSError:
        return 0


class Holders:
    """This process as a holder, and what is known of the others."""

    def __init__(self, *, known: bool) -> None:
        self._known = known
        self._me = 0
        self._seen: dict[int, float] = {}

    def me(self) -> int:
        """This process; 0 if others could not tell whether it is still there."""
        if not self._me and self._known:
            pid = os.getpid()
            fields = _stat(pid)
            self._me = pid | (int(fields[19]) if fields else 0) << PID_BITS
        return self._me

    def forked(self) -> None:
        """This process is another one now."""
        self._me = 0
        self._seen.clear()

    def gone(self, holder: int) -> bool:
        """Whether a holder is certainly not there any more."""
        if not holder or not self._known or holder == self.me():
            return False
        now = time.monotonic()
        if now - self._seen.get(holder, -1.0) < FRESH:
            return False
        if _gone(holder & (1 << PID_BITS) - 1, holder >> PID_BITS):
            self._seen.pop(holder, None)
            return True
        if len(self._seen) > 1000:
            self._seen.clear()
        self._seen[holder] = now
        return False


def _gone(pid: int, start: int) -> bool:
    fields = _stat(pid)
    if fields is not None:
        return fields[0] in ("Z", "X") or (start != 0 and int(fields[19]) != start)
    try:  # /proc may be missing, or hide the processes of others
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    except (OSError, OverflowError):
        return False
    return False
