"""Throttles of Django REST framework, in real views over real HTTP."""

from __future__ import annotations

from typing import Any, ClassVar

import django_tools
import pytest
from django.http import StreamingHttpResponse
from django.urls import path
from django_tools import MIDDLEWARE, served
from rest_framework.authentication import BaseAuthentication
from rest_framework.decorators import api_view, throttle_classes
from rest_framework.exceptions import Throttled
from rest_framework.response import Response
from rest_framework.throttling import BaseThrottle
from rest_framework.views import APIView
from rest_framework.viewsets import ViewSet
from wsgi_tools import START, Client, CountingStore, Stage, rules

from headgate import ManualClock
from headgate.errors import RulesError
from headgate.integrations.rest_framework import Throttle, throttle
from servers import until

NO_USERS = {"UNAUTHENTICATED_USER": None, "UNAUTHENTICATED_TOKEN": None}


class Token(BaseAuthentication):  # type: ignore[misc] # the framework has no types
    """The header X-Token says who it is."""

    def authenticate(self, request: Any) -> Any:
        name = request.headers.get("X-Token")
        return (django_tools.User(name), None) if name else None


def view_of(*throttles: Any, **more: Any) -> Any:
    """A view with throttles."""

    class Items(APIView):  # type: ignore[misc] # the framework has no types
        throttle_classes = throttles
        authentication_classes = (Token,)
        permission_classes = ()

        def get(self, request: Any, **params: Any) -> Response:
            return Response({"items": []})

        def post(self, request: Any, **params: Any) -> Response:
            right = request.headers.get("X-Password") == "right"
            return Response({}, status=200 if right else 401)

        def put(self, request: Any, **params: Any) -> Response:
            raise RuntimeError("put")

    made: Any = type("Items", (Items,), more)
    return made.as_view()


def api(*patterns: Any, middleware: tuple[str, ...] = (), **said: Any) -> Any:
    """A project with these paths, on a clock that stands still."""
    if "STORE" not in said:
        said["CLOCK"] = ManualClock(START)
    return served("wsgi", patterns, *middleware, HEADGATE=said, REST_FRAMEWORK=NO_USERS)


def test_a_throttle_in_one_line() -> None:
    with api(path("items", view_of(throttle("2/minute")))) as client:
        replies = [client.ask("/items") for _ in range(3)]
    assert [reply.status for reply in replies] == [200, 200, 429]
    assert replies[0].headers["ratelimit-policy"] == '"limited";q=2;w=60'
    assert replies[0].headers["ratelimit"] == '"limited";r=1;t=60'
    assert "retry-after" not in replies[0].headers
    seconds = int(replies[2].headers["retry-after"])
    assert replies[2].headers["ratelimit"] == f'"limited";r=0;t={seconds}'
    assert f"available in {seconds} seconds" in replies[2].json()["detail"]


def test_several_throttles_ask_once_each_and_the_longest_wait_is_told() -> None:
    store = CountingStore()
    view = view_of(throttle("1/minute"), throttle("1/hour"), throttle("9/day", "99/day"))
    with api(path("items", view), STORE=store) as client:
        assert client.ask("/items").status == 200
        assert store.asked == [["take"], ["take"], ["take", "take"]]
        refused = client.ask("/items")
    assert int(refused.headers["retry-after"]) > 3600
    assert refused.headers["ratelimit-policy"].split(", ") == [
        '"limited";q=1;w=60', '"limited";q=1;w=3600', '"limited#0";q=9;w=86400',
        '"limited#1";q=99;w=86400',
    ]  # fmt: skip


def test_the_user_is_the_one_that_the_view_found() -> None:
    patterns = [
        path("mine", view_of(throttle("1/minute", key="user"))),
        path("<int:item>", view_of(throttle("1/minute", key=["user", "param:item"]))),
        path("token", view_of(throttle("1/minute", key=lambda request: request.user.pk))),
    ]
    with api(*patterns) as client:
        for where in ("/mine", "/1", "/2", "/token"):
            assert client.statuses(2, where, X_Token="ann") == [200, 429], where
            assert client.statuses(2, where, X_Token="bob") == [200, 429], where
        assert client.statuses(3, "/mine") == [200] * 3


class Burst(Throttle):
    limits: ClassVar[Any] = "1/minute"
    key = "user"


class Sustained(Burst):
    limits = ("3/hour", "9/day")
    name = "sustained"


def test_views_with_one_class_count_together_and_views_with_one_text_do_not() -> None:
    patterns = [
        path("a", view_of(Burst)), path("b", view_of(Burst)), path("c", view_of(Sustained)),
        path("d", view_of(throttle("1/minute"), __module__="d")),
        path("e", view_of(throttle("1/minute"), __module__="e")),
        path("f", view_of(throttle("1/minute", name="both"), __module__="f")),
        path("g", view_of(throttle("1/minute", name="both"), __module__="g")),
    ]  # fmt: skip
    with api(*patterns) as client:
        asked = [client.ask(f"/{name}", X_Token="ann").status for name in "abccccdefg"]
        assert asked == [200, 429, 200, 200, 200, 429, 200, 200, 200, 429]
        assert client.ask("/b", X_Token="bob").headers["ratelimit-policy"] == '"Burst";q=1;w=60'


