"""An API in front of a database whose capacity nobody knows, and which loses half of it.

The limiter finds out how many calls at once are right. Half of them are guaranteed to checkout,
and reports are refused first. A real program makes its limiter without `clock=` and writes
`with limiter.hold("checkout"):`; the simulated database stands here so that a minute passes in
no time.
"""

from random import Random

from headgate import ManualClock
from headgate.resilience.adaptive import AdaptiveLimiter, Vegas
from headgate.resilience.adaptive.simulation import SimulatedServer


def plot(course: list[int], columns: int = 72) -> None:
    """The limit after each call, the highest on top."""
    shown = [course[place * len(course) // columns] for place in range(columns)]
    for height in range(80, 0, -10):
        print(f"{height:4} |" + "".join("#" if limit >= height else " " for limit in shown))
    print("     +" + "-" * columns + " calls")


def main() -> dict[str, object]:
    clock = ManualClock()
    database = SimulatedServer(clock, workers=60, service=0.05)
    limiter = AdaptiveLimiter(
        Vegas(random=Random(1)), name="database", partitions={"checkout": 0.5}, clock=clock
    )
    found: dict[str, object] = {}
    course = []
    for workers in (60, 30):
        database.workers = workers
        course += database.run(limiter, seconds=15)
        done = database.done
        limits = database.run(limiter, seconds=5)
        course += limits
        limit, rate = sum(limits) / len(limits), (database.done - done) / 5
        found[f"{workers} workers"] = 0.8 < limit / workers < 1.2
        print(f"{workers} workers: limit {limit:.0f}, {rate:.0f} calls a second")
    plot(course)

    while database.step():  # a quiet moment
        pass
    late = limiter.admit("checkout", deadline=0.01)
    found["10 ms left"] = "let in" if late else "refused at once"
    print("10 ms left:", found["10 ms left"])

    permits = []
    for what, priority in (("reports", -1), ("searches", 0), ("checkout", 0)):
        permits.append([permit for _ in range(100) if (permit := limiter.admit(what, priority))])
        found[what] = len(permits[-1])
    print(f"at a limit of {limiter.limit}, 100 of each at once:", end=" ")
    print(", ".join(f"{found[what]} {what}" for what in ("reports", "searches", "checkout")))
    return found


if __name__ == "__main__":
    main()
