"""The targets of the middleware and of many rules, held against what this run measured."""

from collections.abc import Iterator

from benchmarks.rows import Results
from benchmarks.verdict import Verdict, verdict

_MOST_READS = 200
_MOST_SHARE = 1 / 3
_MOST_RATIO, _MOST_BYTES = 3.0, 30e6
_OTHERS = {
    "slowapi": ("slowapi middleware", "slowapi decorator"),
    "fastapi-limiter": ("fastapi-limiter",),
}
"""A rival, and the ways in which it was measured; the leanest of them counts."""


def judge_web(results: Results, forms: tuple[str, ...]) -> Iterator[Verdict]:
    """Hold the targets against the scenarios `asgi` and `rules`."""
    for form in forms:
        for row in results.of("asgi", form):
            what = f"{form}: asgi, {row.job.algorithm}, adds at most"
            yield verdict(
                f"{what} {_MOST_READS} x time.monotonic_ns()",
                f"{row.times():.0f} x, {row.best():,.0f} ns",
                row.times() <= _MOST_READS,
                row,
            )
            for rival, ways in _OTHERS.items():
                found = [row.best(f"{way} adds") for way in ways if f"{way} adds" in row.runs[0]]
                if found:
                    share = row.best() / min(found)
                    said = f"{share:.2f} x of {min(found):,.0f} ns"
                    target = f"{what} a third of what {rival} adds"
                    yield verdict(target, said, share <= _MOST_SHARE, row)
        for row in results.of("rules", form):
            way = row.job.algorithm
            yield verdict(
                f"rules that differ by {way}, 10,000 match within {_MOST_RATIO:.0f} x of 10",
                f"{row.times():.2f} x",
                row.times() <= _MOST_RATIO,
                row,
            )
            held = row.best("held")
            yield verdict(
                f"rules that differ by {way}, 10,000 hold under {_MOST_BYTES / 1e6:.0f} MB",
                f"{held / 1e6:.1f} MB",
                held < _MOST_BYTES,
                row,
            )
