"""Prometheus: the numbers as text, in the format 0.0.4 or as OpenMetrics.

Labels are names of rules, results and ranks: as many as the rules file has. Whom a rule limits
is never a label.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from .buckets import LATENCIES, WAITS
from .counts import (
    ALLOWED,
    CELLS,
    DEGRADED,
    GIVEN,
    LATENCY_SUM,
    PERMITS,
    REFUSED,
    RESULTS,
    WAIT_SUM,
    WAITED,
)
from .policies import families_of
from .report import AWAY, ERRORS, FAILURES, OPENED, UPDATES

if TYPE_CHECKING:
    from .watching import Telemetry

__all__ = ["OPENMETRICS", "TEXT", "exposition", "wants_openmetrics"]

TEXT = "text/plain; version=0.0.4; charset=utf-8"
OPENMETRICS = "application/openmetrics-text; version=1.0.0; charset=utf-8"
RANKS = 3
DECISIONS = ("allowed", "refused", "shadowed", "exempt", "denied")
CALLS = ("allowed", "refused", "exempt", "denied", "unmatched")

Labels = Sequence[tuple[str, str]]
Sample = tuple[str, Labels, float]
Family = tuple[str, str, str, list[Sample]]
"""Name, type, what it is, and samples: what stands behind the name, labels, a number."""


def exposition(telemetry: Telemetry, accept: str = "") -> tuple[str, bytes]:
    """The content type and the text for whoever accepts this."""
    openmetrics = wants_openmetrics(accept)
    lines: list[str] = []
    for name, kind, about, samples in families(telemetry):
        # Text of the older kind names a counter by its samples, OpenMetrics without `_total`.
        shown = f"{name}_total" if kind == "counter" and not openmetrics else name
        lines += [f"# HELP {shown} {about}", f"# TYPE {shown} {kind}"]
        for suffix, labels, number in samples:
            inside = ",".join(f'{label}="{escaped(value)}"' for label, value in labels)
            lines.append(f"{name}{suffix}{{{inside}}} {_number(number)}" if inside
                         else f"{name}{suffix} {_number(number)}")  # fmt: skip
    if openmetrics:
        lines.append("# EOF")
    text = "\n".join(lines) + "\n"
    return OPENMETRICS if openmetrics else TEXT, text.encode("utf-8", "replace")


def families(telemetry: Telemetry) -> Iterator[Family]:
    """All there is to say."""
    totals = telemetry.totals()
    rules = dict.fromkeys(telemetry.rules(), [0] * CELLS) | totals.rules
    calls = rules.pop("")
    named = sorted(rules.items())
    process = totals.process

    def counts(place: int, *, always: bool = False) -> list[Sample]:
        found = [(rule, cells[place]) for rule, cells in named]
        return [("_total", [("rule", r)], number) for r, number in found if number or always]

    # What may come is there from the beginning, as 0: a rate needs a number before the first.
    yield "headgate_decisions", "counter", "Decisions by rule and result.", [
        ("_total", [("rule", rule), ("result", result)], cells[RESULTS.index(result)])
        for rule, cells in named
        for result in DECISIONS
        if cells[RESULTS.index(result)] or RESULTS.index(result) in (ALLOWED, REFUSED)
    ]  # fmt: skip
    yield "headgate_calls", "counter", "Calls by result, each counted once.", [
        ("_total", [("result", result)], calls[RESULTS.index(result)]) for result in CALLS
    ]  # fmt: skip
    yield (
        "headgate_degraded",
        "counter",
        "Decisions made in place of the store.",
        counts(DEGRADED, always=True),
    )
    yield (
        "headgate_store_seconds",
        "histogram",
        "Time the store took to answer.",
        [*_histogram(totals.store[: LATENCY_SUM + 1], LATENCIES, ())],
    )
    yield (
        "headgate_wait_seconds",
        "histogram",
        "Time calls stood in line.",
        [
            sample
            for rule, cells in named
            if any(cells[WAITED:WAIT_SUM])
            for sample in _histogram(cells[WAITED : WAIT_SUM + 1], WAITS, [("rule", rule)])
        ],
    )
    yield (
        "headgate_permits_in_use",
        "gauge",
        "Permits of concurrent limits held now.",
        [("", [("rule", rule)], max(0, cells[PERMITS])) for rule, cells in named if cells[GIVEN]],
    )
    yield "headgate_permits", "counter", "Permits of concurrent limits given out.", counts(GIVEN)
    for name, about, place in (
        ("reload_errors", "Rules that could not be loaded.", ERRORS),
        ("reloads", "Rules that were put in force.", UPDATES),
        ("store_failures", "Times the store did not answer.", FAILURES),
        ("store_breaker_opened", "Times the store was left alone.", OPENED),
    ):
        yield f"headgate_{name}", "counter", about, [("_total", (), process[place])]
    for name, about, number in (
        ("store_away", "Workers whose store is left alone now.", process[AWAY]),
        ("workers", "Workers that count now.", totals.workers),
        ("rules_loaded_timestamp_seconds", "When the oldest rules in force were loaded.",
         totals.loaded_at),
    ):  # fmt: skip
        yield f"headgate_{name}", "gauge", about, [("", (), number)]
    yield from families_of(totals.policies, totals.room)
    for name, about, refused in (
        ("calls", "Calls of a rule's busiest keys by rank; never who they are.", False),
        ("refused", "Refused calls of a rule's busiest keys by rank.", True),
    ):
        yield (
            f"headgate_top_key_{name}",
            "gauge",
            about,
            [
                ("", [("rule", rule), ("rank", str(rank))], busy.count)
                for rule, keys in telemetry.top(refused=refused, most=RANKS).items()
                for rank, busy in enumerate(keys, 1)
            ],
        )


def _histogram(cells: Sequence[int], bounds: Sequence[float], labels: Labels) -> Iterator[Sample]:
    total = 0
    for bound, count in zip([*map(repr, bounds), "+Inf"], cells[:-1], strict=True):
        total += count
        yield "_bucket", [*labels, ("le", bound)], total
    yield "_sum", labels, cells[-1] / 1e9
    yield "_count", labels, total


def escaped(value: str) -> str:
    """A label's value as it stands between quotes."""
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def _number(number: float) -> str:
    return str(number) if isinstance(number, int) else repr(number)


def wants_openmetrics(accept: str) -> bool:
    """Whether an Accept header prefers OpenMetrics to plain text."""
    wishes = {"application/openmetrics-text": 0.0, "text/plain": 0.0}
    for part in accept.lower().split(","):
        kind, *parameters = (piece.strip() for piece in part.split(";"))
        weight = 1.0
        for parameter in parameters:
            if parameter.startswith("q="):
                try:
                    weight = float(parameter[2:])
                except ValueError:
                    weight = 0.0
        if kind in wishes:
            wishes[kind] = max(wishes[kind], weight)
    return wishes["application/openmetrics-text"] > 0 and (
        wishes["application/openmetrics-text"] >= wishes["text/plain"]
    )
