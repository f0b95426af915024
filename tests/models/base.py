"""What every model answers."""

from __future__ import annotations

import copy
from typing import TypeVar

__all__ = ["Model"]

Self = TypeVar("Self", bound="Model")


class Model:
    """A list of admitted calls, and the question whether one more fits."""

    def __init__(self) -> None:
        self.events: list[tuple[int, int]] = []
        """The instant and the cost of everything admitted."""

    def fits(self, now: int, cost: int) -> bool:
        """Whether a call of this cost passes now; asking changes nothing."""
        raise NotImplementedError

    def ever(self, cost: int) -> bool:
        """Whether a call of this cost would pass on an unused key, some day."""
        raise NotImplementedError

    def unused(self, now: int) -> bool:
        """Whether the key behaves as if never used."""
        raise NotImplementedError

    def seen(self) -> bool:
        """Whether the first call has been made, where that makes a difference."""
        return True

    def used(self, now: int) -> object:
        """How much is in use, for models that can say so."""
        raise NotImplementedError

    def enter(self, now: int, cost: int) -> None:
        """Count a call, whether it fits or not."""
        self.events.append((now, cost))

    def take(self, now: int, cost: int) -> bool:
        """Count a call if it fits; a cost of nothing always does."""
        if cost == 0:
            return True
        if not self.fits(now, cost):
            return False
        self.enter(now, cost)
        return True

    def refund(self, now: int, cost: int, at: int) -> None:
        """Give back part of what was admitted at an instant."""
        raise NotImplementedError

    def strike(self, cost: int, at: int) -> None:
        """Cross `cost` out of the list, where it was entered."""
        for place, (when, charged) in enumerate(self.events):
            if when == at and cost:
                back = min(cost, charged)
                self.events[place] = (when, charged - back)
                cost -= back

    def copy(self: Self) -> Self:
        """The same history, to try something on."""
        twin = copy.copy(self)
        twin.events = list(self.events)
        return twin
