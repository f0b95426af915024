"""The runner: `python -m benchmarks.run` measures everything, prints tables and writes JSON.

Every (rival, algorithm, scenario) has a fresh process. Rivals take turns, round after round, so
that a noisy moment of the machine does not fall on one of them alone; the best round counts.
"""

import argparse
import json
import os
import platform
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from importlib import metadata
from pathlib import Path
from time import perf_counter

from benchmarks import imports, redis_server, report, verdicts
from benchmarks.rivals import BY_NAME, ENTRIES, Rival, load_all
from benchmarks.rows import Job, Results, Row
from benchmarks.scenarios import SCENARIOS

_HERE = Path(__file__).parent
_TIMEOUT = 150
_BEGUN = perf_counter()


def planned(loaded: Mapping[str, Rival], only: Sequence[str]) -> Iterator[Row]:
    """Yield a row for every job that the filter lets through."""
    for name, scenario in SCENARIOS.items():
        offers = {rival: scenario.offers(rival, module) for rival, module in loaded.items()}
        for algorithm in dict.fromkeys(name for offer in offers.values() for name in offer):
            for rival, offer in offers.items():
                job = Job(name, rival, algorithm)
                if algorithm in offer and scenario.covers(rival, algorithm) and wanted(job, only):
                    yield Row(job, problem=scenario.excludes(loaded[rival]))


def wanted(job: Job, only: Sequence[str]) -> bool:
    """Whether each word names the job's scenario, rival or algorithm; commas mean "or".

    The first part of a scenario's name stands for all that begin with it: redis, zone.
    """
    names = {*vars(job).values(), job.scenario.partition("-")[0]}
    return all(set(word.split(",")) & names for word in only)


def child(
    *words: str, quick: bool, environment: Mapping[str, str] | None = None
) -> dict[str, float] | str:
    """Measure in a fresh process: the numbers, or one line that says what went wrong."""
    command = [sys.executable, "-m", "benchmarks.child", *words, *(["--quick"] * quick)]
    try:
        done = subprocess.run(
            command,
            capture_output=True,
            text=True,
            timeout=_TIMEOUT,
            cwd=_HERE.parent,
            env=os.environ | (environment or {}),
            check=False,
        )
    except subprocess.TimeoutExpired:
        return f"no answer in {_TIMEOUT} s"
    if done.returncode:
        last = (done.stderr.strip().splitlines() or ["failed"])[-1]
        return last.replace(str(_HERE.parent), ".")  # the record names no place
    answer: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return answer


def measure(rows: Sequence[Row], quick: bool) -> None:
    """Fill the rows, scenario by scenario, one round after the other."""
    for name, scenario in SCENARIOS.items():
        open_rows = [row for row in rows if row.job.scenario == name and not row.problem]
        rounds = 1 if quick else scenario.rounds
        for number in range(rounds if open_rows else 0):
            progress(f"{name}, round {number + 1} of {rounds}")
            # Every other round runs backwards, so that nobody always follows the same neighbour.
            for row in open_rows[:: -1 if number % 2 else 1]:
                job, environment = row.job, BY_NAME[row.job.rival].environment
                answer = child(name, job.rival, job.algorithm, quick=quick, environment=environment)
                if isinstance(answer, str):
                    row.problem = answer
                else:
                    row.runs.append(answer)


def measure_yardsticks(name: str, quick: bool) -> dict[str, float]:
    """Nanoseconds for each yardstick, the best of a few processes."""
    progress(name)
    answers = [child(name, quick=quick) for _ in range(1 if quick else 5)]
    runs = [answer for answer in answers if isinstance(answer, dict)]
    return {name: round(min(run[name] for run in runs), 1) for name in runs[0]} if runs else {}


def progress(text: str) -> None:
    """Say on stderr what is being measured, and since when this runs."""
    print(f"... {perf_counter() - _BEGUN:4.0f} s: {text}", file=sys.stderr, flush=True)


def machine() -> dict[str, object]:
    """What a reader needs to know about where this ran, and nothing that names the place."""
    return {
        "python": platform.python_version(),
        "implementation": platform.python_implementation(),
        "system": platform.system(),
        "machine": platform.machine(),
        "cpus": os.cpu_count(),
    }


def redis_versions() -> dict[str, str | None]:
    """Which client and which server the Redis scenarios ran on."""
    try:
        client = metadata.version("redis")
    except metadata.PackageNotFoundError:
        client = None
    return {"redis-py": client, "redis-server": redis_server.version()}


def web_versions() -> dict[str, str | None]:
    """Which frameworks, limiters for them and retries the scenarios `asgi` and `retry` ran on."""
    found: dict[str, str | None] = {}
    for name in ("slowapi", "fastapi-limiter", "fastapi", "starlette", "stamina", "tenacity"):
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            found[name] = None
    return found


def main(arguments: Sequence[str] | None = None) -> None:
    """Run what the command line asks for."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.run", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="one short round, fewer keys")
    parser.add_argument(
        "--only",
        nargs="+",
        default=[],
        metavar="NAME",
        help="scenarios, libraries, algorithms; all must match, commas mean or; or: import",
    )
    parser.add_argument("--output", type=Path, help="where to write the JSON")
    options = parser.parse_args(arguments)

    loaded, missing = load_all()
    rows = list(planned(loaded, options.only))
    if not rows and options.only != ["import"]:
        parser.error("nothing matches --only")
    yardsticks = measure_yardsticks("yardsticks", options.quick)
    if any(SCENARIOS[row.job.scenario].far for row in rows):
        yardsticks |= measure_yardsticks("redis-yardsticks", options.quick)
    measure(rows, options.quick)
    results, import_costs, dict_bytes = Results(rows), {}, None
    if results.of("memory"):
        bare = child("dict-memory", quick=options.quick)
        dict_bytes = bare["bytes"] if isinstance(bare, dict) else None
    if not options.only or options.only == ["import"]:
        progress("imports")
        packages: dict[str, imports.Package] = {"json": ("json", {})}
        for name in loaded:
            packages[name] = BY_NAME[name].package, BY_NAME[name].environment
        import_costs = imports.measure(packages, rounds=5 if options.quick else 15)
    found = verdicts.judge(results, import_costs)

    # A short or filtered run is a look, not a record: it is written only where it was asked to be.
    whole = not options.only and not options.quick
    output = options.output or (_HERE / "results.json" if whole else None)
    if output:
        record = {
            "quick": options.quick,
            "machine": machine(),
            "versions": {entry.name: entry.version for entry in ENTRIES}
            | redis_versions()
            | web_versions(),
            "missing": missing,
            "yardsticks_ns": yardsticks,
            "dict_bytes_per_key": dict_bytes and round(dict_bytes, 1),
            "rows": [row.as_json() for row in rows],
            "imports": import_costs,
            "targets": [asdict(verdict) for verdict in found],
        }
        output.write_text(json.dumps(record, indent=1) + "\n")
        progress(f"wrote {output.name}")

    for name, reason in missing.items():
        print(f"{name}: {reason}")
    for line in report.render(results, yardsticks, dict_bytes, import_costs, found):
        print(line)


if __name__ == "__main__":
    main()
