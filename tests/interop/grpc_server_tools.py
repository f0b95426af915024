"""What the tests of gRPC servers share: handlers, servers of every form, and their clients."""

from __future__ import annotations

import asyncio
import contextlib
import json
import threading
import time
from collections.abc import AsyncIterator, Coroutine, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import grpc
import grpc.aio

from headgate import AsyncGate, Gate, ManualClock
from headgate.integrations.grpc_server import (
    AsyncRateLimitInterceptor,
    RateLimitInterceptor,
)

UNARY, DOWN, UP, BOTH = "unary_unary", "unary_stream", "stream_unary", "stream_stream"
EXHAUSTED = grpc.StatusCode.RESOURCE_EXHAUSTED
OK = grpc.StatusCode.OK
LONG = 10.0
"""Seconds after which a test has failed."""


def rules(*given: dict[str, Any]) -> str:
    """A rules file, as text."""
    named = [{"name": f"rule{place}", **rule} for place, rule in enumerate(given)]
    return json.dumps({"version": 1, "rules": named})


# -- what a handler does: by the first message that it is sent


def spoken(message: bytes, context: Any) -> bytes:
    """What every handler does with a message."""
    if message == b"raise":
        raise ZeroDivisionError
    if message == b"set":
        context.set_code(grpc.StatusCode.NOT_FOUND)
        context.set_details("no such thing")
    if message == b"own":
        context.set_trailing_metadata((("own", "1"),))
    return message


class Plain:
    """Handlers for threads."""

    def __init__(self) -> None:
        self.entered = threading.Event()
        self.go = threading.Event()
        self.calls = 0

    def _do(self, message: bytes, context: Any) -> bytes:
        self.calls += 1
        if message == b"abort":
            context.abort(grpc.StatusCode.NOT_FOUND, "no such thing")
        if message == b"wait":
            self.entered.set()
            assert self.go.wait(LONG)
        return spoken(message, context)

    def unary_unary(self, request: bytes, context: Any) -> bytes:
        return self._do(request, context)

    def unary_stream(self, request: bytes, context: Any) -> Iterator[bytes]:
        if request != b"abort":  # on a server of tasks, grpc loses one that follows a message
            yield b"first"
        yield self._do(request, context)
        while request == b"endless":
            time.sleep(0.001)
            yield request

    def stream_unary(self, requests: Iterator[bytes], context: Any) -> bytes:
        return b"+".join([self._do(request, context) for request in requests])

    def stream_stream(self, requests: Iterator[bytes], context: Any) -> Iterator[bytes]:
        for request in requests:
            yield self._do(request, context)


class Tasks:
    """The same for tasks."""

    def __init__(self) -> None:
        self.entered = threading.Event()
        self.go = threading.Event()
        self.calls = 0

    async def _do(self, message: bytes, context: Any) -> bytes:
        self.calls += 1
        if message == b"abort":
            await context.abort(grpc.StatusCode.NOT_FOUND, "no such thing")
        if message == b"wait":
            self.entered.set()
            while not self.go.is_set():
                await asyncio.sleep(0.001)
        return spoken(message, context)

    async def unary_unary(self, request: bytes, context: Any) -> bytes:
        return await self._do(request, context)

    async def unary_stream(self, request: bytes, context: Any) -> AsyncIterator[bytes]:
        yield b"first"
        yield await self._do(request, context)
        while request == b"endless":
            await asyncio.sleep(0.001)
            yield request

    async def stream_unary(self, requests: AsyncIterator[bytes], context: Any) -> bytes:
        return b"+".join([await self._do(request, context) async for request in requests])

    async def stream_stream(
        self, requests: AsyncIterator[bytes], context: Any
    ) -> AsyncIterator[bytes]:
        async for request in requests:
            yield await self._do(request, context)


class Writers(Tasks):
    """The same, with streams that are written one by one."""

    async def unary_stream(self, request: bytes, context: Any) -> None:  # type: ignore[override] # it is the other way
        await context.write(b"first")
        await context.write(await self._do(request, context))
        while request == b"endless":
            await asyncio.sleep(0.001)
            await context.write(request)

    async def stream_stream(self, requests: Any, context: Any) -> None:  # type: ignore[override] # it is the other way
        while (request := await context.read()) is not grpc.aio.EOF:
            await context.write(await self._do(request, context))


def generic(handlers: Any) -> Any:
    """The handlers of a service `t.S`, whose methods are named after their kinds."""
    made = {
        kind: getattr(grpc, f"{kind}_rpc_method_handler")(getattr(handlers, kind))
        for kind in (UNARY, DOWN, UP, BOTH)
    }
    return grpc.method_handlers_generic_handler("t.S", made)


