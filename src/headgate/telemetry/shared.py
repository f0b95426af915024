"""Shared: one file in which all workers of a machine count, so that each can tell the sums.

The file has a slot for each worker, and a slot has rows: a name and 32 whole numbers. Only the
worker that holds a slot writes to it, straight into the mapped file, so what was counted is
there even if it is killed in the middle. A slot is held by a lock on one byte of a file beside
it, which the system takes back when a process ends, however it ends; the next worker that takes
the slot goes on with its numbers. A file that nobody holds a slot of begins anew.

    page 0         magic, sizes, salt
    then slots     4 words (rows in use, pid, length of the note, its number), the note, the rows
    a row          length of the name (written last), the name, the cells
"""

from __future__ import annotations

import mmap
import os
import secrets
import struct
import threading
from collections.abc import Iterator
from pathlib import Path

from ..errors import HeadgateError
from .slots import NOTE, Slot, size_of

try:
    import fcntl
except ImportError:  # not on this system; said when somebody asks for it
    fcntl = None  # type: ignore[assignment]

__all__ = ["Area", "Slot"]

MAGIC = b"headgate counts 1\n"
HEAD = struct.Struct("<18s6xQQQ16s")
FREE = 1
"""Where the bytes begin that hold slots; the one before keeps others out while a file is opened."""

MANY = 4096
FLAGS = os.O_RDWR | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0)

_areas: dict[tuple[int, int], Area] = {}
"""Open files by device and inode. A system's locks are those of a process, and all of them go
when it closes the locked file once: so a process opens it once, and it is not the file that is
mapped, which is closed whenever the last reader of the mapping is gone."""
_opening = threading.RLock()


class Area:
    """The mapped file."""

    def __init__(self, path: Path, descriptor: int, slots: int, rows: int) -> None:
        self.path = path
        self._taken: set[int] = set()
        self._users = 0
        self._locks = os.open(f"{path}.lock", FLAGS, 0o600)
        try:
            lock(self._locks, FREE - 1)
            self._set_up(descriptor, slots, rows)
            unlock(self._locks, FREE - 1)
        except BaseException:
            os.close(self._locks)
            raise

    @classmethod
    def open(cls, path: str | os.PathLike[str], slots: int = 32, rows: int = 128) -> Area:
        """The file at a path, made if there is none."""
        if fcntl is None:
            raise HeadgateError("workers share their counts on systems with POSIX locks only")
        with _opening:
            try:
                known = os.stat(path)
            except FileNotFoundError:
                known = None
            area = None if known is None else _areas.get((known.st_dev, known.st_ino))
            if area is None:
                descriptor = os.open(path, FLAGS, 0o600)
                try:
                    area = cls(Path(path), descriptor, slots, rows)
                    made = os.fstat(descriptor)
                finally:
                    os.close(descriptor)  # the mapping has one of its own
                _areas[made.st_dev, made.st_ino] = area
            area._users += 1
            return area

    def _set_up(self, descriptor: int, slots: int, rows: int) -> None:
        if slots < 1 or rows < 4:
            raise ValueError("a file of counts has at least one slot, of four rows")
        head = os.pread(descriptor, HEAD.size, 0)
        if any(head) and not head.startswith(MAGIC):
            raise HeadgateError(f"{self.path} is no file of counts, or of another version")
        whole, self.salt = False, secrets.token_bytes(16)
        old_slots = old_rows = 0
        if any(head):
            _, old_slots, old_rows, note, self.salt = HEAD.unpack(head)
            size = size_of(old_slots, old_rows)
            whole = note == NOTE and os.fstat(descriptor).st_size >= size
        if any(not self._free(number) for number in range(min(max(slots, old_slots), MANY))):
            if not whole:
                raise HeadgateError(f"{self.path} is not whole, and somebody uses it")
            slots, rows = old_slots, old_rows
        else:  # nobody does: it begins anew
            # All of it is written: nobody shall run out of disk while counting. It is never cut
            # off, as somebody may have it mapped who only reads.
            os.pwrite(descriptor, bytes(size_of(slots, rows)), 0)
            os.pwrite(descriptor, HEAD.pack(MAGIC, slots, rows, NOTE, self.salt), 0)
        self.slots, self.rows = slots, rows
        self._map = mmap.mmap(descriptor, size_of(slots, rows))
        self.view = memoryview(self._map)

    def _free(self, number: int) -> bool:
        """Whether nobody holds a slot; asked about slots of other processes only."""
        if not lock(self._locks, FREE + number, wait=False):
            return False
        unlock(self._locks, FREE + number)
        return True

    def claim(self) -> Slot | None:
        """A slot that nobody holds, with all that was counted in it; None if there is none."""
        with _opening:
            lock(self._locks, FREE - 1)
            try:
                for number in range(self.slots):
                    free = number not in self._taken
                    if free and lock(self._locks, FREE + number, wait=False):
                        self._taken.add(number)
                        return Slot(self.view, self.rows, number)
            finally:
                unlock(self._locks, FREE - 1)
        return None

    def give_up(self, slot: Slot) -> None:
        """Let another worker go on with a slot."""
        with _opening:
            if self._locks >= 0:
                self._taken.discard(slot.number)
                unlock(self._locks, FREE + slot.number)

    def close(self) -> None:
        """One user less; the last one closes the file."""
        with _opening:
            self._users -= 1
            if self._users <= 0 and self._locks >= 0:
                for place, area in list(_areas.items()):
                    if area is self:
                        del _areas[place]
                os.close(self._locks)  # the mapping goes with whoever still reads it
                self._locks = -1

    def all(self) -> Iterator[Slot]:
        """Every slot that was ever in use, to be read."""
        for number in range(self.slots):
            slot = Slot(self.view, self.rows, number, reads=True)
            if slot.used:
                yield slot

    def alive(self, number: int) -> bool:
        """Whether a slot is held by somebody now."""
        with _opening:
            return number in self._taken or not self._free(number)


def lock(descriptor: int, byte: int, *, wait: bool = True) -> bool:
    """Lock one byte of a file; False if it is locked and nobody wants to wait."""
    try:
        fcntl.lockf(descriptor, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB), 1, byte)
    except (BlockingIOError, PermissionError):
        return False
    return True


def unlock(descriptor: int, byte: int) -> None:
    """Let go of one byte."""
    fcntl.lockf(descriptor, fcntl.LOCK_UN, 1, byte)


def _after_fork() -> None:
    """In a child: the parent's slots are not ours, and neither is what holds them."""
    global _opening
    _opening = threading.RLock()
    for area in _areas.values():
        os.close(area._locks)  # before this process has locks, which would go with it
        area._locks = -1
    _areas.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
