"""An API at 50 calls per 10 seconds, spread evenly instead of all at once.

A bucket that starts empty saves up what was not used, so callers who come in bunches still get
their five a second. `even` saves nothing: two calls are always at least 200 ms apart.
"""

from headgate import Limiter, ManualClock

SECONDS = 10
CALLS = 10  # a second


def passed(limit: str, pause: float) -> list[int]:
    """How many of ten calls a second pass in each of ten seconds."""
    clock = ManualClock()
    api = Limiter(limit, clock=clock)
    api.hit()  # the bucket is first seen now, empty
    counts = []
    for second in range(1, SECONDS + 1):
        clock.advance(second - clock.now())
        count = 0
        for _ in range(CALLS):
            count += bool(api.hit())
            clock.advance(pause)
        counts.append(count)
    return counts


def main() -> dict[str, list[int]]:
    bucket, even = "50/10s token-bucket initial 0", "50/10s even"
    table = {
        f"{bucket}, ten at once": passed(bucket, pause=0),
        f"{even}, ten at once": passed(even, pause=0),
        f"{even}, ten 100 ms apart": passed(even, pause=0.1),
    }
    for load, counts in table.items():
        print(f"{load:44} {counts} = {sum(counts)}")
    return table


if __name__ == "__main__":
    main()
