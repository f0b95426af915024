"""Django: a middleware for all requests, and a decorator for single views, both sync and async.

    MIDDLEWARE = [..., "headgate.integrations.django.RateLimitMiddleware"]
    HEADGATE = {"LIMITS": ["100/minute"], "STORE": "redis://localhost:6379/0"}

What is held comes back when the server closes the response, whichever middleware made it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from functools import wraps
from typing import Any, TypeVar

from asgiref.sync import async_to_sync, iscoroutinefunction, markcoroutinefunction
from django.core.exceptions import ImproperlyConfigured
from django.http import HttpResponse

from ..gate import AsyncGate, Gate
from ..gating import chain
from ..limit import Limit
from .common import Find
from .django_exempt import exempt, is_exempt, is_spared
from .django_setup import Wanted, asked, configured
from .environs import EnvironGate, pairs_of
from .routes import Key, Own, tell
from .wsgi import Ending

__all__ = ["RateLimitMiddleware", "at_close", "exempt", "facts_of", "limited"]

View = TypeVar("View", bound=Callable[..., Any])


class LaterEnding(Ending):
    """What a task holds; the server closes responses in a thread."""

    __slots__ = ()

    async def release(self) -> None:
        """Give everything back."""
        while self.held:
            permit: Any = self.held.pop()
            try:
                await permit.release(self.outcome)
            except Exception:  # the response stands, and what is leased comes back by itself
                logging.getLogger("headgate").exception("a permit could not be given back")

    def over(self) -> None:
        """The same from outside of a task."""
        if self.held:
            try:
                loop = asyncio.get_running_loop()
            except RuntimeError:
                async_to_sync(self.release)()
            else:  # somebody closes a response by hand
                task = loop.create_task(self.release())
                _under_way.add(task)
                task.add_done_callback(_under_way.discard)


_under_way: set[asyncio.Task[None]] = set()


def facts_of(way: EnvironGate, request: Any, view: str = "") -> Any:
    """What is known of a request; `view` is the name of its view, where it has none in the URLs."""
    facts = way.facts(request.META, request, request.path)
    match = getattr(request, "resolver_match", None)
    facts.resource = view
    if match is not None:
        facts.route = match.route if match.route.startswith("^") else f"/{match.route}"
        facts.params = {word: str(value) for word, value in match.kwargs.items()}
        facts.resource = _name_of(getattr(match.func, "view_class", match.func))
    return facts


def _name_of(view: Any) -> str:
    named = view if hasattr(view, "__qualname__") else type(view)
    return f"{named.__module__}.{named.__qualname__}"


def at_close(request: Any, over: Callable[[], None]) -> None:
    """Have something done when the response to a request is closed, whoever made it."""
    before = request.close  # which Django hands to the response that it sends in the end

    def close() -> None:
        try:
            before()
        finally:
            over()

    request.close = close


def _refused(way: EnvironGate, facts: Any, verdict: Any) -> Any:
    status, headers, body = way.answer(facts, verdict)
    content = b"" if facts.method == "HEAD" else body
    return HttpResponse(content, status=status, headers=dict(headers))


def _serve(way: EnvironGate, facts: Any, request: Any, go: Callable[[], Any]) -> Any:
    noted = chain.entered(facts)
    verdict = way.gate.check(facts)
    if not verdict.allowed:
        return _refused(way, facts, verdict)
    ending = Ending(verdict.permit) if verdict.permit else Ending()
    if ending.held:
        at_close(request, ending.over)
    try:
        with chain.Inside(noted):
            response = go()
    except BaseException as error:
        ending.outcome = "failure" if isinstance(error, Exception) else "ignored"
        ending.over()
        raise
    tell(response.headers, pairs_of(verdict))
    _keep(response, noted)
    if ending.held:
        ending.outcome = way.judged(response.status_code, response)
    return response


def _keep(response: Any, noted: chain.Around | None) -> None:
    """Have a body that is made on the way made inside of its call; a file is there already."""
    if noted is None or not response.streaming or hasattr(response, "file_to_stream"):
        return
    each: Any = chain.each_soon if response.is_async else chain.each
    response.streaming_content = each(noted, response.streaming_content)


async def _serve_async(
    way: EnvironGate, facts: Any, request: Any, go: Callable[[], Awaitable[Any]]
) -> Any:
    # What watches verdicts may read everything; the rest is only learnt if a rule wants it.
    await facts.learn(*Find._fields if way.gate.on_verdict else ("priority",))
    if chain.wanted:
        await facts.learn("origin")
    noted = chain.entered(facts)
    while True:
        try:
            verdict = await way.gate.check(facts)
            break
        except Wanted as wanted:  # raised before anything was asked for
            await facts.learn(*wanted.args)
    if not verdict.allowed:
        if verdict.otherwise is not None:
            await facts.learn(*Find._fields)
        return _refused(way, facts, verdict)
    ending = LaterEnding(verdict.permit) if verdict.permit else LaterEnding()
    if ending.held:
        at_close(request, ending.over)
    try:
        with chain.Inside(noted):
            response = await go()
    except BaseException as error:
        ending.outcome = "failure" if isinstance(error, Exception) else "ignored"
        await ending.release()
        raise
    tell(response.headers, pairs_of(verdict))
    _keep(response, noted)
    if ending.held:
        ending.outcome = way.judged(response.status_code, response)
    return response


class RateLimitMiddleware:
    """Sends all requests through a gate, as the setting HEADGATE says."""

    sync_capable = True
    async_capable = True

    def __init__(self, get_response: Callable[[Any], Any]) -> None:
        self.get_response = get_response
        self._async = iscoroutinefunction(get_response)
        if self._async:
            markcoroutinefunction(self)
        setup = configured()
        if not setup.given:
            raise ImproperlyConfigured("HEADGATE says no LIMITS, RULES or GATE")
        self._way = setup.way(AsyncGate if self._async else Gate)
        self.gate = self._way.gate

    def __call__(self, request: Any) -> Any:
        """Answer one request."""
        if is_exempt(request):
            return self.get_response(request)
        serve: Any = _serve_async if self._async else _serve
        facts = self._way.facts(request.META, request, request.path)
        return serve(self._way, facts, request, lambda: self.get_response(request))


def limited(
    *limits: str | Limit, key: Key = "ip", name: str = "", **words: Any
) -> Callable[[View], View]:
    """A decorator: limits of a view, beside those of the middleware.

    key    what to count by, or a function of the request; None from it: not limited
    name   views of one name are counted together
    words  what else a rule may say: cost, count, wait, status, shadow, otherwise, ...
    """
    own = Own(limits, key, name, words)
    space = "limited" if name else ""

    def decorate(view: View) -> View:
        # For a class's method this happens anew with each request: nothing may be kept here.
        if not _awaited(view):

            @wraps(view)
            def guarded(request: Any, *args: Any, **kwargs: Any) -> Any:
                if is_spared(request, guarded):
                    return view(request, *args, **kwargs)
                way = configured().way(Gate, own, space)
                facts = facts_of(way, request, _name_of(view))
                facts.args = own.args(request)
                return _serve(way, facts, request, lambda: view(request, *args, **kwargs))

            return guarded  # type: ignore[return-value] # the same signature

        @wraps(view)
        async def awaited(request: Any, *args: Any, **kwargs: Any) -> Any:
            if is_spared(request, awaited):
                return await view(request, *args, **kwargs)
            way = configured().way(AsyncGate, own, space)
            facts = facts_of(way, request, _name_of(view))
            if callable(own.key):
                key = await asked(own.key, request)
                facts.args = own.args_of(key)
            return await _serve_async(way, facts, request, lambda: view(request, *args, **kwargs))

        return awaited  # type: ignore[return-value] # the same signature

    return decorate


def _awaited(view: Any) -> bool:
    """Whether a view, or the method `dispatch` of a class of views, has to be awaited."""
    if iscoroutinefunction(view):
        return True
    method = getattr(view, "func", None)  # what `method_decorator` makes of a bound method
    return bool(getattr(getattr(method, "__self__", None), "view_is_async", False))
