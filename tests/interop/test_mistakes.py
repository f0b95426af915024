"""Whose fault a response is: mistakes of callers count for limits, and open no breaker."""

from __future__ import annotations

import asyncio
import json
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import aiohttp
import grpc
import httpx
import pytest
from aiohttp import web
from asgi_tools import Served
from wsgi_tools import serving

from headgate import AsyncGate, Gate, ManualClock
from headgate.integrations import asgi, wsgi
from headgate.integrations.aiohttp_server import rate_limit
from headgate.integrations.grpc_client import RateLimitInterceptor as ClientInterceptor
from headgate.integrations.grpc_server import RateLimitInterceptor
from headgate.integrations.grpc_words import outcome_of
from headgate.integrations.httpx import RateLimitTransport
from servers import until

RULES = json.dumps({
    "version": 1,
    "rules": [{"name": "guess", "limit": "6/day", "count": "failures"}],
    "policies": [
        {"name": "app", "breaker": {"errors": 2, "window": "10 calls"}, "adaptive": "vegas"}
    ],
})  # fmt: skip
CODES = {200: grpc.StatusCode.OK, 404: grpc.StatusCode.NOT_FOUND, 500: grpc.StatusCode.INTERNAL}


def gate() -> Gate:
    return Gate(RULES, clock=ManualClock(1e6))


def async_gate() -> AsyncGate:
    return AsyncGate(RULES, clock=ManualClock(1e6))


def counted(gate: Any) -> tuple[int, int, int]:
    """What the breaker has heard: successes, failures, and what says nothing."""
    metrics = gate.breaker("app").metrics()
    return metrics.succeeded, metrics.failed, metrics.ignored


def settled(gate: Any, calls: int) -> None:
    """Wait for the ends of so many calls: an answer may be there before its call has ended."""
    until(lambda: sum(counted(gate)) == calls and gate.policies()["app"]["in_flight"] == 0)


def asked(get: Any, gate: Any) -> None:
    """Ask for what is there, for what is not, and for what fails."""
    statuses = [200] * 3 + [404] * 3
    assert [get(status) for status in statuses] == statuses
    settled(gate, 6)
    assert counted(gate) == (6, 0, 0)  # nobody opens it by asking for what is not there
    seen = gate._book.guards.kept[0].of("").adaptive.snapshot()
    assert (seen["success"], seen["ignored"]) == (3, 3)  # nor teaches it what is quick
    assert get(500) == 500
    settled(gate, 7)
    assert gate.breaker("app").state == "closed"
    assert get(500) == 500
    settled(gate, 8)
    assert gate.breaker("app").state == "open"
    assert get(200) == 503
    gate.breaker("app").disable()
    assert [get(404), get(404), get(404)] == [404, 429, 429]  # for limits, all six are failures


def told(get: Any, gate: Any) -> None:
    """The same where `failed=` says that only what is not there is a failure."""
    assert [get(500) for _ in range(5)] == [500] * 5
    settled(gate, 5)
    assert counted(gate) == (5, 0, 0)
    assert [get(404), get(404)] == [404, 404]
    settled(gate, 7)
    assert gate.breaker("app").state == "open"
    gate.breaker("app").disable()
    assert [get(404) for _ in range(5)] == [404] * 4 + [429]


@pytest.mark.parametrize("say", [None, lambda start: start["status"] == 404])
def test_asgi(say: Any) -> None:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        status = int(scope["path"][1:])
        await send({"type": "http.response.start", "status": status, "headers": []})
        await send({"type": "http.response.body", "body": b""})

    mine, served = async_gate(), Served()
    try:
        with served.client(asgi.RateLimitMiddleware(app, gate=mine, failed=say)) as client:
            check = asked if say is None else told
            check(lambda status: client.get(f"/{status}").status_code, mine)
    finally:
        served.close()


@pytest.mark.parametrize("say", [None, lambda status: status == 404])
def test_wsgi(say: Any) -> None:
    def app(environ: Any, start: Any) -> list[bytes]:
        start(f"{environ['PATH_INFO'][1:]} Word", [])
        return [b""]

    mine = gate()
    with serving(wsgi.RateLimitMiddleware(app, gate=mine, failed=say)) as client:
        check = asked if say is None else told
        check(lambda status: client.ask(f"/{status}").status, mine)


