"""Outgoing calls without a wire: how long we wait, what is given back, what is metered."""

from __future__ import annotations

import asyncio
import zlib
from typing import Any

import pytest
from outgoing_tools import START, walking

from headgate import AsyncGate, AsyncLimiter, Gate, Limiter, LimitExceeded, ManualClock, Refused
from headgate.facts import Facts
from headgate.integrations.asked import AskedToWait
from headgate.integrations.meter import Copy
from headgate.integrations.outgoing import Outgoing
from headgate.integrations.ticket import Ticket, over
from headgate.integrations.told import Told
from headgate.verdict import Verdict


def plain(*limits: str, **options: Any) -> tuple[Outgoing, ManualClock]:
    clock = ManualClock(START)
    options = {"wait": 0, "jitter": 0, "clock": clock, **options}
    return Outgoing(False, limits, **options), clock  # noqa: FBT003 # plain functions


def facts(outgoing: Outgoing, host: str = "a.example", port: int | None = None) -> Facts:
    return outgoing.facts("request", "get", "https", host, port, "/path", {"content-length": "9"})


def call(outgoing: Outgoing, host: str = "a.example", **words: str) -> Ticket:
    """A call that ends well, or as the words say."""
    ticket = outgoing.enter("request", facts(outgoing, host))
    headers = {name.replace("_", "-"): value for name, value in words.items()}
    ticket.answered(429 if words else 200, headers)
    ticket.end()
    return ticket


def test_facts() -> None:
    outgoing, _ = plain("1/second", origin="shop", user=lambda request: request.upper())
    known = facts(outgoing, "API.Example", 8443)
    assert (known.host, known.resource) == ("api.example", "api.example:8443")
    assert (known.method, known.path, known.size) == ("GET", "/path", 9)
    assert (known.origin, known.user) == ("shop", "REQUEST")
    assert facts(outgoing, "api.example", 443).resource == "api.example"
    assert facts(outgoing, "::1", 8080).resource == "[::1]:8080"
    named, _ = plain("1/second", resource=lambda request: f"the {request}")
    assert facts(named).resource == "the request"
    for size in ("9" * 5000, "²", "-1", "x"):
        assert outgoing.facts("", "", "", "h", None, "/", {"content-length": size}).size == 0


def test_hosts_are_counted_apart() -> None:
    outgoing, clock = plain("2/minute first-hit")
    call(outgoing)
    call(outgoing)
    with pytest.raises(LimitExceeded) as refused:
        call(outgoing)
    assert not isinstance(refused.value, AskedToWait)
    assert refused.value.key == "a.example"
    call(outgoing, "b.example")
    clock.advance(60)
    call(outgoing)


@pytest.mark.parametrize(
    ("key", "expected"),
    [("host", "a.example"), (("host", "method"), ("a.example", "GET")), ("user", ""), ((), ""),
     (lambda request: ("own", request), ("own", "request"))],
)  # fmt: skip
def test_keys(key: Any, expected: Any) -> None:
    outgoing, _ = plain("2/minute", key=key)
    assert call(outgoing).key == expected


def test_a_call_waits_for_its_turn() -> None:
    outgoing, clock = plain("1/second even", wait=None)
    call(outgoing)
    with walking(clock):
        call(outgoing)
    assert clock.now() == START + 1
    quick, _ = plain("1/minute first-hit", wait=3)
    call(quick)
    with pytest.raises(LimitExceeded):  # at once, as no wait that is allowed would help
        call(quick)


def test_what_the_server_asked_is_waited_for_or_refused() -> None:
    outgoing, clock = plain(wait=30)
    call(outgoing, retry_after="20")
    with walking(clock):
        call(outgoing)
    assert clock.now() == START + 20
    call(outgoing, retry_after="31")
    with pytest.raises(AskedToWait) as refused:
        call(outgoing)
    assert refused.value.retry_after == 31
    assert "Retry-After: 31" in str(refused.value)
    call(outgoing, "b.example")  # others are not concerned
    outgoing.asks.forget("a.example")
    call(outgoing)


def test_a_refusal_by_the_server_takes_nothing_of_ours() -> None:
    outgoing, clock = plain("2/hour first-hit")
    call(outgoing, retry_after="10")
    for _ in range(5):
        with pytest.raises(AskedToWait):
            call(outgoing)
    clock.advance(10)
    call(outgoing)


def test_no_server_holds_us_longer_than_we_let_it() -> None:
    outgoing, clock = plain(longest=5)
    call(outgoing, retry_after="999999999999")
    clock.advance(5)
    call(outgoing)
    deaf, _ = plain(learn=False)
    call(deaf, retry_after="10")
    call(deaf)


