"""gRPC as a client: interceptors that wait for their turn, or refuse, before a call is made.

    channel = grpc.intercept_channel(channel, RateLimitInterceptor("10/second"))
    grpc.aio.insecure_channel(target, interceptors=AsyncRateLimitInterceptors("10/second"))

A call that may not be made raises LimitExceeded. What it holds comes back when the call has
ended: of a stream, when its last message was read or it was cancelled.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple, Unpack

import grpc

from ..facts import Facts
from ..limit import Limit
from ..paths import normal_path
from .grpc_words import outcome_of, retry_of
from .outgoing import AskedToWait, Options, Outgoing
from .ticket import Ticket, over
from .told import header_map

__all__ = ["AskedToWait", "AsyncRateLimitInterceptors", "Call", "RateLimitInterceptor"]

STATUS = {
    grpc.StatusCode.OK: 200,
    grpc.StatusCode.RESOURCE_EXHAUSTED: 429,
    grpc.StatusCode.UNAVAILABLE: 503,
}
"""What HTTP says for a code; 500 for all others."""
ASKING = (grpc.StatusCode.RESOURCE_EXHAUSTED, grpc.StatusCode.UNAVAILABLE)


class Call(NamedTuple):
    """A call that is to be made, as functions of the request see it."""

    method: str
    """In full: /package.Service/Method."""
    metadata: dict[str, str]
    message: Any
    """None if the request is a stream."""


class _Base:
    """What all interceptors share: an `Outgoing`, which says what the options are.

    host   for rules that match by it; an interceptor does not learn where its channel leads
    """

    def __init__(self, outgoing: Outgoing, host: str) -> None:
        self.outgoing = outgoing
        self.host = host

    def _asked(self, details: Any, message: Any) -> tuple[Call, Facts]:
        name = details.method
        method = name.decode() if isinstance(name, bytes) else str(name)
        metadata = _map(details.metadata)
        call = Call(method, metadata, message)
        path = normal_path(method)
        return call, self.outgoing.facts(call, "", "", self.host, None, path, metadata)


class RateLimitInterceptor(
    _Base,
    grpc.UnaryUnaryClientInterceptor,  # type: ignore[misc] # grpc has no types
    grpc.UnaryStreamClientInterceptor,  # type: ignore[misc] # grpc has no types
    grpc.StreamUnaryClientInterceptor,  # type: ignore[misc] # grpc has no types
    grpc.StreamStreamClientInterceptor,  # type: ignore[misc] # grpc has no types
):
    """An interceptor for all kinds of calls of one channel."""

    def __init__(self, *limits: str | Limit, host: str = "", **options: Unpack[Options]) -> None:
        super().__init__(Outgoing(False, limits, **options), host)  # noqa: FBT003 # plain functions

    def intercept_unary_unary(self, go_on: Any, details: Any, request: Any) -> Any:
        """Make a call when its turn has come."""
        return self._made(go_on, details, request, request, single=True)

    def intercept_unary_stream(self, go_on: Any, details: Any, request: Any) -> Any:
        """The same for a stream of replies."""
        return self._made(go_on, details, request, request, single=False)

    def intercept_stream_unary(self, go_on: Any, details: Any, requests: Any) -> Any:
        """The same for a stream of requests."""
        return self._made(go_on, details, requests, None, single=True)

    def intercept_stream_stream(self, go_on: Any, details: Any, requests: Any) -> Any:
        """The same for streams both ways."""
        return self._made(go_on, details, requests, None, single=False)

    def close(self) -> None:
        """Let go of what was opened for the limits; a channel does not do so by itself."""
        self.outgoing.close()

    def _made(self, go_on: Any, details: Any, request: Any, message: Any, single: bool) -> Any:
        ticket = self.outgoing.enter(*self._asked(details, message))

        def ended(call: Any) -> None:
            code = call.code()
            reply = call.result() if single and code is grpc.StatusCode.OK else None
            ticket.end(_answered(self.outgoing, ticket, code, call.trailing_metadata(), reply))

        try:
            call = go_on(details, request)
            if single or not hasattr(call, "add_callback"):
                call.add_done_callback(ended)
            else:  # a stream that is dropped is cancelled, so it must not be kept alive from here
                known = weakref.ref(call)
                dropped = partial(ticket.end, "ignored")
                if not call.add_callback(lambda: _with(known(), ended, dropped)):
                    ended(call)
        except BaseException as error:
            ticket.end(**over(error, unsent=False))
            raise
        return call


class AsyncRateLimitInterceptors(list[Any]):
    """The interceptors of one channel, one for each kind of call; they count together."""

    def __init__(self, *limits: str | Limit, host: str = "", **options: Unpack[Options]) -> None:
        self.outgoing = Outgoing(True, limits, **options)  # noqa: FBT003 # tasks
        kinds = (_UnaryUnary, _UnaryStream, _StreamUnary, _StreamStream)
        super().__init__(kind(self.outgoing, host) for kind in kinds)

    async def close(self) -> None:
        """Let go of what was opened for the limits; a channel does not do so by itself."""
        await self.outgoing.aclose()


class _AsyncBase(_Base):
    async def _made(
        self, go_on: Any, details: Any, request: Any, message: Any, single: bool
    ) -> Any:
        ticket = await self.outgoing.enter_async(*self._asked(details, message))

        async def ended(call: Any) -> None:
            code = await call.code()
            reply = await call if single and code is grpc.StatusCode.OK else None
            outcome = _answered(self.outgoing, ticket, code, await call.trailing_metadata(), reply)
            await ticket.end_async(outcome)

        try:
            call = await go_on(details, request)
            try:
                call.add_done_callback(lambda call: ticket.soon(ended(call)))
            except NotImplementedError:  # a reply that another interceptor had at hand
                await ticket.end_async("success")
        except BaseException as error:
            await ticket.end_async(**over(error, unsent=False))
            raise
        return call


class _UnaryUnary(_AsyncBase, grpc.aio.UnaryUnaryClientInterceptor):  # type: ignore[misc] # grpc has no types
    async def intercept_unary_unary(self, go_on: Any, details: Any, request: Any) -> Any:
        return await self._made(go_on, details, request, request, single=True)


class _UnaryStream(_AsyncBase, grpc.aio.UnaryStreamClientInterceptor):  # type: ignore[misc] # grpc has no types
    async def intercept_unary_stream(self, go_on: Any, details: Any, request: Any) -> Any:
        return await self._made(go_on, details, request, request, single=False)


class _StreamUnary(_AsyncBase, grpc.aio.StreamUnaryClientInterceptor):  # type: ignore[misc] # grpc has no types
    async def intercept_stream_unary(self, go_on: Any, details: Any, requests: Any) -> Any:
        return await self._made(go_on, details, requests, None, single=True)


class _StreamStream(_AsyncBase, grpc.aio.StreamStreamClientInterceptor):  # type: ignore[misc] # grpc has no types
    async def intercept_stream_stream(self, go_on: Any, details: Any, requests: Any) -> Any:
        return await self._made(go_on, details, requests, None, single=False)


def _with(call: Any, there: Callable[[Any], None], gone: Callable[[], None]) -> None:
    if call is None:
        gone()
    else:
        there(call)


def _answered(out: Outgoing, ticket: Ticket, code: Any, metadata: Any, reply: Any) -> str:
    """Note how a call ended; its outcome, unless a function of the user's says it."""
    words = _map(metadata)
    ticket.shows(reply)
    ticket.answered(STATUS.get(code, 500), words, code)
    if code in ASKING:
        out.noted(ticket.key, retry_of(words))
    if out.failed:
        return ""
    return "ignored" if code is grpc.StatusCode.CANCELLED else outcome_of(code)  # by us


def _map(metadata: Any) -> dict[str, str]:
    pairs = ((str(name), value) for name, value in metadata or ())
    return header_map(
        (name, value.decode("latin-1") if isinstance(value, bytes) else str(value))
        for name, value in pairs
    )
