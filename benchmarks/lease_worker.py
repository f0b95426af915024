"""A process of its own that hits one leased key: started by the scenario redis-lease.

It says that it is ready, reads a start and an end in nanoseconds since 1970, hits as fast as it
can between them, and answers with the instants of what it was admitted and with how many
decisions were not the server's.
"""

import json
import sys
from time import time_ns

from benchmarks.keys import HOT_KEY
from headgate import Limiter


def main(address: str, text: str) -> None:
    """Hit as told."""
    with Limiter(text, store=address) as limiter:
        limiter.hit("warm")
        hit = limiter.hit
        print("ready", flush=True)
        start, end = map(int, sys.stdin.readline().split())
        admitted: list[int] = []
        strange = 0
        while (now := time_ns()) < end:
            if now < start:
                continue
            decision = hit(HOT_KEY)
            strange += decision.degraded
            if decision:
                admitted.append(time_ns())
        print(json.dumps([admitted, strange]), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
