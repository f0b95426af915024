"""Groups: what the control groups we are in may use, and what they use of it; Linux only.

A container, a systemd unit or a pod is a control group, of version 2 (one tree) or 1 (a tree for
each resource). Limits of the groups around ours bind us too. A container often sees its own
group as the root of the tree, while /proc tells its path on the host: then the root is ours.
"""

from __future__ import annotations

from pathlib import Path, PurePosixPath
from typing import NamedTuple

__all__ = ["GROUP", "PROC", "Groups", "Quota"]

GROUP = Path("/sys/fs/cgroup")
PROC = Path("/proc")
HUGE = 2**60
"""Version 1 says such a number of bytes where there is no limit."""


class Quota(NamedTuple):
    """How much CPU a group has used so far, and how many CPUs it may use."""

    used: float
    """Seconds."""
    cpus: float


class Groups:
    """The groups of this process."""

    def __init__(self, proc: Path = PROC, group: Path = GROUP) -> None:
        paths = _paths(proc)
        self._tree = _levels(group, paths.get("", "/"))
        self._cpu = _levels(group / "cpu", paths.get("cpu", "/"))
        self._usage = _levels(group / "cpuacct", paths.get("cpuacct", "/"))
        self._bytes = _levels(group / "memory", paths.get("memory", "/"))

    def quotas(self) -> dict[Path, Quota]:
        """Those groups that may not use all CPUs, by their folders."""
        found = {}
        for level in self._tree:
            most, period, *_ = map(_whole, [*_words(level / "cpu.max"), "", ""])
            if most and period and most > 0:
                used = (_named(level / "cpu.stat", "usage_usec") or 0) / 1e6
                found[level] = _quota(used, most, period)
        for level, usage in zip(self._cpu, self._usage, strict=False):
            most, period = _number(level / "cpu.cfs_quota_us"), _number(level / "cpu.cfs_period_us")
            if most and period and most > 0:
                used = (_number(usage / "cpuacct.usage") or 0) / 1e9
                found[level] = _quota(used, most, period)
        return found

    def memory(self) -> float | None:
        """The used share of the group that is nearest to its limit; None if there is no limit.

        Files that were read and are not in use any more do not count: they make room at once.
        """
        shares = []
        for level in self._tree:
            idle = _named(level / "memory.stat", "inactive_file")
            shares.append(_share(level / "memory.current", level / "memory.max", idle))
        for level in self._bytes:
            idle = _named(level / "memory.stat", "total_inactive_file")
            used, most = level / "memory.usage_in_bytes", level / "memory.limit_in_bytes"
            shares.append(_share(used, most, idle))
        return max((share for share in shares if share is not None), default=None)


def _paths(proc: Path) -> dict[str, str]:
    """The path of our group by resource; of version 2 as \"\"."""
    found = {}
    try:
        lines = (proc / "self" / "cgroup").read_text().splitlines()
    except (OSError, ValueError):
        return {}
    for line in lines:
        _, _, rest = line.partition(":")
        words, _, path = rest.partition(":")
        for word in words.split(","):
            found[word] = path
    return found


def _levels(root: Path, path: str) -> list[Path]:
    """The folders of a group and of those around it, the outermost first."""
    found = [root]
    for part in PurePosixPath(path).parts[1:]:
        level = found[-1] / part
        if part == ".." or not level.is_dir():
            return [root]
        found.append(level)
    return found


def _quota(used: float, most: int, period: int) -> Quota:
    return Quota(used, max(most / period, 0.01))


def _share(used: Path, most: Path, idle: int | None) -> float | None:
    limit, taken = _number(most), _number(used)
    if not limit or limit >= HUGE or taken is None:
        return None
    return min(1.0, max(0, taken - (idle or 0)) / limit)


def _number(path: Path) -> int | None:
    words = _words(path)
    return _whole(words[0]) if words else None


def _named(path: Path, name: str) -> int | None:
    """The number behind a name, in a file of such lines."""
    words = _words(path)
    return _whole(words[words.index(name) + 1]) if name in words[:-1] else None


def _whole(word: str) -> int | None:
    try:
        return int(word)
    except ValueError:  # "max", for instance
        return None


def _words(path: Path) -> list[str]:
    try:
        return path.read_text().split()
    except (OSError, ValueError):
        return []
