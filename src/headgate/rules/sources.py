"""Sources: where rules come from that change while the program runs: a file, or Redis."""

from __future__ import annotations

import os
import time

from .either import read_either
from .following import Name, Read, Source
from .reading import read_text
from .redis_source import RedisSource

__all__ = ["FileSource", "RedisSource", "Source"]


class FileSource(Source):
    """Rules of a file, which is looked at four times a second.

    A file is taken when it has stopped changing, so that one half written is not; put a new one
    in its place by a rename, and there is no such moment.
    """

    kind = "file"
    settle = 0.05
    """Seconds that a changed file must stay as it is."""
    young = 2.0
    """Seconds after a change in which it is read at each look: a second change within one tick
    of the file system's clock would not show."""

    def __init__(
        self, path: Name, *, read: Read = read_either, status_file: Name | None = None
    ) -> None:
        self.path = os.fspath(path)
        self._seen: tuple[int, ...] | None = None
        self._seen_at = 0.0
        super().__init__(self.path, read, status_file)

    def _fetch(self, again: bool) -> tuple[bytes, str] | None:
        mark = self._mark()
        now = time.monotonic()
        if mark == self._seen and now - self._seen_at > self.young and not again:
            return None
        if mark != self._seen:
            if not again:
                self._end.wait(self.settle)
                if self._mark() != mark:
                    return None  # still being written
            self._seen, self._seen_at = mark, now
        text = read_text(self.path)
        if self._mark() != mark and not again:
            self._seen = None
            return None
        return text, self.path

    def _mark(self) -> tuple[int, ...]:
        try:
            found = os.stat(self.path)
        except (OSError, ValueError):
            return ()
        return found.st_mtime_ns, found.st_ctime_ns, found.st_size, found.st_ino, found.st_dev

    def _reset(self) -> None:
        self._seen = None
