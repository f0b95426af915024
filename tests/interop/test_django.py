"""Django's middleware, under WSGI and under ASGI, over real HTTP."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from typing import Any

import pytest
import wsgi_tools
from django.core.exceptions import ImproperlyConfigured
from django.core.handlers.asgi import ASGIHandler
from django.core.handlers.wsgi import WSGIHandler
from django.http import FileResponse, HttpResponse, StreamingHttpResponse
from django.test import RequestFactory
from django.urls import path
from django_tools import (
    KINDS,
    MIDDLEWARE,
    WHO,
    People,
    answering,
    async_blocks,
    awaited,
    configured,
    served,
    serving_async,
)
from wsgi_tools import START, Battery, Client, Stage, rules, serving

from headgate import AsyncGate, Gate, ManualClock
from headgate.integrations import django_setup
from headgate.integrations.django import RateLimitMiddleware, limited
from servers import Server, until


@pytest.fixture(autouse=True)
def _nobody_looked_up() -> None:
    People.looked_up.clear()


async def async_endless(stage: Stage) -> AsyncIterator[bytes]:
    """The stage's endless body, for tasks."""
    try:
        while True:
            await asyncio.sleep(0)
            yield b"." * 65536
    finally:
        stage.closed.append("endless")


def project(stage: Stage, kind: str) -> list[Any]:
    """The paths of the battery."""

    def home(request: Any) -> HttpResponse:
        stage.calls.append(request.path)
        return HttpResponse("hello")

    async def awaited(request: Any) -> HttpResponse:
        return home(request)

    def boom(request: Any) -> HttpResponse:
        raise RuntimeError("boom")

    def login(request: Any) -> HttpResponse:
        right = request.headers.get("X-Password") == "right"
        return HttpResponse("hello" if right else "no", status=200 if right else 401)

    def stream(request: Any) -> StreamingHttpResponse:
        return StreamingHttpResponse(async_blocks(stage) if kind == "asgi" else stage.blocks())

    def endless(request: Any) -> StreamingHttpResponse:
        return StreamingHttpResponse(async_endless(stage) if kind == "asgi" else stage.endless())

    def file(request: Any) -> FileResponse:
        if kind == "asgi":  # which would warn of a file that is read at once
            with open(wsgi_tools.__file__, "rb") as whole:
                return HttpResponse(whole.read())
        return FileResponse(open(wsgi_tools.__file__, "rb"))

    return [
        path("", awaited if kind == "asgi" else home), path("other", home), path("boom", boom),
        path("login", login), path("stream", stream), path("endless", endless), path("file", file),
    ]  # fmt: skip


class TestUnderWSGI(Battery):
    kind = "wsgi"

    def serve(self, *limits: str, **words: Any) -> Client:
        said = {"LIMITS": limits, **{word.upper(): value for word, value in words.items()}}
        patterns = project(self.stage, self.kind)
        client = self.stack.enter_context(served(self.kind, patterns, MIDDLEWARE, HEADGATE=said))
        kind = AsyncGate if self.kind == "asgi" else Gate
        client.gate = django_setup.configured().way(kind).gate
        return client

    @staticmethod
    def user(request: Any) -> Any:
        return request.headers.get("X-User")


class TestUnderASGI(TestUnderWSGI):
    kind = "asgi"


def test_a_client_that_leaves_a_task_before_it_answers() -> None:
    stage = Stage()

    async def slow(request: Any) -> HttpResponse:
        stage.calls.append("begun")
        await asyncio.sleep(60)
        return HttpResponse("never")

    patterns = [path("slow", slow), path("", awaited())]
    with served("asgi", patterns, MIDDLEWARE, HEADGATE={"LIMITS": "1 concurrent"}) as client:
        with socket.create_connection(("127.0.0.1", client.port)) as sock:
            sock.sendall(b"GET /slow HTTP/1.1\r\nHost: h\r\n\r\n")
            until(lambda: stage.calls)
            assert client.ask().status == 429
        until(lambda: client.ask().status == 200)


def replacing(get_response: Any) -> Any:
    """A middleware that sends another response in place of the view's."""

    def middleware(request: Any) -> HttpResponse:
        get_response(request)
        return HttpResponse("another")

    return middleware


@pytest.mark.parametrize("kind", KINDS)
def test_a_permit_on_a_server_comes_back_whoever_made_the_response(kind: str) -> None:
    patterns = [path("", awaited()), path("view", limited("1 concurrent")(answering()))]
    with Server() as redis:
        said = {"LIMITS": "1 concurrent", "STORE": f"{redis.url}?budget=10s"}
        middleware = (f"{__name__}.replacing", MIDDLEWARE)
        with served(kind, patterns, *middleware, HEADGATE=said) as client:
            for where in ("/", "/view", "/"):
                assert client.ask(where).body == b"another"
                with redis.client() as direct:  # sooner than a lease would run out
                    until(lambda: direct.keys() == [b"hg1:shapes"], 60)  # at once


