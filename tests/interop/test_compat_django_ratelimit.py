"""The same project with django-ratelimit and with its names over headgate, over real HTTP."""

from __future__ import annotations

import importlib
import itertools
from collections.abc import Callable, Iterator
from types import ModuleType, SimpleNamespace
from typing import Any

import httpx
import pytest
from asgiref.sync import iscoroutinefunction
from compat_tools import START, asked, serving_asgi, serving_wsgi, stop_time
from django.conf import settings

if not settings.configured:
    settings.configure(SECRET_KEY="not a secret", ALLOWED_HOSTS=["*"], LOGGING_CONFIG=None)

import django
from django.core.asgi import get_asgi_application
from django.core.exceptions import ImproperlyConfigured
from django.core.wsgi import get_wsgi_application
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.test.utils import override_settings
from django.urls import path
from django.utils.decorators import method_decorator
from django.views import View

from headgate import ManualClock
from headgate.stores import MemoryStore
from servers import Server, free_port

django.setup()
_numbers = itertools.count()
PLACE = "test_compat_django_ratelimit"


def library(prefix: str) -> SimpleNamespace:
    """django-ratelimit, or what stands for it."""
    parts = {
        part: importlib.import_module(f"{prefix}django_ratelimit.{part}")
        for part in ("decorators", "core", "exceptions")
    }
    whole = importlib.import_module(f"{prefix}django_ratelimit")
    return SimpleNamespace(ALL=whole.ALL, UNSAFE=whole.UNSAFE, **parts)


THEIRS, OURS = library(""), library("headgate.compat.")


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> ManualClock:
    clock = ManualClock(START)
    stop_time(monkeypatch, clock, "django_ratelimit.core")
    return clock


class WithUser:
    """Stands for what logs people in."""

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponse]) -> None:
        self._get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponse:
        name = request.headers.get("x-user")
        request.user = SimpleNamespace(is_authenticated=name is not None, pk=name)
        return self._get_response(request)


def project(
    patterns: list[Any], clock: ManualClock | None = None, **more: Any
) -> override_settings:
    """The settings of a project with these pages."""
    urls = ModuleType(f"urls{next(_numbers)}")
    urls.urlpatterns = patterns  # type: ignore[attr-defined] # a module is what Django wants
    memory = "django.core.cache.backends.locmem.LocMemCache"
    words: dict[str, Any] = {
        "ROOT_URLCONF": urls, "ALLOWED_HOSTS": ["*"], "DEBUG": False, "LOGGING_CONFIG": None,
        "MIDDLEWARE": [f"{PLACE}.WithUser"], "INSTALLED_APPS": [],
        "CACHES": {"default": {"BACKEND": memory, "LOCATION": f"place{next(_numbers)}"}},
    }  # fmt: skip
    if clock is not None:
        words["HEADGATE"] = {"STORE": MemoryStore(clock=clock)}
    return override_settings(**{**words, **more})


Pages = Callable[[Any], list[Any]]


def both(pages: Pages, calls: list[Any], clock: ManualClock, **more: Any) -> list[list[Any]]:
    """The answers of the original, and of ours."""
    answers = []
    for lib in (THEIRS, OURS):
        with project(pages(lib), clock, **more), serving_wsgi(get_wsgi_application()) as url:
            answers.append(asked(url, calls, clock))
    return answers


def compared(pages: Pages, calls: list[Any], clock: ManualClock, **more: Any) -> list[Any]:
    """The answers, which are the same with both."""
    theirs, ours = both(pages, calls, clock, **more)
    assert ours == theirs
    return ours


def page(request: HttpRequest) -> HttpResponse:
    """200, or 202 if the request was over a limit that does not block."""
    return HttpResponse(status=202 if getattr(request, "limited", False) else 200)


def key_by_path(group: str, request: HttpRequest) -> str:
    return str(request.path)


def rate_by_user(group: str, request: HttpRequest) -> Any:
    return {"pro": "3/m", "free": (1, 60), "none": "0/m"}.get(request.headers.get("x-user", ""))


