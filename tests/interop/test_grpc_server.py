"""gRPC servers: the interceptors of threads and of tasks, on real sockets."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
import pytest
from grpc_server_tools import BOTH, DOWN, EXHAUSTED, FORMS, OK, UNARY, UP, Form, rules
from held_tools import noted_ends

from headgate import Gate, ManualClock
from headgate.integrations.grpc_server import (
    AsyncRateLimitInterceptor,
    RateLimitInterceptor,
    peer_of,
)


@pytest.fixture(params=FORMS)
def form(request: pytest.FixtureRequest) -> Iterator[Form]:
    made = Form(request.param)
    yield made
    made.close()


@pytest.fixture
def ends(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    return noted_ends(monkeypatch)


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


def test_what_is_given_must_fit() -> None:
    with pytest.raises(TypeError, match="one of the three"):
        RateLimitInterceptor()
    with pytest.raises(TypeError, match="needs an AsyncGate, not a Gate"):
        AsyncRateLimitInterceptor(gate=Gate(rules({"limit": "1/day"})))
    with pytest.raises(ValueError, match="trusts everybody"):
        RateLimitInterceptor("1/minute", trusted="*")
