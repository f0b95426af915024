"""What a million users take: a counter each, 60 counters each, and a full log of 500 an hour.

The classic estimates on paper are 32 MB, 1.6 GB and 12 GB. Each row is measured in a process of
its own, on as many users as fit in a moment, and counts everything but the key's text.
"""

import gc
import json
import subprocess
import sys
from collections.abc import Iterable

from headgate import Limiter, ManualClock

from .rss import resident_bytes

ROWS = {
    "a counter": ("500/hour fixed-window", 500_000, 1, 32e6),
    "60 counters": ("500/hour cells 60", 50_000, 60, 1.6e9),
    "a log of 500": ("500/hour sliding-log", 5_000, 500, 12e9),
}


def measure(limit: str, users: int, hits: int) -> float:
    """Bytes a user, once each has hit at so many different instants of an hour."""
    clock = ManualClock(1_000_000)
    limiter = Limiter(limit, clock=clock)
    keys = [f"user:{number}" for number in range(users)]
    limiter.hit("warm")
    gc.collect()
    before = resident_bytes()
    for _ in range(hits):
        for key in keys:
            limiter.hit(key)
        clock.advance(3600 / hits / 1.01)
    gc.collect()
    return (resident_bytes() - before) / users


def main(arguments: Iterable[str]) -> None:
    """Measure one row as JSON, or print the table of all."""
    for name in arguments:
        limit, users, hits, _ = ROWS[name]
        print(json.dumps(measure(limit, users, hits)))
        return
    print("\nmemory of a million users, the text of their keys apart\n")
    print(f"{'':14}{'limit':26}{'bytes a user':>13}{'a million':>12}{'on paper':>10}")
    for name, (limit, _, _, paper) in ROWS.items():
        child = [sys.executable, "-m", "benchmarks.users", name]
        found = json.loads(subprocess.run(child, check=True, capture_output=True).stdout)
        print(f"{name:14}{limit:26}{found:13.0f}{_size(found * 1e6):>12}{_size(paper):>10}")


def _size(count: float) -> str:
    return f"{count / 1e6:.0f} MB" if count < 1e9 else f"{count / 1e9:.1f} GB"


if __name__ == "__main__":
    main(sys.argv[1:])
