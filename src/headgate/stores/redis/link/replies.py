"""Replies: read from bytes, and the errors of a server as errors of ours."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from ....errors import StoreError, StoreUnavailable

__all__ = ["PENDING", "PlainReader", "ReplyError", "error_of", "reader"]

PENDING: Any = object()
"""What a reader answers when the rest of a reply has not arrived."""


class ReplyError(Exception):
    """An error that a server replied; `code` is its first word, or that of the command within."""

    def __init__(self, text: str = "") -> None:
        super().__init__(text)
        self.text = text
        self.code = text.partition(" ")[0]
        if self.code == "ERR":
            # Servers before 7.0 wrap what failed inside a script: "ERR Error running script
            # (call to f_..): @user_script:1: @user_script: 1: -READONLY You can't write ..".
            inner = _INNER.search(text)
            if inner:
                self.code = inner[1]


_INNER = re.compile(r": -([A-Z]{3,}) ")
_COMMAND = re.compile(r"'([^']+)' command")

# The server was asked, and said that it cannot now; nothing was carried out.
_NOT_NOW = frozenset((
    "ASK", "BUSY", "CLUSTERDOWN", "LOADING", "MASTERDOWN", "MISCONF", "MOVED", "NOREPLICAS", "OOM",
    "READONLY", "TRYAGAIN",
))  # fmt: skip


def error_of(reply: ReplyError, where: str) -> StoreError:
    """What a server's error means for the caller."""
    if reply.code in _NOT_NOW:
        return StoreUnavailable(f"{where} cannot answer: {reply.text}", sent=False)
    if reply.code == "NOPERM" or "can't run this command" in reply.text:
        command = _COMMAND.search(reply.text)
        right = (
            f"+{command[1]}" if command else "access to the store's keys (~prefix*) and commands"
        )
        return StoreError(f"{where}: the user lacks a right, {right}: {reply.text}")
    if reply.code in ("NOAUTH", "WRONGPASS"):
        return StoreError(f"{where} wants a user and a password: {reply.text}")
    return StoreError(f"{where} replied: {reply.text}")


class PlainReader:
    """The protocol's reader in Python, for where hiredis is not installed."""

    def __init__(self) -> None:
        self._buffer = bytearray()

    def feed(self, data: bytes) -> None:
        """Take more bytes."""
        self._buffer += data

    def gets(self) -> Any:
        """The next reply, or PENDING."""
        reply, end = self._read(0)
        if reply is not PENDING:
            del self._buffer[:end]
        return reply

    def _read(self, at: int) -> tuple[Any, int]:
        line_end = self._buffer.find(b"\r\n", at)
        if line_end < 0:
            return PENDING, at
        kind, line = self._buffer[at : at + 1], bytes(self._buffer[at + 1 : line_end])
        at = line_end + 2
        if kind == b"+":
            return line, at
        if kind == b"-":
            return ReplyError(line.decode(errors="replace")), at
        if kind == b":":
            return int(line), at
        if kind == b"$":
            return self._bulk(at, int(line))
        if kind == b"*":
            return self._array(at, int(line))
        raise ConnectionError(f"a server replied {bytes(kind) + line!r}, which is not its protocol")

    def _bulk(self, at: int, size: int) -> tuple[Any, int]:
        if size < 0:
            return None, at
        if len(self._buffer) < at + size + 2:
            return PENDING, at
        return bytes(self._buffer[at : at + size]), at + size + 2

    def _array(self, at: int, count: int) -> tuple[Any, int]:
        if count < 0:
            return None, at
        items = []
        for _ in range(count):
            item, at = self._read(at)
            if item is PENDING:
                return PENDING, at
            items.append(item)
        return items, at


def reader() -> tuple[Callable[[bytes], Any], Callable[[], Any]]:
    """The two ends of a new reader: feed(bytes), and gets() -> reply or PENDING."""
    try:
        import hiredis
    except ImportError:
        plain = PlainReader()
        return plain.feed, plain.gets
    quick = hiredis.Reader(
        protocolError=ConnectionError, replyError=ReplyError, notEnoughData=PENDING
    )
    return quick.feed, quick.gets
