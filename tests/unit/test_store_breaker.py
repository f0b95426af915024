"""The breaker on a store: when it is left alone, and how it is tried again."""

from __future__ import annotations

from headgate import ManualClock
from headgate.stores.store_breaker import CLOSED, OPEN, PROBING, RAMPING, StoreBreaker


def test_pauses_grow_to_two_seconds_and_begin_anew() -> None:
    clock = ManualClock(1000)
    breaker = StoreBreaker(clock.now, jitter=lambda: 1.0)
    pauses = []
    for _ in range(5):
        breaker.failed(breaker.enter() or 0)
    for _ in range(8):
        waited = 0.0
        while (ticket := breaker.enter()) is None:
            clock.advance(0.01)
            waited += 0.01
        pauses.append(round(waited, 2))
        breaker.failed(ticket)
    assert pauses == [0.05, 0.1, 0.2, 0.4, 0.8, 1.6, 2.0, 2.0]


def test_half_of_the_last_twenty_opens_it_too() -> None:
    breaker = StoreBreaker(lambda: 0.0)
    for number in range(19):
        ticket = breaker.enter()
        assert ticket is not None
        (breaker.failed if number % 2 == 0 else breaker.passed)(ticket)
        assert (breaker.state is OPEN) == (number == 18), number


def test_rare_failures_do_not_open_it() -> None:
    breaker = StoreBreaker(lambda: 0.0)
    for number in range(1000):
        ticket = breaker.enter()
        assert ticket is not None
        (breaker.failed if number % 3 == 0 else breaker.passed)(ticket)
    assert breaker.opened == 0


def test_one_probe_then_a_few_then_all() -> None:
    now = [0.0]
    breaker = StoreBreaker(lambda: now[0], jitter=lambda: 0.0)
    for _ in range(5):
        breaker.failed(breaker.enter() or 0)
    now[0] = 0.025
    probe = breaker.enter()
    assert probe is not None
    assert breaker.state is PROBING
    assert breaker.enter() is None
    breaker.passed(probe)
    assert breaker.state is RAMPING
    under_way = [breaker.enter(), breaker.enter()]
    assert None not in under_way
    assert breaker.enter() is None
    most = 0
    while breaker.state is RAMPING:  # each answer lets one more follow
        breaker.passed(under_way.pop(0) or 0)
        while breaker.state is RAMPING and (more := breaker.enter()) is not None:
            under_way.append(more)
        most = max(most, len(under_way))
    assert 16 < most <= 32
    assert breaker.state is CLOSED


def test_the_ramp_ends_after_a_second() -> None:
    now = [0.0]
    breaker = StoreBreaker(lambda: now[0], jitter=lambda: 0.0)
    for _ in range(5):
        breaker.failed(breaker.enter() or 0)
    now[0] = 1.0
    breaker.passed(breaker.enter() or 0)
    assert breaker.state is RAMPING
    now[0] = 2.0
    assert breaker.enter() is not None
    assert breaker.state is CLOSED


def test_a_failure_on_the_ramp_opens_it_again_and_old_news_change_nothing() -> None:
    now = [0.0]
    breaker = StoreBreaker(lambda: now[0], jitter=lambda: 0.0)
    old = breaker.enter()
    assert old is not None
    for _ in range(5):
        breaker.failed(old)
    breaker.failed(old)
    breaker.passed(old)
    assert breaker.state is OPEN
    assert breaker.opened == 1
    now[0] = 1.0
    probe = breaker.enter()
    assert probe is not None
    breaker.dropped(probe)  # cancelled: the next one is the probe
    probe = breaker.enter()
    assert probe is not None
    breaker.passed(probe)
    again = breaker.enter()
    assert again is not None
    breaker.dropped(again)
    again = breaker.enter()
    assert again is not None
    breaker.failed(again)
    assert breaker.state is OPEN
    assert breaker.opened == 2
