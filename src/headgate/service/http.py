"""HTTP: requests read within bounds, and answers sent; as ASGI, without a framework."""

from __future__ import annotations

import asyncio
import hmac
import logging
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from types import CoroutineType, coroutine
from typing import Any, TypeVar

from ..errors import HeadgateError, StoreError
from .codec import loads
from .envoy.deadlines import Deadlines
from .faults import Fault

__all__ = [
    "JSON", "Answer", "Endpoint", "Function", "Gone", "Guard", "Pairs", "begun", "done",
    "json_of", "send_answer", "while_there",
]  # fmt: skip

Result = TypeVar("Result")
Scope = Any
Receive = Callable[[], Awaitable[Any]]
Send = Callable[[Any], Awaitable[None]]
Pairs = list[tuple[bytes, bytes]]
Answer = tuple[int, Pairs, bytes]
"""Status, headers and body."""
Function = Callable[[Any, Scope], Awaitable[Answer]]
"""What answers: it is given what the body says (None if there is none) and the scope."""
JSON = (b"content-type", b"application/json")
WITH_BODY = frozenset(("POST", "PUT", "PATCH"))

logger = logging.getLogger("headgate.service")


class Gone(Exception):
    """The caller has hung up."""


class Guard:
    """What every request has to pass: its size, its time, and its token if one is wanted."""

    def __init__(self, most: int, seconds: float, token: bytes = b"") -> None:
        self.most = most
        self.seconds = seconds
        self._token = token
        self._deadlines = Deadlines()

    @property
    def wants_token(self) -> bool:
        """Whether callers must have one."""
        return bool(self._token)

    def admit(self, authorization: bytes) -> None:
        """A Fault unless the caller has the token."""
        if not self._token:
            return
        scheme, _, given = authorization.partition(b" ")
        same = hmac.compare_digest(given.strip(), self._token)
        if not same or scheme.lower() != b"bearer":
            challenge = (b"www-authenticate", b'Bearer realm="headgate"')
            raise Fault(401, "a token is wanted: Authorization: Bearer TOKEN", headers=[challenge])

    async def body(self, receive: Receive, length: bytes) -> bytes:
        """The body as a whole; a Fault if it is too large or too slow."""
        if length and (len(length) > 15 or int(length) > self.most):
            raise self._too_large()
        # Nearly always all of it is there, and nobody has to be watched.
        waiting: Any = receive()
        first = None
        if type(waiting) is CoroutineType:
            try:
                first = waiting.send(None)
            except StopIteration as end:
                part = end.value
                if not part.get("more_body"):
                    if part["type"] != "http.request":
                        raise Gone from None
                    data = part["body"]
                    if len(data) > self.most:
                        raise self._too_large() from None
                    return data  # type: ignore[no-any-return] # as ASGI has it
                waiting = done(part)
            else:
                waiting = begun(waiting, first)
        return await self._slowly(waiting, receive)

    async def _slowly(self, waiting: Any, receive: Receive) -> bytes:
        """The body of a request that arrives in parts."""
        deadlines = self._deadlines
        task = deadlines.begin(self.seconds)
        try:
            part = await waiting
            data: bytes = part.get("body", b"")
            while part.get("more_body"):
                if len(data) > self.most:
                    raise self._too_large()
                part = await receive()
                data += part.get("body", b"")
        except asyncio.CancelledError:
            if not deadlines.late(task):
                raise
            problem = f"the request did not arrive within {self.seconds:g} s"
            raise Fault(408, problem, close=True) from None
        finally:
            deadlines.under_way.pop(task, None)
        if part["type"] != "http.request":
            raise Gone
        if len(data) > self.most:
            raise self._too_large()
        return data

    def _too_large(self) -> Fault:
        return Fault(413, f"a body has at most {self.most} bytes here", close=True)


async def done(part: Any) -> Any:
    """What was received already."""
    return part


@coroutine
def begun(waiting: Any, asked: Any) -> Any:
    """Go on with a coroutine that has begun, and asked for something."""
    try:
        while True:
            try:
                told = yield asked
            except BaseException as error:
                asked = waiting.throw(error)
            else:
                asked = waiting.send(told)
    except StopIteration as end:
        return end.value


