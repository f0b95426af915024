"""What the tests of aiohttp servers share: applications on real sockets, and who calls them."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Callable, Coroutine
from functools import wraps
from typing import Any, ParamSpec

import aiohttp
from aiohttp import web

from headgate import AsyncGate, ManualClock

P = ParamSpec("P")


def runs(test: Callable[P, Coroutine[Any, Any, None]]) -> Callable[P, None]:
    """A test that is a task."""

    @wraps(test)
    def ran(*args: P.args, **words: P.kwargs) -> None:
        asyncio.run(asyncio.wait_for(test(*args, **words), 20))

    return ran


async def hello(request: web.Request) -> web.Response:
    return web.Response(text="hello")


def app_of(*routes: tuple[str, Any]) -> web.Application:
    """An application that says hello everywhere else."""
    app = web.Application()
    for path, handler in routes:
        app.router.add_route("*", path, handler)
    app.router.add_route("*", "/{rest:.*}", hello)
    return app


@contextlib.asynccontextmanager
async def serving(app: web.Application, **more: Any) -> AsyncIterator[aiohttp.ClientSession]:
    """An application on a port of its own, and a client of it."""
    runner = web.AppRunner(app, access_log=None, **more)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    base = "http://{}:{}".format(*runner.addresses[0][:2])
    try:
        async with aiohttp.ClientSession(base) as client:
            yield client
    finally:
        await runner.cleanup()


async def got(client: aiohttp.ClientSession, path: str = "/", **more: Any) -> int:
    """The status of a call whose body has been read."""
    async with client.request(more.pop("method", "GET"), path, **more) as answer:
        await answer.read()
        return answer.status


async def until(true: Callable[[], object]) -> None:
    """Let other tasks run until something is true."""
    for _ in range(10_000):
        if true():
            return
        await asyncio.sleep(0.005)
    raise AssertionError("it did not happen")


def rules(*given: dict[str, Any]) -> str:
    """A rules file, as text."""
    named = [{"name": f"rule{place}", **rule} for place, rule in enumerate(given)]
    return json.dumps({"version": 1, "rules": named})


def gate_of(*given: dict[str, Any], **more: Any) -> AsyncGate:
    """A gate whose clock stands still."""
    return AsyncGate(rules(*given), clock=ManualClock(1_000_000), **more)
