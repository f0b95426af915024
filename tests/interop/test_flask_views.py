"""Flask: limits of single views, by the decorator."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from flask import Response
from flask.views import MethodView, View
from flask_tools import shop, statuses
from wsgi_tools import CountingStore, Stage, rules, serving

from servers import until


def test_a_view_has_limits_of_its_own_and_all_are_asked_for_at_once() -> None:
    store = CountingStore()
    app, limit = shop("5/minute", store=store)

    @app.get("/items/<int:item>")
    @limit.limited("2/minute", "9/hour", key=["ip", "param:item"])
    def item(item: int) -> str:
        return f"item {item}"

    with serving(app) as client:
        replies = [client.ask(f"/items/{n}") for n in (1, 1, 1, 2)]
        assert [reply.status for reply in replies] == [200, 200, 429, 200]
        assert store.asked == [["take"] * 3] * 4
        assert replies[0].headers["ratelimit-policy"] == (
            '"default";q=5;w=60, "route:item#0";q=2;w=60, "route:item#1";q=9;w=3600'
        )
        assert replies[2].json()["violated-policies"] == ["route:item#0"]
        assert client.ask("/nowhere").status == 404  # counted, too: the third that passed was it
        assert client.statuses(2, "/nowhere") == [404, 429]


def test_a_function_as_the_key_a_name_for_several_views_and_two_decorators() -> None:
    app, limit = shop()

    def tenant(request: Any) -> Any:
        return request.args.get("tenant")

    @app.get("/a")
    @limit.limited("1/minute", key=tenant, name="shared")
    def a() -> str:
        return "a"

    @app.get("/b")
    @limit.limited("1/minute", key=tenant, name="shared")
    @limit.limited("2/minute", key=tenant)
    def b() -> str:
        return "b"

    assert statuses(app, "/a?tenant=x", "/b?tenant=x", "/b?tenant=y", "/a?tenant=y") == [
        200, 429, 200, 429,
    ]  # fmt: skip
    assert statuses(app, "/a", "/a", "/a") == [200] * 3  # nobody to count


def hiding(view: Callable[[], str]) -> Callable[[], str]:
    """A decorator that does not say what it wraps."""

    def hidden() -> str:
        return view()

    return hidden


def test_the_order_of_decorators_does_not_matter() -> None:
    app, limit = shop("9/minute")

    @limit.limited("1/minute", key="ip")
    @limit.limited("1/hour", key="ip")
    @app.get("/above")
    def above() -> str:
        return "above"

    @app.get("/hidden")
    @hiding
    @limit.limited("1/minute", key="ip")
    def hidden_view() -> str:
        return "hidden"

    assert statuses(app, "/above", "/above", "/hidden", "/hidden") == [200, 429, 200, 429]
    with app.test_client() as client:
        refused = client.get("/hidden")
        assert f'"route:{__name__}.test_the_order' in refused.headers["RateLimit"]
    assert above() == "above"  # a plain function, where there is no request


def test_classes_of_views() -> None:
    app, limit = shop()

    class Listed(View):
        decorators = [limit.limited("1/minute")]  # noqa: RUF012 # as Flask wants it

        def dispatch_request(self) -> str:
            return "listed"

    class Items(MethodView):
        @limit.limited("1/minute")
        def get(self) -> str:
            return "got"

        @limit.limited("2/minute")
        def post(self) -> str:
            return "posted"

        def put(self) -> str:
            return "put"

    app.add_url_rule("/one", view_func=Listed.as_view("one"))
    app.add_url_rule("/two", view_func=Listed.as_view("two"))
    app.add_url_rule("/items", view_func=Items.as_view("items"))
    assert statuses(app, "/one", "/two", "/one", "/two") == [200, 200, 429, 429]
    assert statuses(app, "/items", method="HEAD") == [200]
    assert statuses(app, "/items", method="GET") == [429]  # it is the same method
    assert statuses(app, *["/items"] * 3, method="POST") == [200, 200, 429]
    assert statuses(app, *["/items"] * 3, method="PUT") == [200] * 3


def test_a_view_that_is_awaited() -> None:
    app, limit = shop()

    @app.get("/")
    @limit.limited("1/minute")
    async def home() -> str:
        return "awaited"

    assert statuses(app, "/", "/") == [200, 429]


def test_an_exempt_view_and_rules_that_free_or_refuse_a_view_with_limits() -> None:
    app, limit = shop(
        rules=rules(
            {"limit": "1/minute"},
            {"match": {"path": "/free"}, "exempt": True},
            {
                "match": {"path": "/denied"},
                "deny": {"networks": ["127.0.0.1"]},
                "limit": "9/minute",
            },
        )
    )

    @app.get("/open")
    @limit.exempt
    def opened() -> str:
        return "open"

    @app.get("/free")
    @app.get("/denied")
    @app.get("/self", endpoint="self")
    @limit.limited("1/hour")
    def limited() -> str:
        return "limited"

    @app.get("/alone")
    @limit.limited("9/minute", deny={"networks": ["127.0.0.1"]})
    def alone() -> str:
        return "alone"

    assert statuses(app, "/open", "/open", "/free", "/free", "/denied", "/alone") == [
        200, 200, 200, 200, 403, 403,
    ]  # fmt: skip


def test_rules_match_by_route_and_follow_along_where_views_have_limits() -> None:
    app, limit = shop(rules=rules({"match": {"path": "/items/<int:item>"}, "limit": "2/minute"}))

    @app.get("/items/<int:item>")
    @limit.limited("5/minute", key="param:item")
    def item(item: int) -> str:
        return f"item {item}"

    assert statuses(app, "/items/1", "/items/2", "/items/3") == [200, 200, 429]
    limit.gate.reload(rules({"match": {"path": "/items/<int:item>"}, "limit": "4/minute"}))
    assert statuses(app, "/items/1", "/items/2", "/items/3") == [200, 200, 429]
    limit.gate.reload(rules({"limit": "99/hour", "name": "new"}))
    assert statuses(app, *["/items/1"] * 4) == [200] * 3 + [429]  # the view's own is still there


def test_a_view_holds_its_permit_until_the_stream_has_ended() -> None:
    app, limit = shop("9 concurrent")
    stage = Stage()

    @app.get("/stream")
    @limit.limited("1 concurrent", status=503)
    def stream() -> Response:
        return Response(stage.blocks())

    with serving(app) as client:
        with client.begun("/stream"):
            assert client.ask("/stream").status == 503
            stage.go.set()
        until(lambda: client.ask("/stream").status == 200)


def test_a_hook_that_fails_gives_back_as_a_failure() -> None:
    said = rules({"limit": "1/minute", "count": "failures"}, {"limit": "1 concurrent"})
    app, _ = shop(rules=said)
    app.get("/")(lambda: "hello")

    def wrong(response: Response) -> Response:
        raise RuntimeError("a hook")

    app.after_request(wrong)
    with serving(app) as client:
        assert client.ask().status == 500
        app.after_request_funcs[None].remove(wrong)
        until(lambda: client.ask().json()["violated-policies"] == ["rule-0"])


def test_what_rules_say_for_all_holds_for_views_too() -> None:
    app, limit = shop(rules=rules({"limit": "9/minute"}, defaults={"headers": "x-ratelimit"}))
    view = limit.limited("2/minute")(lambda: "hello")
    app.get("/")(view)
    app.get("/hidden", endpoint="hidden")(hiding(view))
    with serving(app) as client:
        for place in ("/", "/hidden"):
            assert client.ask(place).headers["x-ratelimit-limit"] in ("2", "9")
            assert "ratelimit" not in client.ask(place).headers
