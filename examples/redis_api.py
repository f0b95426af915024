"""An API on three machines: whichever of them a call reaches, the same limit holds.

With REDIS_URL (such as redis://localhost:6379/0) the counts are kept by that server. Without
it they are kept in memory, and this one process plays all machines.
"""

import os

from headgate import Limiter, MemoryStore

URL = os.environ.get("REDIS_URL")
STORE = URL or MemoryStore()  # each machine opens the server for itself


def started() -> Limiter:
    """What every machine makes when it starts: a few an hour, and not too many a day."""
    return Limiter(
        "3/hour first-hit name hourly", "20/day first-hit name daily", name="createURL", store=STORE
    )


def handle(machine: Limiter, user: str) -> int:
    """The status that a call is answered with."""
    decision = machine.hit(("user", user))
    if decision.degraded:
        print("  the server does not answer: this machine decides by itself")
    if not decision:
        print(f"  {user}: 429, retry after {decision.retry_after:.0f} s")
        return 429
    print(f"  {user}: 200, {decision.remaining} left")
    return 200


def main() -> dict[str, list[int]]:
    machines = [started() for _ in range(3)]
    for user in ("ann", "bob"):  # in case this ran before
        machines[0].reset(("user", user))
        machines[0].set_limit(("user", user), None)

    print("ann calls five times, each time another machine")
    ann = [handle(machines[call % 3], "ann") for call in range(5)]

    print("bob calls twice, and buys more, which the third machine enters")
    bob = [handle(machines[call % 3], "bob") for call in range(2)]
    machines[2].set_limit(("user", "bob"), "6/hour first-hit", None)
    bob += [handle(machines[call % 3], "bob") for call in range(2, 7)]

    for machine in machines:
        machine.close()
    return {"ann": ann, "bob": bob}


if __name__ == "__main__":
    main()
