"""Signals: how busy this machine is, or the container we are in.

With psutil on any system; without it from /proc, and from what Python itself knows. What cannot
be known is None, and nobody is turned away because of it.
"""

from __future__ import annotations

import importlib
import os
import time
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from .groups import GROUP, PROC, Groups

__all__ = ["Machine", "Reading", "Source", "cpus"]


class Reading(NamedTuple):
    """How busy it was a moment ago; None: unknown."""

    cpu: float | None = None
    """The busy share of all CPUs we may use, from 0 to 1."""
    load: float | None = None
    """The load average of one minute for each CPU: 1 is a machine that is just busy."""
    memory: float | None = None
    """The used share of memory, from 0 to 1."""


class Source(Protocol):
    """Where readings come from; give the guard one of your own if you like."""

    def read(self) -> Reading:
        """Look now; quick enough to do once a second."""
        ...


class Machine:
    """Reads this machine; shares of CPU are those since the last look.

    In a container the limits that it has count, not those of the whole machine: whichever of the
    two is nearer to its end.
    """

    def __init__(self, psutil: bool = True, proc: Path = PROC, group: Path = GROUP) -> None:
        self._psutil = _psutil() if psutil else None
        self._proc = proc
        self._groups = Groups(proc, group)
        self.cpus = cpus(group, proc)
        self._all = self._times()
        self._quotas = self._groups.quotas()
        self._own = (time.monotonic(), time.process_time())
        self._cpu: float | None = None

    def read(self) -> Reading:
        """Look now."""
        return Reading(self._read_cpu(), self._load(), self._memory())

    def _read_cpu(self) -> float | None:
        """The busiest of the machine, and of this process and its groups beside what they may
        use: a group has our sister processes in it too."""
        shares = []
        times = self._times()
        if times is not None and self._all is not None:
            idle, total = times[0] - self._all[0], times[1] - self._all[1]
            if total > 0:
                shares.append(1 - idle / total)
        self._all = times
        now, used = time.monotonic(), time.process_time()
        passed = now - self._own[0]
        if passed >= 0.01:  # a shorter time says nothing
            shares.append((used - self._own[1]) / passed / self.cpus)
            before, self._quotas = self._quotas, self._groups.quotas()
            for level, quota in self._quotas.items():
                if level in before:
                    shares.append((quota.used - before[level].used) / passed / quota.cpus)
            self._own = (now, used)
        if shares:
            self._cpu = min(1.0, max(0.0, *shares))
        return self._cpu

    def _times(self) -> tuple[float, float] | None:
        """Idle and whole time of all CPUs since the start of the machine."""
        if self._psutil is not None:
            times = self._psutil.cpu_times()
            # A guest's time is counted in its host's too.
            guest = getattr(times, "guest", 0.0) + getattr(times, "guest_nice", 0.0)
            return times.idle + getattr(times, "iowait", 0.0), sum(times) - guest
        try:
            with open(self._proc / "stat", encoding="ascii") as file:
                words = [int(word) for word in file.readline().split()[1:9]]
            return words[3] + words[4], sum(words)
        except (OSError, ValueError, IndexError):
            return None

    def _load(self) -> float | None:
        try:
            return os.getloadavg()[0] / (os.cpu_count() or 1)
        except (OSError, AttributeError):  # not on Windows
            return None

    def _memory(self) -> float | None:
        shares = (self._machine_memory(), self._groups.memory())
        return max((share for share in shares if share is not None), default=None)

    def _machine_memory(self) -> float | None:
        if self._psutil is not None:
            return float(self._psutil.virtual_memory().percent) / 100
        try:
            found = {}
            with open(self._proc / "meminfo", encoding="ascii") as file:
                for line in file:
                    name, _, rest = line.partition(":")
                    if name in ("MemTotal", "MemAvailable"):
                        found[name] = int(rest.split()[0])
                    if len(found) == 2:
                        break
            return 1 - found["MemAvailable"] / found["MemTotal"]
        except (OSError, ValueError, IndexError, KeyError, ZeroDivisionError):
            return None


def cpus(group: Path = GROUP, proc: Path = PROC) -> float:
    """How many CPUs this process may use: by its affinity, and by its container's quota."""
    try:
        count = float(len(os.sched_getaffinity(0)))
    except (AttributeError, OSError):  # only on Linux
        count = float(os.cpu_count() or 1)
    return min([count, *(quota.cpus for quota in Groups(proc, group).quotas().values())])


def _psutil() -> Any:
    try:
        return importlib.import_module("psutil")
    except ImportError:
        return None
