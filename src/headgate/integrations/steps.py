"""The steps of an outgoing call: sleep, ask, take, give back; each in two colours."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from ..callers import TaskCaller, ThreadCaller

if TYPE_CHECKING:
    from ..clock import Clock
    from ..facts import Facts

__all__ = ["Check", "Enter", "Leave", "Place", "Release", "Sleep"]


class Place(NamedTuple):
    """Where a call waits if there is no store: it has a clock, and nothing else."""

    clock: Clock


class Sleep(NamedTuple):
    """Sleep until an instant of the clock of `place`."""

    place: Any
    until: int

    def ask(self, store: Any) -> Any:
        return ThreadCaller(self.place, _nobody).sleep(self.until)

    def ask_async(self, store: Any) -> Any:
        import asyncio

        return TaskCaller(self.place, _nobody, asyncio.get_running_loop()).sleep(self.until)


class Check(NamedTuple):
    """Ask a gate."""

    gate: Any
    facts: Facts

    def ask(self, store: Any) -> Any:
        return self.gate.check(self.facts)

    def ask_async(self, store: Any) -> Any:
        return self.gate.check(self.facts)


class Enter(NamedTuple):
    """Take from a limiter: enter its hold or reservation."""

    taking: Any

    def ask(self, store: Any) -> Any:
        return self.taking.__enter__()

    def ask_async(self, store: Any) -> Any:
        return self.taking.__aenter__()


class Leave(NamedTuple):
    """Give back what was entered."""

    taking: Any

    def ask(self, store: Any) -> Any:
        return self.taking.__exit__(None, None, None)

    def ask_async(self, store: Any) -> Any:
        return self.taking.__aexit__(None, None, None)


class Release(NamedTuple):
    """Give a gate's permit back."""

    permit: Any
    outcome: str

    def ask(self, store: Any) -> Any:
        return self.permit.release(self.outcome)

    def ask_async(self, store: Any) -> Any:
        return self.permit.release(self.outcome)


def _nobody() -> None:
    """Nobody else is told when a sleep ends."""
