"""The targets of the breaker, held against what this run measured."""

from collections.abc import Iterator

from benchmarks.rows import Results
from benchmarks.verdict import Verdict, verdict

_MOST_SHARE = {"headgate": 0.5, "headgate-pure": 1.0}
_LEAST_TOGETHER = 0.8


def judge_breaker(results: Results, forms: tuple[str, ...]) -> Iterator[Verdict]:
    """Hold the targets against the scenario `breaker`."""
    for form in forms:
        for row in results.of("breaker", form):
            way = row.job.algorithm
            if way == "threads":
                share = 1 / row.times()
                yield verdict(
                    f"{form}: breaker, 4 threads, at least {_LEAST_TOGETHER} x the calls of one",
                    f"{share:.2f} x",
                    share >= _LEAST_TOGETHER,
                    row,
                )
                continue
            others = {
                name.removesuffix(" adds"): row.best(name)
                for name in row.runs[0]
                if name.endswith(" adds")
            }
            if others:
                fastest = min(others, key=lambda name: others[name])
                share = row.best() / others[fastest]
                most = _MOST_SHARE[form]
                yield verdict(
                    f"{form}: breaker, {way}, adds at most {most} x what {fastest} adds",
                    f"{share:.2f} x of {others[fastest]:,.0f} ns, {row.times():.1f} x a bare call",
                    share <= most,
                    row,
                )
