"""requests: an adapter that waits for its turn, or refuses, before a request is sent.

    session = requests.Session()
    session.mount("https://", RateLimitAdapter("10/second"))

Every request counts that goes out, those of redirects too, but not what urllib3 tries again by
itself (`max_retries`). A request that may not be made raises LimitExceeded. What it holds comes
back when its response was read to its end or closed.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterator, Mapping
from typing import Any, Unpack
from urllib.parse import urlsplit

import requests
from requests.adapters import BaseAdapter, HTTPAdapter
from urllib3.exceptions import MaxRetryError, NewConnectionError

from ..facts import Facts
from ..limit import Limit
from ..paths import normal_path
from .outgoing import AskedToWait, Options, Outgoing
from .ticket import Ticket, over
from .told import header_map

__all__ = ["AskedToWait", "RateLimitAdapter"]

WAYS = ("read", "read1", "stream", "close", "release_conn")


class RateLimitAdapter(BaseAdapter):
    """An adapter with limits in front of it; `Outgoing` says what the options are.

    adapter   what sends: an HTTPAdapter unless it is said
    """

    def __init__(
        self, *limits: str | Limit, adapter: BaseAdapter | None = None, **options: Unpack[Options]
    ) -> None:
        super().__init__()
        self.adapter = HTTPAdapter() if adapter is None else adapter
        self.outgoing = Outgoing(False, limits, **options)  # noqa: FBT003 # plain functions

    def send(
        self,
        request: requests.PreparedRequest,
        stream: bool = False,
        timeout: Any = None,
        verify: bool | str = True,
        cert: Any = None,
        proxies: Mapping[str, str] | None = None,
    ) -> requests.Response:
        """Send a request when its turn has come."""
        ticket = self.outgoing.enter(request, self._facts(request))
        try:
            response = self.adapter.send(request, stream, timeout, verify, cert, proxies)
            headers = header_map(response.headers.items())
            ticket.answered(response.status_code, headers, response)
        except BaseException as error:
            ticket.end(**over(error, _unsent(error)))
            raise
        _Body(response.raw, ticket)
        return response

    def close(self) -> None:
        """Close the adapter inside, and what was opened for the limits."""
        try:
            self.adapter.close()
        finally:
            self.outgoing.close()

    def _facts(self, request: requests.PreparedRequest) -> Facts:
        url = urlsplit(request.url or "")
        headers = header_map((name, _text(value)) for name, value in request.headers.items())
        return self.outgoing.facts(
            request, request.method or "", url.scheme, url.hostname or "", url.port,
            normal_path(url.path), headers,
        )  # fmt: skip


class _Body:
    """Watches a body as it passes: its end, or its being closed, is the end of the call.

    The response of urllib3 stays what it is; only the ways to read it, to close it and to let
    its connection go lead through here. It is known weakly, so that a response which somebody
    drops is gone at once, as ever.
    """

    def __init__(self, raw: Any, ticket: Ticket) -> None:
        self._ticket = ticket
        self._inside = 0
        try:
            own = vars(raw)
        except TypeError:  # not of urllib3, and cannot be watched
            own = None
        if own is None or getattr(raw, "closed", False):  # there is no body
            ticket.end()
            return
        self._raw = weakref.ref(raw)
        self._ways = {name: _way(raw, name) for name in WAYS}
        own.update({name: getattr(self, name) for name in WAYS})

    def read(self, *args: Any, **options: Any) -> Any:
        """A piece of the body, or all of it."""
        return self._passing(self._ways["read"], *args, **options)

    def read1(self, *args: Any, **options: Any) -> Any:
        """What is there of it."""
        return self._passing(self._ways["read1"], *args, **options)

    def stream(self, *args: Any, **options: Any) -> Iterator[bytes]:
        """The pieces of the body, decoded as they are asked for."""
        pieces = self._ways["stream"](*args, **options)
        while True:
            piece = self._passing(next, pieces, None)
            if piece is None:
                return
            yield piece

    def close(self) -> None:
        """The rest of the body is not wanted."""
        raw = self._raw()
        ended = raw is None or raw.closed
        try:
            self._ways["close"]()
        finally:
            self._ticket.end(ended=ended)

    def release_conn(self) -> None:
        """The connection is free; while something reads, its last piece is still to come."""
        self._ways["release_conn"]()
        if not self._inside:
            self._ticket.end()

    def _passing(self, read: Any, *args: Any, **options: Any) -> Any:
        self._inside += 1
        try:
            piece = read(*args, **options)
        except Exception:
            self._ticket.end("failure", ended=False)
            raise
        finally:
            self._inside -= 1
        if not self._inside:  # else it is a part of what is being read
            self._ticket.saw(piece or b"")
            raw = self._raw()
            # What was unpacked of the last piece may come in several, and a meter sees all of it.
            all_of_it = not piece or not (args or options) or not self._ticket.metered
            if all_of_it and (raw is None or raw.closed):
                self._ticket.end()
        return piece


def _way(raw: Any, name: str) -> Any:
    """A method of a response that does not keep it alive; one that is watched already has it."""
    own = vars(raw).get(name)
    method, known = getattr(type(raw), name, None), weakref.ref(raw)

    def way(*args: Any, **options: Any) -> Any:
        there = known()
        return None if there is None or method is None else method(there, *args, **options)

    return way if own is None else own


def _unsent(error: BaseException) -> bool:
    """Whether the server has surely seen nothing of the request."""
    if isinstance(error, requests.exceptions.ConnectTimeout):
        return True
    cause = error.args[0] if error.args else None
    return isinstance(cause, MaxRetryError) and isinstance(cause.reason, NewConnectionError)


def _text(value: str | bytes) -> str:
    return value.decode("latin-1") if isinstance(value, bytes) else value