# -- servers


class Loop:
    """An event loop in a thread."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self.thread = threading.Thread(target=self.loop.run_forever, daemon=True)
        self.thread.start()

    def do(self, work: Coroutine[Any, Any, Any]) -> Any:
        return asyncio.run_coroutine_threadsafe(work, self.loop).result(LONG)

    async def _finish(self) -> None:
        """End the threads of plain functions, which grpc forgets when a stream is cancelled."""
        ended = self.loop.create_task(self.loop.shutdown_default_executor())
        while not ended.done():
            for task in asyncio.all_tasks() - {ended, asyncio.current_task()}:
                task.cancel()
            await asyncio.sleep(0.001)

    def close(self) -> None:
        self.do(self._finish())
        self.loop.call_soon_threadsafe(self.loop.stop)
        self.thread.join(LONG)
        self.loop.close()


class Form:
    """A server of one kind, with handlers of one kind."""

    def __init__(self, kind: str) -> None:
        self.tasks = kind != "threads"
        self.handlers: Any = {"tasks": Tasks, "writers": Writers}.get(kind, Plain)()
        self.gate_kind: Any = AsyncGate if self.tasks else Gate
        self.guard_kind: Any = AsyncRateLimitInterceptor if self.tasks else RateLimitInterceptor
        self.loop = Loop() if self.tasks else None
        self._stack = contextlib.ExitStack()
        self.guard: Any = None

    def gate(self, *given: dict[str, Any], **more: Any) -> Any:
        """A gate whose clock stands still."""
        return self.gate_kind(rules(*given), clock=ManualClock(1_000_000), **more)

    def serve(self, *limits: str, at: str = "127.0.0.1:0", **words: Any) -> Client:
        """A server behind these limits, and a client of it."""
        self.guard = guard = self.guard_kind(*limits, **words)
        if self.loop is None:
            pool = self._stack.enter_context(ThreadPoolExecutor(8))
            server = grpc.server(pool, interceptors=[guard])
            server.add_generic_rpc_handlers((generic(self.handlers),))
            port = server.add_insecure_port(at)
            server.start()
            self._stack.callback(lambda: server.stop(None).wait(LONG))
        else:

            async def start() -> tuple[Any, int]:
                server = grpc.aio.server(interceptors=[guard])
                server.add_generic_rpc_handlers((generic(self.handlers),))
                port = server.add_insecure_port(at)
                await server.start()
                return server, port

            loop = self.loop
            server, port = loop.do(start())
            self._stack.callback(lambda: loop.do(server.stop(None)))
        place = at if at.startswith("unix:") else f"{at.rpartition(':')[0]}:{port}"
        return self.client(place)

    def client(self, place: str, *options: Any) -> Client:
        channel = grpc.insecure_channel(place, options=options)
        self._stack.callback(channel.close)
        return Client(channel, place)

    def close(self) -> None:
        self.handlers.go.set()
        self._stack.close()
        if self.loop is not None:
            self.loop.close()


class Client:
    """Calls a server by the kind of its method."""

    def __init__(self, channel: Any, place: str) -> None:
        self.channel = channel
        self.place = place

    def start(self, kind: str, *messages: bytes, metadata: Any = (), method: str = "") -> Any:
        """A call under way."""
        multi = getattr(self.channel, kind)(method or f"/t.S/{kind}")
        words = {"metadata": metadata, "timeout": LONG}
        if kind == UNARY:
            return multi.future(messages[0], **words)
        if kind == UP:
            return multi.future(iter(messages), **words)
        return multi(iter(messages) if kind == BOTH else messages[0], **words)

    def call(self, kind: str, *messages: bytes, **words: Any) -> tuple[Any, Any, dict[str, str]]:
        """The answer, the code, and the trailing metadata of a call."""
        call = self.start(kind, *messages or (b"x",), **words)
        answer = None
        with contextlib.suppress(grpc.RpcError):
            answer = call.result() if kind in (UNARY, UP) else list(call)
        return answer, call.code(), dict(call.trailing_metadata() or ())

    def code(self, kind: str, *messages: bytes, **words: Any) -> Any:
        """Only the code."""
        return self.call(kind, *messages, **words)[1]


FORMS = ["threads", "tasks", "writers", "lent"]
"""A server of threads; one of tasks, whose streams are generators, or are written; and one of
tasks with plain functions."""
