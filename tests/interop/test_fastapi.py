"""The FastAPI adapter, over real HTTP."""

from __future__ import annotations

import inspect
import threading
from collections.abc import AsyncIterator, Iterator
from typing import Annotated, Any

import pytest
from asgi_tools import BROWSER, Served, called, clock, codes, rules_text, ws_scope
from fastapi import APIRouter, Depends, FastAPI, HTTPException, Query, Request, Response, WebSocket
from fastapi.responses import JSONResponse
from pydantic import BaseModel

from headgate import AsyncGate, Facts, LimitExceeded, Refused
from headgate.integrations.fastapi import RateLimit, RateLimitMiddleware, install, limited
from headgate.verdict import AsyncVerdict
from servers import free_port

FIVE = RateLimit("5/minute", clock=clock())  # FastAPI looks for names in a function's module


class Order(BaseModel):
    sku: str
    count: int = 1


@pytest.fixture(scope="module")
def served() -> Iterator[Served]:
    server = Served()
    yield server
    server.close()


class TestDependency:
    def test_five_lines(self, served: Served) -> None:
        app = FastAPI()
        install(app)

        @app.get("/", dependencies=[Depends(RateLimit("2/minute", clock=clock()))])
        async def root() -> dict[str, str]:
            return {"say": "hello"}

        with served.client(app) as client:
            first, _, third = (client.get("/") for _ in range(3))
            page = client.get("/", headers={"accept": BROWSER})
        assert first.json() == {"say": "hello"}
        assert first.headers.get_list("ratelimit-policy") == ['"default";q=2;w=60']
        assert first.headers.get_list("ratelimit") == ['"default";r=1;t=60']
        assert third.status_code == 429
        assert third.headers["content-type"] == "application/problem+json"
        assert third.json()["violated-policies"] == ["default"]
        assert int(third.headers["retry-after"]) >= 1
        assert third.headers["ratelimit"].startswith('"default";r=0')
        assert "<h1>Too many requests</h1>" in page.text

    def test_without_install_fastapi_answers(self, served: Served) -> None:
        app = FastAPI()

        @app.get("/", dependencies=[Depends(RateLimit("1/minute", clock=clock()))])
        def root() -> str:
            return "hello"

        with served.client(app) as client:
            first, second = client.get("/"), client.get("/")
        assert first.headers["ratelimit"] == '"default";r=0;t=60'
        assert second.status_code == 429
        assert second.json()["detail"]["violated-policies"] == ["default"]
        assert int(second.headers["retry-after"]) >= 1
        assert second.headers["ratelimit"].startswith('"default";r=0')

    def test_the_endpoint_may_have_the_verdict(self, served: Served) -> None:
        app = FastAPI()

        @app.get("/")
        async def root(verdict: Annotated[AsyncVerdict, Depends(FIVE)]) -> int:
            assert verdict.decision is not None
            return verdict.decision.remaining

        with served.client(app) as client:
            assert [client.get("/").json() for _ in range(2)] == [4, 3]
            assert "verdict" not in str(client.get("/openapi.json").json()["paths"])

    def test_one_limit_in_many_places_is_one_limit(self, served: Served) -> None:
        limit = Depends(RateLimit("2/hour", name="all", clock=clock()))
        each = Depends(RateLimit("1/hour", key=["route", "ip"], clock=clock()))
        app = FastAPI(dependencies=[limit])
        router = APIRouter(prefix="/v1", dependencies=[each])

        @app.get("/a")
        @app.get("/b")
        @router.get("/c/{name}")
        async def any_of_them() -> str:
            return "hello"

        app.include_router(router)
        with served.client(app) as client:
            assert client.get("/a").headers["ratelimit"] == '"all";r=1;t=3600'
            assert codes(client, "/b", 2) == [200, 429]
        app.dependency_overrides[limit.dependency] = lambda: None
        with served.client(app) as client:
            assert codes(client, "/v1/c/x", 1) + codes(client, "/v1/c/y", 1) == [200, 429]

    def test_route_and_parameters_are_known(self, served: Served) -> None:
        seen: list[Facts] = []
        text = rules_text(
            '{"name": "user", "match": {"path": "/v1/users/{id}"}, "key": ["param:id"],'
            ' "limit": "1/hour"}'
        )
        gate = AsyncGate(text, clock=clock())
        gate.on_verdict.append(lambda facts, verdict: seen.append(facts))
        app, router = FastAPI(), APIRouter(prefix="/v1")

        @router.get("/users/{id}", dependencies=[Depends(RateLimit(gate=gate))])
        async def user(id: int) -> int:  # noqa: A002 # the parameter's name
            return id

        app.include_router(router)
        with served.client(app) as client:
            assert codes(client, "/v1/users/7", 2) == [200, 429]
            assert codes(client, "/v1/users/8", 1) == [200]
        assert (seen[0].route, dict(seen[0].params)) == ("/v1/users/{id}", {"id": "7"})

    def test_it_is_asked_before_the_body_is_judged(self, served: Served) -> None:
        app = FastAPI()

        @app.post("/", dependencies=[Depends(RateLimit("1/hour", clock=clock()))])
        async def post(order: Order) -> Order:
            return order

        with served.client(app) as client:
            assert [client.post("/", json={}).status_code for _ in range(2)] == [422, 429]

    @pytest.mark.parametrize("installed", [True, False])
    def test_errors_carry_the_headers_too(self, served: Served, installed: bool) -> None:
        app = FastAPI()
        if installed:
            install(app)

        @app.get("/", dependencies=[Depends(RateLimit("2/hour", clock=clock()))])
        async def nobody() -> None:
            raise HTTPException(404, headers={"x-own": "1"})

        with served.client(app) as client:
            first = client.get("/")
            assert (first.status_code, first.headers["x-own"]) == (404, "1")
            assert first.headers.get_list("ratelimit") == ['"default";r=1;t=3600']

    def test_own_responses_with_install(self, served: Served) -> None:
        app = FastAPI()
        install(app)
        constant = JSONResponse({"own": True})

        @app.get("/", dependencies=[Depends(RateLimit("9/hour", clock=clock()))])
        async def root() -> JSONResponse:
            return constant

        with served.client(app) as client:
            told = [client.get("/").headers.get_list("ratelimit") for _ in range(2)]
        assert told == [['"default";r=8;t=3600'], ['"default";r=7;t=3600']]

    def test_a_name_is_needed_in_a_store(self) -> None:
        with pytest.raises(TypeError, match="a name of its own"):
            RateLimit("1/hour", store="redis://127.0.0.1:1/0")