def pages(lib: Any) -> list[Any]:
    limit = lib.decorators.ratelimit

    @method_decorator(limit(key="ip", rate="1/m", method="GET"), name="get")
    class Thing(View):  # type: ignore[misc] # Django has no types
        def get(self, request: HttpRequest) -> HttpResponse:
            return page(request)

        def post(self, request: HttpRequest) -> HttpResponse:
            return page(request)

    def usage(request: HttpRequest) -> HttpResponse:
        counts = request.method == "POST"
        found = lib.core.get_usage(request, group="u", key="ip", rate="2/m", increment=counts)
        over = lib.core.is_ratelimited(request, group="u", key="ip", rate="2/m")
        return HttpResponse(status=200 + 10 * found["count"] + found["should_limit"] + 2 * over)

    def user(request: HttpRequest) -> HttpResponse:
        return page(request)

    views = {
        "ip": limit(key="ip", rate="3/m"),
        "longer": limit(key="ip", rate="2/5m"),
        "seconds": limit(key="ip", rate="2/10"),
        "told": limit(key="ip", rate="1/m", block=False),
        "user": limit(key="user", rate="1/h"),
        "either": limit(key="user_or_ip", rate="1/d"),
        "get": limit(key="get:q", rate="1/m"),
        "post": limit(key="post:name", rate="1/m"),
        "header": limit(key="header:X-Tenant", rate="1/m"),
        "path/a": limit(group="paths", key=key_by_path, rate="1/m"),
        "path/b": limit(group="paths", key=f"{PLACE}.key_by_path", rate="1/m"),
        "group/a": limit(group="both", key="ip", rate="3/m"),
        "group/b": limit(group="both", key="ip", rate="3/m"),
        "plan": limit(key="user", rate=rate_by_user),
        "dotted": limit(key="user", rate=f"{PLACE}.rate_by_user"),
        "unsafe": limit(key="ip", rate="1/m", method=lib.UNSAFE),
        "method": limit(key="ip", rate="1/m", method="post"),
        "closed": limit(key="ip", rate="0/s"),
        "stacked": lambda view: limit(key="ip", rate="3/m")(limit(key="user", rate="1/m")(view)),
    }

    def named(name: str) -> Any:
        def view(request: HttpRequest) -> HttpResponse:
            return page(request)

        view.__qualname__ = view.__name__ = name  # what they are counted under
        return view

    patterns = [path(name, decorate(named(name))) for name, decorate in views.items()]
    return [*patterns, path("class", Thing.as_view()), path("usage", usage)]


def by(name: str, *users: str) -> list[Any]:
    return [("GET", name, {"x-user": user}) for user in users]


CALLS: dict[str, list[Any]] = {
    "ip": [*[("GET", "/ip")] * 5, 61, *[("GET", "/ip")] * 4],
    "longer": [*[("GET", "/longer")] * 3, 301, ("GET", "/longer")],
    "seconds": [*[("GET", "/seconds")] * 3, 11, ("GET", "/seconds")],
    "told": [("GET", "/told")] * 3,
    "user": by("/user", "a", "a", "b"),
    "either": [*by("/either", "a", "a"), ("GET", "/either"), ("GET", "/either")],
    "get": [("GET", "/get?q=a"), ("GET", "/get?q=b"), ("GET", "/get?q=a"), ("GET", "/get")],
    "header": [("GET", "/header", {"x-tenant": name}) for name in "aba"] + [("GET", "/header")],
    "callable key": [("GET", "/path/a"), ("GET", "/path/b")] * 2,
    "group": [("GET", "/group/a"), ("GET", "/group/b")] * 2,
    "plan": by("/plan", *["pro", "free", "none", "other"] * 4),
    "dotted": by("/dotted", *["pro", "free"] * 2),
    "unsafe": [("GET", "/unsafe"), ("POST", "/unsafe"), ("PUT", "/unsafe"), ("GET", "/unsafe")],
    "method": [("POST", "/method"), ("PUT", "/method"), ("POST", "/method")],
    "closed": [("GET", "/closed")] * 2,
    "stacked": by("/stacked", "a", "b", "b", "c"),
    "class": [("GET", "/class"), ("POST", "/class"), ("GET", "/class"), ("POST", "/class")],
    "usage": [
        (method, "/usage") for method in ("GET", "POST", "GET", "POST", "GET", "POST", "GET")
    ],
}


@pytest.mark.parametrize("name", CALLS)
def test_the_same_answers(name: str, clock: ManualClock) -> None:
    answers = compared(pages, CALLS[name], clock)
    assert {"told": 202, "usage": 233}.get(name, 403) in answers


def test_a_field_of_a_form(clock: ManualClock) -> None:
    said = []
    for lib in (THEIRS, OURS):
        with project(pages(lib), clock), serving_wsgi(get_wsgi_application()) as url:
            said.append([
                httpx.post(f"{url}/post", data={"name": name}).status_code for name in "aab"
            ])  # fmt: skip
    assert said == [[200, 403, 200]] * 2


def too_many(request: HttpRequest, exception: Exception) -> HttpResponse:
    return HttpResponse(type(exception).__name__, status=429)


