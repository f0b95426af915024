"""Our gRPC services, asked by gRPC's own client over a real connection."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import grpc
import pytest
from envoy_tools import LIMITS, QUOTAS, Asking, Process, kind, served

from servers import Server

TREE = """
domain: shop
descriptors:
  - key: user
    rate_limit: {unit: day, requests_per_unit: 3}
  - key: hundred
    rate_limit: {unit: day, requests_per_unit: 100}
  - key: watched
    shadow_mode: true
    rate_limit: {unit: day, requests_per_unit: 1}
  - key: free
    rate_limit: {unlimited: true}
  - key: closed
    rate_limit: {unit: day, requests_per_unit: 0}
  - key: named
    rate_limit: {unit: day, requests_per_unit: 5, name: five}
  - key: wide
    rate_limit: {unit: day, requests_per_unit: 2, name: two, replaces: [{name: five}]}
"""
OWN = """
version: 1
rules:
  - name: writers
    match: {entries: {method: [POST, PUT]}}
    key: ["entry:user"]
    limit: 2/day fixed-window
  - name: inside
    match: {entries: {method: POST}}
    limit: 1 concurrent
"""
OK, OVER = 1, 2


@pytest.fixture(scope="module")
def tree() -> Iterator[Process]:
    with served(TREE, reflection=True) as process:
        yield process


@pytest.fixture
def asking(tree: Process) -> Iterator[Asking]:
    asking = Asking(tree.port)
    yield asking
    asking.close()


def codes(response: Any) -> list[int]:
    return [status.code for status in response.statuses]


def test_limits_and_what_is_told_of_them(asking: Asking) -> None:
    found = [asking.limit("shop", {"user": "anna"}) for _ in range(4)]
    assert [each.overall_code for each in found] == [OK, OK, OK, OVER]
    assert [each.statuses[0].limit_remaining for each in found] == [2, 1, 0, 0]
    status = found[0].statuses[0]
    assert (status.current_limit.requests_per_unit, status.current_limit.unit) == (3, 4)
    assert 0 < status.duration_until_reset.seconds <= 86_400
    assert not found[0].response_headers_to_add
    assert [each.key for each in found[3].response_headers_to_add] == ["retry-after"]


def test_statuses_line_up_and_each_is_counted(asking: Asking) -> None:
    first = {"user": "bert"}
    for _ in range(3):
        asking.limit("shop", first)
    found = asking.limit("shop", {"hundred": "b"}, first, {"nothing": "here"}, {"hundred": "b"})
    assert found.overall_code == OVER
    assert codes(found) == [OK, OVER, OK, OK]
    assert [each.limit_remaining for each in found.statuses] == [99, 0, 0, 98]
    assert not found.statuses[2].HasField("current_limit")
    assert asking.limit("shop", {"hundred": "b"}).statuses[0].limit_remaining == 97


def test_what_is_not_limited(asking: Asking) -> None:
    assert codes(asking.limit("elsewhere", {"user": "anna"})) == [OK]
    assert codes(asking.limit("shop", {"user": "anna", "deeper": "x"})) == [OK]
    free = asking.limit("shop", {"free": "x"}).statuses[0]
    assert (free.code, free.limit_remaining) == (OK, 2**32 - 1)


def test_closed_and_shadow(asking: Asking) -> None:
    closed = asking.limit("shop", {"closed": "x"})
    assert (closed.overall_code, closed.statuses[0].current_limit.unit) == (OVER, 4)
    found = [asking.limit("shop", {"watched": "x"}) for _ in range(3)]
    assert [each.overall_code for each in found] == [OK] * 3
    assert found[2].statuses[0].current_limit.requests_per_unit == 1


def test_hits(asking: Asking) -> None:
    hits(asking)


def hits(asking: Asking) -> None:
    def left(*descriptors: Any, hits: int = 0) -> tuple[int, int]:
        status = asking.limit("shop", *descriptors, hits=hits).statuses[0]
        return status.code, status.limit_remaining

    one: dict[str, Any] = {"entries": {"hundred": "hits"}}
    assert left(one, hits=40) == (OK, 60)
    assert left({**one, "hits_addend": {"value": 0}}, hits=7) == (OK, 60)
    assert left({**one, "hits_addend": {"value": 10}}, hits=7) == (OK, 50)
    negative = {**one, "hits_addend": {"value": 5}, "is_negative_hits": True}
    assert left(negative) == (OK, 55)
    assert left({**one, "hits_addend": {"value": 60}}) == (OVER, 0)
    assert left({**one, "hits_addend": {"value": 0}}) == (OVER, 0)  # it was used all the same


def test_overrides(asking: Asking) -> None:
    two = {"entries": {"user": "carl"}, "limit": {"requests_per_unit": 2, "unit": 4}}
    assert [asking.limit("shop", two).overall_code for _ in range(3)] == [OK, OK, OVER]
    five = {"entries": {"user": "carl"}, "limit": {"requests_per_unit": 5, "unit": 4}}
    status = asking.limit("shop", five).statuses[0]
    assert (status.code, status.limit_remaining) == (OK, 2)
    none = {"entries": {"user": "carl"}, "limit": {"requests_per_unit": 0, "unit": 4}}
    assert asking.limit("shop", none).overall_code == OVER
    assert asking.limit("shop", {"user": "carl"}).statuses[0].limit_remaining == 2


def test_replaced(asking: Asking) -> None:
    found = asking.limit("shop", {"named": "x"}, {"wide": "x"})
    assert not found.statuses[0].HasField("current_limit")
    assert found.statuses[1].current_limit.name == "two"


def test_exact_with_eight_at_once(tree: Process) -> None:
    clients = [Asking(tree.port) for _ in range(8)]

    def ask(client: Asking) -> int:
        return sum(client.limit("shop", {"hundred": "all"}).overall_code == OK for _ in range(25))

    with ThreadPoolExecutor(8) as pool:
        assert sum(pool.map(ask, clients)) == 100
    for client in clients:
        client.close()


@pytest.mark.parametrize(
    ("data", "code", "problem"),
    [
        (b"", grpc.StatusCode.INVALID_ARGUMENT, "domain must not be empty"),
        (b"\x0a\x04shop", grpc.StatusCode.INVALID_ARGUMENT, "descriptor list must not be empty"),
        (b"\x0a\x09shop", grpc.StatusCode.INVALID_ARGUMENT, "in the middle"),
        (b"\x0a\x04shop" + b"\x12\x00" * 1001, grpc.StatusCode.INVALID_ARGUMENT, "1000"),
        (b"\x2a\x80\x80\x20" + bytes(1 << 19), grpc.StatusCode.RESOURCE_EXHAUSTED, "bytes"),
    ],
)  # fmt: skip
def test_what_is_wrong(asking: Asking, data: bytes, code: Any, problem: str) -> None:
    with pytest.raises(grpc.RpcError) as caught:
        asking.raw(f"{LIMITS}/ShouldRateLimit", data)
    assert caught.value.code() is code
    assert problem in caught.value.details()


def test_what_is_not_there(asking: Asking) -> None:
    with pytest.raises(grpc.RpcError) as caught:
        asking.raw(f"{LIMITS}/Nothing", b"")
    assert caught.value.code() is grpc.StatusCode.UNIMPLEMENTED


def test_compression_is_refused_properly(asking: Asking) -> None:
    with pytest.raises(grpc.RpcError) as caught:
        asking.raw(f"{LIMITS}/ShouldRateLimit", b"a" * 999, compression=grpc.Compression.Gzip)
    assert caught.value.code() is grpc.StatusCode.UNIMPLEMENTED
    assert "gzip" in caught.value.details()


def test_plain_http_is_told_so(tree: Process) -> None:
    with socket.create_connection(("127.0.0.1", tree.port), timeout=60) as plain:
        plain.sendall(b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n")
        assert plain.recv(4096).startswith(b"HTTP/1.1 415")


def test_a_request_that_does_not_end_has_a_deadline(asking: Asking) -> None:
    stuck = threading.Event()

    def slow() -> Iterator[bytes]:
        stuck.wait(60)
        yield b""

    began = time.monotonic()
    call = asking.channel.stream_unary(f"/{LIMITS}/ShouldRateLimit")
    with pytest.raises(grpc.RpcError) as caught:
        call(slow(), timeout=0.3)
    stuck.set()
    assert caught.value.code() is grpc.StatusCode.DEADLINE_EXCEEDED
    assert time.monotonic() - began < 30


def test_health(asking: Asking) -> None:
    assert asking.raw("grpc.health.v1.Health/Check", b"") == b"\x08\x01"
    asked = kind("grpc.health.v1.HealthCheckRequest")
    data = asked(service=LIMITS).SerializeToString()
    assert asking.raw("grpc.health.v1.Health/Check", data) == b"\x08\x01"
    unknown = asked(service="nothing").SerializeToString()
    with pytest.raises(grpc.RpcError) as caught:
        asking.raw("grpc.health.v1.Health/Check", unknown)
    assert caught.value.code() is grpc.StatusCode.NOT_FOUND
    watch = asking.channel.unary_stream("/grpc.health.v1.Health/Watch")
    for asked_for, state in ((data, b"\x08\x01"), (unknown, b"\x08\x03")):
        stream = watch(asked_for, timeout=60)
        assert next(stream) == state
        stream.cancel()


def test_reflection(asking: Asking) -> None:
    for version in ("v1", "v1alpha"):
        call = asking.channel.stream_stream(
            f"/grpc.reflection.{version}.ServerReflection/ServerReflectionInfo"
        )
        answers = list(
            call(iter([b"\x3a\x01*", b"\x22" + bytes((len(QUOTAS),)) + QUOTAS.encode()]))
        )
        assert QUOTAS.encode() in answers[0]
        assert b"rlqs.proto" in answers[1]


Reports = kind("envoy.service.rate_limit_quota.v3.RateLimitQuotaUsageReports")
Quotas = kind("envoy.service.rate_limit_quota.v3.RateLimitQuotaResponse")


def test_quotas(asking: Asking) -> None:
    """Reports and assignments go both ways on one stream, and share the limit with others."""
    quotas(asking)


def quotas(asking: Asking) -> None:
    turn: Any = threading.Condition()
    waiting: list[bytes | None] = []

    def reports() -> Iterator[bytes]:
        while True:
            with turn:
                turn.wait_for(lambda: waiting)
                data = waiting.pop(0)
            if data is None:
                return
            yield data

    def report(allowed: int, denied: int = 0, **bucket: str) -> Any:
        usage = {
            "bucket_id": {"bucket": bucket}, "time_elapsed": {"seconds": 1},
            "num_requests_allowed": allowed, "num_requests_denied": denied,
        }  # fmt: skip
        data = Reports(domain="shop", bucket_quota_usages=[usage]).SerializeToString()
        with turn:
            waiting.append(data)
            turn.notify()
        action = Quotas.FromString(next(stream)).bucket_action[-1]
        assert dict(action.bucket_id.bucket) == bucket
        return action.quota_assignment_action.rate_limit_strategy

    call = asking.channel.stream_stream(f"/{QUOTAS}/StreamRateLimitQuotas")
    stream = call(reports(), timeout=60)
    assert report(1, nothing="x").blanket_rule == 0
    assert report(1, closed="x").blanket_rule == 1
    first = report(1, hundred="quota").token_bucket.max_tokens
    assert 1 <= first <= 99
    status = asking.limit("shop", {"hundred": "quota"}).statuses[0]
    assert status.limit_remaining == 100 - 1 - first - 1
    report(first, 500, hundred="quota")
    assert asking.limit("shop", {"hundred": "quota"}).overall_code == OVER
    assert report(0, 500, user="dora").token_bucket.max_tokens == 3
    assert report(3, 500, user="dora").blanket_rule == 1
    with turn:
        waiting.append(None)
        turn.notify()
    assert list(stream) == []


def test_on_redis() -> None:
    """The same answers, and they go on when the server is killed."""
    with (
        Server() as redis,
        served(TREE, store := f"{redis.url}?budget=10s") as process,
        served(TREE, store) as other,
    ):
        asking, second = Asking(process.port), Asking(other.port)
        hits(asking)
        quotas(asking)
        found = [each.limit("shop", {"user": "anna"}) for each in (asking, second) * 2]
        assert [each.overall_code for each in found] == [OK, OK, OK, OVER]
        both = asking.limit("shop", {"user": "anna"}, {"hundred": "x"}, {"user": "bert"})
        assert codes(both) == [OVER, OK, OK]
        redis.kill()
        began = time.monotonic()
        found = [asking.limit("shop", {"user": "emil"}) for _ in range(4)]
        assert [each.overall_code for each in found] == [OK, OK, OK, OVER]  # by itself
        assert time.monotonic() - began < 30
        asking.close()
        second.close()


def test_own_rules() -> None:
    with served(OWN, headers="x-ratelimit") as process:
        asking = Asking(process.port)
        writing = {"method": "POST", "user": "anna"}
        found = [asking.limit("any", writing) for _ in range(3)]
        assert [each.overall_code for each in found] == [OK, OK, OVER]
        assert found[0].statuses[0].current_limit.name == "writers"
        headers = {each.key: each.value for each in found[2].response_headers_to_add}
        assert headers["x-ratelimit-limit"] == "2"
        assert headers["x-ratelimit-remaining"] == "0"
        assert int(headers["retry-after"]) >= 1
        assert codes(asking.limit("any", {"method": "GET", "user": "anna"})) == [OK]
        asking.close()
        assert process.log().count("is left out for Envoy") == 1


def test_a_whole_service_in_shadow() -> None:
    with served(TREE, shadow=True) as process:
        asking = Asking(process.port)
        found = [asking.limit("shop", {"user": "anna"}) for _ in range(4)]
        assert [each.overall_code for each in found] == [OK] * 4
        assert found[3].statuses[0].code == OVER
        asking.close()
