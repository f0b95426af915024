"""Calling a metered API: ten tasks at once, and every call waits for its turn.

A real program makes its limiter without `clock=` and awaits; the loop that moves the clock
stands here only so that two seconds pass in no time.
"""

import asyncio

from headgate import AsyncLimiter, ManualClock


async def crawl(clock: ManualClock) -> list[tuple[int, float]]:
    pace = AsyncLimiter("5/second even", clock=clock)
    started = []

    async def call(page: int) -> None:
        await pace.wait("api.example.com", priority=1 if page == 9 else 0)
        started.append((page, clock.now()))

    tasks = [asyncio.create_task(call(page)) for page in range(10)]
    while not all(task.done() for task in tasks):
        await asyncio.sleep(0)
        wakeup = clock.next_wakeup()
        if wakeup is not None:
            clock.advance(wakeup - clock.now())
    return started


def main() -> list[tuple[int, float]]:
    started = asyncio.run(crawl(ManualClock()))
    for page, when in started:
        print(f"{when:.1f} s  page {page}{'  (priority)' if page == 9 else ''}")
    return started


if __name__ == "__main__":
    main()
