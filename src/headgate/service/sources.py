"""Sources: the rules of a service, from a file, from several of Envoy's, or from Redis."""

from __future__ import annotations

import os
from typing import Any

from ..rules.envoy import EnvoySnapshot, read_envoy
from ..rules.following import Source
from ..rules.reading import read_text
from ..rules.sources import FileSource, RedisSource
from .settings import SettingsError

__all__ = ["Files", "source_of"]

BETWEEN = b"\0headgate\0"


def source_of(rules: tuple[str, ...]) -> Source:
    """What follows the rules."""
    if not rules:
        raise SettingsError("the rules are missing: --rules FILE")
    if len(rules) == 1:
        if "://" in rules[0]:
            return RedisSource(rules[0])
        return FileSource(rules[0])
    if any("://" in each for each in rules):
        raise SettingsError("several rules are files of Envoy's; a URL stands alone")
    return Files(rules)


class Files(Source):
    """Several files of Envoy's, each with a domain of its own."""

    kind = "file"

    def __init__(self, paths: tuple[str, ...]) -> None:
        self.paths = paths
        self._seen: Any = None
        super().__init__(", ".join(paths), self._all)

    def _fetch(self, again: bool) -> tuple[bytes, str] | None:
        marks = [self._mark(path) for path in self.paths]
        if marks == self._seen and not again:
            return None
        if not again:
            self._end.wait(FileSource.settle)
            if [self._mark(path) for path in self.paths] != marks:
                return None  # still being written
        self._seen = marks
        return BETWEEN.join(_bytes(read_text(path)) for path in self.paths), self.name

    def _mark(self, path: str) -> tuple[int, ...]:
        try:
            found = os.stat(path)
        except OSError:
            return ()
        return found.st_mtime_ns, found.st_ctime_ns, found.st_size, found.st_ino

    def _all(self, text: str | bytes, name: str = "") -> Any:
        texts = _bytes(text).split(BETWEEN)
        found = [
            read_envoy(each.decode(), path) for each, path in zip(texts, self.paths, strict=True)
        ]
        return EnvoySnapshot.joined(found)

    def _reset(self) -> None:
        self._seen = None


def _bytes(text: str | bytes) -> bytes:
    return text.encode() if isinstance(text, str) else text
