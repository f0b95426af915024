"""A process of its own that hits one key of a zone: started by the scenario zone-two.

It says that it is ready, then reads a start and an end, as `time.monotonic_ns` tells them to every
process of a machine, and answers with its hits and the nanoseconds they took, until there is
nothing more to read.
"""

import sys
from itertools import repeat
from time import monotonic_ns

from benchmarks.keys import HOT_KEY
from benchmarks.loops import by_truth
from headgate import Limiter

_CHUNK = 500


def main(address: str, text: str) -> None:
    """Hit as told."""
    hit = Limiter(text, store=address).hit
    print("ready", flush=True)
    for line in sys.stdin:
        start, end = map(int, line.split())
        while monotonic_ns() < start:
            pass
        hits, begun = 0, monotonic_ns()
        while (now := monotonic_ns()) < end:
            by_truth(hit, repeat(HOT_KEY, _CHUNK))
            hits += _CHUNK
        print(f"[{hits}, {max(1, now - begun)}]", flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
