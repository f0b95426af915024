"""The line: one kept HTTP/1.1 connection, whose every exchange ends by its deadline."""

from __future__ import annotations

import contextlib
import io
import json
import select
import socket
import ssl
import weakref
from http.client import HTTPConnection, HTTPException, HTTPResponse
from time import monotonic
from typing import Any, NamedTuple

from ...errors import StoreUnavailable
from .address import Options, Place

__all__ = ["Answer", "Line", "dialed", "problem_of", "secure", "unavailable"]

LARGEST = 16 << 20
"""Bytes of an answer."""


class Answer(NamedTuple):
    """What a service answered."""

    status: int
    body: bytes
    kind: str = ""
    """The media type of the body."""


class _Socket:
    """A socket as http.client uses it: what is sent leaves at once, and time runs out."""

    def __init__(self, real: socket.socket) -> None:
        self.real = real
        self.deadline = 0.0
        self._written: list[bytes] = []

    def sendall(self, data: bytes) -> None:
        """Keep it until all is written: the head and the body are one packet."""
        self._written.append(data)

    def flush(self) -> None:
        data = b"".join(self._written)
        self._written.clear()
        self._within()
        self.real.sendall(data)

    def recv_into(self, buffer: Any) -> int:
        self._within()
        return self.real.recv_into(buffer)

    def makefile(self, mode: str) -> io.BufferedReader:
        return io.BufferedReader(_Stream(self), 65536)

    def close(self) -> None:
        self.real.close()

    def _within(self) -> None:
        left = self.deadline - monotonic()
        if left <= 0:
            raise TimeoutError
        self.real.settimeout(left)


class _Stream(io.RawIOBase):
    """The reading side, as a file."""

    def __init__(self, sock: _Socket) -> None:
        self._sock = sock

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        return self._sock.recv_into(buffer)


class Line:
    """One connection to one service."""

    node = None  # there is one place only, which those who dial call None

    def __init__(self, place: Place, sock: socket.socket, bearer: str) -> None:
        self._sock = _Socket(sock)
        # The line of a thread that has ended, or of a store that nobody closed.
        weakref.finalize(self, sock.close).atexit = False
        self._http = HTTPConnection(place.host, place.port or None)
        self._http.auto_open = 0  # a lost connection is lost, never made again in a call
        self._http.sock = self._sock
        self._root = place.root
        self._head = {"Content-Type": "application/json", "Accept": "application/json"}
        if bearer:
            self._head["Authorization"] = f"Bearer {bearer}"
        self.open = True
        self.sent = False
        """Whether the service has all of the request under way."""

    def exchange(
        self, method: str, path: str, body: bytes | None, deadline: float, **head: str
    ) -> Answer:
        """The answer to one request, or TimeoutError at the deadline however slowly it arrives.

        OSError and HTTPException mean that the line is of no more use.
        """
        self._sock.deadline = deadline
        self.sent = False
        self._http.request(method, self._root + path, body, {**self._head, **head})
        self._sock.flush()
        self.sent = True
        response: HTTPResponse = self._http.getresponse()
        with response:
            found = response.read(LARGEST)
            if not response.isclosed() and response.read(1):
                raise HTTPException("the answer is too long")
            kind = response.getheader("Content-Type", "").partition(";")[0].strip().lower()
            self.open = self._http.sock is not None
            return Answer(response.status, found, kind)

    def fresh(self) -> bool:
        """Whether the connection can be used: nothing to read means that it is still open."""
        try:
            if hasattr(select, "poll"):  # no select: it fails for descriptors above 1023
                poll = select.poll()
                poll.register(self._sock.real, select.POLLIN)
                return not poll.poll(0)
            return not select.select([self._sock.real], [], [], 0)[0]
        except (OSError, ValueError):
            return False

    def close(self) -> None:
        """Close it; a reader in another thread is woken."""
        self.open = False
        with contextlib.suppress(Exception):
            self._sock.real.shutdown(socket.SHUT_RDWR)
        self.abandon()

    def abandon(self) -> None:
        """Let go of it without a word: in a forked child it is the parent's."""
        with contextlib.suppress(Exception):
            self._sock.real.close()


def secure(options: Options) -> ssl.SSLContext:
    """How TLS is spoken."""
    context = ssl.create_default_context(cafile=options.ssl_ca_certs)
    if options.ssl_certfile is not None:
        context.load_cert_chain(options.ssl_certfile, options.ssl_keyfile)
    return context


def dialed(place: Place, options: Options, context: ssl.SSLContext | None) -> Line:
    """A new connection; may block, so it is made in the background. Raises OSError."""
    timeout = options.connect_timeout
    if place.socket:
        sock = socket.socket(socket.AF_UNIX)
        try:
            sock.settimeout(timeout)
            sock.connect(place.socket)
        except BaseException:
            sock.close()
            raise
    else:
        sock = socket.create_connection((place.host, place.port), timeout)
    try:
        if not place.socket:
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        if context is not None:
            sock = context.wrap_socket(sock, server_hostname=place.host)
        return Line(place, sock, options.bearer())
    except BaseException:
        sock.close()
        raise


def problem_of(answer: Answer) -> str:
    """What a service says is wrong, in a line: problem details, or no more than the status."""
    detail = ""
    if answer.kind == "application/problem+json":
        with contextlib.suppress(ValueError, RecursionError):
            told = json.loads(answer.body)
            if isinstance(told, dict):
                detail = str(told.get("detail") or told.get("title") or "")[:300]
    return f"{answer.status}{f': {detail}' if detail else ''}"


def unavailable(place: Place, answer: Answer) -> StoreUnavailable:
    """A service that answers, but not what it was asked."""
    # What a service or a proxy turned away was not carried out. Of the rest nobody knows.
    sent = answer.status not in (401, 403, 404, 405, 407, 408, 421, 429, 503)
    return StoreUnavailable(f"{place} answered {problem_of(answer)}", sent=sent)