def test_views_as_functions_and_sets_of_views() -> None:
    @api_view(["GET"])  # type: ignore[untyped-decorator] # the framework has no types
    @throttle_classes([throttle("1/minute")])  # type: ignore[untyped-decorator] # nor here
    def function(request: Any) -> Response:
        return Response("hello")

    class Set(ViewSet):  # type: ignore[misc] # the framework has no types
        throttle_classes = (throttle("1/minute"),)

        def list(self, request: Any) -> Response:
            return Response([])

    patterns = [path("function", function), path("set", Set.as_view({"get": "list"}))]
    with api(*patterns) as client:
        assert client.statuses(2, "/function") == [200, 429]
        assert client.statuses(2, "/set") == [200, 429]


def test_the_rules_of_the_settings_with_a_status_and_a_list() -> None:
    said = rules(
        {"match": {"path": "/a"}, "limit": "1/minute", "status": 503},
        {"match": {"path": "/b"}, "limit": "9/s", "deny": {"networks": ["127.0.0.0/8"]}},
        {"match": {"path": "/c/<int:item>"}, "key": ["param:item"], "limit": "1/minute"},
        {"match": {"path": "/d"}, "limit": "1/minute", "shadow": True},
    )
    patterns = [path(name, view_of(Throttle)) for name in ("a", "b", "c/<int:item>", "d")]
    with api(*patterns, RULES=said) as client:
        replies = [client.ask("/a") for _ in range(2)]
        assert [reply.status for reply in replies] == [200, 503]
        assert "retry-after" in replies[1].headers
        denied = client.ask("/b")
        assert denied.status == 403
        assert "retry-after" not in denied.headers
        assert [client.ask(f"/c/{item}").status for item in (1, 1, 2)] == [200, 429, 200]
        assert client.statuses(3, "/d") == [200] * 3
        assert "ratelimit" not in client.ask("/d").headers


def test_the_middleware_and_a_throttle_tell_both() -> None:
    view = view_of(throttle("1/minute"))
    with api(path("items", view), middleware=(MIDDLEWARE,), LIMITS="5/minute") as client:
        assert client.ask("/items").headers["ratelimit"] == (
            '"limited";r=0;t=60, "default";r=4;t=60'
        )
        assert client.ask("/items").status == 429


class Never(BaseThrottle):  # type: ignore[misc] # the framework has no types
    """A throttle of somebody else's, which refuses at times."""

    def allow_request(self, request: Any, view: Any) -> bool:
        return "X-Never" not in request.headers


def test_permits_and_failures() -> None:
    stage = Stage()
    one = throttle("1 concurrent", name="one")
    failures = throttle("2/minute", name="guesses", count="failures")

    def get(self: Any, request: Any) -> StreamingHttpResponse:
        return StreamingHttpResponse(stage.blocks())

    patterns = [
        path("stream", view_of(one, get=get)), path("items", view_of(one)),
        path("login", view_of(failures, Never)),
    ]  # fmt: skip
    with api(*patterns) as client:
        with client.begun("/stream"):
            assert client.ask("/items").status == 429
            stage.go.set()
        until(lambda: client.ask("/items").status == 200)
        until(lambda: client.ask("/items", "PUT").status == 500)
        until(lambda: client.ask("/items", "DELETE").status == 405)
        until(lambda: client.ask("/items").status == 200)

        for _ in range(4):  # of the other throttle's refusals none is a failure
            until(lambda: client.ask("/login", "POST", X_Password="right").status == 200)
            until(lambda: b"available" not in client.ask("/login", "POST", X_Never="1").body)
        for _ in range(2):
            until(lambda: client.ask("/login", "POST").status == 401)
        assert client.ask("/login", "POST", X_Password="right").status == 429


def test_a_spoofed_address_and_a_trusted_proxy() -> None:
    def asked(client: Client) -> list[int]:
        return [client.ask("/a", X_Forwarded_For=f"192.0.2.{n}").status for n in (1, 2, 1)]

    patterns = [path("a", view_of(throttle("1/minute")))]
    with api(*patterns) as client:
        assert asked(client) == [200, 429, 429]
    with api(*patterns, TRUSTED=["loopback"]) as client:
        assert asked(client) == [200, 200, 429]


def test_a_store_that_is_gone() -> None:
    view = view_of(
        throttle("1/minute", on_error="allow"), throttle("1 concurrent", on_error="allow")
    )
    closed = view_of(throttle("1/minute", on_error="deny"))
    with api(path("a", view), path("b", closed), STORE="redis://127.0.0.1:1/0") as client:
        assert client.statuses(3, "/a") == [200] * 3
        assert client.statuses(2, "/b") == [429] * 2


def test_a_throttle_by_hand() -> None:
    with pytest.raises(RulesError, match=r"limited\(\)"):
        throttle("5/minute", cuont="failures")
    with pytest.raises(RulesError, match=r"limited\(\)"):
        type("Wrong", (Throttle,), {"limits": "5 per shoe"})
    assert Throttle().wait() is None
    assert issubclass(Throttled, Exception)
