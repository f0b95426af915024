"""Three workers on one queue: together they handle five orders a second, evenly spread.

An order is taken from the queue only when the limit allows it, so none lies in a worker that may
not handle it yet. Real workers are processes on several machines: they say
`store="redis://..."` and leave `clock=` out. The loop that moves the clock stands here only so
that two seconds pass in no time.
"""

import asyncio
from collections.abc import AsyncIterator

from headgate import AsyncLimiter, ManualClock
from headgate.integrations.consumer import paced


async def orders(queue: asyncio.Queue[int]) -> AsyncIterator[int]:
    """What lies in the queue; a broker's client would wait for more."""
    while not queue.empty():
        yield queue.get_nowait()


async def work(
    queue: asyncio.Queue[int],
    pace: AsyncLimiter,
    clock: ManualClock,
    handled: list[tuple[int, float]],
) -> None:
    async with paced(orders(queue), pace) as messages:
        async for order in messages:
            print(f"{clock.now():.1f} s  order {order}")
            handled.append((order, clock.now()))


async def shop() -> list[tuple[int, float]]:
    clock = ManualClock()
    pace = AsyncLimiter("5/second even", clock=clock)
    queue: asyncio.Queue[int] = asyncio.Queue()
    for order in range(10):
        queue.put_nowait(order)
    handled: list[tuple[int, float]] = []
    workers = [asyncio.create_task(work(queue, pace, clock, handled)) for _ in range(3)]
    while not all(worker.done() for worker in workers):
        await asyncio.sleep(0)
        wakeup = clock.next_wakeup()
        if wakeup is not None:
            clock.advance(wakeup - clock.now())
    return handled


def main() -> list[tuple[int, float]]:
    return asyncio.run(shop())


if __name__ == "__main__":
    main()
