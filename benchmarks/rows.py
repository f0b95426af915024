"""The results as values: what was measured, and the numbers that came out."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from statistics import median


@dataclass(frozen=True)
class Job:
    """One thing to measure in a process of its own."""

    scenario: str
    rival: str
    algorithm: str


@dataclass
class Row:
    """What the rounds of one job gave, or what kept it from giving anything."""

    job: Job
    runs: list[dict[str, float]] = field(default_factory=list)
    problem: str | None = None

    def best(self, name: str = "ns") -> float:
        """The smallest value: noise only ever adds."""
        return min(run[name] for run in self.runs)

    def times(self) -> float:
        """How many times its yardstick it takes, the best of each."""
        return self.best() / self.best("yardstick_ns")

    def rounds(self) -> list[float]:
        """How many times its yardstick it took in each round, the smallest first."""
        return sorted(run["ns"] / run["yardstick_ns"] for run in self.runs)

    def worst_error(self) -> float:
        """The error in percent that is farthest from none."""
        return max((run["error_percent"] for run in self.runs), key=abs)

    @property
    def right(self) -> bool:
        """Whether every round gave the answer it had to give."""
        return all(run["right"] for run in self.runs)

    def as_json(self) -> dict[str, object]:
        names = vars(self.job) | ({"problem": self.problem} if self.problem else {})
        if not self.runs:
            return names
        summary: dict[str, object] = {"right": self.right}
        if "ns" in self.runs[0]:
            summary["ns"] = round(self.best(), 1)
            summary["ns_median"] = round(median(run["ns"] for run in self.runs), 1)
            summary["per_second"] = round(1e9 / self.best())
        if "yardstick_ns" in self.runs[0]:
            summary["yardstick_ns"] = round(self.best("yardstick_ns"), 1)
            summary["times"] = round(self.times(), 3)
            summary["times_in_rounds"] = [round(times, 3) for times in self.rounds()]
        if "kept_ns" in self.runs[0]:
            summary["yardstick_kept_ns"] = round(self.best("kept_ns"), 1)
        for name in ("told_ns", "hot_ns"):
            if name in self.runs[0]:
                summary[name] = round(self.best(name), 1)
        for name in self.runs[0]:
            if name.endswith(" adds"):
                summary[f"{name}_ns"] = round(self.best(name), 1)
        if "held" in self.runs[0]:
            summary["bytes"] = round(self.best("held"))
        if "bound" in self.runs[0]:
            summary["excess"] = round(max(run["excess"] for run in self.runs), 1)
            summary["bound"] = self.runs[0]["bound"]
        if "first_ns" in self.runs[0]:
            summary["new_key_ns"] = round(self.best("first_ns"), 1)
        if "bytes" in self.runs[0]:
            summary["bytes_per_key"] = round(self.best("bytes"), 1)
            summary["keys"] = self.runs[0]["keys"]
        if "error_percent" in self.runs[0]:
            summary["expected"] = self.runs[0]["expected"]
            summary["admitted"] = [run["admitted"] for run in self.runs]
            summary["failed"] = sum(run["failed"] for run in self.runs)
            summary["error_percent"] = round(self.worst_error(), 3)
        return names | summary


class Results:
    """All rows of a run, found by scenario, rival and algorithm."""

    def __init__(self, rows: Iterable[Row]) -> None:
        self.rows = list(rows)
        self._by_job = {row.job: row for row in self.rows}

    def get(self, scenario: str, rival: str, algorithm: str) -> Row | None:
        """The row of a job that gave numbers, or None."""
        row = self._by_job.get(Job(scenario, rival, algorithm))
        return row if row and row.runs else None

    def of(self, scenario: str, rival: str | None = None) -> list[Row]:
        """The rows of a scenario; those with numbers if one rival is named."""
        return [
            row
            for row in self.rows
            if row.job.scenario == scenario
            and (rival is None or (row.job.rival == rival and row.runs))
        ]
