"""The results as tables to read in a terminal."""

from collections.abc import Iterator, Mapping, Sequence

from benchmarks import redis_report
from benchmarks.imports import ImportCost
from benchmarks.rows import Results, Row
from benchmarks.scenarios import SCENARIOS
from benchmarks.scenarios.users import LOADS
from benchmarks.verdict import Verdict

_OURS = "headgate"


def table(head: Sequence[str], body: Sequence[Sequence[str]], left: int = 2) -> Iterator[str]:
    """Lines of a table whose first `left` columns hold words and the others numbers."""
    widths = [max(len(line[column]) for line in (head, *body)) for column in range(len(head))]

    def line(cells: Sequence[str]) -> str:
        return "  ".join(
            cell.ljust(width) if column < left else cell.rjust(width)
            for column, (cell, width) in enumerate(zip(cells, widths, strict=True))
        ).rstrip()

    yield line(head)
    yield line(["-" * width for width in widths])
    yield from map(line, body)


def _grouped(rows: Sequence[Row]) -> list[Row]:
    """Rows by algorithm in the order they were first met, ours first."""
    algorithms = list(dict.fromkeys(row.job.algorithm for row in rows))
    return sorted(rows, key=lambda row: algorithms.index(row.job.algorithm))


def _names(row: Row) -> list[str]:
    return [row.job.algorithm, row.job.rival]


def _speed_cells(row: Row, results: Results, new: bool) -> list[str]:
    """One row; `new` adds what a hit on a new key costs."""
    if not row.runs:
        return [*_names(row), row.problem or "not measured", *[""] * (3 + new)]
    ns = row.best()
    ours = results.get(row.job.scenario, _OURS, row.job.algorithm)
    times = f"{ns / ours.best():.2f} x" if ours and ours is not row else ""
    return [
        *_names(row),
        f"{1e9 / ns:,.0f}" + _wrong(row),
        f"{ns:,.0f}",
        f"{row.times():.2f}",
        times,
        *(f"{row.best('first_ns'):,.0f}" for _ in range(new)),
    ]


def _pair_cells(row: Row) -> list[str]:
    """One row of a scenario in which headgate is measured beside headgate."""
    if not row.runs:
        return [*_names(row), row.problem or "not measured", "", "", ""]
    rounds = " ".join(f"{times:.2f}" for times in row.rounds())
    best, beside = row.best(), row.best("yardstick_ns")
    return [
        *_names(row),
        f"{best:,.0f}" + _wrong(row),
        f"{beside:,.0f}",
        f"{row.times():.2f}",
        rounds,
    ]


def _wrong(row: Row) -> str:
    return "" if row.right else " (wrong answer)"


def _thread_cells(row: Row) -> list[str]:
    if not row.runs:
        return [*_names(row), row.problem or "not measured", "", "", "", ""]
    admitted = [int(run["admitted"]) for run in row.runs]
    span = f"{min(admitted):,}"
    if min(admitted) != max(admitted):
        span += f" to {max(admitted):,}"
    return [
        *_names(row),
        f"{int(row.runs[0]['expected']):,}",
        span,
        f"{row.worst_error():+.2f} %" if row.worst_error() else "exact",
        f"{sum(run['failed'] for run in row.runs):,.0f}",
        f"{1e9 / row.best():,.0f}",
    ]


def _memory_cells(row: Row) -> list[str]:
    if not row.runs:
        return [*_names(row), row.problem or "not measured", "", ""]
    run = row.runs[0]
    return [*_names(row), f"{row.best('bytes'):,.0f}", f"{run['keys']:,}", f"{run['seconds']:.1f}"]


def _user_cells(row: Row) -> list[str]:
    load = LOADS[row.job.algorithm]
    names = [load.limit, row.job.rival]
    if not row.runs:
        return [*names, row.problem or "not measured", "", "", ""]
    found = row.best("bytes")
    return [
        *names,
        f"{found:,.1f}" + _wrong(row),
        size(found * 1e6),
        size(load.paper),
        f"{row.runs[0]['keys']:,}",
    ]


