"""Django: views that no limit holds for."""

from __future__ import annotations

from typing import Any

import pytest
from django.http import HttpResponse
from django.test import RequestFactory
from django.urls import path
from django.utils.decorators import method_decorator
from django.views import View
from django_tools import KINDS, MIDDLEWARE, served
from rest_framework.views import APIView

from headgate.integrations import django_exempt
from headgate.integrations.django import exempt, limited
from headgate.integrations.rest_framework import throttle

ONE = {"LIMITS": ["1/hour"]}


@pytest.fixture(autouse=True)
def _none_so_far(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(django_exempt, "_any", False)


def hello(request: Any, **_: Any) -> HttpResponse:
    return HttpResponse("hello")


async def awaited(request: Any) -> HttpResponse:
    return HttpResponse("hello")


class Plain(View):  # type: ignore[misc] # Django has no types
    def get(self, request: Any) -> HttpResponse:
        return HttpResponse("hello")

    def post(self, request: Any) -> HttpResponse:
        return HttpResponse("posted")


def views() -> dict[str, Any]:
    """Exempt views of every sort."""

    @exempt
    def plain(request: Any) -> HttpResponse:
        return HttpResponse("hello")

    @exempt
    async def task(request: Any) -> HttpResponse:
        return HttpResponse("hello")

    @exempt
    class Whole(Plain):
        pass

    @method_decorator(exempt, name="dispatch")
    class Dispatch(Plain):
        pass

    return {
        "plain": plain,
        "task": task,
        "whole": Whole.as_view(),
        "dispatch": Dispatch.as_view(),
        "made": exempt(Plain.as_view()),
        "limited": exempt(limited("1/hour")(hello)),
        "below": limited("1/hour")(exempt(lambda request: HttpResponse("hello"))),
        "awaited": exempt(limited("1/hour")(awaited)),
    }


@pytest.mark.parametrize("kind", KINDS)
def test_views_of_every_sort(kind: str) -> None:
    found = views()
    patterns = [path(name, view) for name, view in found.items()]
    patterns.append(path("other/<int:number>", hello))
    with served(kind, patterns, MIDDLEWARE, HEADGATE=ONE) as client:
        for name in found:
            assert client.statuses(3, f"/{name}") == [200] * 3, name
            assert "ratelimit" not in client.ask(f"/{name}").headers
        assert client.statuses(2, "/other/7") == [200, 429]
        assert client.statuses(1, "/nowhere") == [429]


def test_a_method_of_a_class() -> None:
    class Reading(Plain):
        @exempt
        def get(self, request: Any) -> HttpResponse:
            return super().get(request)

    with served("wsgi", [path("", Reading.as_view())], MIDDLEWARE, HEADGATE=ONE) as client:
        assert client.statuses(2) == [200, 200]
        assert client.statuses(2, method="HEAD") == [200, 200]
        assert client.statuses(2, method="POST") == [200, 429]


def test_marks_are_known_at_the_first_request() -> None:
    """The URLs, and so the views, may be imported by just that."""

    class Later:
        handler500 = None

        @property
        def urlpatterns(self) -> list[Any]:
            return [path("", exempt(hello_again))]

    def hello_again(request: Any) -> HttpResponse:
        return HttpResponse("hello")

    with served("wsgi", [], MIDDLEWARE, HEADGATE=ONE, ROOT_URLCONF=Later()) as client:
        assert client.statuses(3) == [200, 200, 200]


def test_nothing_is_looked_up_where_none_is_exempt(monkeypatch: pytest.MonkeyPatch) -> None:
    def never(*_: Any) -> None:
        raise AssertionError("nobody asked for it")

    monkeypatch.setattr(django_exempt, "resolve", never)
    with served("wsgi", [path("", hello)], MIDDLEWARE, HEADGATE=ONE) as client:
        assert client.statuses(2) == [200, 429]


def test_urls_that_are_wrong_are_djangos_affair() -> None:
    with served("wsgi", [], MIDDLEWARE, HEADGATE=ONE, ROOT_URLCONF="no.such.module") as client:
        assert client.statuses(1) == [500]


def test_a_view_that_is_called_by_hand() -> None:
    view = exempt(limited("1/hour")(hello))
    for _ in range(3):
        assert view(RequestFactory().get("/")).status_code == 200


def test_throttles() -> None:
    class Open(APIView):  # type: ignore[misc] # the framework has no types
        throttle_classes = (throttle("1/hour"),)
        authentication_classes = ()
        permission_classes = ()

        def get(self, request: Any) -> HttpResponse:
            return HttpResponse("hello")

    class Free(Open):
        pass

    exempt(Free)
    patterns = [path("open", Open.as_view()), path("free", Free.as_view())]
    settings = {"HEADGATE": {}, "REST_FRAMEWORK": {"UNAUTHENTICATED_USER": None}}
    with served("wsgi", patterns, **settings) as client:
        assert client.statuses(3, "/free") == [200, 200, 200]
        assert client.statuses(2, "/open") == [200, 429]
