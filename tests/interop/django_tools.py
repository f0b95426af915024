"""What the tests of the Django adapters share: settings, and servers of both kinds."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import AsyncIterator, Iterator, Sequence
from typing import Any

import django
import uvicorn
from django.apps import apps
from django.conf import settings
from django.core.handlers.asgi import ASGIHandler
from django.core.handlers.wsgi import WSGIHandler
from django.http import HttpResponse
from django.test.utils import override_settings
from wsgi_tools import Client, Stage, serving

__all__ = [
    "KINDS",
    "MIDDLEWARE",
    "WHO",
    "People",
    "answering",
    "async_blocks",
    "awaited",
    "configured",
    "served",
    "serving_async",
]

MIDDLEWARE = "headgate.integrations.django.RateLimitMiddleware"
WHO = "django_tools.People"
KINDS = ("wsgi", "asgi")

if not settings.configured:  # something else in this process may have done it
    settings.configure(SECRET_KEY="not a secret", LOGGING_CONFIG=None)
if not apps.ready:
    django.setup()


class URLs:
    """What a module of URLs has."""

    def __init__(self, patterns: Sequence[Any]) -> None:
        self.urlpatterns = list(patterns)
        self.handler500 = self.wrong

    @staticmethod
    def wrong(request: Any) -> Any:
        return HttpResponse("wrong", status=500)


def configured(
    patterns: Sequence[Any], *middleware: str, **more: Any
) -> contextlib.AbstractContextManager[Any]:
    """Settings for a test."""
    said: dict[str, Any] = {
        "ROOT_URLCONF": URLs(patterns), "MIDDLEWARE": list(middleware), "ALLOWED_HOSTS": ["*"],
        "APPEND_SLASH": False, "DEBUG": False, "DEBUG_PROPAGATE_EXCEPTIONS": False,
    }  # fmt: skip
    made: contextlib.AbstractContextManager[Any] = override_settings(**{**said, **more})
    return made


@contextlib.contextmanager
def serving_async(app: Any) -> Iterator[Client]:
    """uvicorn in a thread."""
    config = uvicorn.Config(
        app, host="127.0.0.1", port=0, log_level="critical", lifespan="off", proxy_headers=False,
        timeout_graceful_shutdown=2,
    )  # fmt: skip
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    while not server.started:
        assert thread.is_alive()
        thread.join(0.005)
    try:
        yield Client(server.servers[0].sockets[0].getsockname()[1])
    finally:
        server.should_exit = True
        thread.join(60)
        assert not thread.is_alive()


@contextlib.contextmanager
def served(kind: str, patterns: Sequence[Any], *middleware: str, **more: Any) -> Iterator[Client]:
    """A project under one of the two servers: `wsgi` or `asgi`."""
    with contextlib.ExitStack() as stack:
        stack.enter_context(configured(patterns, *middleware, **more))
        if kind == "asgi":
            yield stack.enter_context(serving_async(ASGIHandler()))
        else:
            yield stack.enter_context(serving(WSGIHandler()))


class User:
    """A user as Django has them."""

    is_authenticated = True

    def __init__(self, pk: str) -> None:
        self.pk = pk


class Nobody:
    """A user who is not signed in."""

    is_authenticated = False


class People:
    """A middleware in the place of Django's own: the header X-User says who it is.

    It notes who was looked up, and by which way.
    """

    sync_capable = async_capable = True
    looked_up: list[str] = []  # noqa: RUF012 # of all instances: Django makes them

    def __new__(cls, get_response: Any) -> Any:
        from asgiref.sync import iscoroutinefunction
        from django.utils.functional import SimpleLazyObject

        def prepare(request: Any) -> None:
            def find(way: str) -> User | Nobody:
                cls.looked_up.append(way)
                name = request.headers.get("X-User")
                return User(name) if name else Nobody()

            async def auser() -> User | Nobody:
                return find("async")

            request.user = SimpleLazyObject(lambda: find("sync"))
            request.auser = auser

        if not iscoroutinefunction(get_response):

            def middleware(request: Any) -> Any:
                prepare(request)
                return get_response(request)

            return middleware

        async def awaited(request: Any) -> Any:
            prepare(request)
            return await get_response(request)

        return awaited


async def async_blocks(stage: Stage) -> AsyncIterator[bytes]:
    """The stage's blocks, for tasks."""
    try:
        yield b"one\n"
        while not stage.go.is_set():
            await asyncio.sleep(0.005)
        yield b"two\n"
    finally:
        stage.closed.append("stream")


def answering(text: str = "hello") -> Any:
    """A view that says the same to everybody."""

    def view(request: Any, **params: Any) -> HttpResponse:
        return HttpResponse(text)

    return view


def awaited(text: str = "hello") -> Any:
    """The same for tasks."""

    async def view(request: Any, **params: Any) -> HttpResponse:
        await asyncio.sleep(0)
        return HttpResponse(text)

    return view