class TestDecorator:
    def test_five_lines(self, served: Served) -> None:
        app = FastAPI()

        @app.post("/orders/{shop}")
        @limited("2/minute", clock=clock())
        async def create(
            shop: str, order: Order, page: Annotated[int, Query(ge=0)] = 0
        ) -> dict[str, Any]:
            """Orders something."""
            return {"shop": shop, "sku": order.sku, "page": page}

        with served.client(app) as client:
            bad = client.post("/orders/a", json={})
            first, _, third = (client.post("/orders/a", json={"sku": "x"}) for _ in range(3))
            paths = client.get("/openapi.json").json()["paths"]
        assert bad.status_code == 422  # and it does not count
        assert first.json() == {"shop": "a", "sku": "x", "page": 0}
        assert first.headers.get_list("ratelimit") == ['"create";r=1;t=60']
        assert third.status_code == 429
        assert third.headers["content-type"] == "application/problem+json"
        assert int(third.headers["retry-after"]) >= 1
        told = paths["/orders/{shop}"]["post"]
        assert [one["name"] for one in told["parameters"]] == ["shop", "page"]
        assert told["description"] == "Orders something."

    def test_plain_functions_and_those_that_take_the_request(self, served: Served) -> None:
        app, threads = FastAPI(), []

        @app.get("/plain")
        @limited("1/hour", clock=clock())
        def plain(request: Request, response: Response) -> str:
            threads.append(threading.current_thread())
            response.headers["x-own"] = request.url.path
            return "plain"

        @app.get("/more")
        @limited("1/hour", clock=clock())
        async def more(**kwargs: Any) -> str:
            return ",".join(kwargs)

        with served.client(app) as client:
            first = client.get("/plain")
            assert first.headers["x-own"] == "/plain"
            assert first.headers["ratelimit"] == '"plain";r=0;t=3600'
            assert client.get("/plain").status_code == 429
        assert threads[0] is not served.thread

    def test_each_endpoint_counts_by_itself_and_knows_its_route(self, served: Served) -> None:
        app = FastAPI()

        @app.get("/a/{name}")
        @limited("1/hour", key="param:name", clock=clock())
        async def a(name: str) -> str:
            return name

        @app.get("/b/{name}")
        @limited("1/hour", key="route", clock=clock())
        async def b(name: str) -> str:
            return name

        with served.client(app) as client:
            assert codes(client, "/a/x", 2) + codes(client, "/a/y", 1) == [200, 429, 200]
            assert codes(client, "/b/x", 1) + codes(client, "/b/y", 1) == [200, 429]

    def test_own_responses_carry_the_headers(self, served: Served) -> None:
        app, constant = FastAPI(), JSONResponse({"own": True})

        @app.get("/")
        @limited("9/hour", clock=clock())
        async def root(later: Annotated[None, Depends(lambda: None)]) -> JSONResponse:
            return constant

        with served.client(app) as client:
            told = [client.get("/").headers.get_list("ratelimit") for _ in range(2)]
        assert told == [['"root";r=8;t=3600'], ['"root";r=7;t=3600']]

    def test_what_yields_is_refused(self) -> None:
        async def many() -> AsyncIterator[int]:
            yield 1

        with pytest.raises(TypeError, match="by the dependency"):
            limited("1/hour")(many)

    def test_the_signature_is_the_functions_own_and_one_more(self) -> None:
        @limited("1/hour", clock=clock())
        async def one(a: int, *, b: str = "x", **rest: int) -> None: ...

        assert list(inspect.signature(one).parameters) == ["a", "b", "headgate_around", "rest"]


