"""The scenarios by name: each measures one algorithm of one rival in the process it runs in."""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from benchmarks import asgi, breaker, far, policy
from benchmarks.rivals import BY_NAME, Rival
from benchmarks.scenarios import (
    batch,
    memory,
    redis_inside,
    redis_near,
    redis_speed,
    rules,
    speed,
    threads,
    users,
    zone,
)

Measure = Callable[[Rival, Any, str, bool], dict[str, float]]
"""From a rival, the factory of one of its algorithms, its name and haste to numbers."""

CORE = ("fixed-window", "sliding-window", "token-bucket", "gcra")
"""The algorithms of a few words of state, which the targets of speed are about."""


@dataclass(frozen=True)
class Scenario:
    """What to measure, how often, and which rivals can take part."""

    title: str
    measure: Measure
    rounds: int
    yardstick: str = ""
    """What was measured beside it in the same process."""
    needs_keys: bool = False
    needs_refusal: bool = False
    only: Collection[str] = ()
    """The rivals it is about; all if there are none."""
    algorithms: Collection[str] = ()
    """The algorithms it is about; all if there are none."""
    far: str = ""
    """The way of asking a Redis that it is about; none if everything is in memory."""
    ways: Collection[str] = ()
    """What it measures in place of algorithms, if it is about something else."""

    def offers(self, name: str, rival: Rival) -> Mapping[str, Any]:
        """The algorithms of a rival that it can measure, each with its factory."""
        if self.ways:
            return dict.fromkeys(self.ways)
        return far.table(name, self.far) if self.far else rival.ALGORITHMS

    def covers(self, rival: str, algorithm: str) -> bool:
        """Whether it is about an algorithm of a rival at all."""
        return (not self.only or rival in self.only) and (
            not self.algorithms or algorithm in self.algorithms
        )

    def excludes(self, rival: Rival) -> str | None:
        """Why a rival cannot take part, or None."""
        if self.needs_keys and not rival.KEYED:
            return "no keys"
        if self.needs_refusal and rival.ASYNC:
            return "only waits"
        return None


_OURS = tuple(name for name, entry in BY_NAME.items() if entry.ours)
_COMPILED = ("headgate",)

# What the scenarios of a family have in common.
_speed = partial(Scenario, rounds=3, yardstick="clock reads")
_zone = partial(Scenario, rounds=3, yardstick="hits in memory", only=_COMPILED, algorithms=CORE)
_call = partial(Scenario, rounds=2, yardstick="clock reads", only=_OURS)
_script = partial(Scenario, rounds=3, yardstick="of evalsha")
_near = partial(Scenario, yardstick="hits in memory", far="near")

SCENARIOS = {
    # In memory.
    "hot-allowed": _speed("one hot key, every hit allowed", speed.hot_allowed),
    "hot-refused": _speed("one hot key, every hit refused", speed.hot_refused, needs_refusal=True),
    "many-keys": _speed(
        "100,000 keys in random order", speed.many_keys, yardstick="dict updates", needs_keys=True
    ),
    "hit-many": _speed(
        "hit_many on 10,000 keys, beside a hit for each", batch.hit_many,
        yardstick="of hit", only=_OURS, algorithms=CORE,
    ),
    # In a zone.
    "zone-allowed": _zone(
        "a zone, one hot key, allowed, beside the same hit in memory", zone.allowed
    ),
    "zone-refused": _zone(
        "a zone, one hot key, refused, beside the same hit in memory", zone.refused
    ),
    "zone-two": _zone(
        "a zone, two processes on one hot key, beside one alone", zone.two_processes,
        yardstick="of one alone",
    ),
    # Exactness and memory.
    "threads": Scenario(
        "4 threads on one key, 40,000 hits for 20,000 places", threads.exactness, rounds=2,
        needs_refusal=True,
    ),
    "memory": Scenario("memory per key", memory.per_key, rounds=1, needs_keys=True),
    "users": Scenario(
        "memory of a million users, the text of their keys apart", users.growth, rounds=1,
        only=_OURS, algorithms=users.ALGORITHMS,
    ),
    # What is added to a call.
    "asgi": _call(
        "what a limit adds to a call of an ASGI application, beside what others add", asgi.added,
        ways=asgi.ALGORITHMS,
    ),
    "breaker": _call(
        "what a closed breaker adds to a call, beside what others add", breaker.added,
        yardstick="bare calls", ways=breaker.WAYS,
    ),
    "rules": _call(
        "a match among 10,000 rules, beside one among 10", rules.matching, rounds=1,
        yardstick="of 10", only=_COMPILED, ways=rules.WAYS,
    ),
    "policy": _call(
        "a call through breaker, bulkhead, time limit and fallback, beside the breaker alone",
        policy.beside_breaker, rounds=3, yardstick="of the breaker", ways=policy.WAYS,
    ),
    "retry": _call(
        "what a retry adds to a call that goes well, beside what others add", policy.retry_adds,
        ways=policy.WAYS,
    ),
    # On Redis.
    "redis-sync": _script(
        "Redis, one thread, beside redis-py's evalsha of a script that does nothing",
        redis_speed.sync, far="sync",
    ),
    "redis-three": _script(
        "Redis, three limits at once, beside one evalsha of a script that does nothing",
        redis_speed.sync, far="three",
    ),
    "redis-async": Scenario(
        "Redis, 64 tasks, beside 64 tasks of redis-py's asyncio INCR", redis_speed.tasks,
        rounds=2, yardstick="of INCR", far="async",
    ),
    "redis-lease": _near(
        "Redis, a leased hot key, beside the same hit in memory", redis_near.lease, rounds=2
    ),
    "redis-refused": _near(
        "Redis, a hot key known to be over its limit, beside the same hit in memory",
        redis_near.refused, rounds=3,
    ),
    "redis-server-work": Scenario(
        "Redis, the server's own time for a decision, beside a script of INCR and EXPIRE",
        redis_inside.work, rounds=3, yardstick="of INCR+EXPIRE", far="work",
    ),
    "redis-memory": Scenario(
        "Redis, the server's memory for a key of twelve characters", redis_inside.memory,
        rounds=1, far="memory",
    ),
}  # fmt: skip