class Own(Exception):
    """Somebody's own exception."""


def test_a_view_for_refusals(clock: ManualClock) -> None:
    for prefix, lib in (("", THEIRS), ("headgate.compat.", OURS)):
        chain = [f"{PLACE}.WithUser", f"{prefix}django_ratelimit.middleware.RatelimitMiddleware"]
        more = {"MIDDLEWARE": chain, "RATELIMIT_VIEW": f"{PLACE}.too_many"}
        with project(pages(lib), clock, **more), serving_wsgi(get_wsgi_application()) as url:
            answer = httpx.get(f"{url}/closed")
            assert (answer.status_code, answer.text) == (429, "Ratelimited")


def test_settings(clock: ManualClock) -> None:
    calls: list[Any] = [("GET", "/ip")] * 5
    assert compared(pages, calls, clock, RATELIMIT_ENABLE=False) == [200] * 5
    own = f"{PLACE}.Own"
    assert compared(pages, calls[:4], clock, RATELIMIT_EXCEPTION_CLASS=own)[3] == 500
    addresses = [("GET", "/either", {"x-real": ip}) for ip in ("10.0.0.1", "10.0.0.9", "10.0.1.1")]
    words = {"RATELIMIT_IP_META_KEY": "HTTP_X_REAL", "RATELIMIT_IPV4_MASK": 24}
    assert compared(pages, addresses, clock, **words) == [200, 403, 200]
    six = [("GET", "/either", {"x-real": ip}) for ip in ("2001:db8::1", "2001:db8::2")]
    assert compared(pages, six, clock, **words) == [200, 403]
    found = {"RATELIMIT_IP_META_KEY": lambda request: request.headers["x-real"]}
    assert compared(pages, addresses, clock, **found) == [200] * 3


def test_what_is_wrong_is_said(clock: ManualClock) -> None:
    request = SimpleNamespace(method="GET", META={"REMOTE_ADDR": "192.0.2.1"}, headers={})
    for lib in (THEIRS, OURS):
        with project([], clock):
            for wrong in (
                {}, {"group": "g", "rate": "1/m"}, {"group": "g", "rate": "1/m", "key": "colour"},
                {"group": "g", "rate": "1/m", "key": "colour:red"},
                {"group": "g", "rate": "1/0s", "key": "ip"},
            ):  # fmt: skip
                with pytest.raises(ImproperlyConfigured):
                    lib.core.get_usage(request, **wrong)


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with Server() as started:
        yield started


def test_where_djangos_cache_is(server: Server) -> None:
    backend = "django.core.cache.backends.redis.RedisCache"
    caches = {"default": {"BACKEND": backend, "LOCATION": f"{server.url}?budget=10s"}}
    for lib, place in ((THEIRS, server.url), (OURS, f"{server.url}?budget=10s")):
        caches["default"]["LOCATION"] = place
        with project(pages(lib), CACHES=caches), serving_wsgi(get_wsgi_application()) as url:
            calls = [("GET", "/either")] * 2
            assert asked(url, calls, ManualClock()) == [200, 403]


# -- what differs, each for a reason that the page gives


def test_differs_windows_begin_with_the_first_call(clock: ManualClock) -> None:
    """In the original they end at an instant that depends on the key; here after their length."""
    ends = []
    for lib in (THEIRS, OURS):
        answers = []
        with project(pages(lib), clock):
            request = SimpleNamespace(method="GET", META={"REMOTE_ADDR": "192.0.2.1"})
            for _ in range(61):
                words = {"group": f"g{lib is OURS}", "key": "ip", "rate": "1/m"}
                answers.append(lib.core.is_ratelimited(request, increment=True, **words))
                clock.advance(1)
        ends.append(answers[1:].index(False) + 1)
    assert ends[0] != 60
    assert ends[1] == 60


def test_differs_a_refused_call_is_not_counted_further(clock: ManualClock) -> None:
    counts = []
    for lib in (THEIRS, OURS):
        with project(pages(lib), clock):
            request = SimpleNamespace(method="GET", META={"REMOTE_ADDR": "192.0.2.1"})
            words = {"group": "counts", "key": "ip", "rate": "2/m", "increment": True}
            counts.append([lib.core.get_usage(request, **words)["count"] for _ in range(5)])
    assert counts == [[1, 2, 3, 4, 5], [1, 2, 3, 3, 3]]