# -- who calls


@pytest.mark.parametrize("kind", KINDS)
def test_who_calls_is_looked_up_only_if_a_rule_asks(kind: str) -> None:
    said = rules(
        {"limit": "9/minute"},
        {"match": {"path": "/mine"}, "key": ["user"], "limit": "1/minute"},
        {
            "match": {"path": "/never"},
            "limit": "1/minute",
            "cost": 2,
            "otherwise": {"function": "a:b"},
        },
    )  # fmt: skip
    patterns = [path("", awaited()), path("mine", awaited())]
    clock = ManualClock(START)
    told: list[str] = []
    headgate = {"RULES": said, "CLOCK": clock, "FUNCTIONS": {"a:b": lambda facts: facts.user}}
    with served(kind, patterns, WHO, MIDDLEWARE, HEADGATE=headgate) as client:
        assert client.ask("/", X_User="ann").status == 200
        assert People.looked_up == []
        assert client.statuses(2, "/mine", X_User="ann") == [200, 429]
        assert People.looked_up == ["async" if kind == "asgi" else "sync"] * 2
        assert client.ask("/never", X_User="ann").json() == "ann"
        gate = django_setup.configured().way(AsyncGate if kind == "asgi" else Gate).gate
        gate.on_verdict.append(lambda facts, verdict: told.append(facts.user))
        client.ask("/", X_User="bob")
        client.ask("/")
        assert told == ["bob", ""]


@pytest.mark.parametrize("kind", KINDS)
def test_functions_that_say_who_calls(kind: str) -> None:
    async def plan(request: Any) -> dict[str, str]:
        return {"plan": request.headers.get("X-Plan", "free")}

    said = rules({"limit": "1/minute", "key": ["user"], "plans": {"by": "plan", "pro": "3/minute"}})
    headgate = {
        "RULES": said, "CLOCK": ManualClock(START), "USER": f"{__name__}.named", "ATTRIBUTES": plan,
        "PRIORITY": lambda request: 5,
    }  # fmt: skip
    with served(kind, [path("", awaited())], MIDDLEWARE, HEADGATE=headgate) as client:
        assert client.statuses(2, X_User="ann") == [200, 429]
        assert client.statuses(4, X_User="bob", X_Plan="pro") == [200] * 3 + [429]


def named(request: Any) -> Any:
    return request.headers.get("X-User")


def test_the_user_is_not_known_above_the_middleware_that_finds_it() -> None:
    said = {"LIMITS": "1/minute", "KEY": "user"}
    middleware = [MIDDLEWARE, django_setup.AUTH]
    with configured([path("", answering())], HEADGATE=said):
        limit = RateLimitMiddleware(answering())
        request = RequestFactory().get("/")
        assert limit(request).status_code == 200  # a project without users
        with (
            configured([], *middleware, HEADGATE=said),
            pytest.raises(ImproperlyConfigured, match="below django"),
        ):
            limit(request)


# -- settings


@pytest.mark.parametrize(
    ("said", "problem"),
    [
        ({}, "no LIMITS, RULES or GATE"),
        ({"LIMITS": "5/minute", "SHOE_SIZE": 1}, "HEADGATE has no SHOE_SIZE"),
    ],
)
def test_settings_that_are_wrong(said: dict[str, Any], problem: str) -> None:
    with configured([], HEADGATE=said), pytest.raises(ImproperlyConfigured, match=problem):
        RateLimitMiddleware(answering())


def test_a_gate_that_is_there_already() -> None:
    gate = Gate(rules({"limit": "1/minute"}), clock=ManualClock(START))
    with configured([path("", limited("1/hour")(awaited()))], MIDDLEWARE, HEADGATE={"GATE": gate}):
        with serving(WSGIHandler()) as client:
            assert client.ask().headers["ratelimit-policy"] == (
                '"limited";q=1;w=3600, "rule-0";q=1;w=60'
            )
            assert client.ask().json()["violated-policies"] == ["rule-0"]
        with pytest.raises(TypeError, match="needs an AsyncGate"):
            ASGIHandler()


def test_a_process_with_both_kinds_counts_once() -> None:
    said = {"LIMITS": ["2/minute"], "CLOCK": ManualClock(START)}
    with (
        configured([path("", awaited())], MIDDLEWARE, HEADGATE=said),
        serving(WSGIHandler()) as one,
        serving_async(ASGIHandler()) as other,
    ):
        assert [one.ask().status, other.ask().status] == [200, 200]
        assert [one.ask().status, other.ask().status] == [429, 429]


def test_a_response_that_a_task_closes_by_hand() -> None:
    view = limited("1 concurrent")(awaited())

    async def main() -> list[int]:
        found = []
        for _ in range(2):
            request = RequestFactory().get("/")
            response = await view(request)
            found.append(response.status_code)
            request.close()
            await asyncio.sleep(0.01)
        return found

    with configured([], HEADGATE={}):
        assert asyncio.run(main()) == [200, 200]
