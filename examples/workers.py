"""Four workers of one machine: in memory each counts for itself, in a zone they count together.

Every worker is a process of its own, as those of a web server are, and makes the same limiter.
"""

import subprocess
import sys
import tempfile

from headgate import Limiter

LIMIT = "100/hour"
WORKERS = 4


def work(store: str) -> int:
    """What a worker does: 100 calls of one user; how many pass."""
    limiter = Limiter(LIMIT, store=store)
    return sum(limiter.hit("user:42").allowed for _ in range(100))


def admitted(store: str) -> int:
    """How many calls pass in all workers together."""
    command = [sys.executable, __file__, store]
    workers = [subprocess.Popen(command, stdout=subprocess.PIPE) for _ in range(WORKERS)]
    return sum(int(worker.communicate()[0]) for worker in workers)


def main() -> dict[str, int]:
    with tempfile.TemporaryDirectory() as folder:  # a service would take /run or /dev/shm
        passed = {
            "memory": admitted("memory://"),
            "zone": admitted(f"zone://{folder}/app.zone?size=1MiB"),
        }
    for store, count in passed.items():
        print(f"{LIMIT}, {WORKERS} workers, {store}: {count} of {WORKERS * 100} passed")
    return passed


if __name__ == "__main__":
    if len(sys.argv) > 1:
        print(work(sys.argv[1]))
    else:
        main()
