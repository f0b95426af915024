"""Gathering: takes of concurrent tasks that leave together, put into few calls as they come.

Takes of one way (the same script and arguments) differ in their key alone, so they travel as one
call; a key that is asked for several times is sent once with its count. The script takes them one
after the other, so each gets exactly the decision it would have got alone.
"""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Sequence
from typing import Any

from .calls import Call, Script

__all__ = ["LONG", "MOST", "SIZE", "Takes", "Way"]

MOST = 256
"""Keys of one call: a script stops the whole server while it runs."""
SIZE = 40
"""Bytes of the reply to one take of several."""
LONG = -3
"""What a script says that cannot answer the short way."""

Futures = list["asyncio.Future[Any]"]


class Way:
    """What takes of one kind have in common."""

    __slots__ = ("args", "script")

    def __init__(self, script: Script, args: tuple[bytes, ...]) -> None:
        self.script = script
        self.args = args


class Takes:
    """Takes that gather, with the face of one entry of a lane."""

    __slots__ = ("_done", "_ways", "_whom", "calls", "deadline")

    def __init__(self, deadline: float) -> None:
        self.deadline = deadline
        self._ways: dict[Way, dict[bytes, Futures]] = {}
        self.calls: list[Call] = []
        self._whom: list[Futures] = []
        self._done = False

    def add(self, way: Way, name: bytes, future: asyncio.Future[Any]) -> None:
        """One more."""
        names = self._ways.get(way)
        if names is None:
            names = self._ways[way] = {}
        futures = names.get(name)
        if futures is None:
            names[name] = [future]
        else:
            futures.append(future)

    def leave(self) -> None:
        """Become calls; nothing is added from then on."""
        for way, names in self._ways.items():
            self._put(way, names)
        self._done = not self.calls

    def _put(self, way: Way, names: dict[bytes, Futures]) -> None:
        """The takes of one way, but for those that were cancelled: they have asked nothing."""
        keys: list[bytes] = []
        counts: list[int] = []
        whom: Futures = []
        for name, futures in names.items():
            left = [future for future in futures if not future.done()]
            if not left:
                continue
            keys.append(name)
            counts.append(len(left))
            whom += left
            if len(keys) == MOST:
                self._send(way, keys, counts, whom)
                keys, counts, whom = [], [], []
        if keys:
            self._send(way, keys, counts, whom)

    def _send(self, way: Way, keys: list[bytes], counts: list[int], whom: Futures) -> None:
        args = way.args
        if len(whom) > 1:
            args = (*args, struct.pack(f"<{len(counts)}I", *counts))
        self.calls.append(Call(way.script, keys, args))
        self._whom.append(whom)

    # -- the face of a future

    @property
    def future(self) -> Takes:
        """Whom to tell: all of them."""
        return self

    def done(self) -> bool:
        """Whether they were told, or nobody was left when they were to leave."""
        return self._done

    def set_result(self, replies: Sequence[Any]) -> None:
        """Tell each its reply.

        A script that cannot answer all of its keys the short way has done nothing: each is told to
        ask at length.
        """
        self._done = True
        for reply, whom in zip(replies, self._whom, strict=True):
            if reply.__class__ is bytes and len(whom) > 1:
                at = 0
                for future in whom:
                    if not future.done():  # else cancelled
                        future.set_result(reply[at : at + SIZE])
                    at += SIZE
                continue
            if len(whom) > 1 and not isinstance(reply, Exception):
                reply = [LONG]
            for future in whom:
                if not future.done():
                    future.set_result(reply)

    def set_exception(self, error: Exception) -> None:
        """Tell all of them that it failed."""
        self._done = True
        for whom in self._whom:
            for future in whom:
                if not future.done():
                    future.set_exception(error)
