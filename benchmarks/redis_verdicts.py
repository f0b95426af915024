"""The targets on Redis: decisions beside redis-py, beside a hit in memory, inside the server."""

from collections.abc import Iterator

from benchmarks.rows import Results, Row
from benchmarks.scenarios.redis_near import PROCESSES
from benchmarks.verdict import Verdict, verdict

_OURS = "headgate"
_SMALL_STATE = (
    "fixed-window", "sliding-window", "token-bucket", "gcra", "leaky-bucket", "even",
)  # fmt: skip
"""The algorithms whose state is a few words."""
_SOME_STATE = (*_SMALL_STATE, "sliding-cells")
"""All but the log, which remembers every hit."""
_LEAST_SPEED = {
    "redis-sync": (1.1, "redis-py's evalsha", _SOME_STATE),
    "redis-three": (0.9, "one evalsha of redis-py's", (*_SMALL_STATE, "three kinds")),
    "redis-async": (5.0, "redis-py's INCR with as many tasks", _SOME_STATE),
}
"""How many decisions there are at least in the time of one of the yardstick's calls."""
_MOST_TIMES = {"redis-lease": 3.0, "redis-refused": 3.0}
_MOST_WORK = dict.fromkeys(_SMALL_STATE, 4.0) | {"gcra": 3.0}
_MOST_BYTES = 112


def _speed(results: Results) -> Iterator[Verdict]:
    for scenario, (least, yardstick, algorithms) in _LEAST_SPEED.items():
        for row in results.of(scenario, _OURS):
            if row.job.algorithm in algorithms:
                yield verdict(
                    f"{scenario}, {row.job.algorithm}, at least {least:.1f} x {yardstick}",
                    _speed_span(row),
                    1 / row.times() >= least,
                    row,
                )


def _speed_span(row: Row) -> str:
    rounds = row.rounds()
    return f"{1 / row.times():.2f} x (rounds {1 / rounds[-1]:.2f} to {1 / rounds[0]:.2f})"


def _span(row: Row) -> str:
    rounds = row.rounds()
    return f"{row.times():.2f} x (rounds {rounds[0]:.2f} to {rounds[-1]:.2f})"


def _near(results: Results) -> Iterator[Verdict]:
    for scenario, most in _MOST_TIMES.items():
        for row in results.of(scenario, _OURS):
            target = f"{scenario}, {row.job.algorithm}, at most {most:.0f} x the same hit in memory"
            yield verdict(target, _span(row), row.times() <= most, row)
    for row in results.of("redis-lease", _OURS):
        excess, bound = max(run["excess"] for run in row.runs), row.runs[0]["bound"]
        yield verdict(
            f"redis-lease, {row.job.algorithm}, {PROCESSES} processes, at most {bound:.0f} over"
            " the limit",
            f"{excess:.0f} over it",
            excess <= bound,
            row,
        )


def _inside(results: Results) -> Iterator[Verdict]:
    for row in results.of("redis-server-work", _OURS):
        if most := _MOST_WORK.get(row.job.algorithm):
            target = f"redis-server-work, {row.job.algorithm}, at most {most:.0f} x INCR+EXPIRE"
            yield verdict(target, _span(row), row.times() <= most, row)
    for row in results.of("redis-memory", _OURS):
        if row.job.algorithm in _SMALL_STATE:
            found = row.best("bytes")
            target = f"redis-memory, {row.job.algorithm}, at most {_MOST_BYTES} bytes a key"
            yield verdict(target, f"{found:.0f} bytes", found <= _MOST_BYTES, row)


def judge_redis(results: Results) -> Iterator[Verdict]:
    """Hold every target on Redis against the results."""
    yield from _speed(results)
    yield from _near(results)
    yield from _inside(results)
