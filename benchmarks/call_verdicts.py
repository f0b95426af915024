"""The targets of what is put around a call, held against what this run measured."""

from collections.abc import Iterator

from benchmarks.rows import Results
from benchmarks.verdict import Verdict, verdict

_MOST_POLICY = 3.0
_MOST_RETRY = 0.2


def judge_calls(results: Results, forms: tuple[str, ...]) -> Iterator[Verdict]:
    """Hold the targets against the scenarios `policy` and `retry`."""
    for form in forms:
        for row in results.of("policy", form):
            if row.job.algorithm == "async":  # nothing is asked of the plain one
                yield verdict(
                    f"{form}: the full policy, async, under {_MOST_POLICY:.0f} x the breaker alone",
                    f"{row.times():.2f} x, {row.best():,.0f} ns",
                    row.times() < _MOST_POLICY,
                    row,
                )
        for row in results.of("retry", form):
            if "tenacity adds" in row.runs[0]:
                share = row.best() / row.best("tenacity adds")
                target = f"{form}: a retry, {row.job.algorithm}, at most {_MOST_RETRY} x of what"
                yield verdict(
                    f"{target} tenacity adds",
                    f"{share:.4f} x of {row.best('tenacity adds'):,.0f} ns",
                    share <= _MOST_RETRY,
                    row,
                )
