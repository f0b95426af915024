"""Permits on a store that blocks: taken, renewed, lost, and given back."""

from __future__ import annotations

import asyncio
import threading
import time
from typing import Any

import pytest
from far_store import FarStore, settled

from headgate import AsyncLimiter, Limiter, ManualClock, StoreError
from headgate.heart import heart_of
from headgate.held import Permit


@pytest.fixture
def store(manual_clock: ManualClock) -> FarStore:
    return FarStore(manual_clock)


class TestPermits:
    def test_release_in_a_task_is_sent_at_once(self, store: FarStore) -> None:
        async def main() -> None:
            limiter = AsyncLimiter("1 concurrent", store=store)
            async with limiter.hold("k") as permit:
                assert permit.release()
                assert not permit.release()
                await settled()
                assert (await limiter.peek("k")).remaining == 1
                with pytest.raises(TypeError, match=r"await permit\.extend"):
                    permit.renew(5)
                assert not await permit.extend(5)
            assert (await limiter.peek("k")).remaining == 1

        asyncio.run(main())

    def test_extend_works_on_every_store(self) -> None:
        async def main() -> None:
            async with AsyncLimiter("1 concurrent").hold(ttl=5) as permit:
                assert await permit.extend(60)
                assert permit.renew(60)

        asyncio.run(main())

    def test_the_token_is_the_fence(self, store: FarStore) -> None:
        limiter = Limiter("1 concurrent", store=store)
        with limiter.hold("k") as permit, Limiter("1/s", store=store).hold("k") as other:
            assert permit.token > 0
            assert other.token == 0

        class Fenced:
            fence = 77
            parts: Any = ()

        fenced = Fenced()
        fenced.parts = (fenced,)
        assert Permit(limiter, "k", limiter.asks("take", "k", 1), fenced).token == 77  # type: ignore[arg-type] # enough of a decision

    def test_a_held_permit_is_renewed(self, store: FarStore, manual_clock: ManualClock) -> None:
        limiter = Limiter("2 concurrent", store=store)
        with limiter.hold("k") as permit, limiter.hold("k") as other:
            for _ in range(12):
                _beaten(store, lambda: manual_clock.advance(10 / 3))
                assert limiter.peek("k").remaining == 0
            assert store.asked[-2][0].op == "renew"
            assert not permit.lost
            assert not other.lost
        assert limiter.peek("k").remaining == 2
        _until(lambda: "headgate heart" not in {thread.name for thread in threading.enumerate()})
        assert manual_clock.next_wakeup() is None

    def test_with_a_ttl_it_is_not(self, store: FarStore, manual_clock: ManualClock) -> None:
        limiter = Limiter("1 concurrent", store=store)
        with limiter.hold("k", ttl=5) as permit:
            assert manual_clock.next_wakeup() is None
            manual_clock.advance(5)
            assert limiter.peek("k").remaining == 1
            assert not permit.release()

    def test_a_lost_permit_says_so(self, store: FarStore, manual_clock: ManualClock) -> None:
        limiter = Limiter("1 concurrent", store=store)
        with limiter.hold("k") as permit:
            limiter.reset("k")
            _beaten(store, lambda: manual_clock.advance(10 / 3))
            _until(lambda: permit.lost)
            assert not permit.release()

    def test_a_store_that_is_away_for_longer_than_the_lease(
        self, store: FarStore, manual_clock: ManualClock
    ) -> None:
        limiter = Limiter("1 concurrent", store=store)
        with limiter.hold("k") as permit:
            store.broken = StoreError("away")
            _beaten(store, lambda: manual_clock.advance(10 / 3))
            assert not _lost(permit)
            for _ in range(5):
                if _lost(permit):
                    break
                _beaten(store, lambda: manual_clock.advance(5 / 3))
            _until(lambda: permit.lost)
            store.broken = None

    def test_tasks_have_a_heart_too(self, store: FarStore, manual_clock: ManualClock) -> None:
        async def main() -> None:
            limiter = AsyncLimiter("2 concurrent", store=store)
            async with limiter.hold("k") as permit, limiter.hold("k"):
                for _ in range(12):
                    crossings = store.crossings
                    manual_clock.advance(10 / 3)
                    await settled()
                    assert store.crossings == crossings + 1  # both in one
                    assert (await limiter.peek("k")).remaining == 0
                assert not _lost(permit)
                await limiter.reset("k")
                manual_clock.advance(10 / 3)
                await settled()
                assert _lost(permit)
            assert manual_clock.next_wakeup() is None

        asyncio.run(main())

    def test_hearts_on_the_system_clock(self) -> None:
        store = FarStore()
        store.lease_ttl = 2.0
        limiter = Limiter("2 concurrent", store=store)
        other = AsyncLimiter("2 concurrent", store=store)

        async def main() -> None:
            async with other.hold("k") as permit:
                await asyncio.sleep(2.5)
                assert not permit.lost
                assert (await other.peek("k")).remaining == 0

        with limiter.hold("k") as permit:
            asyncio.run(main())
            assert not permit.lost
        assert limiter.peek("k").remaining == 2

    def test_a_lease_begins_when_its_holder_may_act(
        self, store: FarStore, manual_clock: ManualClock
    ) -> None:
        async def main() -> None:
            limiter = AsyncLimiter("1/minute even", "1 concurrent", store=store)
            permits = AsyncLimiter("1 concurrent", store=store)
            async with limiter.hold("k", ttl=2):
                pass
            task = asyncio.create_task(limiter.hold("k", ttl=2, timeout=None).__aenter__())
            await settled()
            for _ in range(60):
                assert not (await permits.peek("k")).remaining
                manual_clock.advance(1)
            await settled()
            assert task.result().decision.allowed
            manual_clock.advance(1.9)
            assert not (await permits.peek("k")).remaining
            manual_clock.advance(0.1)
            assert (await permits.peek("k")).remaining

        asyncio.run(main())

    def test_a_permit_that_nobody_has_any_more_is_let_go(
        self, store: FarStore, manual_clock: ManualClock
    ) -> None:
        limiter = Limiter("1 concurrent", store=store)
        limiter.hold("k").__enter__()
        manual_clock.advance(9)
        _until(lambda: manual_clock.next_wakeup() is None)
        manual_clock.advance(1)
        assert limiter.peek("k").remaining == 1

    def test_an_interrupt_on_the_way_out(self, store: FarStore, monkeypatch: Any) -> None:
        limiter = Limiter("1 concurrent", store=store)
        give = limiter.give

        def interrupted(*what: Any) -> Any:
            monkeypatch.setattr(limiter, "give", give)
            raise KeyboardInterrupt

        def work() -> None:
            with limiter.hold("k"):
                monkeypatch.setattr(limiter, "give", interrupted)

        with pytest.raises(KeyboardInterrupt):
            work()
        assert limiter.peek("k").remaining == 1

    def test_a_call_that_was_let_pass_holds_nothing(self, store: FarStore) -> None:
        limiter = Limiter("1 concurrent", store=store, refuse_share=0)
        with limiter.hold("k"), limiter.hold("k") as passed:
            assert passed._heart is None


def _lost(permit: Permit) -> bool:
    return permit.lost  # by another thread or task, meanwhile


def _beaten(store: FarStore, move: Any) -> None:
    """Move the clock, and wait until the heart has beaten, and has noted the answer."""
    crossings, heart = store.crossings, heart_of(store, None)
    move()
    _until(lambda: store.crossings > crossings)
    _until(lambda: heart.next() < 0 or heart.next() > store.clock.micros())


def _until(true: Any) -> None:
    """Spin until another thread has come so far."""
    for _ in range(60_000):
        if true():
            return
        time.sleep(0.001)
    raise AssertionError("the other thread did not come so far")
