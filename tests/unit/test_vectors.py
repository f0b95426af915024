"""Numbers that well-known systems publish in their own tests; ours agree.

From Guava's RateLimiter, redis-cell and throttled, golang.org/x/time/rate, bucket4j, nginx and
Sentinel. Times in seconds.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from math import inf

import pytest

from headgate import Ask, AsyncLimiter, Limit, Limiter, LimitExceeded, ManualClock, MemoryStore
from headgate.algorithms import rule_of

Wait = float | str


def waits(limiter: Limiter, clock: ManualClock, permits: list[int]) -> list[float]:
    """How long each acquire sleeps before it passes."""
    slept = []
    for cost in permits:
        decision = limiter.hit("k", cost)
        start = clock.now()
        if not decision:
            clock.advance(decision.retry_after)
            assert limiter.hit("k", cost)
        slept.append(round(clock.now() - start, 6))
    return slept


class TestGuavaSmoothBursty:
    def limiter(self, rate: int, clock: ManualClock) -> Limiter:
        return Limiter(f"{rate}/second debt initial 0 name guava", clock=clock)

    def test_simple(self, manual_clock: ManualClock) -> None:
        limiter = self.limiter(5, manual_clock)
        assert waits(limiter, manual_clock, [1, 1, 1]) == [0, 0.2, 0.2]

    def test_the_next_caller_pays(self, manual_clock: ManualClock) -> None:
        limiter = self.limiter(1, manual_clock)
        assert waits(limiter, manual_clock, [1, 1, 2, 4, 8, 1]) == [0, 1, 1, 2, 4, 8]

    def test_with_a_wait_between(self, manual_clock: ManualClock) -> None:
        limiter = self.limiter(5, manual_clock)
        assert waits(limiter, manual_clock, [1]) == [0]
        manual_clock.advance(0.2)
        assert waits(limiter, manual_clock, [1, 1]) == [0, 0.2]

    def test_one_second_of_burst(self, manual_clock: ManualClock) -> None:
        limiter = self.limiter(5, manual_clock)
        limiter.hit("k", 1)  # a key is first seen when it is first asked for
        manual_clock.advance(2)
        assert waits(limiter, manual_clock, [1, 5, 1]) == [0, 0, 0.2]

    def test_bursty_and_update(self, manual_clock: ManualClock) -> None:
        limiter = self.limiter(1, manual_clock)
        assert waits(limiter, manual_clock, [1, 1]) == [0, 1]
        limiter.set_limit("k", "2/second debt initial 0")
        assert waits(limiter, manual_clock, [1, 2, 4, 1]) == [1, 0.5, 1, 2]


class TestGuavaWarmUp:
    def test_warm_up(self, manual_clock: ManualClock) -> None:
        limiter = Limiter("2/second warm-up 4s cold 3", clock=manual_clock)
        cold = [0, 1.375, 1.125, 0.875, 0.625, 0.5, 0.5, 0.5]
        assert waits(limiter, manual_clock, [1] * 8) == cold
        manual_clock.advance(0.5 + 4)
        assert waits(limiter, manual_clock, [1] * 8) == cold
        manual_clock.advance(0.5 + 2)
        assert waits(limiter, manual_clock, [1] * 8) == [0] + [0.5] * 7

    def test_cold_factor(self, manual_clock: ManualClock) -> None:
        limiter = Limiter("5/second warm-up 4s cold 10", clock=manual_clock)
        slept = [round(wait, 2) for wait in waits(limiter, manual_clock, [1] * 8)]
        assert slept == [0, 1.75, 1.26, 0.76, 0.30, 0.2, 0.2, 0.2]

    def test_warm_up_and_update(self, manual_clock: ManualClock) -> None:
        limiter = Limiter("2/second warm-up 4s", clock=manual_clock)
        waits(limiter, manual_clock, [1] * 8)
        manual_clock.advance(4.5)
        assert waits(limiter, manual_clock, [1] * 3) == [0, 1.375, 1.125]
        limiter.set_limit("k", "4/second warm-up 4s")
        slept = [round(wait, 2) for wait in waits(limiter, manual_clock, [1] * 5)]
        assert slept == [0.88, 0.34, 0.28, 0.25, 0.25]
        manual_clock.advance(4.25)
        slept = [round(wait, 2) for wait in waits(limiter, manual_clock, [1] * 11)]
        assert slept == [0, 0.72, 0.66, 0.59, 0.53, 0.47, 0.41, 0.34, 0.28, 0.25, 0.25]


GCRA = [
    (0, 6, 5, 0, inf, True),
    (0, 1, 4, 1, 0, False),
    (0, 1, 3, 2, 0, False),
    (0, 1, 2, 3, 0, False),
    (0, 1, 1, 4, 0, False),
    (0, 1, 0, 5, 0, False),
    (0, 1, 0, 5, 1, True),
    (3, 1, 2, 3, 0, False),
    (3.1, 1, 1, 3.9, 0, False),
    (4.1, 0, 2, 2.9, 0, False),
]


def test_gcra(manual_clock: ManualClock) -> None:
    limiter = Limiter("1/second gcra burst 5", clock=manual_clock)
    start = manual_clock.now()
    for at, cost, remaining, reset, retry, refused in GCRA:
        manual_clock.advance(start + at - manual_clock.now())
        d = limiter.hit("k", cost)
        answer = (at, cost, d.remaining, d.reset_after, d.retry_after, not d)
        assert answer == (at, cost, remaining, reset, retry, refused)


GO = {
    "10/second burst 3": [
        (0.0, 3, 2, True), (0.0, 1, 2, False), (0.0, 1, 1, True), (0.0, 0, 1, False),
        (0.1, 1, 4, False), (0.2, 2, 1, True), (0.3, 2, 1, True), (0.4, 2, 1, True),
        (0.4, 1, 1, True), (0.4, 0, 1, False), (0.9, 3, 3, True), (0.9, 0, 0, True),
    ],
    "10/second burst 1": [
        (0.0, 1, 1, True), (0.0, 0, 1, False), (0.1, 1, 1, True), (0.1, 0, 1, False),
        (0.2, 1, 2, False), (0.2, 1, 1, True), (0.2, 0, 1, False),
    ],
}  # fmt: skip


@pytest.mark.parametrize("text", GO)
def test_token_bucket(text: str, manual_clock: ManualClock) -> None:
    limiter = Limiter(text, clock=manual_clock)
    start = manual_clock.now()
    for at, before, cost, allowed in GO[text]:
        manual_clock.advance(start + at - manual_clock.now())
        assert (at, limiter.peek("k").remaining) == (at, before)
        assert (at, limiter.hit("k", cost).allowed) == (at, allowed)


class TestGoReservations:
    """x/time/rate at 10/s: when a reservation may act, in tenths of a second."""

    def book(self, store: MemoryStore, limit: Limit, cost: int) -> int:
        (decision,) = store.decide([Ask("take", limit, "k", cost, max_wait=10_000_000)])
        assert decision.allowed
        return round((store.clock.now() - 1_000_000 + decision.delay) * 10)

    def cancel(self, store: MemoryStore, limit: Limit, cost: int, at: int) -> None:
        micros = (10_000_000 + at) * 100_000
        store.decide([Ask("refund", limit, "k", cost, at=micros)])

    @pytest.mark.parametrize("algorithm", ["token-bucket", "gcra"])
    def test_simple(self, algorithm: str, manual_clock: ManualClock) -> None:
        store, limit = MemoryStore(clock=manual_clock), Limit.parse(f"10/s {algorithm} burst 2")
        assert self.book(store, limit, 2) == 0
        assert self.book(store, limit, 2) == 2
        manual_clock.advance(0.3)
        assert self.book(store, limit, 2) == 4

    @pytest.mark.parametrize("algorithm", ["token-bucket", "gcra"])
    def test_cancel(self, algorithm: str, manual_clock: ManualClock) -> None:
        store, limit = MemoryStore(clock=manual_clock), Limit.parse(f"10/s {algorithm} burst 2")
        assert self.book(store, limit, 2) == 0
        assert self.book(store, limit, 2) == 2
        manual_clock.advance(0.1)
        self.cancel(store, limit, 2, at=2)
        assert self.book(store, limit, 2) == 2

    @pytest.mark.parametrize("algorithm", ["token-bucket", "gcra"])
    def test_cancel_with_somebody_behind(self, algorithm: str, manual_clock: ManualClock) -> None:
        store, limit = MemoryStore(clock=manual_clock), Limit.parse(f"10/s {algorithm} burst 4")
        assert self.book(store, limit, 4) == 0
        assert self.book(store, limit, 3) == 3
        assert self.book(store, limit, 1) == 4
        manual_clock.advance(0.1)
        self.cancel(store, limit, 3, at=3)  # only 2 come back: one more was booked behind
        assert self.book(store, limit, 3) == 5


BUCKET4J = [
    (90, 100, 1, 10, 10000, 10017, 91, 7),
    (0, 100, 1, 10, 10000, 10003, 0, 3),
    (55, 1000, 1000, 1000, 10000, 9999, 55, 0),
]


@pytest.mark.parametrize("row", BUCKET4J)
def test_bucket_remainder(row: tuple[int, ...]) -> None:
    tokens, capacity, refill, period, start, end, expected, remainder = row
    limit = Limit(refill, per=period / 1_000_000, algorithm="token-bucket", burst=capacity)
    rule = rule_of(limit)
    _, missing = rule.drain(start, (capacity - tokens) * period, end)
    assert divmod(capacity * period - missing, period) == (expected, remainder)


NGINX = [
    ("2/second leaky-bucket queue 1 nodelay", [0, 0, 0, 0.5], [0, 0, "refuse", 0]),
    ("2/second leaky-bucket burst 1", [0, 0, 0, 0.5], [0, 0, "refuse", 0]),
    ("1/second leaky-bucket queue 5", [0] * 7, [0, 1, 2, 3, 4, 5, "refuse"]),
    ("1/second leaky-bucket queue 5 delay 2", [0] * 7, [0, 0, 0, 1, 2, 3, "refuse"]),
    ("1/second leaky-bucket", [0, 0, 0.5, 1], [0, "refuse", "refuse", 0]),
]
PACING = ("10/second even", [0] * 7, [0, 0.1, 0.2, 0.3, 0.4, 0.5, "refuse"])


async def slept(limit: str, at: Sequence[float], timeout: float) -> list[Wait]:
    """What each request of a trace gets: its delay, or a refusal."""
    clock = ManualClock(1_000_000)
    limiter = AsyncLimiter(limit, clock=clock)
    start, answers = clock.now(), dict[int, Wait]()

    async def request(number: int) -> None:
        begin = clock.now()
        try:
            await limiter.wait("k", timeout=timeout)
        except LimitExceeded:
            answers[number] = "refuse"
        else:
            answers[number] = round(clock.now() - begin, 6)

    tasks = []
    for number, when in enumerate(at):
        clock.advance(start + when - clock.now())
        tasks.append(asyncio.create_task(request(number)))
        await asyncio.sleep(0)
    while (wakeup := clock.next_wakeup()) is not None:
        clock.advance(wakeup - clock.now())
        await asyncio.sleep(0)
    await asyncio.gather(*tasks)
    return [answers[number] for number in range(len(at))]


@pytest.mark.parametrize(("limit", "at", "answers"), NGINX)
def test_nginx_limit_req(limit: str, at: list[float], answers: list[Wait]) -> None:
    timeout = 60 if "queue" in limit and "nodelay" not in limit else 0
    assert asyncio.run(slept(limit, at, timeout)) == answers


def test_sentinel_pacing() -> None:
    limit, at, answers = PACING
    assert asyncio.run(slept(limit, at, timeout=0.5)) == answers
