"""The Starlette adapter, over real HTTP."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest
from asgi_tools import BROWSER, Served, called, clock, http_scope, rules_text, ws_scope
from starlette.applications import Starlette
from starlette.background import BackgroundTask
from starlette.endpoints import HTTPEndpoint
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response, StreamingResponse
from starlette.routing import Mount, Route, WebSocketRoute
from starlette.websockets import WebSocket

from headgate import AsyncGate, AsyncLimiter, Facts, LimitExceeded
from headgate.integrations.starlette import RateLimitMiddleware, limited, refused_response
from servers import free_port, until

ONE = rules_text('{"name": "one", "limit": "1 concurrent"}')
GUESS = rules_text('{"name": "guess", "key": ["ip"], "limit": "1/hour", "count": "failures"}')


@pytest.fixture(scope="module")
def served() -> Iterator[Served]:
    server = Served()
    yield server
    server.close()


async def hello(request: Request) -> Response:
    return PlainTextResponse("hello", headers={"x-own": "1"})


def codes(client: Any, path: str, count: int, **more: Any) -> list[int]:
    return [client.get(path, **more).status_code for _ in range(count)]


class TestDecorator:
    def test_five_lines(self, served: Served) -> None:
        @limited("2/minute", clock=clock())
        async def orders(request: Request) -> Response:
            return await hello(request)

        app = Starlette(routes=[Route("/", orders)])
        with served.client(app) as client:
            first, _, third = (client.get("/") for _ in range(3))
            page = client.get("/", headers={"accept": BROWSER})
        assert (first.text, first.headers["x-own"]) == ("hello", "1")
        assert first.headers["ratelimit-policy"] == '"orders";q=2;w=60'
        assert first.headers["ratelimit"] == '"orders";r=1;t=60'
        assert third.status_code == 429
        assert third.headers["content-type"] == "application/problem+json"
        assert third.headers["ratelimit"].startswith('"orders";r=0')
        assert int(third.headers["retry-after"]) >= 1
        assert "<h1>Too many requests</h1>" in page.text

    def test_each_endpoint_counts_by_itself(self, served: Served) -> None:
        made = [limited("1/hour", clock=clock())(hello) for _ in range(2)]
        app = Starlette(routes=[Route("/a", made[0]), Route("/b", made[1])])
        with served.client(app) as client:
            assert codes(client, "/a", 2) == [200, 429]
            assert codes(client, "/b", 2) == [200, 429]

    def test_plain_functions_and_methods(self, served: Served) -> None:
        threads = []

        @limited("1/hour", clock=clock())
        def plain(request: Request) -> Response:
            threads.append(threading.current_thread())
            return PlainTextResponse("plain")

        class Orders(HTTPEndpoint):
            @limited("1/hour", clock=clock())
            async def get(self, request: Request) -> Response:
                return PlainTextResponse("get")

            @limited("2/hour", clock=clock())
            def post(self, request: Request) -> Response:
                return PlainTextResponse("post")

        app = Starlette(routes=[Route("/plain", plain), Route("/orders", Orders)])
        with served.client(app) as client:
            assert codes(client, "/plain", 2) == [200, 429]
            assert codes(client, "/orders", 2) == [200, 429]
            assert [client.post("/orders").status_code for _ in range(3)] == [200, 200, 429]
        assert threads[0] is not served.thread

    def test_route_and_parameters_are_known(self, served: Served) -> None:
        seen: list[Facts] = []
        rule = (
            '{"name": "user", "match": {"path": "/v1/users/{id}"}, "key": ["param:id"],'
            ' "limit": "1/hour"}'
        )
        gate = AsyncGate(rules_text(rule), clock=clock())
        gate.on_verdict.append(lambda facts, verdict: seen.append(facts))
        by_route = limited("1/hour", key=["route", "user"], user=lambda r: r.headers.get("x-user"),
                           clock=clock())(hello)  # fmt: skip
        app = Starlette(
            routes=[
                Mount("/v1", routes=[Route("/users/{id:int}", limited(gate=gate)(hello))]),
                Route("/by-route/{name}", by_route),
            ]
        )
        with served.client(app) as client:
            assert codes(client, "/v1/users/7", 2) == [200, 429]
            assert codes(client, "/v1/users/8", 1) == [200]
            ann = {"x-user": "ann"}
            assert client.get("/by-route/a", headers=ann).status_code == 200
            assert client.get("/by-route/b", headers=ann).status_code == 429
            assert client.get("/by-route/b").status_code == 200
        assert str(seen[0].params) == "{'id': 7}"
        assert seen[0].path == "/v1/users/7"
        assert seen[0].route.endswith("/users/{id:int}")

    def test_headers_of_a_response_that_is_always_the_same(self, served: Served) -> None:
        constant = PlainTextResponse("same")

        @limited("9/hour", clock=clock())
        @limited("8/hour", clock=clock())
        async def same(request: Request) -> Response:
            return constant

        with served.client(Starlette(routes=[Route("/", same)])) as client:
            for left in (7, 6):
                told = client.get("/").headers.get_list("ratelimit")
                assert [f"r={left}" in told[0], f"r={left + 1}" in told[1]] == [True, True]

    def test_others_may_change_the_response(self, served: Served) -> None:
        def more(endpoint: Any) -> Any:
            async def call(request: Request) -> Response:
                response: Response = await endpoint(request)
                assert isinstance(response, Response)
                response.headers["x-more"] = "1"
                response.status_code = 202
                response.background = BackgroundTask(done.set)
                return response

            return call

        done = threading.Event()
        app = Starlette(routes=[Route("/", more(limited("9/hour", clock=clock())(hello)))])
        with served.client(app) as client:
            told = client.get("/")
        assert (told.status_code, told.headers["x-more"]) == (202, "1")
        assert done.wait(60)

    def test_errors_carry_the_headers_too(self, served: Served) -> None:
        @limited("2/hour", clock=clock())
        async def nobody(request: Request) -> Response:
            raise HTTPException(404, headers={"x-own": "1"})

        with served.client(Starlette(routes=[Route("/", nobody)])) as client:
            first = client.get("/")
            assert (first.status_code, first.headers["x-own"]) == (404, "1")
            assert first.headers["ratelimit"].startswith('"nobody";r=1')
            assert codes(client, "/", 2) == [404, 429]

    def test_a_class_is_refused(self) -> None:
        class Orders(HTTPEndpoint):
            pass

        with pytest.raises(TypeError, match="methods of Orders"):
            limited("1/hour")(Orders)


class TestGivingBack:
    def test_streams_and_clients_that_leave(self, served: Served) -> None:
        go_on = threading.Event()

        async def pieces() -> AsyncIterator[bytes]:
            yield b"piece"
            while not go_on.is_set():
                await asyncio.sleep(0.005)
            yield b"end"

        @limited(rules=ONE)
        async def stream(request: Request) -> Response:
            return StreamingResponse(pieces())

        with served.client(Starlette(routes=[Route("/", stream)])) as client:
            for leave in (False, True):
                go_on.clear()
                with client.stream("GET", "/") as first:
                    read = first.iter_bytes()
                    assert next(read) == b"piece"
                    assert client.get("/").status_code == 429
                    if not leave:
                        go_on.set()
                        assert b"".join(read) == b"end"
                if leave:  # nobody waits for the end, and it need not come
                    until(lambda: _streams(client), what="the place did not come back")
                go_on.set()
                until(lambda: client.get("/").status_code == 200)

    @pytest.mark.parametrize("error", [ZeroDivisionError(), HTTPException(404)])
    def test_errors(self, served: Served, error: Exception) -> None:
        @limited(rules=ONE)
        def broken(request: Request) -> Response:
            raise error

        with served.client(Starlette(routes=[Route("/", broken)])) as client:
            # The server ends a connection after an error that nobody handled.
            found = codes(client, "/", 3, headers={"connection": "close"})
        assert len(set(found)) == 1

    def test_only_failures_count(self, served: Served) -> None:
        async def judged(request: Request) -> Response:
            status = int(request.query_params["status"])
            if "raise" in request.query_params:
                raise HTTPException(status)
            return JSONResponse({}, status_code=status)

        cases = {
            "status=200": [200] * 3,
            "status=401": [401, 429, 429],
            "status=401&raise=1": [401, 429],
            "status=299&raise=1": [299, 299],
        }
        for query, expected in cases.items():
            routes = [Route("/", limited(rules=GUESS, clock=clock())(judged))]
            with served.client(Starlette(routes=routes)) as client:
                assert codes(client, f"/?{query}", len(expected)) == expected

    def test_a_call_that_is_cancelled(self) -> None:
        gate = AsyncGate(ONE)

        @limited(gate=gate)
        async def waits(request: Request) -> Response:
            await asyncio.sleep(3600)
            return Response()

        async def main() -> list[bool]:
            task = asyncio.create_task(waits(Request(http_scope())))
            await asyncio.sleep(0)
            found = [(await gate.check(Facts())).allowed]
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            return [*found, (await gate.check(Facts())).allowed]

        assert asyncio.run(main()) == [False, True]


def _streams(client: Any) -> bool:
    with client.stream("GET", "/") as answer:
        return bool(answer.status_code == 200)


class TestMiddleware:
    def test_it_is_given_requests(self, served: Served) -> None:
        middleware = Middleware(
            RateLimitMiddleware, "1/hour", key="user", user=lambda r: r.cookies.get("who"),
            clock=clock(),
        )  # fmt: skip
        app = Starlette(routes=[Route("/", hello)], middleware=[middleware])
        with served.client(app) as client:
            for who in ("ann", "bob"):
                assert codes(client, "/", 2, headers={"cookie": f"who={who}"}) == [200, 429]

    def test_forwarded_for_and_a_trusted_proxy(self, served: Served) -> None:
        for trusted, expected in ((None, [200, 429]), ("loopback", [200, 200])):
            app = Starlette(routes=[Route("/", hello)])
            app.add_middleware(RateLimitMiddleware, "1/hour", trusted=trusted, clock=clock())
            with served.client(app) as client:
                found = [
                    client.get("/", headers={"x-forwarded-for": f"203.0.113.{n}"}).status_code
                    for n in range(2)
                ]
            assert found == expected

    def test_both_together_tell_of_both(self, served: Served) -> None:
        app = Starlette(routes=[Route("/", limited("2/hour", clock=clock())(hello))])
        app.add_middleware(RateLimitMiddleware, "3/hour", clock=clock())
        with served.client(app) as client:
            first = client.get("/")
            assert first.headers.get_list("ratelimit") == [
                '"hello";r=1;t=3600', '"default";r=2;t=3600',
            ]  # fmt: skip
            assert codes(client, "/", 2) == [200, 429]


class TestHandler:
    def app(self, endpoint: Any, *middleware: Middleware) -> Starlette:
        handlers = {LimitExceeded: refused_response}
        return Starlette(
            routes=[Route("/", endpoint), WebSocketRoute("/ws", endpoint)],
            exception_handlers=handlers,  # type: ignore[arg-type] # for both kinds of routes
            middleware=middleware,
        )

    def test_a_limiter_inside(self, served: Served) -> None:
        limiter = AsyncLimiter("1/minute", name="mail", clock=clock())

        async def endpoint(request: Request) -> Response:
            decision = await limiter.hit("ann")
            if not decision:
                raise LimitExceeded(decision, "ann")
            return PlainTextResponse("sent")

        with served.client(self.app(endpoint)) as client:
            assert client.get("/").status_code == 200
            refused = client.get("/")
        assert refused.status_code == 429
        assert refused.headers["content-type"] == "application/problem+json"
        assert int(refused.headers["retry-after"]) >= 1
        assert "1/minute" in refused.headers["ratelimit-policy"]

    @pytest.mark.parametrize(
        ("more", "status"),
        [("", 429), ('"status": 503', 503), ('"otherwise": {"data": {"old": 1}}', 200),
         ('"otherwise": {"function": "shop:stale"}', 429)],
    )  # fmt: skip
    def test_a_gate_inside(self, served: Served, more: str, status: int) -> None:
        what = '"name": "db", "match": {"resource": "db"}, "limit": "1/hour"'
        rule = ", ".join(filter(None, (what, more)))
        gate = AsyncGate(rules_text(f"{{{rule}}}"), clock=clock())

        async def endpoint(request: Request) -> Response:
            async with gate.enter("db"):
                return PlainTextResponse("read")

        with served.client(self.app(endpoint)) as client:
            assert client.get("/").status_code == 200
            refused = client.get("/")
        assert refused.status_code == status
        assert refused.headers["ratelimit"].startswith('"db";r=0')

    def test_a_websocket_is_denied(self) -> None:
        gate = AsyncGate(rules_text('{"name": "db", "limit": "1/hour"}'), clock=clock())

        async def endpoint(websocket: WebSocket) -> None:
            async with gate.enter("db"):
                await websocket.accept()

        app = self.app(endpoint)
        connect = {"type": "websocket.connect"}
        scope = {"root_path": "", "query_string": b"", "scheme": "ws"}
        called(app, ws_scope("/ws", **scope), connect)
        sent = called(app, ws_scope("/ws", **scope), connect)
        assert (sent[0]["type"], sent[0]["code"]) == ("websocket.close", 1008)


class TestWebsockets:
    @pytest.mark.parametrize("denial", [True, False])
    def test_refused_before_it_is_accepted_and_given_back(self, denial: bool) -> None:
        gate = AsyncGate(ONE)
        inside: list[Any] = []

        @limited(gate=gate)
        async def chat(websocket: WebSocket) -> None:
            await websocket.accept()
            if not inside:
                inside.append(None)
                sent: list[Any] = []

                async def send(message: Any) -> None:
                    sent.append(message)

                async def receive() -> Any:
                    return {"type": "websocket.connect"}

                await app(scope(), receive, send)
                inside[0] = sent

        def scope() -> dict[str, Any]:
            more = {"root_path": "", "query_string": b"", "scheme": "ws"}
            extensions: dict[str, Any] = {"websocket.http.response": {}} if denial else {}
            return ws_scope("/", **more, extensions=extensions)

        app = Starlette(routes=[WebSocketRoute("/", chat)])
        first = called(app, scope(), {"type": "websocket.connect"})
        assert first[0]["type"] == "websocket.accept"
        if denial:
            assert inside[0][0]["status"] == 429
            assert b"quota-exceeded" in inside[0][1]["body"]
        else:
            assert inside[0][0]["code"] == 1008
        assert asyncio.run(gate.check(Facts())).allowed


def test_a_store_that_is_not_there(served: Served) -> None:
    for on_error, code in (("allow", 200), ("deny", 429)):
        rule = f'{{"name": "all", "key": ["ip"], "limit": "9/hour", "on_error": "{on_error}"}}'
        gate = AsyncGate(rules_text(rule), f"redis://127.0.0.1:{free_port()}/0")
        with served.client(Starlette(routes=[Route("/", limited(gate=gate)(hello))])) as client:
            assert codes(client, "/", 2) == [code, code]
        served.run(gate.close())