def test_those_who_waited_come_back_apart() -> None:
    clock = ManualClock(START)
    outgoing = Outgoing(False, wait=60, clock=clock, jitter=0.5)  # noqa: FBT003 # plain functions
    ends = set()
    for _ in range(5):
        call(outgoing, retry_after="10")
        before = clock.now()
        with walking(clock):
            call(outgoing)
        assert 10 <= clock.now() - before <= 15
        ends.add(clock.now() - before)
    assert len(ends) > 1


def test_jitter_never_makes_a_call_wait_beyond_its_time() -> None:
    outgoing, clock = plain(wait=10, jitter=1)
    call(outgoing, retry_after="10")
    with walking(clock):
        call(outgoing)
    assert clock.now() == START + 10


def test_the_server_may_speak_while_we_wait_for_our_turn() -> None:
    outgoing, clock = plain("1 concurrent", wait=5)
    first = outgoing.enter("request", facts(outgoing))

    def later() -> None:
        first.answered(429, {"retry-after": "60"})
        first.end()

    clock.call_at(int((START + 1) * 1_000_000), later)
    with walking(clock), pytest.raises(AskedToWait):
        call(outgoing)
    clock.advance(60)
    call(outgoing)  # the permit came back


def test_a_ticket_ends_once() -> None:
    outgoing, _ = plain("1 concurrent")
    first = outgoing.enter("request", facts(outgoing))
    with pytest.raises(LimitExceeded):
        call(outgoing)
    first.end()
    second = outgoing.enter("request", facts(outgoing))
    first.end()
    with pytest.raises(LimitExceeded):
        call(outgoing)
    second.end()
    dropped = outgoing.enter("request", facts(outgoing))
    del dropped  # nobody ends it
    call(outgoing)


RULES = """
{"version": 1, "rules": [
  {"name": "failing", "match": {"host": "*.example"}, "key": ["resource"],
   "limit": "2/minute first-hit", "count": "failures"},
  {"name": "one", "match": {"path": "/path"}, "limit": "1 concurrent"},
  {"name": "deep", "match": {"through": "checkout"}, "limit": "1/minute first-hit"}]}
"""


def test_a_gate() -> None:
    clock = ManualClock(START)
    gate = Gate(RULES, clock=clock)
    outgoing = Outgoing(False, gate=gate, wait=0)  # noqa: FBT003 # plain functions
    first = outgoing.enter("request", facts(outgoing))
    with pytest.raises(Refused) as refused:
        outgoing.enter("request", facts(outgoing))
    assert refused.value.verdict.rule == "one"
    first.end()  # without an answer, so it failed
    for _ in range(3):
        call(outgoing)
    second = outgoing.enter("request", facts(outgoing))
    second.answered(500, {})
    second.end()
    with pytest.raises(Refused):
        call(outgoing)
    ignored = outgoing.enter("request", facts(outgoing, "b.example"))
    ignored.end(**over(asyncio.CancelledError(), unsent=False))
    outgoing.close()  # the gate is not its own
    with gate.enter("checkout"):
        call(outgoing, "c.other")
        with pytest.raises(Refused, match="deep"):
            call(outgoing, "c.other")
    call(outgoing, "c.other")
    gate.close()


def test_a_gate_is_asked_again_if_there_is_time() -> None:
    clock, seen = ManualClock(START), list[Verdict]()
    rule = '{"name": "a", "limit": "4/4s even", "cost": {"arg": "cost"}}'
    rules = f'{{"version": 1, "rules": [{rule}]}}'
    gate = Gate(rules, clock=clock)
    gate.on_verdict.append(lambda _facts, verdict: seen.append(verdict))
    outgoing = Outgoing(False, gate=gate, wait=5, cost=lambda request: 2)  # noqa: FBT003 # plain
    call(outgoing)
    with walking(clock):
        call(outgoing)
    assert clock.now() == START + 2
    assert [verdict.allowed for verdict in seen] == [True, False, True]
    impatient = Outgoing(False, gate=gate, wait=0.5, cost=lambda request: 2)  # noqa: FBT003 # plain
    with pytest.raises(Refused):
        call(impatient)


@pytest.mark.parametrize(
    ("error", "options"),
    [
        (TypeError, {"limits": ("1/second",), "gate": Gate(RULES)}),
        (TypeError, {"limiter": Limiter("1/second"), "rules": RULES}),
        (TypeError, {"limiter": AsyncLimiter("1/second")}),
        (TypeError, {"limiter": Limiter("1/second"), "store": "memory://"}),
        (TypeError, {"gate": Gate(RULES), "settle": len}),
        (TypeError, {"limits": ("2 concurrent",), "settle": len}),
        (TypeError, {"wait": "1"}),
        (ValueError, {"wait": -1}),
        (ValueError, {"longest": -1}),
        (ValueError, {"keys": 0}),
        (ValueError, {"jitter": 2}),
        (ValueError, {"limits": ("1/second",), "key": "shoe size"}),
    ],
)
def test_what_cannot_be(error: type[Exception], options: dict[str, Any]) -> None:
    with pytest.raises(error):
        Outgoing(False, **options)  # noqa: FBT003 # plain functions


