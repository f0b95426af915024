"""Zones in the middle of a decision: finalisers, interrupts, permits given back elsewhere."""

from __future__ import annotations

import random
import signal
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from garbage_tools import left_in_cycles
from zone_tools import RATE, START, in_order

from headgate import Ask, Limit, Limiter, ManualClock, StoreError
from headgate.stores.zone import ZoneStore


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(START)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "zone"


class TestInside:
    def test_a_finaliser_in_the_middle_of_a_decision(self, path: Path) -> None:
        store = ZoneStore(path, size=1 << 19, clock=ManualClock(START))
        permits = Limiter("100 concurrent", store=store)
        rates = Limiter("10/second", "10/minute", store=store)

        @permits.limited(key="k")
        def items() -> Iterator[int]:
            yield 1

        left_in_cycles(items, lambda number: rates.hit(f"user {number % 50}"), 500, often=20)
        assert permits.peek("k").remaining == 100
        in_order(store)

    def test_nothing_is_taken_in_the_middle_of_a_decision(self, path: Path) -> None:
        store = ZoneStore(path, size=1 << 16, clock=ManualClock(START))
        store.decide([Ask("take", RATE, "k", 3)])
        with store._lock:
            for call in (lambda: store.decide([Ask("take", RATE, "k")]), store.token):
                with pytest.raises(StoreError, match="middle of its own decision"):
                    call()
            store.decide([Ask("refund", RATE, "k", 2, at=store.clock.micros())])
        assert store.decide([Ask("check", RATE, "k")])[0].remaining == 4

    def test_interrupts_leave_nothing_locked(self, path: Path) -> None:
        store = ZoneStore(path, size=1 << 16)
        limiter = Limiter("1000000/hour", "1000000/day cells 60", store=store)

        class Interrupt(BaseException):
            pass

        def interrupt(*_: object) -> None:
            raise Interrupt

        old = signal.signal(signal.SIGALRM, interrupt)
        for _ in range(300):
            with pytest.raises(Interrupt):  # noqa: PT012 # it comes at any moment
                signal.setitimer(signal.ITIMER_REAL, random.uniform(1e-5, 1e-3))
                while True:
                    limiter.hit("k")
        signal.signal(signal.SIGALRM, old)
        assert not store.deciding()
        answers: list[bool] = []
        thread = threading.Thread(target=lambda: answers.append(limiter.hit("other").allowed))
        thread.start()
        thread.join(60)
        assert answers == [True]
        in_order(store)

    def test_a_permit_given_back_elsewhere_is_found(self, path: Path, clock: ManualClock) -> None:
        store = ZoneStore(path, size=1 << 16, clock=clock)
        limit = Limit.parse("1 concurrent")
        limiter = Limiter(limit, store=store)
        store.decide([Ask("take", limit, "k", token=100)])
        held: list[int] = []

        def hold() -> None:
            with limiter.hold("k", timeout=10) as permit:
                held.append(permit.token)

        thread = threading.Thread(target=hold)
        thread.start()
        pauses: list[int] = []
        while len(pauses) < 20:
            wakeup = clock.next_wakeup()
            if wakeup is not None and wakeup - clock.now() < 1:  # else only the deadline is set yet
                pauses.append(round((wakeup - clock.now()) * 1e6))
                clock.advance(wakeup - clock.now())
        assert pauses[0] == 2000
        assert pauses == sorted(pauses)
        assert pauses[-1] == 50_000
        store.decide([Ask("release", limit, "k", token=100)])  # nobody here is told
        clock.advance(0.05)
        thread.join(60)
        assert len(held) == 1

    def test_bad_tokens(self, path: Path) -> None:
        store = ZoneStore(path, size=1 << 16)
        for token in (-1, 1 << 63):
            with pytest.raises(ValueError, match="a token is an int"):
                store.decide([Ask("take", RATE, "k", token=token, ttl=5)])
