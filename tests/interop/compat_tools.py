"""What the tests of moved-in programs share: a stopped time for the originals, and servers."""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections.abc import Iterator, Sequence
from typing import Any

import httpx
import pytest
import uvicorn
from werkzeug.serving import WSGIRequestHandler, make_server

from headgate import ManualClock

__all__ = ["Stopped", "asked", "serving_asgi", "serving_wsgi", "stop_time"]

START = 1_700_000_000.25


class Stopped:
    """Stands for the module `time` in a library that has no clock of its own."""

    def __init__(self, clock: ManualClock) -> None:
        self._clock = clock

    def time(self) -> float:
        return self._clock.now()

    def __getattr__(self, name: str) -> Any:
        return getattr(time, name)


def stop_time(patch: pytest.MonkeyPatch, clock: ManualClock, *modules: str) -> None:
    """Let a clock tell these modules the time."""
    for module in modules:
        patch.setattr(f"{module}.time", Stopped(clock))


# -- servers are kept and used again: there are many applications here, each for a few calls


class Kept:
    """A server that runs until the end, with one application after the other."""

    def __init__(self) -> None:
        self.app: Any = None
        self.url = f"http://127.0.0.1:{self.start()}"

    def start(self) -> int:
        """Start it; the port it listens on."""
        raise NotImplementedError


class KeptASGI(Kept):
    """uvicorn."""

    def start(self) -> int:
        config = uvicorn.Config(self, port=0, log_level="critical", lifespan="off")
        server = uvicorn.Server(config)
        threading.Thread(target=server.run, daemon=True).start()
        end = time.monotonic() + 10
        while not server.started:
            assert time.monotonic() < end, "the server did not start"
            time.sleep(0.002)
        port: int = server.servers[0].sockets[0].getsockname()[1]
        return port

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        await self.app(scope, receive, send)


class _Quiet(WSGIRequestHandler):
    def log(self, *_: Any, **__: Any) -> None:
        """Say nothing."""


class KeptWSGI(Kept):
    """werkzeug."""

    def start(self) -> int:
        server = make_server("127.0.0.1", 0, self, threaded=True, request_handler=_Quiet)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        return server.port

    def __call__(self, *words: Any) -> Any:
        return self.app(*words)


_idle: dict[type[Kept], list[Kept]] = {KeptASGI: [], KeptWSGI: []}


@contextlib.contextmanager
def _serving(kind: type[Kept], app: Any) -> Iterator[str]:
    server = _idle[kind].pop() if _idle[kind] else kind()
    server.app = app
    try:
        yield server.url
    finally:
        _idle[kind].append(server)


def serving_asgi(app: Any) -> contextlib.AbstractContextManager[str]:
    """An ASGI application on a port of its own."""
    return _serving(KeptASGI, app)


def serving_wsgi(app: Any) -> contextlib.AbstractContextManager[str]:
    """A WSGI application on a port of its own."""
    return _serving(KeptWSGI, app)


def asked(
    url: str, calls: Sequence[Any], clock: ManualClock, headers: Sequence[str] = ()
) -> list[Any]:
    """What a server answers to calls: `("GET", "/a")`, with headers or not, or seconds to wait."""
    answers = []
    alone = httpx.Limits(max_keepalive_connections=0)  # a server may hang up after an error
    with httpx.Client(base_url=url, timeout=60, limits=alone) as client:
        for call in calls:
            if isinstance(call, int | float):
                clock.advance(call)
                continue
            method, path, *more = call
            response = client.request(method, path, headers=more[0] if more else None)
            answer = [response.status_code, *(response.headers.get(name) for name in headers)]
            answers.append(answer if headers else response.status_code)
    return answers


logging.getLogger("werkzeug").setLevel(logging.ERROR)
