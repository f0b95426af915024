"""Django's middleware and decorator, under WSGI and under ASGI, over real HTTP."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator
from typing import Any

import pytest
import wsgi_tools
from django.core.exceptions import ImproperlyConfigured, SynchronousOnlyOperation
from django.core.handlers.asgi import ASGIHandler
from django.core.handlers.wsgi import WSGIHandler
from django.http import FileResponse, HttpResponse, StreamingHttpResponse
from django.test import RequestFactory
from django.urls import path, re_path
from django.utils.decorators import method_decorator
from django.views import View
from django_tools import MIDDLEWARE, People, configured, served, serving_async
from wsgi_tools import START, Battery, Client, CountingStore, Stage, rules, serving

from headgate import AsyncGate, Gate, ManualClock
from headgate.errors import RulesError
from headgate.integrations import django_setup
from headgate.integrations.django import LaterEnding, RateLimitMiddleware, limited
from headgate.integrations.wsgi import Ending
from servers import Server, until

WHO = "django_tools.People"
KINDS = ("wsgi", "asgi")


@pytest.fixture(autouse=True)
def _nobody_looked_up() -> None:
    People.looked_up.clear()


async def async_blocks(stage: Stage) -> AsyncIterator[bytes]:
    """The stage's blocks, for tasks."""
    try:
        yield b"one\n"
        while not stage.go.is_set():
            await asyncio.sleep(0.005)
        yield b"two\n"
    finally:
        stage.closed.append("stream")


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


# -- the decorator


def answering(text: str = "hello") -> Any:
    def view(request: Any, **params: Any) -> HttpResponse:
        return HttpResponse(text)

    return view


def awaited(text: str = "hello") -> Any:
    async def view(request: Any, **params: Any) -> HttpResponse:
        await asyncio.sleep(0)
        return HttpResponse(text)

    return view


class Plain(View):  # type: ignore[misc] # Django has no types
    def get(self, request: Any) -> HttpResponse:
        return HttpResponse("hello")


class Awaited(View):  # type: ignore[misc] # Django has no types
    async def get(self, request: Any) -> HttpResponse:
        await asyncio.sleep(0)
        return HttpResponse("hello")


@pytest.mark.parametrize("kind", KINDS)
def test_views_of_every_sort(kind: str) -> None:
    on_class = method_decorator(limited("1/minute"), name="dispatch")

    class One(Plain):
        @method_decorator(limited("1/minute"))  # type: ignore[untyped-decorator] # no types
        def get(self, request: Any) -> HttpResponse:
            return super().get(request)

    class Other(Awaited):
        @method_decorator(limited("1/minute"))  # type: ignore[untyped-decorator] # no types
        async def get(self, request: Any) -> HttpResponse:
            return await super().get(request)

    views = {
        "function": limited("1/minute")(answering()),
        "task": limited("1/minute")(awaited()),
        "class": on_class(type("A", (Plain,), {})).as_view(),
        "another": on_class(type("B", (Plain,), {})).as_view(),
        "tasks": on_class(type("C", (Awaited,), {})).as_view(),
        "method": One.as_view(),
        "awaited": Other.as_view(),
    }
    patterns = [path(name, view) for name, view in views.items()]
    with served(kind, patterns, HEADGATE={"CLOCK": ManualClock(START)}) as client:
        for name in views:
            replies = [client.ask(f"/{name}") for _ in range(2)]
            assert [reply.status for reply in replies] == [200, 429], name
            assert replies[0].headers["ratelimit-policy"] == '"limited";q=1;w=60'
            assert replies[1].headers["content-type"] == "application/problem+json"
        assert client.ask("/tasks", "POST").status == 429
        assert client.ask("/nowhere").status == 404


@pytest.mark.parametrize("kind", KINDS)
def test_keys_of_a_view(kind: str) -> None:
    def tenant(request: Any) -> Any:
        return request.GET.get("tenant")

    async def later(request: Any) -> Any:
        return request.GET.get("tenant")

    def needs_a_database(request: Any) -> Any:
        with contextlib.suppress(RuntimeError):
            asyncio.get_running_loop()
            raise SynchronousOnlyOperation
        return request.GET.get("tenant")

    patterns = [
        path("items/<int:item>/", limited("1/minute", key=["ip", "param:item"])(answering())),
        path("mine", limited("1/minute", key="user")(answering())),
        path("mine-too", limited("1/minute", key="user")(awaited())),
        path("tenant", limited("1/minute", key=tenant)(awaited())),
        path("later", limited("1/minute", key=later)(awaited())),
        path("needs", limited("1/minute", key=needs_a_database)(awaited())),
        re_path("^a$", limited("1/minute", key="route", name="shared")(answering())),
        re_path("^b$", limited("1/minute", key="ip", name="shared")(awaited())),
        path("c", limited("1/minute", key="ip", name="shared")(answering())),
        path("two", limited("9/minute")(limited("1/minute")(answering()))),
    ]
    with served(kind, patterns, WHO, HEADGATE={"CLOCK": ManualClock(START)}) as client:
        asked = [client.ask(f"/items/{item}/").status for item in (1, 1, 2)]
        assert asked == [200, 429, 200]
        for name in ("mine", "mine-too"):
            assert client.statuses(2, f"/{name}", X_User="ann") == [200, 429]
            assert client.statuses(2, f"/{name}", X_User="bob") == [200, 429]
            assert client.statuses(2, f"/{name}") == [200, 200]  # nobody to count
        for name in ("tenant", "later", "needs"):
            assert client.statuses(2, f"/{name}?tenant=x") == [200, 429]
            assert client.ask(f"/{name}?tenant=y").status == 200
            assert client.statuses(2, f"/{name}") == [200, 200]
        assert [client.ask(f"/{name}").status for name in "abc"] == [200, 200, 429]
        assert client.statuses(2, "/two") == [200, 429]
        assert client.ask("/two").headers["ratelimit-policy"] == (
            '"limited";q=1;w=60, "limited";q=9;w=60'
        )


