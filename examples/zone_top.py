"""Who is it? A zone that keeps keys counts hits and refusals of each, for all workers at once.

The same table comes from outside, while the workers run: headgate zone top PATH
"""

from headgate import Limiter, ManualClock
from headgate.stores.zone import ZoneStore

VISITORS = {"10.0.0.7": 12, "10.0.0.8": 480, "10.0.0.9": 31, "10.0.0.10": 3}


def main() -> list[tuple[str, int, int]]:
    zone = ZoneStore.anonymous(size=1 << 20, keys=True, clock=ManualClock())
    visits = Limiter("20/minute fixed-window", store=zone)
    for address, calls in VISITORS.items():
        for _ in range(calls):
            visits.hit(("ip", address))

    busiest = [(row["key"], row["hits"], row["refusals"]) for row in zone.top(3)]
    for key, hits, refusals in busiest:
        print(f"{key:15} {hits:4} passed {refusals:4} refused")
    print(f"{zone.keys} keys, {zone.evicted} evicted")
    zone.close()
    return busiest


if __name__ == "__main__":
    main()