@pytest.mark.parametrize("say", [None, lambda response: response.status == 404])
def test_aiohttp(say: Any) -> None:
    async def answer(request: web.Request) -> web.Response:
        status = int(request.match_info["status"])
        if status == 404:  # the other way to say it
            raise web.HTTPNotFound
        return web.Response(status=status)

    async def main() -> None:
        mine, app = async_gate(), web.Application()
        app.router.add_get("/{status}", answer)
        rate_limit(app, gate=mine, failed=say)
        runner = web.AppRunner(app, access_log=None)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        base = "http://{}:{}".format(*runner.addresses[0][:2])
        loop = asyncio.get_running_loop()
        try:
            async with aiohttp.ClientSession(base) as client:

                async def got(status: int) -> int:
                    async with client.get(f"/{status}") as response:
                        return response.status

                def get(status: int) -> int:
                    return asyncio.run_coroutine_threadsafe(got(status), loop).result(60)

                await asyncio.to_thread(asked if say is None else told, get, mine)
        finally:
            await runner.cleanup()

    asyncio.run(main())


@pytest.mark.parametrize("say", [None, lambda code: code is CODES[404]])
def test_grpc(say: Any) -> None:
    def answer(request: bytes, context: Any) -> bytes:
        code = CODES[int(request)]
        if code is not grpc.StatusCode.OK:
            context.abort(code, "as asked")
        return request

    mine = gate()
    server = grpc.server(
        ThreadPoolExecutor(1), interceptors=[RateLimitInterceptor(gate=mine, failed=say)]
    )
    handlers = {"Get": grpc.unary_unary_rpc_method_handler(answer)}
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("shop.Shop", handlers),))
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    numbers = {code: status for status, code in CODES.items()}
    numbers |= {grpc.StatusCode.RESOURCE_EXHAUSTED: 429, grpc.StatusCode.UNAVAILABLE: 503}
    outer = Gate(RULES.replace("6/day", "90/day"), clock=ManualClock(1e6))
    try:
        with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
            behind = grpc.intercept_channel(channel, ClientInterceptor(gate=outer, learn=False))
            ask, plain = (each.unary_unary("/shop.Shop/Get") for each in (behind, channel))

            def get(status: int, made: Any = plain) -> int:
                try:
                    made(str(status).encode(), timeout=30)
                except grpc.RpcError as error:
                    return numbers[error.code()]
                return 200

            (asked if say is None else told)(get, mine)
            mine.breaker("app").disable()
            assert [get(404, ask) for _ in range(5)] == [429] * 5
            settled(outer, 5)
            assert counted(outer) == (5, 0, 0)  # a server that answers so is not sick
    finally:
        server.stop(None).wait(30)


def test_codes_of_grpc() -> None:
    ours = {"UNKNOWN", "DEADLINE_EXCEEDED", "UNIMPLEMENTED", "INTERNAL", "UNAVAILABLE", "DATA_LOSS"}
    for code in grpc.StatusCode:
        expected = "success" if code.name == "OK" else "mistake"
        assert outcome_of(code) == ("failure" if code.name in ours else expected)


def test_calls_to_others() -> None:
    statuses = iter([404, 429, 401, 503])
    inner = httpx.MockTransport(lambda _: httpx.Response(next(statuses)))
    mine = gate()
    with httpx.Client(transport=RateLimitTransport(inner, gate=mine, learn=False)) as client:
        for _ in range(4):
            client.get("http://shop.example/")
    assert counted(mine) == (3, 1, 0)


def test_outcomes_by_hand() -> None:
    from headgate import Facts

    mine = gate()
    for outcome in ("success", "mistake", "failure", "ignored"):
        assert mine.check(Facts(resource="x")).permit.release(outcome)
    assert counted(mine) == (2, 1, 1)
    left = mine.check(Facts(resource="x")).decision
    assert left is not None
    assert left.remaining == 2  # of six; three were not given back, and this one is under way
    with pytest.raises(ValueError, match="one of success, failure, mistake, ignored, not 'fault'"):
        mine.check(Facts(resource="x")).permit.release("fault")
