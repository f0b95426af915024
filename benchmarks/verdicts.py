"""The targets headgate has to reach, each held against what this run measured."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from benchmarks.imports import ImportCost
from benchmarks.rows import Results

_OURS = "headgate"
_TARGET_RIVALS = ("limits", "throttled-py")
_SPEED = ("hot-allowed", "hot-refused", "many-keys")
_MOST_JSON = 5


@dataclass(frozen=True)
class Verdict:
    """One target: what it asks, what was found, whether that is enough."""

    target: str
    found: str
    reached: bool

    def __str__(self) -> str:
        return f"{'reached' if self.reached else 'MISSED '}  {self.target}: {self.found}"


def _speed(results: Results) -> Iterator[Verdict]:
    for scenario in _SPEED:
        for row in results.of(scenario):
            job = row.job
            ours = results.get(scenario, _OURS, job.algorithm)
            if job.rival not in _TARGET_RIVALS or not row.runs or ours is None:
                continue
            need = 2 if job.algorithm == "fixed-window" else 3
            times = row.best() / ours.best()
            yield Verdict(
                f"{scenario}, {job.algorithm}, {need} x {job.rival}",
                f"{times:.2f} x" + ("" if ours.right else ", and a wrong answer"),
                times >= need and ours.right,
            )


def _exactness(results: Results) -> Iterator[Verdict]:
    for row in results.of("threads"):
        if row.job.rival == _OURS and row.runs:
            counts = sorted({int(run["admitted"]) for run in row.runs})
            yield Verdict(
                f"threads, {row.job.algorithm}, exactly {int(row.runs[0]['expected']):,}",
                "admitted " + ", ".join(f"{count:,}" for count in counts),
                row.right,
            )


def _memory(results: Results) -> Iterator[Verdict]:
    for ours in results.of("memory"):
        if ours.job.rival != _OURS or not ours.runs:
            continue
        rivals = [
            row
            for row in results.of("memory")
            if row.runs and row.job.rival != _OURS and row.job.algorithm == ours.job.algorithm
        ]
        if rivals:
            leanest = min(rivals, key=lambda row: row.best("bytes"))
            name, most, mine = leanest.job.rival, leanest.best("bytes"), ours.best("bytes")
            yield Verdict(
                f"memory, {ours.job.algorithm}, at most {name}'s {most:.0f} bytes a key",
                f"{mine:.0f} bytes",
                mine <= most,
            )


def _imports(imports: Mapping[str, ImportCost]) -> Iterator[Verdict]:
    if _OURS not in imports or "json" not in imports:
        return
    ours, times = imports[_OURS], imports[_OURS]["ns"] / imports["json"]["ns"]
    yield Verdict(
        f"import headgate, under {_MOST_JSON} x import json", f"{times:.2f} x", times < _MOST_JSON
    )
    yield Verdict(
        "import headgate, no thread and no other package",
        f"{ours['threads']} threads, {', '.join(ours['third_party']) or 'no packages'}",
        not ours["threads"] and not ours["third_party"],
    )


def judge(results: Results, imports: Mapping[str, ImportCost]) -> list[Verdict]:
    """Hold every target against the results; one that was not measured is left out."""
    return [*_speed(results), *_exactness(results), *_memory(results), *_imports(imports)]
