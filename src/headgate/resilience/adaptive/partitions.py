"""Partitions: who may have how many of a limit's seats; pure counting.

A partition has a guaranteed share. As long as it uses less, its calls are let in whatever the
others do. What is guaranteed to nobody, or is not used just now, is lent to anybody; a lent seat
cannot be taken back before its call has ended, so for that long the sum may be above the limit.
With `lend=False` guaranteed seats stay free for their owners, and the sum is never above it.

A priority decides how much of the limit, and of a partition's own share, a call may fill: low
ones only the lower part, so they are refused first, and seats are left for the others.
"""

from __future__ import annotations

from collections.abc import Mapping

__all__ = ["LADDER", "Ladder", "Partitions"]

LADDER = {-2: 0.5, -1: 0.8, 0: 1.0}
"""By priority: which part of a limit it may fill."""


class Ladder:
    """What a priority may have: of the nearest step at or below it, else of the lowest."""

    __slots__ = ("_known", "_steps")

    def __init__(self, steps: Mapping[int, float], most: float = 1.0) -> None:
        if not steps:
            raise ValueError("priorities need at least one step, such as {0: 1.0}")
        before = 0.0
        for priority, part in sorted(steps.items()):
            if isinstance(priority, bool) or not isinstance(priority, int):
                raise TypeError(f"a priority is a whole number, not {priority!r}")
            if isinstance(part, bool) or not isinstance(part, int | float):
                raise TypeError(f"the part of priority {priority} is a number, not {part!r}")
            if not 0 < part <= most:
                raise ValueError(
                    f"the part of priority {priority} is above 0 and at most {most:g}, not {part!r}"
                )
            if part < before:
                raise ValueError(f"priority {priority} may have no less than the one below it")
            before = part
        self._steps = sorted(steps.items())
        self._known = dict(steps)

    def part(self, priority: int) -> float:
        """Which part a priority may have."""
        found = self._known.get(priority)
        if found is not None:
            return found
        below = [part for step, part in self._steps if step <= priority]
        return below[-1] if below else self._steps[0][1]


class Partitions:
    """Counts who sits where; the caller holds the lock."""

    __slots__ = ("_of", "_shares", "busy", "ladder", "lend", "limit", "seats", "total")

    def __init__(
        self,
        shares: Mapping[str, float] | None = None,
        lend: bool = True,
        ladder: Mapping[int, float] | None = None,
    ) -> None:
        shares = dict(shares or {})
        for name, part in shares.items():
            if not isinstance(name, str) or not name:
                raise TypeError(f"a partition has a name, not {name!r}")
            if isinstance(part, bool) or not isinstance(part, int | float):
                raise TypeError(f"the share of {name!r} is a number from 0 to 1, not {part!r}")
            if not 0 <= part <= 1:
                raise ValueError(f"the share of {name!r} is from 0 to 1, not {part!r}")
        if sum(shares.values()) > 1 + 1e-9:
            raise ValueError(f"the shares add up to {sum(shares.values()):g}, which is above 1")
        self._shares = shares
        self.ladder = Ladder(LADDER if ladder is None else ladder)
        self.lend = lend
        self.busy: dict[str, int] = dict.fromkeys(shares, 0)
        """Calls under way by partition; of unknown partitions together as \"\"."""
        self.busy[""] = 0
        self.total = 0
        self.limit = 0
        self.seats: dict[str, int] = {}
        """Guaranteed seats by partition, at the present limit."""

    def resize(self, limit: int) -> None:
        """There are so many seats now."""
        self.limit = limit
        # At least one: a small limit must not take away the whole guarantee.
        self.seats = {
            name: max(1, int(limit * part + 1e-9)) if part else 0
            for name, part in self._shares.items()
        }

    def known(self, partition: str) -> str:
        """The partition as it is counted."""
        return partition if partition in self._shares else ""

    def fits(self, partition: str, priority: int) -> bool:
        """Whether there is a seat for a call."""
        part = self.ladder.part(priority)
        if self._shares:
            own = self.seats.get(partition, 0)
            # The first seat of a guarantee is open to all priorities, or small ones had none.
            if own and self.busy[partition] < max(1, own * part):
                return True
            if not self.lend:
                taken = sum(max(self.busy[name], own) for name, own in self.seats.items())
                return taken + self.busy[""] < self.limit * part
        return self.total < self.limit * part

    def take(self, partition: str) -> None:
        """A call sits down."""
        self.busy[partition] += 1
        self.total += 1

    def give(self, partition: str) -> None:
        """A call leaves."""
        self.busy[partition] -= 1
        self.total -= 1

    def clear(self) -> None:
        """Nobody sits anywhere."""
        self.busy = dict.fromkeys(self.busy, 0)
        self.total = 0
