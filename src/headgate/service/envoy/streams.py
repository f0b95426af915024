"""Streams: gRPC's frames in ASGI's messages."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import lru_cache
from typing import Any
from urllib.parse import quote

from .status import Code, GrpcError

__all__ = ["Stream", "ending", "frame", "headers_of", "seconds_of", "unframed"]

Receive = Callable[[], Awaitable[Any]]
Send = Callable[[Any], Awaitable[None]]

KIND = (b"content-type", b"application/grpc")
START = {
    "type": "http.response.start", "status": 200, "headers": [KIND], "trailers": True,
}  # fmt: skip
SAFE = " !\"#$&'()*+,-./:;<=>?@[\\]^_`{|}~"
"""What may stand in a message besides letters and digits."""
_UNITS = {"H": 3600.0, "M": 60.0, "S": 1.0, "m": 1e-3, "u": 1e-6, "n": 1e-9}


class Gone(Exception):
    """Whoever asked has gone."""


def frame(message: bytes) -> bytes:
    """A message as it is sent: not compressed."""
    return b"\0%b%b" % (len(message).to_bytes(4, "big"), message)


def unframed(data: bytes, encoding: bytes) -> bytes:
    """The only message of a request."""
    if data[:1] == b"\0" and int.from_bytes(data[1:5], "big") == len(data) - 5:
        return data[5:]
    size = _checked(data[:5], encoding)
    if len(data) != size + 5:
        what = "more than one message" if len(data) > size + 5 else "half a message"
        raise GrpcError(Code.INTERNAL, f"the request has {what}")
    return data[5:]


def _checked(head: bytes, encoding: bytes) -> int:
    """The size of a message."""
    if len(head) < 5:
        raise GrpcError(Code.INTERNAL, "the request has no message")
    if head[0] == 1:
        if encoding and encoding != b"identity":
            what = encoding.decode("latin-1")
            raise GrpcError(Code.UNIMPLEMENTED, f"compression by {what} is not understood here")
        raise GrpcError(Code.INTERNAL, "a message is compressed, and nobody says how")
    if head[0]:
        raise GrpcError(Code.INTERNAL, "a message begins with a flag that gRPC does not have")
    return int.from_bytes(head[1:5], "big")


def ending(code: int, problem: str = "") -> list[tuple[bytes, bytes]]:
    """How a call ends, as headers or trailers."""
    pairs = [(b"grpc-status", str(code).encode())]
    if problem:
        pairs.append((b"grpc-message", quote(problem, safe=SAFE).encode()))
    if code == Code.UNIMPLEMENTED:
        pairs.append((b"grpc-accept-encoding", b"identity"))
    return pairs


@lru_cache(64)  # nearly every request of a client has the same
def seconds_of(timeout: bytes) -> float | None:
    """The header grpc-timeout; None if it is none."""
    text = timeout.decode("latin-1")
    digits, unit = text[:-1], _UNITS.get(text[-1:])
    if unit is None or not (digits.isascii() and digits.isdigit() and len(digits) <= 8):
        return None
    return int(digits) * unit


def headers_of(scope: Any) -> tuple[bytes, bytes, bytes]:
    """The content type, the encoding and the time-out of a request."""
    kind = encoding = timeout = b""
    for name, value in scope["headers"]:
        if name == b"content-type":
            kind = value
        elif name == b"grpc-timeout":
            timeout = value
        elif name == b"grpc-encoding":
            encoding = value
    return kind, encoding, timeout


class Stream:
    """A call in which messages go both ways."""

    def __init__(self, receive: Receive, send: Send, largest: int, encoding: bytes) -> None:
        self._receive = receive
        self._send = send
        self._largest = largest
        self._encoding = encoding
        self._data = bytearray()
        self._more = True
        self._begun = False

    async def read(self) -> bytes | None:
        """The next message; None when there are no more."""
        while True:
            data = self._data
            if len(data) >= 5:
                size = _checked(bytes(data[:5]), self._encoding)
                if size > self._largest:
                    problem = f"a message has more than {self._largest} bytes"
                    raise GrpcError(Code.RESOURCE_EXHAUSTED, problem)
                if len(data) >= size + 5:
                    message = bytes(data[5 : size + 5])
                    del data[: size + 5]
                    return message
            if not self._more:
                if data:
                    raise GrpcError(Code.INTERNAL, "the stream ends in the middle of a message")
                return None
            await self._fill()

    async def _fill(self) -> None:
        message = await self._receive()
        if message["type"] != "http.request":
            raise Gone
        self._data += message.get("body", b"")
        self._more = message.get("more_body", False)

    async def gone(self) -> None:
        """Come back when whoever asked has gone; what they still say is dropped."""
        while True:
            if (await self._receive())["type"] != "http.request":
                return

    async def send(self, message: bytes) -> None:
        """Send a message."""
        await self.begin()
        body = {"type": "http.response.body", "body": frame(message), "more_body": True}
        await self._send(body)

    async def begin(self) -> None:
        """Say that the call has begun."""
        if not self._begun:
            self._begun = True
            await self._send(START)

    async def end(self, code: int = Code.OK, problem: str = "") -> None:
        """Say how the call ended."""
        pairs = ending(code, problem)
        if not self._begun:  # an answer of trailers alone
            start = {"type": "http.response.start", "status": 200, "headers": [KIND, *pairs]}
            await self._send(start)
            await self._send({"type": "http.response.body", "body": b"", "more_body": False})
            return
        await self._send({"type": "http.response.body", "body": b"", "more_body": False})
        await self._send({"type": "http.response.trailers", "headers": pairs})
