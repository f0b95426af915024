"""The tables of the Redis scenarios: what each has in its columns."""

from collections.abc import Sequence

from benchmarks.rows import Results, Row
from benchmarks.scenarios import SCENARIOS

_OURS = "headgate"


def _us(ns: float) -> str:
    return f"{ns / 1000:,.1f}"


def _names(row: Row) -> list[str]:
    return [row.job.algorithm, row.job.rival]


def _wrong(row: Row) -> str:
    return "" if row.right else " (wrong answer)"


def _speed(row: Row, results: Results, more: str) -> list[str]:
    """How fast, beside its yardstick and beside headgate; `more` was measured too."""
    ours = results.get(row.job.scenario, _OURS, row.job.algorithm)
    ns = row.best()
    extra = more in row.runs[0]
    return [
        f"{1e9 / ns:,.0f}" + _wrong(row),
        _us(ns),
        f"{1 / row.times():.2f}",
        f"{ns / ours.best():.2f} x" if ours and ours is not row else "",
        _us(row.best(more)) if extra else "",
        f"{row.best('yardstick_ns') / row.best(more):.2f}" if extra else "",
    ]


def _lease(row: Row) -> list[str]:
    excess = max(run["excess"] for run in row.runs)
    admitted = max(run["admitted"] for run in row.runs)
    return [*_pair(row), f"{admitted:,.0f}", f"{excess:,.0f}", f"{row.runs[0]['bound']:,.0f}"]


def _pair(row: Row) -> list[str]:
    best, beside = row.best(), row.best("yardstick_ns")
    return [f"{best:,.0f}" + _wrong(row), f"{beside:,.0f}", f"{row.times():.2f}"]


def _memory(row: Row) -> list[str]:
    return [f"{row.best('bytes'):,.0f}" + _wrong(row)]


def _cells(row: Row, results: Results) -> list[str]:
    match row.job.scenario:
        case "redis-sync" | "redis-three":
            return _speed(row, results, "told_ns")
        case "redis-async":
            return _speed(row, results, "hot_ns")
        case "redis-lease":
            return _lease(row)
        case "redis-memory":
            return _memory(row)
        case _:
            return _pair(row)


def _head(name: str) -> list[str]:
    yardstick = SCENARIOS[name].yardstick
    match name:
        case "redis-sync" | "redis-three":
            return ["decisions/s", "us", yardstick, "headgate is", "told all, us", yardstick]
        case "redis-async":
            return ["decisions/s", "us", yardstick, "headgate is", "one key, us", yardstick]
        case "redis-lease":
            more = ["4 processes admit", "over the limit", "bound"]
            return ["ns", "beside, ns", yardstick, *more]
        case "redis-memory":
            return ["bytes/key"]
        case _:
            return ["ns", "beside, ns", yardstick]


def cells(name: str, rows: Sequence[Row], results: Results) -> tuple[list[str], list[list[str]]]:
    """The head and the lines of a scenario's table."""
    head = _head(name)
    body = [
        _names(row)
        + (
            _cells(row, results)
            if row.runs
            else [row.problem or "not measured", *[""] * (len(head) - 1)]
        )
        for row in rows
    ]
    return ["algorithm", "library", *head], body
