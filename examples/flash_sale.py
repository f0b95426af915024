"""A flash sale: 100 items, 10,000 buyers in many threads, exactly 100 are sold.

The anchor is the opening of the sale: nothing passes before it.
"""

from concurrent.futures import ThreadPoolExecutor
from datetime import datetime

from headgate import Limiter, ManualClock

OPENING = "2026-11-11T00:00+08:00"
BUYERS = 10_000
THREADS = 32


def main() -> tuple[int, int]:
    clock = ManualClock(datetime.fromisoformat(OPENING).timestamp() - 60)
    sale = Limiter(f"100/day fixed-window anchor {OPENING}", clock=clock)

    def buy(buyer: int) -> bool:
        return sale.hit("item:42").allowed

    early = sale.hit("item:42")
    print(f"before the opening: {'sold' if early else 'not yet'}, {early.retry_after:g} s to go")
    clock.advance(early.retry_after)

    with ThreadPoolExecutor(THREADS) as crowd:
        sold = sum(crowd.map(buy, range(BUYERS), chunksize=100))

    print(f"{BUYERS} buyers, {sold} sold")
    return int(early.allowed), sold


if __name__ == "__main__":
    main()