# -- metered calls


def metered(outgoing: Outgoing, body: bytes, status: int = 200) -> None:
    ticket = outgoing.enter("request", facts(outgoing))
    ticket.answered(status, {})
    ticket.saw(body[:3])
    ticket.saw(body[3:])
    ticket.end()


def left_of(outgoing: Outgoing) -> int:
    left: int = outgoing.limiter.peek("a.example").remaining
    return left


@pytest.mark.parametrize(
    ("body", "status", "left"),
    [
        (b'{"usage": 30}', 200, 970),
        (b'{"usage": 300}', 200, 700),  # more than estimated
        (b'{"usage": null}', 200, 900),  # unknown: the estimate stays
        (b'{"usage": -3}', 200, 900),
        (b'{"usage": "a lot"}', 200, 900),
        (b"nonsense", 200, 900),
        (b'{"usage": 30}', 429, 1000),  # nothing was done
    ],
)
def test_an_estimate_is_settled(body: bytes, status: int, left: int) -> None:
    outgoing, _ = plain(
        "1000/hour first-hit", cost=lambda request: 100, settle=lambda r: r.json()["usage"]
    )
    metered(outgoing, body, status)
    assert left_of(outgoing) == left


def test_a_call_without_an_answer_keeps_its_estimate_unless_it_was_never_sent() -> None:
    outgoing, _ = plain("1000/hour first-hit", cost=100, settle=lambda reply: 0)
    ticket = outgoing.enter("request", facts(outgoing))
    ticket.end(**over(TimeoutError(), unsent=False))
    assert left_of(outgoing) == 900
    ticket = outgoing.enter("request", facts(outgoing))
    ticket.end(**over(ConnectionRefusedError(), unsent=True))
    assert left_of(outgoing) == 900


def test_of_a_long_body_the_end_is_kept() -> None:
    copy = Copy(most=10)
    for piece in (b"0123", b"4567", b"89ab"):
        copy.saw(piece)
    reply = copy.reply(200, {}, ended=True)
    assert (reply.body, reply.whole) == (b"456789ab", False)
    copy.saw(b"x" * 25)
    assert copy.reply(200, {}, ended=True).body == b"x" * 10
    packed = Copy(most=1_000)
    bomb = zlib.compressobj(wbits=31)
    packed.saw(bomb.compress(bytes(500_000)) + bomb.flush())
    reply = packed.reply(200, {}, ended=True)
    assert (len(reply.body), reply.whole) == (1_000, False)
    broken = Copy()
    broken.saw(b"\x1f\x8bnot packed")
    assert broken.reply(200, {}, ended=True) == (200, {}, b"", False)


# -- tasks


def test_tasks_wait_and_cancelled_ones_leak_nothing() -> None:
    async def main() -> None:
        clock = ManualClock(START)
        outgoing = Outgoing(True, ("2 concurrent",), wait=None, clock=clock)  # noqa: FBT003 # tasks

        async def one() -> None:
            ticket = await outgoing.enter_async("request", facts(outgoing))
            try:
                await asyncio.sleep(0)
            finally:
                ticket.end_soon()

        for _ in range(50):
            tasks = [asyncio.create_task(one()) for _ in range(10)]
            for turn in range(3):
                await asyncio.sleep(0)
                tasks[turn * 3].cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
        assert (await outgoing.limiter.peek("a.example")).remaining == 2
        outgoing.asks.note("a.example", Told(5, "words"), clock.micros())
        sleeper = asyncio.create_task(outgoing.enter_async("request", facts(outgoing)))
        await asyncio.sleep(0)
        assert clock.next_wakeup() is not None
        sleeper.cancel()
        with pytest.raises(asyncio.CancelledError):
            await sleeper
        assert clock.next_wakeup() is None
        await outgoing.aclose()

    asyncio.run(main())


def test_a_gate_for_tasks() -> None:
    async def main() -> None:
        gate = AsyncGate(RULES, clock=ManualClock(START))
        outgoing = Outgoing(True, gate=gate, wait=0)  # noqa: FBT003 # tasks
        first = await outgoing.enter_async("request", facts(outgoing))
        with pytest.raises(Refused):
            await outgoing.enter_async("request", facts(outgoing))
        first.answered(200, {})
        first.end_soon()
        second = await outgoing.enter_async("request", facts(outgoing))
        await second.end_async()
        await gate.close()

    asyncio.run(main())
