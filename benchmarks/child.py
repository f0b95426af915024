"""One measurement in a process of its own: `python -m benchmarks.child many-keys limits gcra`."""

import json
import os
import sys

from benchmarks import yardsticks
from benchmarks.rivals import BY_NAME
from benchmarks.scenarios import SCENARIOS, memory, redis_speed


def measure(scenario: str, rival: str, algorithm: str, quick: bool) -> dict[str, float]:
    """Run one scenario for one algorithm of one rival, here."""
    entry = BY_NAME[rival]
    entry.check_form()
    module = entry.load()
    asked = SCENARIOS[scenario]
    return asked.measure(module, asked.offers(rival, module)[algorithm], algorithm, quick)


def main(arguments: list[str]) -> None:
    """Print the measurement named by the arguments as JSON."""
    quick = "--quick" in arguments
    words = [word for word in arguments if word != "--quick"]
    if words == ["yardsticks"]:
        answer = yardsticks.measure()
    elif words == ["redis-yardsticks"]:
        answer = redis_speed.yardsticks()
    elif words == ["dict-memory"]:
        answer = {"bytes": yardsticks.dict_bytes_per_key(memory.QUICK if quick else memory.FULL)}
    else:
        scenario, rival, algorithm = words
        answer = measure(scenario, rival, algorithm, quick)
    print(json.dumps(answer), flush=True)
    # Taking a million keys apart, or waiting for a rival's timer, is not part of the job.
    os._exit(0)


if __name__ == "__main__":
    main(sys.argv[1:])
