"""Matching among many rules beside matching among few: `python -m benchmarks.rules_matching`.

Prints for each kind of rules what one match takes among 10 and among 10,000 of them, the ratio,
and what 10,000 rules hold in memory with everything that is prepared for them.
"""

from __future__ import annotations

import argparse
import gc
import json
import time
import tracemalloc
from collections.abc import Callable
from typing import NamedTuple

from headgate import Limit
from headgate.facts import Facts
from headgate.rules.match import Snapshot
from headgate.rules.model import KeyPart, Match, Rule, RuleSet

FEW, MANY = 10, 10_000
MOST_RATIO, MOST_MEMORY = 3.0, 30e6
KEY = (KeyPart("ip"),)


class Kind(NamedTuple):
    """A way in which rules differ: the match of rule n, and a call that meets it."""

    match: Callable[[int], Match]
    facts: Callable[[int], Facts]


IP = "192.0.2.7"
KINDS = {
    "path": Kind(
        lambda n: Match(paths=(f"/t{n}/login",)),
        lambda n: Facts(method="GET", path=f"/t{n}/login", ip=IP),
    ),
    "path prefix": Kind(
        lambda n: Match(paths=(f"/t{n}/*",)),
        lambda n: Facts(method="GET", path=f"/t{n}/a/b", ip=IP),
    ),
    "path parameter": Kind(
        lambda n: Match(paths=(f"/t{n}/x/{{id}}",)),
        lambda n: Facts(method="GET", path=f"/t{n}/x/5", ip=IP),
    ),
    "path parameter first": Kind(
        lambda n: Match(paths=(f"/{{org}}/t{n}",)),
        lambda n: Facts(method="GET", path=f"/acme/t{n}", ip=IP),
    ),
    "resource": Kind(
        lambda n: Match(resources=(f"r{n}",)), lambda n: Facts(resource=f"r{n}", ip=IP)
    ),
    "host": Kind(
        lambda n: Match(paths=("/api/*",), hosts=(f"t{n}.example.com",)),
        lambda n: Facts(path="/api/x", host=f"t{n}.example.com", ip=IP),
    ),
    "host suffix": Kind(
        lambda n: Match(hosts=(f"*.t{n}.example.com",)),
        lambda n: Facts(path="/api/x", host=f"a.t{n}.example.com", ip=IP),
    ),
    "header value": Kind(
        lambda n: Match(paths=("/api/*",), headers={"X-Tenant": (f"t{n}",)}),
        lambda n: Facts(path="/api/x", headers={"x-tenant": f"t{n}"}, ip=IP),
    ),
    "header name": Kind(
        lambda n: Match(headers={f"X-T{n}": ("*",)}),
        lambda n: Facts(path="/api/x", headers={"accept": "*/*", f"x-t{n}": "1"}, ip=IP),
    ),
    "entry value": Kind(
        lambda n: Match(entries={"tenant": (f"t{n}",)}),
        lambda n: Facts(entries=(("tenant", f"t{n}"),), ip=IP),
    ),
    "origin": Kind(
        lambda n: Match(resources=("db",), origins=(f"svc{n}",)),
        lambda n: Facts(resource="db", origin=f"svc{n}", ip=IP),
    ),
    "path and header": Kind(
        lambda n: Match(paths=(f"/p{n // 100}/*",), headers={"x-tenant": (f"t{n % 100}",)}),
        lambda n: Facts(path=f"/p{n // 100}/x", headers={"x-tenant": f"t{n % 100}"}, ip=IP),
    ),
}


def ruleset(kind: Kind, count: int) -> RuleSet:
    """So many rules of a kind, each with a limit of its own."""
    return RuleSet(
        tuple(
            Rule(f"rule-{n}", kind.match(n), KEY, (Limit.parse(f"{100 + n}/minute"),))
            for n in range(count)
        )
    )


def nanoseconds(snapshot: Snapshot, calls: list[Facts], rounds: int) -> float:
    """The quickest of several rounds, for one match."""
    match = snapshot.match
    best = float("inf")
    for _ in range(rounds):
        start = time.perf_counter_ns()
        for facts in calls:
            match(facts)
        best = min(best, (time.perf_counter_ns() - start) / len(calls))
    return best


def measured(kind: Kind, rounds: int) -> dict[str, float]:
    """Few against many, taken in turns so that a noisy machine disturbs both alike."""
    few, many = Snapshot(ruleset(kind, FEW)), Snapshot(ruleset(kind, MANY))
    # The same number of different calls for both, so that the processor's caches help both alike.
    one = [kind.facts(n) for n in range(FEW)] * 100
    other = [kind.facts(n * (MANY // FEW)) for n in range(FEW)] * 100
    for snapshot, calls in ((few, one), (many, other)):
        assert all(len(snapshot.match(facts).bounds) == 1 for facts in calls)
    first = second = float("inf")
    for _ in range(rounds):
        first = min(first, nanoseconds(few, one, 1))
        second = min(second, nanoseconds(many, other, 1))
    return {"few_ns": first, "many_ns": second, "ratio": second / first}


def held(kind: Kind) -> float:
    """Bytes of 10,000 rules: the rules as they were read and all that matching needs."""
    gc.collect()
    tracemalloc.start()
    snapshot = Snapshot(ruleset(kind, MANY))
    gc.collect()
    size, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert len(snapshot) == MANY
    return float(size)


def main() -> None:
    """Print a table, or JSON with --json."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--json", action="store_true")
    chosen = parser.parse_args()
    rows = {}
    for name, kind in KINDS.items():
        rows[name] = {**measured(kind, chosen.rounds), "bytes": held(kind)}
    if chosen.json:
        print(json.dumps(rows, indent=2))
        return
    print(f"{'rules differ by':22}{FEW:>10,}{MANY:>12,}{'ratio':>8}{'memory':>10}")
    for name, row in rows.items():
        fine = row["ratio"] <= MOST_RATIO and row["bytes"] < MOST_MEMORY
        print(
            f"{name:22}{row['few_ns']:>7.0f} ns{row['many_ns']:>9.0f} ns{row['ratio']:>8.2f}"
            f"{row['bytes'] / 1e6:>7.1f} MB{'' if fine else '  too much'}"
        )


if __name__ == "__main__":
    main()
