"""gRPC servers: what a call holds, and until when it holds it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from grpc_server_tools import BOTH, DOWN, EXHAUSTED, FORMS, LONG, OK, UNARY, UP, Client, Form, rules
from held_tools import noted_ends

from servers import Server, free_port, until


@pytest.fixture(params=FORMS)
def form(request: pytest.FixtureRequest) -> Iterator[Form]:
    made = Form(request.param)
    yield made
    made.close()


@pytest.fixture
def ends(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    return noted_ends(monkeypatch)


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
    assert ends == ["success", "mistake", "mistake", "failure", "success"]


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
        client = form.serve(rules=said, store=f"{redis.url}?budget=30s")
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
