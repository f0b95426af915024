"""gRPC servers: the interceptors of threads and of tasks, on real sockets."""

from __future__ import annotations

import asyncio
import contextlib
import json
import threading
import time
from collections.abc import AsyncIterator, Coroutine, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
import pytest

from headgate import AsyncGate, Gate, ManualClock
from headgate.gate import AsyncPermit, Permit
from headgate.integrations.grpc_server import (
    AsyncRateLimitInterceptor,
    RateLimitInterceptor,
    peer_of,
)
from servers import Server, free_port, until

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


@pytest.fixture(params=FORMS)
def form(request: pytest.FixtureRequest) -> Iterator[Form]:
    made = Form(request.param)
    yield made
    made.close()


@pytest.fixture
def ends(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """How calls ended: each time that something held was given back."""
    found: list[str] = []
    release, release_async = Permit.release, AsyncPermit.release

    def noted(permit: Permit, outcome: str = "success") -> bool:
        if permit:
            found.append(outcome)
        return release(permit, outcome)

    async def noted_async(permit: AsyncPermit, outcome: str = "success") -> bool:
        if permit:
            found.append(outcome)
        return await release_async(permit, outcome)

    monkeypatch.setattr(Permit, "release", noted)
    monkeypatch.setattr(AsyncPermit, "release", noted_async)
    return found


# -- what is said


def test_the_start(form: Form) -> None:
    client = form.serve("2/minute fixed-window", clock=ManualClock(960))
    answer, code, told = client.call(UNARY, b"hello")
    assert (answer, code) == (b"hello", OK)
    assert told["ratelimit-policy"] == '"default";q=2;w=60'
    assert told["ratelimit"] == '"default";r=1;t=60'
    assert "retry-after" not in told
    assert client.call(BOTH, b"a", b"b")[0] == [b"a", b"b"]
    call = client.start(UNARY, b"hello")
    assert call.code() is EXHAUSTED
    assert call.details() == "Too many requests. A limit was exceeded. Try again in 60 seconds."
    told = dict(call.trailing_metadata())
    assert told["retry-after"] == "60"
    assert told["ratelimit"] == '"default";r=0;t=60'
    assert told["grpc-retry-pushback-ms"] == "60000"


def test_all_kinds_of_method(form: Form) -> None:
    client = form.serve(gate=form.gate({"key": ["resource"], "limit": "1/day"}))
    for kind in (UNARY, DOWN, UP, BOTH):
        answer, code, told = client.call(kind, *(b"x", b"y")[: 2 if kind in (UP, BOTH) else 1])
        assert code is OK, kind
        expected = {UNARY: b"x", DOWN: [b"first", b"x"], UP: b"x+y", BOTH: [b"x", b"y"]}
        assert answer == expected[kind]
        assert told["ratelimit"].startswith('"rule0";r=0'), kind
    made = form.handlers.calls
    for kind in (UNARY, DOWN, UP, BOTH):
        answer, code, told = client.call(kind)
        assert (answer, code) == (None, EXHAUSTED), kind
        assert "retry-after" in told
    assert form.handlers.calls == made
    assert client.code(UNARY, method="/t.S/Unknown") is grpc.StatusCode.UNIMPLEMENTED


def test_codes_of_refusals(form: Form) -> None:
    client = form.serve(
        gate=form.gate(
            {"match": {"path": "/t.S/unary_unary"}, "limit": "1/day", "status": 503},
            {"match": {"resource": "/t.S/unary_stream"}, "deny": {"networks": "127.0.0.0/8"}},
        )
    )
    assert client.code(UNARY) is OK
    assert client.code(UNARY) is grpc.StatusCode.UNAVAILABLE
    answer, code, told = client.call(DOWN)
    assert (answer, code) == (None, grpc.StatusCode.PERMISSION_DENIED)
    assert told["grpc-retry-pushback-ms"] == "-1"
    assert "retry-after" not in told


def test_details_of_ones_own(form: Form) -> None:
    def body(verdict: Any, accept: str) -> tuple[int, str, str]:
        return 503, "text/plain", f"{verdict.rule} says no"

    client = form.serve("1/minute", body=body)
    assert client.code(UNARY) is OK
    call = client.start(UNARY, b"x")
    assert (call.code(), call.details()) == (grpc.StatusCode.UNAVAILABLE, "default says no")


@pytest.mark.parametrize("kind", [UNARY, DOWN, UP, BOTH])
def test_the_metadata_of_a_handler_stay(form: Form, kind: str) -> None:
    client = form.serve("9/minute")
    _, code, told = client.call(kind, b"own")
    assert (code, told["own"]) == (OK, "1")
    assert "ratelimit" in told
    for message, expected in ((b"abort", grpc.StatusCode.NOT_FOUND), (b"set", None)):
        _, code, told = client.call(kind, message)
        assert code is (expected or grpc.StatusCode.NOT_FOUND)
        assert "ratelimit" in told, message
        assert client.start(UNARY, message).details() == "no such thing"


def test_headers_that_cannot_be_written_break_nothing(
    form: Form, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = form.serve("1/minute")
    monkeypatch.setattr("headgate.verdict.Verdict.headers", lambda *_: 1 / 0)
    assert [client.code(UNARY) for _ in "12"] == [OK, EXHAUSTED]


def test_the_retries_of_grpc_wait_as_long_as_they_are_told() -> None:
    form = Form("threads")
    place = form.serve("1/300ms sliding-log").place
    retry = {
        "maxAttempts": 3, "initialBackoff": "0.01s", "maxBackoff": "0.01s",
        "backoffMultiplier": 1, "retryableStatusCodes": ["RESOURCE_EXHAUSTED"],
    }  # fmt: skip
    policy = json.dumps({"methodConfig": [{"name": [{}], "retryPolicy": retry}]})
    client = form.client(place, ("grpc.service_config", policy))
    assert [client.code(UNARY) for _ in "123"] == [OK] * 3
    form.close()


# -- who calls, and what for


def test_keys(form: Form) -> None:
    seen: list[Any] = []
    gate = form.gate(
        {"match": {"header": {"x-tenant": "a, b"}}, "key": ["header:x-tenant"], "limit": "1/day"},
        {"match": {"method": "POST", "path": "/t.S/*"}, "key": ["user", "route"], "limit": "1/day"},
    )
    gate.on_verdict.append(lambda facts, verdict: seen.append(facts))

    def user(context: Any) -> str | None:
        return dict(context.invocation_metadata()).get("user")

    client = form.serve(gate=gate, user=user)
    tenant = (("x-tenant", "a"), ("x-tenant", "b"), ("token-bin", b"\x00\xff"))
    assert [client.code(UNARY, metadata=tenant) for _ in "12"] == [OK, EXHAUSTED]
    ann, bob = (("user", "ann"),), (("user", "bob"),)
    assert [client.code(UNARY, metadata=who) for who in (ann, ann, bob)] == [OK, EXHAUSTED, OK]
    assert client.code(DOWN, metadata=ann) is OK
    first = seen[0]
    assert first.headers["x-tenant"] == "a, b"
    assert "token-bin" not in first.headers
    assert (first.method, first.path, first.resource) == ("POST", *["/t.S/unary_unary"] * 2)
    assert first.ip == "127.0.0.1"


@pytest.mark.parametrize(("trusted", "second"), [(None, EXHAUSTED), ("loopback", OK)])
def test_addresses(form: Form, trusted: str | None, second: Any) -> None:
    client = form.serve("1/day", trusted=trusted)
    codes = [
        client.code(UNARY, metadata=(("x-forwarded-for", ip),)) for ip in ("192.0.2.1", "192.0.2.2")
    ]
    assert codes == [OK, second]


def test_peers(form: Form, tmp_path: Path) -> None:
    seen: list[str] = []
    gate = form.gate({"key": ["ip"], "limit": "9/day"})
    gate.on_verdict.append(lambda facts, verdict: seen.append(facts.ip))
    assert form.serve(gate=gate, at=f"unix:{tmp_path}/socket").code(UNARY) is OK
    assert seen == ["unix"]


def test_peers_by_their_texts() -> None:
    assert peer_of("ipv4:192.0.2.1:5") == "192.0.2.1:5"
    assert peer_of("ipv6:[::1]:5") == peer_of("ipv6:%5B::1%5D:5") == "[::1]:5"
    assert peer_of("unix:") is peer_of("unix:/tmp/x") is peer_of("unix-abstract:x") is None
    assert peer_of("") is None


def test_peers_over_ipv6(form: Form) -> None:
    seen: list[str] = []
    gate = form.gate({"key": ["ip"], "limit": "9/day"})
    gate.on_verdict.append(lambda facts, verdict: seen.append(facts.ip))
    try:
        client = form.serve(gate=gate, at="[::1]:0")
    except RuntimeError:
        pytest.skip("there is no IPv6 here")
    assert client.code(UNARY) is OK
    assert seen == ["::1"]


def test_exempt_and_shadow(form: Form) -> None:
    client = form.serve(
        gate=form.gate(
            {"match": {"path": "/t.S/unary_unary"}, "exempt": True},
            {"match": {"path": "/t.S/unary_stream"}, "limit": "1/day", "shadow": True},
            {"match": {"path": "/t.S/unary_unary"}, "limit": "1/day"},
        )
    )
    assert [client.code(UNARY) for _ in "123"] == [OK] * 3
    assert [client.code(DOWN) for _ in "123"] == [OK] * 3
    assert "ratelimit" not in client.call(DOWN)[2]


@pytest.mark.parametrize("kind", [UNARY, DOWN, UP, BOTH])
def test_only_failures_count(form: Form, kind: str) -> None:
    for message in (b"abort", b"set", b"raise"):
        form.handlers.go.clear()
        gate = form.gate({"limit": "2/day", "count": "failures"})
        client = form.serve(gate=gate)
        assert [client.code(kind) for _ in range(4)] == [OK] * 4
        bad = grpc.StatusCode.UNKNOWN if message == b"raise" else grpc.StatusCode.NOT_FOUND
        assert [client.code(kind, message) for _ in "123"] == [bad, bad, EXHAUSTED], message


def test_what_a_failure_is(form: Form) -> None:
    gate = form.gate({"limit": "2/day", "count": "failures"})
    client = form.serve(gate=gate, failed=lambda code: code is grpc.StatusCode.UNKNOWN)
    missing, unknown = grpc.StatusCode.NOT_FOUND, grpc.StatusCode.UNKNOWN
    assert [client.code(UNARY, b"abort") for _ in range(4)] == [missing] * 4
    assert [client.code(UNARY, b"raise") for _ in "123"] == [unknown, unknown, EXHAUSTED]


# -- what is held, and until when


def ended(ends: list[str], count: int = 1) -> None:
    """Wait until so many calls have ended."""
    until(lambda: len(ends) >= count, LONG)


def one_place(form: Form) -> Client:
    """A server that answers one call at a time."""
    return form.serve(gate=form.gate({"limit": "1 concurrent"}))


@pytest.mark.parametrize("kind", [UNARY, DOWN, UP, BOTH])
def test_a_place_comes_back_after_each_end(form: Form, kind: str, ends: list[str]) -> None:
    client = one_place(form)
    for count, message in enumerate((b"x", b"abort", b"set", b"raise", b"x"), 1):
        assert client.code(kind, message) is not EXHAUSTED, message
        ended(ends, count)
    assert ends == ["success", "failure", "failure", "failure", "success"]


@pytest.mark.parametrize("kind", [UNARY, DOWN, UP, BOTH])
def test_a_place_is_held_as_long_as_a_call(form: Form, kind: str, ends: list[str]) -> None:
    client = one_place(form)
    call = client.start(kind, b"wait")
    assert form.handlers.entered.wait(LONG)
    assert client.code(UNARY) is EXHAUSTED
    assert not ends
    form.handlers.go.set()
    assert call.result() if kind in (UNARY, UP) else list(call)
    ended(ends)
    assert client.code(UNARY) is OK
    ended(ends, 2)
    assert ends == ["success", "success"]


@pytest.mark.parametrize("message", [b"endless", b"wait"])
def test_a_place_comes_back_when_a_stream_is_cancelled(
    form: Form, message: bytes, ends: list[str]
) -> None:
    client = one_place(form)
    call = client.start(DOWN, message)
    assert next(call) == b"first"
    if message == b"wait":
        assert form.handlers.entered.wait(LONG)
    assert client.code(UNARY) is EXHAUSTED
    call.cancel()
    ended(ends)
    assert client.code(UNARY) is OK
    form.handlers.go.set()
    ended(ends, 2)
    assert ends == ["ignored", "success"]


@pytest.mark.parametrize("kind", [UNARY, UP, BOTH])
def test_a_place_comes_back_when_a_call_is_cancelled(
    form: Form, kind: str, ends: list[str]
) -> None:
    client = one_place(form)
    call = client.start(kind, b"wait")
    assert form.handlers.entered.wait(LONG)
    call.cancel()
    form.handlers.go.set()
    ended(ends)
    assert client.code(UNARY) is OK


def test_a_client_that_is_gone(form: Form, ends: list[str]) -> None:
    client = one_place(form)
    other = form.client(client.place, ("grpc.use_local_subchannel_pool", 1))
    call = other.start(DOWN, b"endless")
    assert next(call) == b"first"
    other.channel.close()
    ended(ends)
    assert client.code(UNARY) is OK


def test_many_at_once(form: Form) -> None:
    client = form.serve(gate=form.gate({"limit": "3 concurrent"}))
    calls = [client.start(UNARY, b"wait") for _ in range(6)]
    until(lambda: sum(call.done() for call in calls) == 3, LONG)
    form.handlers.go.set()
    codes = [call.code() for call in calls]
    assert (codes.count(OK), codes.count(EXHAUSTED)) == (3, 3)


# -- the store and the rules


@pytest.mark.parametrize(("on_error", "code"), [("allow", OK), ("deny", EXHAUSTED)])
def test_a_dead_store(form: Form, on_error: str, code: Any) -> None:
    said = rules({"key": ["ip"], "limits": ["5/minute", "3 concurrent"], "on_error": on_error})
    client = form.serve(rules=said, store=f"redis://127.0.0.1:{free_port()}/0")
    assert [client.code(kind) for kind in (UNARY, DOWN, UP, BOTH) * 2] == [code] * 8


def test_places_on_a_redis_server(form: Form) -> None:
    with Server() as redis, redis.client() as keys:
        client = form.serve("1 concurrent", key=(), store=f"{redis.url}?budget=5s")
        assert client.code(UNARY) is OK
        for kind in (UNARY, DOWN, UP, BOTH):
            until(lambda: keys.dbsize() == 1, LONG)  # what the store keeps for itself
            form.handlers.entered.clear()
            form.handlers.go.clear()
            call = client.start(kind, b"wait")
            assert form.handlers.entered.wait(LONG)
            assert keys.dbsize() == 2
            assert client.code(UNARY) is EXHAUSTED
            call.cancel()
            form.handlers.go.set()
        until(lambda: keys.dbsize() == 1, LONG)
        _close(form)


def test_a_store_that_dies_in_the_middle_of_a_call(form: Form) -> None:
    with Server() as redis:
        said = rules({"limit": "1 concurrent", "on_error": "allow"})
        client = form.serve(rules=said, store=redis.url)
        calls = {kind: client.code(kind) for kind in (UNARY, DOWN)}
        assert set(calls.values()) == {OK}
        call = client.start(DOWN, b"wait")
        assert form.handlers.entered.wait(LONG)
        redis.kill()
        form.handlers.go.set()
        assert list(call) == [b"first", b"wait"]
        assert client.code(UNARY) is OK
        _close(form)


def _close(form: Form) -> None:
    closed = form.guard.gate.close()
    if form.loop is not None:
        form.loop.do(closed)


def test_rules_that_change(form: Form) -> None:
    gate = form.gate({"limit": "1/day"})
    client = form.serve(gate=gate)
    assert [client.code(UNARY) for _ in "12"] == [OK, EXHAUSTED]
    gate.reload(rules({"limit": "3/day"}))
    assert [client.code(UNARY) for _ in "123"] == [OK, OK, EXHAUSTED]
    with pytest.raises(ValueError):
        gate.reload("{")
    assert client.code(UNARY) is EXHAUSTED


def test_what_is_given_must_fit() -> None:
    with pytest.raises(TypeError, match="one of the three"):
        RateLimitInterceptor()
    with pytest.raises(TypeError, match="needs an AsyncGate, not a Gate"):
        AsyncRateLimitInterceptor(gate=Gate(rules({"limit": "1/day"})))
    with pytest.raises(ValueError, match="trusts everybody"):
        RateLimitInterceptor("1/minute", trusted="*")
