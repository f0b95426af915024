"""Paced messages: any iterator, in threads."""

from __future__ import annotations

import gc
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from consumer_tools import AsyncSource, Source, rules_of

from headgate import (
    AsyncLimiter,
    Facts,
    Gate,
    Limiter,
    LimitExceeded,
    ManualClock,
    MemoryStore,
    NeverFits,
    Refused,
)
from headgate.integrations.consumer import Held, paced
from headgate.rules.model import Lists, RuleSet
from servers import until


def gate_of(clock: ManualClock, *limits: str, **more: Any) -> Gate:
    return Gate(rules_of(*limits, **more), clock=clock)


def fail(messages: Any, last: Any = None) -> None:
    """Work on messages until one fails: the first, or this one."""
    for message in messages:
        if last in (None, message):
            raise ZeroDivisionError


def free(limiter: Limiter) -> bool:
    """Whether a permit can be had."""
    try:
        with limiter.hold():
            return True
    except LimitExceeded:
        return False


# -- in threads


def test_five_lines() -> None:
    seen = [message for message in paced(["a", "b", "c"], "1000/second")]  # noqa: C416 # a loop
    assert seen == ["a", "b", "c"]


def test_the_pace() -> None:
    clock, seen = ManualClock(), []
    limiter = Limiter("2/second even", clock=clock)

    def consume() -> None:
        seen.extend([(message, clock.now()) for message in paced("abcd", limiter)])

    thread = threading.Thread(target=consume)
    thread.start()
    while thread.is_alive():
        wakeup = clock.next_wakeup()
        if wakeup is not None:
            clock.advance(max(0, wakeup - clock.now()))
        thread.join(0.001)
    assert seen == [("a", 0.0), ("b", 0.5), ("c", 1.0), ("d", 1.5)]


def test_nothing_is_fetched_before_it_is_allowed() -> None:
    clock = ManualClock()
    source = Source("a", "b")
    messages = paced(source, Limiter("1/hour", clock=clock), wait=0)
    assert next(messages) == "a"
    for _ in range(3):
        with pytest.raises(LimitExceeded):
            next(messages)
    assert source.asked == 1
    clock.advance(7200)
    assert next(messages) == "b"


def test_a_message_that_was_fetched_is_not_lost() -> None:
    clock = ManualClock()
    source = Source("ann", "ann", "bob")
    messages = paced(source, Limiter("1/hour", clock=clock), key=lambda user: user, wait=0)
    assert next(messages) == "ann"
    for _ in range(3):
        with pytest.raises(LimitExceeded, match="ann"):
            next(messages)
    assert source.asked == 2
    clock.advance(7200)
    assert list(messages) == ["ann", "bob"]


def test_costs_of_messages() -> None:
    limiter = Limiter("10/hour", clock=ManualClock())
    messages = paced(["four!", "seven!!"], limiter, cost=len, wait=0)
    assert next(messages) == "four!"
    with pytest.raises(LimitExceeded):
        next(messages)
    with pytest.raises(NeverFits):
        next(paced(["eleven or so"], limiter, cost=len))
    constant = paced(["a", "b"], Limiter("10/hour", clock=ManualClock()), key="x", cost=6, wait=0)
    assert next(constant) == "a"
    with pytest.raises(LimitExceeded):
        next(constant)


def test_a_permit_is_held_until_the_next_is_asked_for() -> None:
    limiter = Limiter("1 concurrent")
    messages = paced("abc", limiter, wait=0)
    for _ in messages:
        assert not free(limiter)
    assert free(limiter)  # the end gives back, too
    for message in paced("abc", limiter, wait=0):
        if message == "b":
            break
    assert free(limiter)
    messages = paced("abc", limiter, wait=0)
    next(messages)
    messages.done()
    messages.done()
    assert free(limiter)
    assert list(messages) == ["b", "c"]


def test_an_exception_gives_back() -> None:
    limiter, source = Limiter("1 concurrent"), Source("a", OSError("the broker is gone"), "b")
    with pytest.raises(ZeroDivisionError):
        fail(paced(source, limiter))
    gc.collect()
    assert free(limiter)
    messages = paced(source, limiter)
    with pytest.raises(OSError, match="gone"):
        next(messages)
    assert free(limiter)
    assert next(messages) == "b"


def test_a_block_closes_its_source() -> None:
    limiter, source = Limiter("1 concurrent"), Source("a", "b")
    with pytest.raises(ZeroDivisionError), paced(source, limiter) as messages:
        fail(messages)
    assert source.closed == 1
    assert free(limiter)
    assert next(messages, None) is None
    messages.close()
    assert source.closed == 1

    closed = []

    def generator() -> Iterator[str]:
        try:
            yield "a"
            yield "b"
        finally:
            closed.append(True)

    with paced(generator(), "100/second", "1 concurrent") as more:
        assert next(more) == "a"
    assert closed == [True]


