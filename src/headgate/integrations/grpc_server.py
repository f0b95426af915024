"""gRPC servers: the gate as an interceptor, of threads (`grpc.server`) or tasks (`grpc.aio`).

A call is known by its full method, such as `/shop.Orders/Create`, which is its resource, its path
and its route; its metadata are its headers.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import aclosing
from functools import partial, wraps
from math import ceil
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

import grpc
import grpc.aio

from ..addresses import Trusted, client_address
from ..facts import Facts
from ..gate import AsyncGate, Gate
from ..gating.chain import Around, Inside, each, each_soon
from ..paths import normal_path
from ..problems import Replace, refusal_body
from .common import Find, Finder, gate_of, known_of, trusted_of
from .grpc_calls import AsyncCall, Call, LentCall, Metadata, metadata_of
from .grpc_words import outcome_of

if TYPE_CHECKING:
    from ..gate import Verdict
    from ..limit import Limit

__all__ = ["AsyncRateLimitInterceptor", "RateLimitInterceptor"]

OK = grpc.StatusCode.OK
CODES = {403: grpc.StatusCode.PERMISSION_DENIED, 503: grpc.StatusCode.UNAVAILABLE}
"""By the status of a refusal; any other is told as RESOURCE_EXHAUSTED."""
NUMBERS = {code.value[0]: code for code in grpc.StatusCode}

Behaviour = Callable[[Any, Any], Any]


class Interceptor:
    """What both interceptors know and say.

    limits   limits as text, for all calls together, counted by `key`; or `rules=`, or `gate=`
    user, device, api_key, origin, attributes, priority
             what is known of a call: functions of its context
    trusted  the proxies whose word on the client's address is taken
    body     a refusal's own details: a function of the verdict and "text/plain"
    failed   whether a status code is a failure; else all but OK are, for policies without those
             that are the client's own doing, such as INVALID_ARGUMENT
    """

    kind: type[Gate] | type[AsyncGate]

    def __init__(
        self,
        *limits: str | Limit,
        rules: Any = None,
        gate: Gate | AsyncGate | None = None,
        key: str | Sequence[str] = "ip",
        store: Any = None,
        user: Finder | None = None,
        device: Finder | None = None,
        api_key: Finder | None = None,
        origin: Finder | None = None,
        attributes: Finder | None = None,
        priority: Finder | None = None,
        trusted: Trusted | Sequence[str] | str | None = None,
        body: Replace | None = None,
        failed: Callable[[grpc.StatusCode], bool] | None = None,
        **options: Any,
    ) -> None:
        self.gate: Any = gate_of(
            self.kind, limits, rules=rules, gate=gate, key=key, store=store, **options
        )
        self._find = Find(user, device, api_key, origin, attributes, priority)
        self._trusted = trusted_of(trusted)
        self._body = body
        self._failed = failed

    def facts(self, method: str, context: Any) -> Facts:
        """A call as the gate sees it."""
        headers: dict[str, str] = {}
        for name, value in context.invocation_metadata() or ():
            if isinstance(value, str) and not name.endswith("-bin"):
                headers[name] = f"{headers[name]}, {value}" if name in headers else value
        return Facts(
            method="POST",
            path=normal_path(method, decoded=True),
            resource=method,
            route=method,
            headers=headers,
            ip=client_address(peer_of(context.peer()), headers, self._trusted),
            **known_of(self._find, context),
        )

    def refusal(self, verdict: Verdict) -> tuple[grpc.StatusCode, str, Metadata]:
        """The code, the details and the trailing metadata of a refusal."""
        status, _, content = refusal_body(verdict, "text/plain", self._body)
        wait = verdict.retry_after
        pause = "-1" if wait == float("inf") else str(ceil(wait * 1000))  # gRPC's own retries obey
        code = CODES.get(status, grpc.StatusCode.RESOURCE_EXHAUSTED)
        metadata = (*metadata_of(verdict), ("grpc-retry-pushback-ms", pause))
        return code, content.decode("utf-8", "replace").strip(), metadata

    def outcome(self, context: Any, error: BaseException | None) -> str:
        """How a call ended; whoever left says nothing of it."""
        if error is not None and not isinstance(error, Exception):
            return "ignored"
        code = context.code()
        code = NUMBERS.get(code, code) or OK
        if error is not None and code is OK:
            code = grpc.StatusCode.UNKNOWN
        if self._failed is not None:
            return "failure" if self._failed(code) else "success"
        return outcome_of(code)


class RateLimitInterceptor(Interceptor, grpc.ServerInterceptor):  # type: ignore[misc] # no types
    """Sends the calls of a `grpc.server` through a gate before a handler sees them."""

    kind = Gate

    def intercept_service(self, continuation: Callable[[Any], Any], details: Any) -> Any:
        """The handler of a call, behind the gate; a method that nobody has stays unknown."""
        handler = continuation(details)
        enter = partial(Call, self, details.method)
        return handler and guarded(handler, in_threads, enter)


class AsyncRateLimitInterceptor(Interceptor, grpc.aio.ServerInterceptor):  # type: ignore[misc] # no types
    """Sends the calls of a `grpc.aio.server` through a gate before a handler sees them."""

    kind = AsyncGate

    async def intercept_service(self, continuation: Callable[[Any], Any], details: Any) -> Any:
        """The handler of a call, behind the gate; a method that nobody has stays unknown."""
        handler = await continuation(details)
        task = asyncio.current_task()  # it ends with the call

        def guard(call: Behaviour, streams: bool, method: str) -> Behaviour:
            if inspect.iscoroutinefunction(call) or inspect.isasyncgenfunction(call):
                return in_tasks(call, partial(AsyncCall, self, method, task))
            # A plain function, which grpc gives to a thread.
            return in_threads(call, streams, partial(LentCall, self, method, task))

        return handler and guarded(handler, guard, details.method)


def guarded(handler: Any, guard: Callable[[Behaviour, bool, Any], Behaviour], how: Any) -> Any:
    """The handler of a method, with the gate in front of what it does."""
    ways = handler.request_streaming, handler.response_streaming
    kind = "_".join("stream" if streams else "unary" for streams in ways)
    behaviour = guard(getattr(handler, kind), handler.response_streaming, how)
    make = getattr(grpc, f"{kind}_rpc_method_handler")
    return make(behaviour, handler.request_deserializer, handler.response_serializer)


def in_threads(call: Behaviour, streams: bool, enter: Callable[[Any], Call]) -> Behaviour:
    """A plain function behind the gate."""

    @wraps(call)
    def stream(request: Any, context: Any) -> Iterator[Any]:
        with enter(context) as entered:
            entered.until_left()
            if entered.around is None:
                yield from call(request, entered.context)
            else:
                yield from _within(entered.around, partial(call, request, entered.context))

    @wraps(call)
    def unary(request: Any, context: Any) -> Any:
        with enter(context) as entered, Inside(entered.around):
            return call(request, entered.context)

    return stream if streams else unary


def _within(around: Around, call: Callable[[], Any]) -> Iterator[Any]:
    """The responses of a plain function, each made inside of its call."""
    with Inside(around):
        responses = call()
    try:
        yield from each(around, responses)
    finally:
        if hasattr(responses, "close"):
            responses.close()


def in_tasks(call: Behaviour, enter: Callable[[Any], AsyncCall]) -> Behaviour:
    """An async function behind the gate, or an async generator."""

    @wraps(call)
    async def stream(request: Any, context: Any) -> AsyncIterator[Any]:
        async with enter(context) as entered:
            entered.until_left()
            async with aclosing(call(request, context)) as responses:
                if entered.around is not None:
                    responses = each_soon(entered.around, responses)
                async for response in responses:
                    yield response

    @wraps(call)
    async def unary(request: Any, context: Any) -> Any:
        async with enter(context) as entered:
            with Inside(entered.around):
                return await call(request, context)

    return stream if inspect.isasyncgenfunction(call) else unary


def peer_of(text: str) -> str | None:
    """The address in what gRPC calls a peer: `ipv4:192.0.2.1:5` or `ipv6:%5B::1%5D:5`."""
    scheme, _, rest = text.partition(":")
    return unquote(rest) if scheme in ("ipv4", "ipv6") else None