class Endpoint:
    """A path, and what answers at it by method."""

    def __init__(
        self,
        guard: Guard,
        methods: Mapping[str, Function],
        *,
        open_: bool = False,
        raw: bool = False,
        refused: Callable[[Fault, Scope], object] | None = None,
    ) -> None:
        self.methods = methods
        self._refused = refused
        """Who is told of what gets no answer but a Fault."""
        self._guard = guard
        self._raw = raw
        """Whether its functions read the body themselves."""
        self._open = open_
        """Whether nobody needs a token here."""
        self._allow = (b"allow", ", ".join(sorted(methods)).encode())

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One request."""
        try:
            answer = await self._answer(scope, receive)
        except Gone:
            return
        except Exception as error:
            answer = self.failed(error, scope)
        await send_answer(send, *answer)

    def failed(self, error: Exception, scope: Scope) -> Answer:
        """The answer in place of one that could not be had."""
        if isinstance(error, Fault):
            fault = error
            if self._refused is not None:
                self._refused(fault, scope)
        elif isinstance(error, StoreError):
            logger.error("the store cannot answer: %s", error)
            fault = Fault(503, "the store cannot answer", headers=[(b"retry-after", b"1")])
        elif isinstance(error, HeadgateError):
            fault = Fault(422, str(error))
        else:
            logger.error("%s %s failed", scope["method"], scope["path"], exc_info=error)
            fault = Fault(500, "something went wrong here")
        return fault.response()

    async def _answer(self, scope: Scope, receive: Receive) -> Answer:
        method = scope["method"]
        function = self.methods.get(method)
        if function is None:
            raise Fault(405, f"no {method} here"[:40], headers=[self._allow])
        kind = length = authorization = b""
        for name, value in scope["headers"]:
            if name == b"content-type":
                kind = value
            elif name == b"content-length":
                length = value
            elif name == b"authorization":
                authorization = value
        if not self._open:
            self._guard.admit(authorization)
        if method not in WITH_BODY:
            return await function(None, scope)
        if method == "PUT" and not kind and length in (b"", b"0") and not _is_chunked(scope):
            return await function({}, scope)  # nothing to say but what the path says
        if kind != b"application/json" and not _is_json(kind):
            # A page of another site cannot send this without being asked about it first.
            raise Fault(415, "Content-Type: application/json is wanted", close=True)
        data = await self._guard.body(receive, length)
        scope["headgate.receive"] = receive
        return await function(data if self._raw else json_of(data), scope)


async def while_there(scope: Scope, work: Coroutine[Any, Any, Result]) -> Result:
    """What comes of work that may take long; it is given up when the caller hangs up."""
    task = asyncio.ensure_future(work)
    gone = asyncio.ensure_future(_gone(scope["headgate.receive"]))
    try:
        await asyncio.wait({task, gone}, return_when=asyncio.FIRST_COMPLETED)
        if task.done():
            return task.result()
        raise Gone
    except asyncio.CancelledError:  # the server ends, and has waited for long enough
        problem = "the service ends; ask another"
        raise Fault(503, problem, headers=[(b"retry-after", b"1")], close=True) from None
    finally:
        gone.cancel()
        task.cancel()
        await asyncio.gather(task, gone, return_exceptions=True)


async def _gone(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


def json_of(data: bytes) -> Any:
    """What a body says; a Fault if it is no JSON."""
    try:
        return loads(data)
    except ValueError as error:
        raise Fault(400, f"the body is not JSON: {error}"[:300]) from None


def _is_json(kind: bytes) -> bool:
    return kind.partition(b";")[0].strip().lower() == b"application/json"


def _is_chunked(scope: Scope) -> bool:
    return any(name == b"transfer-encoding" for name, _ in scope["headers"])


async def send_answer(send: Send, status: int, pairs: Pairs, body: bytes) -> None:
    """A response as a whole."""
    pairs.append((b"content-length", b"%d" % len(body)))
    await send({"type": "http.response.start", "status": status, "headers": pairs})
    await send({"type": "http.response.body", "body": body})
