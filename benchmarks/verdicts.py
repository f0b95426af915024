"""The targets headgate has to reach, each held against what this run measured."""

from collections.abc import Iterator, Mapping

from benchmarks.breaker_verdicts import judge_breaker
from benchmarks.call_verdicts import judge_calls
from benchmarks.imports import ImportCost
from benchmarks.redis_verdicts import judge_redis
from benchmarks.rows import Results, Row
from benchmarks.scenarios import CORE
from benchmarks.scenarios.users import LOADS, MILLION
from benchmarks.verdict import Verdict, verdict
from benchmarks.web_verdicts import judge_web

_COMPILED, _PURE = "headgate", "headgate-pure"
_FORMS = (_COMPILED, _PURE)
_HOT = ("hot-allowed", "hot-refused")
_SPEED = (*_HOT, "many-keys")
_ALWAYS = ("limits", "throttled-py")
"""The rivals that every form has to leave behind."""
_HOT_TIMES = {"limits": 20.0, "throttled-py": 20.0, "token-bucket": 4.0}
"""How many times as fast the compiled form is on a hot key, for the algorithms of few words."""
_MOST_TIMES = {
    "hot-allowed": (2.0, "time.monotonic_ns()"),
    "hot-refused": (2.0, "time.monotonic_ns()"),
    "many-keys": (2.0, "a dict get+set of the same keys"),
    "hit-many": (0.6, "the cost of hit"),
    "zone-allowed": (2.5, "the same hit in memory"),
    "zone-refused": (2.5, "the same hit in memory"),
}
"""How many times its yardstick the compiled form may take."""
_LEAST_SHARE = 0.7
_MOST_MB = dict.fromkeys(CORE, 40.0) | {"sliding-cells": 300.0, "sliding-log": 2500.0}
_AIMS_MB = (36, 32)
_MOST_JSON = 5


def _span(row: Row) -> str:
    rounds = row.rounds()
    found = f"{row.times():.2f} x (rounds {rounds[0]:.2f} to {rounds[-1]:.2f})"
    if "kept_ns" in row.runs[0]:
        found += f"; {row.best() / row.best('kept_ns'):.2f} x of hits whose answers are kept too"
    if "new_ns" in row.runs[0]:
        found += (
            f"; {row.best('new_ns') / row.best('new_yardstick_ns'):.2f} x with keys made just now"
        )
    return found


def _against_yardsticks(results: Results) -> Iterator[Verdict]:
    for scenario, (most, yardstick) in _MOST_TIMES.items():
        for row in results.of(scenario, _COMPILED):
            if row.job.algorithm in CORE:
                target = f"{scenario}, {row.job.algorithm}, at most {most:.1f} x {yardstick}"
                yield verdict(target, _span(row), row.times() <= most, row)


def _two_processes(results: Results) -> Iterator[Verdict]:
    for row in results.of("zone-two", _COMPILED):
        share, rounds = 1 / row.times(), [1 / times for times in row.rounds()]
        yield verdict(
            f"zone-two, {row.job.algorithm}, together at least {_LEAST_SHARE} x of one alone",
            f"{share:.2f} x (rounds {rounds[-1]:.2f} to {rounds[0]:.2f})",
            share >= _LEAST_SHARE,
            row,
        )


def _need(form: str, row: Row) -> float | None:
    """How many times as fast as this row a form has to be; None if nothing is asked."""
    job = row.job
    if form == _COMPILED and job.scenario in _HOT and job.algorithm in CORE:
        return _HOT_TIMES.get(job.rival)
    if job.rival not in _ALWAYS:
        return None
    return 2 if job.algorithm == "fixed-window" else 3


def _against_rivals(results: Results, form: str) -> Iterator[Verdict]:
    for scenario in _SPEED:
        for row in results.of(scenario):
            ours = results.get(scenario, form, row.job.algorithm)
            need = _need(form, row)
            if need and row.runs and ours:
                times = row.best() / ours.best()
                target = f"{form}: {scenario}, {row.job.algorithm}, {need:g} x {row.job.rival}"
                yield verdict(target, f"{times:.2f} x", times >= need, ours)


def _users(results: Results) -> Iterator[Verdict]:
    for row in results.of("users", _COMPILED):
        algorithm, found = row.job.algorithm, row.best("bytes")
        most = _MOST_MB[algorithm]
        said = f"{found:,.1f} MB"
        if algorithm in CORE:
            said += "".join(
                f", aim of {aim} MB {'reached' if found <= aim else 'missed'}" for aim in _AIMS_MB
            )
        if row.runs[0]["keys"] < MILLION:
            said += f", scaled from {row.runs[0]['keys']:,} users"
        yield verdict(
            f"a million users, {LOADS[algorithm].limit}, at most {most:,.0f} MB",
            said,
            found <= most,
            row,
        )


def _exactness(results: Results) -> Iterator[Verdict]:
    for form in _FORMS:
        for row in results.of("threads", form):
            counts = sorted({int(run["admitted"]) for run in row.runs})
            expected = int(row.runs[0]["expected"])
            yield Verdict(
                f"{form}: threads, {row.job.algorithm}, exactly {expected:,}",
                "admitted " + ", ".join(f"{count:,}" for count in counts),
                row.right,
            )


def _memory(results: Results) -> Iterator[Verdict]:
    for form in _FORMS:
        for ours in results.of("memory", form):
            rivals = [
                row
                for row in results.of("memory")
                if row.runs
                and row.job.rival not in _FORMS
                and row.job.algorithm == ours.job.algorithm
            ]
            if rivals:
                leanest = min(rivals, key=lambda row: row.best("bytes"))
                name, most, mine = leanest.job.rival, leanest.best("bytes"), ours.best("bytes")
                target = f"{form}: memory, {ours.job.algorithm}, at most {name}'s {most:.0f} bytes"
                yield Verdict(f"{target} a key", f"{mine:.0f} bytes", mine <= most)


def _imports(imports: Mapping[str, ImportCost]) -> Iterator[Verdict]:
    for form in _FORMS:
        if form not in imports or "json" not in imports:
            continue
        ours, times = imports[form], imports[form]["ns"] / imports["json"]["ns"]
        yield Verdict(
            f"{form}: import, under {_MOST_JSON} x import json",
            f"{times:.2f} x",
            times < _MOST_JSON,
        )
        yield Verdict(
            f"{form}: import, no thread and no other package",
            f"{ours['threads']} threads, {', '.join(ours['third_party']) or 'no packages'}",
            not ours["threads"] and not ours["third_party"],
        )


def _unmeasured(results: Results) -> Iterator[Verdict]:
    for row in results.rows:
        job = row.job
        if job.rival in _FORMS and row.problem:
            target = f"{job.rival}: {job.scenario}, {job.algorithm}, can be measured"
            yield Verdict(target, row.problem, reached=False)


def judge(results: Results, imports: Mapping[str, ImportCost]) -> list[Verdict]:
    """Hold every target against the results; one that was not measured is left out."""
    return [
        *_against_yardsticks(results),
        *_two_processes(results),
        *_users(results),
        *judge_web(results, _FORMS),
        *judge_breaker(results, _FORMS),
        *judge_calls(results, _FORMS),
        *judge_redis(results),
        *_against_rivals(results, _COMPILED),
        *_against_rivals(results, _PURE),
        *_exactness(results),
        *_memory(results),
        *_imports(imports),
        *_unmeasured(results),
    ]