class TestTheRest:
    def test_the_middleware(self, served: Served) -> None:
        app = FastAPI()
        app.add_middleware(RateLimitMiddleware, "1/hour", clock=clock())

        @app.get("/")
        async def root() -> str:
            return "hello"

        with served.client(app) as client:
            assert codes(client, "/", 2) == [200, 429]
            assert codes(client, "/nowhere", 1) == [429]

    def test_refusals_inside(self, served: Served) -> None:
        app = FastAPI()
        install(app)
        gate = AsyncGate(rules_text('{"name": "db", "limit": "1/hour"}'), clock=clock())

        @app.get("/")
        async def root() -> str:
            async with gate.enter("db"):
                return "read"

        with served.client(app) as client:
            client.get("/")
            refused = client.get("/")
        assert refused.status_code == 429
        assert refused.json()["violated-policies"] == ["db"]

    def test_ones_own_handler(self, served: Served) -> None:
        app = FastAPI()
        seen: list[Refused] = []

        @app.exception_handler(LimitExceeded)
        async def mine(request: Request, error: Refused) -> JSONResponse:
            seen.append(error)
            return JSONResponse({"mine": error.verdict.rule}, status_code=420)

        @app.get("/", dependencies=[Depends(RateLimit("1/hour", clock=clock()))])
        async def root() -> str:
            return "hello"

        with served.client(app) as client:
            client.get("/")
            assert client.get("/").json() == {"mine": "default"}
        assert seen[0].retry_after > 0
        assert str(seen[0]).startswith("refused by rule 'default'")

    def test_who_calls(self, served: Served) -> None:
        app = FastAPI()
        by_user = RateLimit(
            "1/hour", key="user", user=lambda r: r.query_params.get("who"), clock=clock()
        )
        by_ip = RateLimit("1/hour", trusted="loopback", clock=clock())

        @app.get("/user", dependencies=[Depends(by_user)])
        @app.get("/ip", dependencies=[Depends(by_ip)])
        async def any_of_them() -> str:
            return "hello"

        with served.client(app) as client:
            assert codes(client, "/user?who=ann", 2) + codes(client, "/user?who=bob", 1) == [
                200, 429, 200,
            ]  # fmt: skip
            for ip, expected in (("203.0.113.1", 200), ("203.0.113.2", 200), ("203.0.113.1", 429)):
                assert codes(client, "/ip", 1, headers={"x-forwarded-for": ip}) == [expected]

    def test_a_store_that_is_not_there(self, served: Served) -> None:
        for on_error, code in (("allow", 200), ("deny", 429)):
            rule = f'{{"name": "all", "limit": "9/hour", "on_error": "{on_error}"}}'
            gate = AsyncGate(rules_text(rule), f"redis://127.0.0.1:{free_port()}/0")
            app = FastAPI()

            @app.get("/", dependencies=[Depends(RateLimit(gate=gate))])
            async def root() -> str:
                return "hello"

            with served.client(app) as client:
                assert codes(client, "/", 2) == [code, code]
            served.run(gate.close())

    def test_rules_change_while_calls_come(self, served: Served) -> None:
        gate = AsyncGate(rules_text('{"name": "all", "limit": "1/hour"}'), clock=clock())
        app = FastAPI()

        @app.get("/", dependencies=[Depends(RateLimit(gate=gate))])
        async def root() -> str:
            return "hello"

        with served.client(app) as client:
            assert codes(client, "/", 2) == [200, 429]
            gate.reload(rules_text('{"name": "all", "limit": "2/hour"}'))
            assert codes(client, "/", 2) == [200, 429]

    @pytest.mark.parametrize("way", ["dependency", "decorator"])
    @pytest.mark.parametrize("installed", [True, False])
    @pytest.mark.parametrize("denial", [True, False])
    def test_websockets(self, way: str, installed: bool, denial: bool) -> None:
        app = FastAPI()
        if installed:
            install(app)

        async def chat(websocket: WebSocket) -> None:
            await websocket.accept()

        if way == "decorator":
            app.websocket("/")(limited("1/hour", clock=clock())(chat))
        else:
            limit = RateLimit("1/hour", clock=clock())
            app.websocket("/", dependencies=[Depends(limit)])(chat)
        extensions: dict[str, Any] = {"websocket.http.response": {}} if denial else {}

        def call() -> list[dict[str, Any]]:
            more = {"root_path": "", "query_string": b"", "scheme": "ws"}
            scope = ws_scope("/", **more, extensions=extensions)
            return called(app, scope, {"type": "websocket.connect"})

        assert call()[0]["type"] == "websocket.accept"
        refused = call()[0]
        if denial:
            assert refused["status"] == 429
        else:
            assert (refused["type"], refused["code"]) == ("websocket.close", 1008)
