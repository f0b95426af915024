"""EnvoyService: what Envoy asks of a rate limiter, as an ASGI application with trailers.

A server that speaks HTTP/2 and sends trailers carries it; `pyvoy` does, and is fast.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable
from typing import TYPE_CHECKING, Any

from ..admission import Admission, bearer
from .deadlines import Deadlines
from .health import Health
from .quota import Quotas
from .rls import RateLimits
from .statistics import Statistics
from .status import Code, GrpcError
from .streams import (
    KIND,
    START,
    Gone,
    Receive,
    Send,
    Stream,
    ending,
    frame,
    headers_of,
    seconds_of,
    unframed,
)  # fmt: skip

if TYPE_CHECKING:
    from ...gate import AsyncGate

__all__ = ["EnvoyService"]

LIMITS = "envoy.service.ratelimit.v3.RateLimitService"
QUOTAS = "envoy.service.rate_limit_quota.v3.RateLimitQuotaService"
HEALTH = "grpc.health.v1.Health"
OPEN = f"/{HEALTH}/"
"""Where nobody needs a token."""
WANTED = "a token is wanted: metadata authorization: Bearer TOKEN"
LARGEST = 1 << 18
PATIENCE = 5.0
_DONE = {"type": "http.response.trailers", "headers": ending(Code.OK)}

Unary = Callable[[bytes], Awaitable[bytes]]
Streaming = Callable[[Stream], Awaitable[None]]
logger = logging.getLogger("headgate.envoy")


class EnvoyService:
    """The rate limit service, the quota service, health and (if asked for) reflection.

    gate        an AsyncGate with rules of headgate's own, or with a configuration of Envoy's
    headers     the format of the headers that Envoy adds to responses: see `headgate.headers`;
                else as the rules say, and none for a configuration of Envoy's
    shadow      let every request pass, whatever the rules say
    reflection  tell clients which services there are
    largest     the size of a message in bytes
    patience    how many seconds a request may take that does not say it itself
    token       what callers must have, as metadata `authorization: Bearer TOKEN`; health is open
    """

    def __init__(
        self,
        gate: AsyncGate,
        *,
        headers: str = "",
        shadow: bool = False,
        reflection: bool = False,
        largest: int = LARGEST,
        patience: float = PATIENCE,
        statistics: Statistics | None = None,
        token: bytes = b"",
    ) -> None:
        self._admission = Admission(token, "a caller of gRPC", "Envoy sends it by initial_metadata")
        self.limits = RateLimits(gate, headers=headers, shadow=shadow, statistics=statistics)
        self.quotas = Quotas(self.limits)
        self.health = Health((LIMITS, QUOTAS))
        self._largest = largest
        self._patience = patience
        self._unary: dict[str, Unary] = {
            f"/{LIMITS}/ShouldRateLimit": self.limits.answer,
            f"/{HEALTH}/Check": self.health.check,
        }
        self._streams: dict[str, Streaming] = {
            f"/{HEALTH}/Watch": self.health.watch,
            f"/{QUOTAS}/StreamRateLimitQuotas": self.quotas.serve,
        }
        if reflection:
            from .reflection import Reflection

            told = Reflection((LIMITS, QUOTAS, HEALTH))
            for name in told.names:
                self._streams[f"/{name}/ServerReflectionInfo"] = told.serve
        self._deadlines = Deadlines()
        self._open: set[asyncio.Task[Any]] = set()

    @property
    def statistics(self) -> Statistics:
        """What happened under each rule, by the names that envoyproxy/ratelimit has."""
        return self.limits.statistics

    @property
    def paths(self) -> frozenset[str]:
        """The paths that are served."""
        return frozenset((*self._unary, *self._streams))

    async def drain(self) -> None:
        """Serve on, but tell everybody who asks for our health to go elsewhere."""
        self.health.set(serving=False)

    async def close(self) -> None:
        """End the streams that are open."""
        await self.drain()
        open_ = list(self._open)
        for task in open_:
            task.cancel()
        await asyncio.gather(*open_, return_exceptions=True)

    async def __call__(self, scope: Any, receive: Receive, send: Send) -> None:
        """One request."""
        if scope["type"] != "http":
            if scope["type"] == "lifespan":
                await self._live(receive, send)
            return
        kind, encoding, timeout = headers_of(scope)
        if (kind != KIND[1] and not _is_grpc(kind)) or scope["method"] != "POST":
            await _no_grpc(scope, send)
            return
        seconds = seconds_of(timeout) if timeout else None
        path = scope["path"]
        if self._admission:
            pairs = scope["headers"]
            given = [value for name, value in pairs if name == b"authorization"]
            if not self.admits(path, given):
                await _fail(send, Code.UNAUTHENTICATED, WANTED)
                return
        unary = self._unary.get(path)
        if unary is not None:
            await self._answer(unary, receive, send, encoding, seconds)
            return
        stream = Stream(receive, send, self._largest, encoding)
        streaming = self._streams.get(path)
        if streaming is None:
            await stream.end(Code.UNIMPLEMENTED, f"there is no {path} here")
        else:
            await self._serve(streaming, stream, seconds)

    def admits(self, path: str, authorizations: Iterable[bytes]) -> bool:
        """Whether a caller may ask at a path, with these values of `authorization`."""
        return path.startswith(OPEN) or not self._admission.refuses(map(bearer, authorizations))

    async def _answer(
        self, unary: Unary, receive: Receive, send: Send, encoding: bytes, seconds: float | None
    ) -> None:
        """A call with one message each way."""
        patience = self._patience
        if seconds is not None and seconds < patience:
            patience = seconds
        under_way, task = self._deadlines.under_way, self._deadlines.begin(patience)
        try:
            part = await receive()
            data = part.get("body", b"")
            while part.get("more_body"):
                if len(data) > self._largest + 5:
                    break
                part = await receive()
                data += part.get("body", b"")
            if part["type"] != "http.request":
                return
            if len(data) > self._largest + 5:
                problem = f"the message has more than {self._largest} bytes"
                raise GrpcError(Code.RESOURCE_EXHAUSTED, problem)
            answer = await unary(unframed(data, encoding))
        except GrpcError as error:
            under_way.pop(task, None)
            await _fail(send, error.code, error.problem)
        except asyncio.CancelledError:
            if not self._deadlines.late(task):
                raise
            await _fail(send, Code.DEADLINE_EXCEEDED, "there was no time left")
        except Exception:
            under_way.pop(task, None)
            logger.exception("a request failed")
            await _fail(send, Code.INTERNAL, "something went wrong here")
        else:
            under_way.pop(task, None)
            await send(START)
            body = {"type": "http.response.body", "body": frame(answer), "more_body": False}
            await send(body)
            await send(_DONE)
        finally:
            under_way.pop(task, None)

    async def _serve(self, streaming: Streaming, stream: Stream, seconds: float | None) -> None:
        """A call in which messages go both ways."""
        task = asyncio.current_task()
        assert task is not None
        self._open.add(task)
        try:
            async with asyncio.timeout(seconds):
                await streaming(stream)
        except Gone:
            return
        except GrpcError as error:
            await stream.end(error.code, error.problem)
        except TimeoutError:
            await stream.end(Code.DEADLINE_EXCEEDED, "there was no time left")
        except Exception:
            logger.exception("a stream failed")
            await stream.end(Code.INTERNAL, "something went wrong here")
        except asyncio.CancelledError:
            await stream.end(Code.UNAVAILABLE, "the service is closing")
            raise
        else:
            await stream.begin()
            await stream.end()
        finally:
            self._open.discard(task)

    async def _live(self, receive: Receive, send: Send) -> None:
        while True:
            what = (await receive())["type"]
            if what == "lifespan.startup":
                await send({"type": "lifespan.startup.complete"})
            elif what == "lifespan.shutdown":
                await self.close()
                await send({"type": "lifespan.shutdown.complete"})
                return


def _is_grpc(kind: bytes) -> bool:
    """Whether a content type is gRPC's, with messages of protobuf."""
    kind = kind.partition(b";")[0].strip().lower()
    return kind in (b"application/grpc", b"application/grpc+proto")


async def _fail(send: Send, code: int, problem: str) -> None:
    pairs = [KIND, *ending(code, problem)]
    await send({"type": "http.response.start", "status": 200, "headers": pairs})
    await send({"type": "http.response.body", "body": b"", "more_body": False})


async def _no_grpc(scope: Any, send: Send) -> None:
    """A request that is none of gRPC's."""
    status, what = 415, b"application/grpc is spoken here\n"
    if scope["method"] != "POST":
        status, what = 405, b"gRPC calls are posted\n"
    pairs = [(b"content-type", b"text/plain; charset=utf-8"), (b"allow", b"POST")]
    await send({"type": "http.response.start", "status": status, "headers": pairs})
    await send({"type": "http.response.body", "body": what, "more_body": False})