@pytest.mark.parametrize("kind", KINDS)
def test_the_decorator_below_the_middleware(kind: str) -> None:
    store = CountingStore()
    patterns = [
        path("view", limited("2/minute", status=503)(answering())),
        path("task", limited("2/minute", status=503)(awaited())),
    ]
    said = {"LIMITS": "5/minute", "STORE": store}
    with served(kind, patterns, MIDDLEWARE, HEADGATE=said) as client:
        assert client.statuses(3, "/view") == [200, 200, 503]
        assert store.asked == [["take"]] * 6  # one for each of the two
        reply = client.ask("/task")
        assert reply.headers["ratelimit"] == '"limited";r=1;t=60, "default";r=1;t=60'
        assert client.statuses(2, "/task") == [200, 429]


@pytest.mark.parametrize("kind", KINDS)
def test_what_rules_say_for_all_holds_for_decorators_too(kind: str) -> None:
    said = rules({"limit": "9/minute"}, defaults={"headers": "x-ratelimit"})
    patterns = [path("", limited("2/minute")(awaited()))]
    with served(kind, patterns, MIDDLEWARE, HEADGATE={"RULES": said}) as client:
        assert client.ask().headers["x-ratelimit-limit"] == "2"


@pytest.mark.parametrize("kind", KINDS)
def test_permits_of_views(kind: str) -> None:
    stage = Stage()

    def stream(request: Any) -> StreamingHttpResponse:
        return StreamingHttpResponse(async_blocks(stage) if kind == "asgi" else stage.blocks())

    async def later(request: Any) -> StreamingHttpResponse:
        return stream(request)

    def boom(request: Any) -> HttpResponse:
        raise RuntimeError("boom")

    one = {"name": "one"}
    patterns = [
        path("stream", limited("1 concurrent", **one)(stream)),
        path("later", limited("1 concurrent", **one)(later)),
        path("boom", limited("1 concurrent", **one)(boom)),
        path("", limited("1 concurrent", **one)(awaited())),
    ]
    with served(kind, patterns) as client:
        for name in ("/stream", "/later"):
            stage.go.clear()
            with client.begun(name):
                assert client.ask().status == 429
                stage.go.set()
            until(lambda: client.ask().status == 200)
        until(lambda: client.ask("/boom").status == 500)
        until(lambda: client.ask().status == 200)


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
                    until(lambda: direct.keys() == [b"hg1:shapes"], 5)  # at once


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


def test_what_is_wrong_with_a_decorator_is_said_where_it_stands() -> None:
    with pytest.raises(RulesError, match=r"limited\(\)"):
        limited("5/minute", cuont="failures")
    with pytest.raises(TypeError, match="missing"):
        limited(key="user")


def test_a_view_without_urls_counts_by_its_own_name() -> None:
    view = limited("1/minute")(answering())
    with configured([], HEADGATE={"CLOCK": ManualClock(START)}):
        statuses = [view(RequestFactory().get("/")).status_code for _ in range(2)]
    assert statuses == [200, 429]


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


def test_a_task_that_is_cancelled_within_a_view() -> None:
    async def sleep(request: Any) -> HttpResponse:
        await asyncio.sleep(0 if "awake" in request.GET else 60)
        return HttpResponse("awake")

    view = limited("1 concurrent")(sleep)

    async def main() -> int:
        for _ in range(2):
            task = asyncio.create_task(view(RequestFactory().get("/")))
            await asyncio.sleep(0.01)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
        return int((await view(RequestFactory().get("/?awake"))).status_code)

    with configured([], HEADGATE={}):
        assert asyncio.run(main()) == 200


def test_a_permit_that_cannot_be_given_back(caplog: Any) -> None:
    class Broken:
        def release(self, outcome: str) -> bool:
            raise RuntimeError("gone")

    class Later:
        async def release(self, outcome: str) -> bool:
            raise RuntimeError("gone")

    permit: Any = Broken()
    Ending(permit).over()
    permit = Later()
    LaterEnding(permit).over()
    assert caplog.text.count("could not be given back") == 2
