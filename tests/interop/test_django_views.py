"""Django: limits of single views, by the decorator."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any

import pytest
from django.core.exceptions import SynchronousOnlyOperation
from django.http import HttpResponse, StreamingHttpResponse
from django.test import RequestFactory
from django.urls import path, re_path
from django.utils.decorators import method_decorator
from django.views import View
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
)
from wsgi_tools import START, CountingStore, Stage, rules

from headgate import ManualClock
from headgate.errors import RulesError
from headgate.integrations.django import LaterEnding, limited
from headgate.integrations.wsgi import Ending
from servers import until


@pytest.fixture(autouse=True)
def _nobody_looked_up() -> None:
    People.looked_up.clear()


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
