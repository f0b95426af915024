"""Door: how a hit comes in; the compiled form has a shorter one."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .decision import Decision
    from .keys import Key
    from .stores.base import Prepared

__all__ = ["Door"]


class Door:
    """What a Limiter's hit is."""

    if TYPE_CHECKING:  # a Front has them
        _prepared: Prepared | None

        def _take(self, key: Key, cost: int, partial: bool) -> Decision: ...

    def open(self) -> None:
        """Let hits take the prepared way, if there is one."""
        if self._prepared is None:
            vars(self).pop("hit", None)
        elif type(self).hit is Door.hit:
            # In place of the method, which would only call it; a subclass's own is left alone.
            vars(self)["hit"] = self._prepared.hit

    def hit(self, key: Key = "", cost: int = 1, *, partial: bool = False) -> Decision:
        """Take `cost` or be refused; with `partial`, take what is there. Never sleeps."""
        return self._take(key, cost, partial)
