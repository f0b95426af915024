"""Reflection: which services there are, for tools such as grpcurl; off unless it is asked for."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from .schema import FILES, SYMBOLS
from .status import Code, GrpcError
from .wire import BYTES, WireError, fields, message, number, text, utf8

if TYPE_CHECKING:
    from .streams import Stream

__all__ = ["Reflection"]

NAMES = (
    "grpc.reflection.v1.ServerReflection",
    "grpc.reflection.v1alpha.ServerReflection",
)
BY_NAME, BY_SYMBOL, LIST = 3, 4, 7


class Reflection:
    """The services, and the descriptors of what they say."""

    names = NAMES

    def __init__(self, services: Iterable[str]) -> None:
        self._services = (*services, *NAMES)

    async def serve(self, stream: Stream) -> None:
        """ServerReflectionInfo: an answer to each question."""
        await stream.begin()
        while (data := await stream.read()) is not None:
            try:
                await stream.send(self.answer(data))
            except WireError as error:
                raise GrpcError(Code.INVALID_ARGUMENT, str(error)) from None

    def answer(self, data: bytes) -> bytes:
        """A ServerReflectionResponse for a ServerReflectionRequest."""
        host, asked, about = b"", 0, ""
        for place, kind, value in fields(data):
            if kind == BYTES and place == 1:
                host = value
            elif kind == BYTES:
                asked = place
                about = utf8(value) if place in (BY_NAME, BY_SYMBOL, LIST) else ""
        head = text(1, host) + message(2, data)
        if asked == LIST:
            listed = [message(1, text(1, name)) for name in self._services]
            return head + message(6, b"".join(listed))
        name = about if asked == BY_NAME else SYMBOLS.get(about, "")
        if asked not in (BY_NAME, BY_SYMBOL) or name not in FILES:
            problem = number(1, Code.NOT_FOUND) + text(2, f"not found: {about}")
            return head + message(7, problem)
        return head + message(4, b"".join(message(1, FILES[each][0]) for each in _needed(name)))


def _needed(name: str) -> list[str]:
    """A file and all that it needs."""
    found, open_ = [], [name]
    while open_:
        each = open_.pop()
        if each not in found:
            found.append(each)
            open_ += FILES[each][1]
    return found