def test_differs_what_is_told_of_time(clock: ManualClock) -> None:
    request = SimpleNamespace(method="GET", META={"REMOTE_ADDR": "192.0.2.1"})
    words = {"group": "time", "key": "ip", "rate": "2/m"}
    with project([]):
        clock.advance(THEIRS.core.get_usage(request, **words)["time_left"])
        last = [THEIRS.core.get_usage(request, increment=True, **words) for _ in range(3)][2]
        assert last["should_limit"]
        assert last["time_left"] == 0  # and still it is over
    with project(pages(OURS), clock):
        look = OURS.core.get_usage(request, **words)
        assert look == {"count": 0, "limit": 2, "should_limit": False, "time_left": 60}
        OURS.core.get_usage(request, increment=True, **words)
        clock.advance(20.5)
        look = OURS.core.get_usage(request, **words)
        assert look == {"count": 1, "limit": 2, "should_limit": False, "time_left": 40}


def test_differs_addresses(clock: ManualClock) -> None:
    """An IPv4 address in the form of IPv6 is itself, and not one with all the others."""
    said = []
    for lib in (THEIRS, OURS):
        with project(pages(lib), clock):
            said.append([
                lib.core.is_ratelimited(
                    SimpleNamespace(method="GET", META={"REMOTE_ADDR": f"::ffff:192.0.2.{last}"}),
                    group="mapped", key="ip", rate="1/m", increment=True,
                )
                for last in (1, 2, 1)
            ])  # fmt: skip
    assert said == [[False, True, True], [False, False, True]]


@pytest.mark.parametrize("rate", ["5/month", "5/M", "5 a day", "5/m or so"])
def test_differs_a_rate_is_read_to_its_end(rate: str, clock: ManualClock) -> None:
    request = SimpleNamespace(method="GET", META={"REMOTE_ADDR": "192.0.2.1"})
    with project([], clock):
        if rate != "5 a day":
            assert THEIRS.core.get_usage(request, group="g", key="ip", rate=rate)["limit"] == 5
        with pytest.raises(ImproperlyConfigured, match="a rate is"):
            OURS.core.get_usage(request, group="g", key="ip", rate=rate)
        for word in ("5/min", "5/minute", "5/hour", "5/2day"):
            assert OURS.core.get_usage(request, group="g", key="ip", rate=word)["limit"] == 5


def test_differs_views_that_are_awaited(clock: ManualClock) -> None:
    def tasks(lib: Any) -> list[Any]:
        @lib.decorators.ratelimit(key="ip", rate="2/m")  # type: ignore[untyped-decorator] # by name
        async def view(request: HttpRequest) -> HttpResponse:
            return JsonResponse({"limited": request.limited})

        return [path("task", view)]

    # Django takes the original's for a plain view, and then has a coroutine for a response.
    assert not iscoroutinefunction(tasks(THEIRS)[0].callback)
    with project(tasks(OURS), clock, MIDDLEWARE=[]), serving_asgi(get_asgi_application()) as url:
        assert asked(url, [("GET", "/task")] * 3, clock) == [200, 200, 403]


def test_differs_a_server_that_is_away() -> None:
    address = f"redis://127.0.0.1:{free_port()}"
    backend = "django.core.cache.backends.redis.RedisCache"
    caches = {"default": {"BACKEND": backend, "LOCATION": address}}
    for lib, opens, expected in (
        (THEIRS, False, 500), (THEIRS, True, 500), (OURS, False, 403), (OURS, True, 200),
    ):  # fmt: skip
        with (
            project(pages(lib), CACHES=caches, RATELIMIT_FAIL_OPEN=opens),
            serving_wsgi(get_wsgi_application()) as url,
        ):
            assert asked(url, [("GET", "/ip")] * 2, ManualClock()) == [expected] * 2


# -- what is not offered


def test_what_is_not_offered_says_what_to_use() -> None:
    request = SimpleNamespace(method="GET", META={"REMOTE_ADDR": "192.0.2.1"})

    def used(**words: Any) -> None:
        with project([], **words):
            OURS.core.is_ratelimited(request, group="g", key="ip", rate="1/m")

    files = "django.core.cache.backends.filebased.FileBasedCache"
    with pytest.raises(ImproperlyConfigured, match="HEADGATE"):
        used(CACHES={"default": {"BACKEND": files, "LOCATION": "/nowhere"}})
    with pytest.raises(ImproperlyConfigured, match="no cache 'other'"):
        used(RATELIMIT_USE_CACHE="other")
    with pytest.raises(ImproperlyConfigured, match="take the setting away"):
        used(RATELIMIT_HASH_ALGORITHM="hashlib.md5")
    with pytest.raises(ImproperlyConfigured, match="holds no address"):
        used(RATELIMIT_IP_META_KEY="HTTP_X_REAL")
    used()
