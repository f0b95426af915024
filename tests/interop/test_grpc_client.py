"""gRPC clients with limits, against a real server: all four kinds of calls, threads and tasks."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Iterator
from concurrent import futures
from typing import Any

import grpc
import pytest
from grpc_client_tools import BLUE, KINDS, RULES, Provider, every_kind
from outgoing_tools import START, eventually, walking

from headgate import Gate, LimitExceeded, ManualClock, Refused
from headgate.integrations.grpc_client import (
    AskedToWait,
    AsyncRateLimitInterceptors,
    RateLimitInterceptor,
)
from servers import free_port


@pytest.fixture
def provider() -> Iterator[Provider]:
    started = Provider()
    yield started
    started.close()


class Client:
    """A channel with an interceptor; by the names of its methods."""

    def __init__(self, provider: Provider, *limits: str, **options: Any) -> None:
        self.interceptor = RateLimitInterceptor(*limits, **{"wait": 0, **options})
        self.plain = grpc.insecure_channel(provider.target)
        self.channel = grpc.intercept_channel(self.plain, self.interceptor)

    def method(self, kind: str) -> Any:
        return getattr(self.channel, kind)(f"/provider.Api/{kind}")

    def start(self, kind: str, message: str = "ok", **options: Any) -> Any:
        """A call that has begun: a future, or a stream of replies."""
        given = message.encode()
        request = iter([given]) if kind.startswith("stream") else given
        method = self.method(kind)
        return (method.future if kind.endswith("unary") else method)(request, **options)

    def call(self, kind: str, message: str = "ok", **options: Any) -> Any:
        given = message.encode()
        request = iter([given]) if kind.startswith("stream") else given
        reply = self.method(kind)(request, **options)
        return reply if kind.endswith("unary") else list(reply)[-1]

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *error: object) -> None:
        self.plain.close()
        self.interceptor.close()


@every_kind
def test_a_limit(provider: Provider, kind: str) -> None:
    with Client(provider, "2/minute first-hit") as client:
        assert [client.call(kind) for _ in range(2)] == [b"done"] * 2
        with pytest.raises(LimitExceeded):
            client.call(kind)
        with pytest.raises(LimitExceeded):
            client.start(kind).result()
    assert provider.calls == [kind] * 2


@every_kind
def test_a_permit_is_held_until_the_call_ends(provider: Provider, kind: str) -> None:
    with Client(provider, "1 concurrent", wait=5) as client:

        def free() -> bool:
            return bool(client.interceptor.outgoing.limiter.peek(""))

        for ending in ("read", "cancelled", "late", "failed"):
            provider.go.clear()
            timeout = 0.05 if ending == "late" else None
            message = "exhausted" if ending == "failed" else "slow"
            call = client.start(kind, message, timeout=timeout)
            if ending in ("read", "cancelled"):
                assert not free()
            if ending == "read":
                provider.go.set()
                assert call.result() if kind.endswith("unary") else list(call)
            elif ending == "cancelled":
                call.cancel()
            else:
                with pytest.raises(grpc.RpcError):
                    call.result() if kind.endswith("unary") else list(call)
            eventually(free)
            provider.go.set()
        assert client.call(kind) == b"done"


@pytest.mark.parametrize("kind", ["unary_stream", "stream_stream"])
def test_a_stream_that_is_dropped_gives_back(provider: Provider, kind: str) -> None:
    with Client(provider, "1 concurrent") as client:
        call = client.start(kind, "slow")
        assert next(call) == b"first"
        with pytest.raises(LimitExceeded):
            list(client.start(kind))
        del call
        gc.collect()
        eventually(lambda: client.interceptor.outgoing.limiter.peek(""))


def test_a_reply_that_another_interceptor_has_at_hand(provider: Provider) -> None:
    class Cached(grpc.aio.UnaryUnaryClientInterceptor):  # type: ignore[misc] # grpc has no types
        async def intercept_unary_unary(self, go_on: Any, details: Any, request: Any) -> Any:
            return b"cached"

    async def main() -> None:
        interceptors = AsyncRateLimitInterceptors("1 concurrent", wait=0)
        async with grpc.aio.insecure_channel(
            provider.target, interceptors=[*interceptors, Cached()]
        ) as channel:
            for _ in range(2):
                assert await channel.unary_unary("/provider.Api/unary_unary")(b"ok") == b"cached"

    asyncio.run(main())


@every_kind
def test_the_server_is_listened_to(provider: Provider, kind: str) -> None:
    clock = ManualClock(START)
    with Client(provider, wait=10, jitter=0, clock=clock) as client:
        for word, wait in (("retry-after=7", 7), ("grpc-retry-pushback-ms=1500", 1.5)):
            before = clock.now()
            with pytest.raises(grpc.RpcError):
                client.call(kind, f"exhausted {word}")
            eventually(lambda: len(client.interceptor.outgoing.asks))
            with walking(clock):
                client.call(kind)
            assert clock.now() == before + wait
        with pytest.raises(grpc.RpcError):
            client.call(kind, "exhausted retry-after=60")
        eventually(lambda: len(client.interceptor.outgoing.asks))
        with pytest.raises(AskedToWait, match="Retry-After: 60"):
            client.call(kind)


def test_retry_info(provider: Provider) -> None:
    kind = b"type.googleapis.com/google.rpc.RetryInfo"
    info = b"\x0a\x02\x08\x63"  # 99 s
    detail = b"\x0a" + bytes([len(kind)]) + kind + b"\x12" + bytes([len(info)]) + info
    status = b"\x08\x08\x1a" + bytes([len(detail)]) + detail

    def exhausted(message: bytes, context: Any) -> bytes:
        context.set_trailing_metadata([("grpc-status-details-bin", status)])
        context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, "too much")
        return b""

    method = {"call": grpc.unary_unary_rpc_method_handler(exhausted)}
    server = grpc.server(futures.ThreadPoolExecutor(1))
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("a.B", method),))
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    with grpc.insecure_channel(f"127.0.0.1:{port}") as plain:
        channel = grpc.intercept_channel(plain, RateLimitInterceptor(resource="b", wait=1))
        with pytest.raises(grpc.RpcError):
            channel.unary_unary("/a.B/call")(b"")
        with pytest.raises(AskedToWait, match=r"'b' asked us to wait \('google.rpc.RetryInfo: 99"):
            channel.unary_unary("/a.B/call")(b"")
    server.stop(None).wait()


def test_a_gate(provider: Provider) -> None:
    gate = Gate(RULES)
    with Client(provider, gate=gate, resource="api", host="api.example") as client:
        for _ in range(3):
            client.call("unary_unary", metadata=BLUE)
        cancelled = client.start("unary_unary", "slow", metadata=BLUE)
        cancelled.cancel()
        with pytest.raises(grpc.FutureCancelledError):
            cancelled.result()
        client.call("unary_stream", metadata=BLUE)
    other = Client(provider, rules=RULES, resource="api", host="api.example")
    with other as client:
        with pytest.raises(grpc.RpcError):
            client.call("unary_unary", "exhausted", metadata=BLUE)
        with pytest.raises(Refused, match="failing"):
            client.call("unary_unary", metadata=BLUE)
        client.call("unary_unary", metadata=(("x-tenant", "red"),))


def test_metered(provider: Provider) -> None:
    with Client(
        provider, "1000/hour first-hit",
        cost=lambda call: len(call.message or b"x" * 50), settle=len,
    ) as client:  # fmt: skip
        limiter = client.interceptor.outgoing.limiter
        left = []
        for kind in KINDS:
            before = limiter.peek("").remaining
            client.call(kind, "x" * 100)
            left.append(before - limiter.peek("").remaining)
        assert left == [4, 100, 4, 50]  # of a stream nobody knows, so the estimate stays
        before = limiter.peek("").remaining
        with pytest.raises(grpc.RpcError):
            client.call("unary_unary", "exhausted")
        assert limiter.peek("").remaining == before


def test_a_server_that_is_not_there_gives_back() -> None:
    interceptor = RateLimitInterceptor("1 concurrent", wait=0)
    with grpc.insecure_channel(f"127.0.0.1:{free_port()}") as plain:
        channel = grpc.intercept_channel(plain, interceptor)
        for _ in range(2):
            with pytest.raises(grpc.RpcError):
                channel.unary_unary("/a.B/call")(b"", timeout=1)