def test_held_messages_end_by_themselves() -> None:
    limiter = Limiter("2 concurrent")
    messages = paced("abcde", limiter, until_done=True, wait=0)
    one, two = next(messages), next(messages)
    assert (one.message, two.message) == ("a", "b")
    with pytest.raises(LimitExceeded):
        next(messages)
    one.done()
    one.done()
    three = next(messages)
    with pytest.raises(LimitExceeded):
        next(messages)
    with pytest.raises(ZeroDivisionError), two as message:
        raise ZeroDivisionError(message)
    four = next(messages)
    assert four.message == "d"
    del three
    gc.collect()
    assert next(messages).message == "e"
    messages.close()
    with limiter.hold(), limiter.hold():
        pass
    four.done()


def test_held_messages_in_threads() -> None:
    inside = most = 0
    lock, seen = threading.Lock(), []

    def work(held: Held[int]) -> None:
        nonlocal inside, most
        with held as number:
            with lock:
                inside += 1
                most = max(most, inside)
            seen.append(number)
            with lock:
                inside -= 1

    threads = []
    for held in paced(range(50), "3 concurrent", until_done=True):
        threads.append(threading.Thread(target=work, args=(held,)))
        threads[-1].start()
    for thread in threads:
        thread.join(60)
    assert sorted(seen) == list(range(50))
    assert most <= 3


# -- gates


def test_a_gate() -> None:
    clock = ManualClock(1_000_000)
    gate = gate_of(clock, "1/hour fixed-window", key="arg:user")

    def facts(user: str) -> Facts:
        return Facts(resource="orders", args={"user": user})

    source = Source("ann", "bob", "ann")
    messages = paced(source, gate, facts=facts, wait=0)
    assert [next(messages), next(messages)] == ["ann", "bob"]
    with pytest.raises(Refused, match="rule 'queue'"):
        next(messages)
    clock.advance(3600)
    assert next(messages) == "ann"


def test_a_gate_is_waited_for() -> None:
    clock, seen = ManualClock(1_000_000), []
    gate = gate_of(clock, "1/minute fixed-window")

    def consume() -> None:
        seen.extend([message for message in paced("abc", gate, facts="orders", wait=200)])  # noqa: C416 # a loop

    thread = threading.Thread(target=consume)
    thread.start()
    until(lambda: clock.next_wakeup() is not None)
    while thread.is_alive():
        wakeup = clock.next_wakeup()
        if wakeup is not None:
            clock.advance(max(0, wakeup - clock.now()))
        thread.join(0.001)
    assert seen == ["a", "b", "c"]


def test_permits_and_failures_of_a_gate() -> None:
    clock = ManualClock(1_000_000)
    gate = gate_of(clock, "2/hour", count="failures")
    with pytest.raises(ZeroDivisionError), paced(range(9), gate, facts="orders", wait=0) as few:
        fail(few, 5)  # those before it succeed
    more = paced(range(9), gate, facts="orders", wait=0)
    next(more)
    more.done("failure")
    with pytest.raises(Refused):
        next(more)

    gate = gate_of(clock, "1 concurrent")
    messages = paced("ab", gate, facts=Facts(resource="orders"), until_done=True, wait=0)
    held = next(messages)
    with pytest.raises(Refused):
        next(messages)
    held.done()
    assert next(messages).message == "b"


def test_a_gate_that_never_lets_pass() -> None:
    gate = gate_of(ManualClock(), "5/hour", deny=Lists(users=("eve",)))
    facts = Facts(resource="orders", user="eve")
    with pytest.raises(Refused):
        next(paced("a", gate, facts=facts))


# -- what is wrong


def test_what_is_wrong_is_said() -> None:
    gate = Gate(RuleSet())
    wrong: Any = paced
    with pytest.raises(TypeError, match="one limiter, or one gate"):
        wrong("abc")
    with pytest.raises(TypeError, match="one limiter, or one gate"):
        wrong("abc", gate, "1/hour")
    with pytest.raises(TypeError, match="Limiter paces a plain iterable, not AsyncSource"):
        wrong(AsyncSource(), Limiter("1/hour"))
    with pytest.raises(TypeError, match="AsyncLimiter paces an async iterable"):
        wrong("abc", AsyncLimiter("1/hour"))
    with pytest.raises(TypeError, match="has its own"):
        wrong("abc", Limiter("1/hour"), store="memory://")
    with pytest.raises(TypeError, match="a gate needs facts="):
        wrong("abc", gate)
    with pytest.raises(TypeError, match="no key="):
        wrong("abc", gate, facts="x", key="y")
    with pytest.raises(TypeError, match="limits take no facts="):
        wrong("abc", "1/hour", facts="x")
    with pytest.raises(TypeError, match="only after it was fetched"):
        wrong("abc", "1/hour", key=str, ahead=False)


def test_fetching_ahead_by_choice() -> None:
    source = Source("a", "b")
    limiter = Limiter("1 concurrent", store=MemoryStore())
    messages = paced(source, limiter, ahead=True, wait=0)
    with limiter.hold(), pytest.raises(LimitExceeded):
        next(messages)
    assert source.asked == 1  # so idle consumers hold nothing
    assert list(messages) == ["a", "b"]
