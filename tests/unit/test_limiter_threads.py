"""Limiters in many threads, and in a forked child."""

from __future__ import annotations

import multiprocessing
import sys
import threading

import pytest

from headgate import (
    Limiter,
)


class TestThreads:
    @pytest.mark.parametrize(
        "text",
        ["fixed-window", "sliding-window", "cells 10", "sliding-log", "token-bucket", "gcra",
         "leaky-bucket burst 499", "debt burst 499"],
    )  # fmt: skip
    def test_16_threads_at_a_tiny_switch_interval(self, text: str) -> None:
        interval = sys.getswitchinterval()
        sys.setswitchinterval(1e-6)
        try:
            for _ in range(3):
                assert _stress(Limiter(f"500/day {text}"), 16, 50) == 500
        finally:
            sys.setswitchinterval(interval)

    def test_several_limits_under_threads(self) -> None:
        interval = sys.getswitchinterval()
        sys.setswitchinterval(1e-6)
        try:
            limiter = Limiter("300/day", "200/day gcra", "250/day cells 24")
            assert _stress(limiter, 16, 30) == 200
            assert [part.remaining for part in limiter.peek("k").parts] == [100, 0, 50]
        finally:
            sys.setswitchinterval(interval)

    def test_permits_under_threads(self) -> None:
        limiter, most, inside, lock = Limiter("3 concurrent"), 0, 0, threading.Lock()

        def work() -> None:
            nonlocal most, inside
            for _ in range(50):
                with limiter.hold("k", timeout=None):
                    with lock:
                        inside += 1
                        most = max(most, inside)
                    with lock:
                        inside -= 1

        threads = [threading.Thread(target=work) for _ in range(16)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert most <= 3
        assert limiter.peek("k").remaining == 3


@pytest.mark.skipif(sys.platform == "win32", reason="there is no fork")
def test_a_forked_child_neither_hangs_nor_waits_behind_its_parent() -> None:
    limiter = Limiter("10/second even")
    limiter.hit("k")
    threads = [threading.Thread(target=limiter.wait, args=("k",)) for _ in range(5)]
    for thread in threads:
        thread.start()
    context = multiprocessing.get_context("fork")
    limiter.store._lock.acquire()  # type: ignore[attr-defined] # as if a thread were inside
    child = context.Process(target=_child, args=(limiter,))
    child.start()
    limiter.store._lock.release()  # type: ignore[attr-defined]
    child.join(60)
    assert child.exitcode == 0
    for thread in threads:
        thread.join()


def _child(limiter: Limiter) -> None:
    limiter.wait("k", timeout=5)
    limiter.hit("other")


def _stress(limiter: Limiter, threads: int, hits: int) -> int:
    passed: list[int] = []
    barrier = threading.Barrier(threads)

    def work() -> None:
        barrier.wait()
        passed.append(sum(limiter.hit("k").allowed for _ in range(hits)))

    workers = [threading.Thread(target=work) for _ in range(threads)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    return sum(passed)
