"""The scenarios by name: each measures one algorithm of one rival in the process it runs in."""

from collections.abc import Callable
from dataclasses import dataclass

from benchmarks.loops import Factory
from benchmarks.rivals import Rival
from benchmarks.scenarios import memory, speed, threads

Measure = Callable[[Rival, Factory, str, bool], dict[str, float]]


@dataclass(frozen=True)
class Scenario:
    """What to measure, how often, and which rivals can take part."""

    title: str
    measure: Measure
    rounds: int
    needs_keys: bool = False
    needs_refusal: bool = False

    def excludes(self, rival: Rival) -> str | None:
        """Why a rival cannot take part, or None."""
        if self.needs_keys and not rival.KEYED:
            return "no keys"
        if self.needs_refusal and rival.ASYNC:
            return "only waits"
        return None


SCENARIOS = {
    "hot-allowed": Scenario("one hot key, every hit allowed", speed.hot_allowed, rounds=4),
    "hot-refused": Scenario(
        "one hot key, every hit refused", speed.hot_refused, rounds=4, needs_refusal=True
    ),
    "many-keys": Scenario(
        "100,000 keys in random order", speed.many_keys, rounds=3, needs_keys=True
    ),
    "threads": Scenario(
        "4 threads on one key, 40,000 hits for 20,000 places",
        threads.exactness,
        rounds=3,
        needs_refusal=True,
    ),
    "memory": Scenario("memory per key", memory.per_key, rounds=1, needs_keys=True),
}
