"""A shop on aiohttp: all calls are limited, guesses of a password more so, and so are live feeds.

The client is in the same process. A real program gives the gate no clock, and ends with
`web.run_app(app)`.
"""

import asyncio

import aiohttp
from aiohttp import web

from headgate import AsyncGate, ManualClock
from headgate.integrations.aiohttp_server import rate_limit

RULES = """{
  "version": 1,
  "rules": [
    {"name": "all", "key": ["ip"], "limit": "100/minute"},
    {"name": "guesses", "match": {"path": "/login"}, "key": ["user"], "limit": "2/hour",
     "count": "failures"},
    {"name": "feeds", "match": {"path": "/feed/*"}, "key": ["route"], "limit": "1 concurrent",
     "status": 503}
  ]
}"""


async def login(request: web.Request) -> web.Response:
    if request.query["password"] != "secret":
        raise web.HTTPUnauthorized
    return web.Response(text="welcome")


async def feed(request: web.Request) -> web.WebSocketResponse:
    """What happens to one kind of goods, for as long as somebody listens."""
    socket = web.WebSocketResponse()
    await socket.prepare(request)
    async for message in socket:
        await socket.send_str(f"{request.match_info['goods']}: {message.data}")
    return socket


def made() -> web.Application:
    app = web.Application()
    app.router.add_get("/login", login)
    app.router.add_get("/feed/{goods}", feed)
    gate = AsyncGate(RULES, clock=ManualClock())
    rate_limit(app, gate=gate, user=lambda request: request.query.get("user"))
    return app


async def story(client: aiohttp.ClientSession) -> list[str]:
    told = []
    for user, password in (
        ("ann", "guess"), ("ann", "secret"), ("ann", "guess"), ("ann", "secret"), ("bob", "secret"),
    ):  # fmt: skip
        async with client.get("/login", params={"user": user, "password": password}) as answer:
            told.append(f"{user}, {password}: {answer.status}")
    async with client.ws_connect("/feed/cups") as socket:
        await socket.send_str("3 left")
        told.append(await socket.receive_str())
        async with client.get("/feed/plates") as answer:
            told.append(f"a second feed: {answer.status}")
    return told


async def run() -> list[str]:
    runner = web.AppRunner(made())
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    host, port = runner.addresses[0]
    try:
        async with aiohttp.ClientSession(f"http://{host}:{port}") as client:
            return await story(client)
    finally:
        await runner.cleanup()


def main() -> list[str]:
    told = asyncio.run(run())
    print(*told, sep="\n")
    return told


if __name__ == "__main__":
    main()