def _added_cells(row: Row) -> list[str]:
    """What a limit adds to a call, ours and in the last column others'."""
    if not row.runs:
        return [*_names(row), row.problem or "not measured", "", "", ""]
    ours = row.best()
    others = [name for name in row.runs[0] if name.endswith(" adds")]
    told = [f"{name} {row.best(name):,.0f} ({ours / row.best(name):.2f} x)" for name in others]
    return [
        *_names(row),
        f"{ours:,.0f}" + _wrong(row),
        f"{row.times():.0f}",
        f"{row.best('bare_ns'):,.0f}",
        "; ".join(told),
    ]


def _rule_cells(row: Row) -> list[str]:
    if not row.runs:
        return [*_names(row), row.problem or "not measured", "", "", ""]
    return [
        *_names(row),
        f"{row.best('yardstick_ns'):,.0f}",
        f"{row.best():,.0f}",
        f"{row.times():.2f}",
        f"{row.best('held') / 1e6:.1f}",
    ]


def size(count: float) -> str:
    """Bytes as one reads them."""
    return f"{count / 1e6:,.0f} MB" if count < 1e9 else f"{count / 1e9:.2f} GB"


def _scenario(name: str, results: Results) -> Iterator[str]:
    rows, scenario = _grouped(results.of(name)), SCENARIOS[name]
    if not rows:
        return
    yield f"\n{scenario.title} ({name})\n"
    if scenario.far:
        yield from table(*redis_report.cells(name, rows, results))
    elif name == "threads":
        head = ["algorithm", "library", "expected", "admitted", "worst", "raised", "decisions/s"]
        yield from table(head, [_thread_cells(row) for row in rows])
    elif name == "memory":
        head = ["algorithm", "library", "bytes/key", "keys", "seconds"]
        yield from table(head, [_memory_cells(row) for row in rows])
    elif name == "users":
        head = ["limit", "library", "bytes/user", "a million", "on paper", "users measured"]
        yield from table(head, [_user_cells(row) for row in rows])
    elif name in ("asgi", "retry"):
        head = ["algorithm", "library", "adds, ns", scenario.yardstick, "without, ns", "others"]
        yield from table(head, [_added_cells(row) for row in rows])
    elif name == "rules":
        head = ["rules differ by", "library", "10, ns", "10,000, ns", scenario.yardstick, "MB"]
        yield from table(head, [_rule_cells(row) for row in rows])
    elif scenario.only:
        head = ["algorithm", "library", "ns", "beside, ns", scenario.yardstick, "in each round"]
        yield from table(head, [_pair_cells(row) for row in rows])
    else:
        new = name == "many-keys"
        head = ["algorithm", "library", "decisions/s", "ns", scenario.yardstick, "headgate is"]
        body = [_speed_cells(row, results, new) for row in rows]
        yield from table(head + ["new key, ns"] * new, body)


def render(
    results: Results,
    yardsticks: Mapping[str, float],
    dict_bytes: float | None,
    imports: Mapping[str, ImportCost],
    verdicts: Sequence[Verdict],
) -> Iterator[str]:
    """Yield the whole report, line by line."""
    if yardsticks:
        yield "\nyardsticks\n"
        body = [[name, f"{ns:,.0f}"] for name, ns in yardsticks.items()]
        yield from table(["what", "ns"], body, left=1)
    for name in SCENARIOS:
        yield from _scenario(name, results)
    if dict_bytes is not None:
        yield f"\na bare dict of str to float: {dict_bytes:.0f} bytes/key"
    if imports:
        yield "\nimport in a fresh process\n"
        json_ns = imports["json"]["ns"] if "json" in imports else None
        body = [
            [name, f"{cost['ns'] / 1e6:.1f}", f"{cost['ns'] / json_ns:.1f} x" if json_ns else ""]
            for name, cost in imports.items()
        ]
        yield from table(["package", "ms", "in json"], body, left=1)
    if verdicts:
        yield "\ntargets\n"
        yield from map(str, verdicts)
        reached = sum(verdict.reached for verdict in verdicts)
        yield f"\n{reached} of {len(verdicts)} targets reached"
        yield from (f"missed: {v.target}: {v.found}" for v in verdicts if not v.reached)
