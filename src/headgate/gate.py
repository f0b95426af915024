"""Gate and AsyncGate: rules applied to calls. Facts go in, a verdict comes out.

One look finds every rule that matches, and one call asks the store for all of their limits
together: a refusal by one takes nothing from the others. Only rules with `wait` may take longer.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from .callers import errands_done
from .flows import run, run_async
from .gating.base import GateBase
from .gating.entries import AsyncEntry, Entry
from .gating.many import Each, many_now, many_soon
from .gating.permit import AsyncPermit, Permit
from .verdict import AsyncVerdict, Refused, Verdict

if TYPE_CHECKING:
    from .facts import Facts

__all__ = [
    "AsyncEntry", "AsyncGate", "AsyncPermit", "AsyncVerdict", "Each", "Entry", "Gate", "Permit",
    "Refused", "Verdict",
]  # fmt: skip


class Gate(GateBase):
    """Rules for threads and plain functions.

    rules      a RuleSet, the path of a rules file, its text, or a source that is followed
    store      as for a Limiter: nothing for this process alone, a URL, or a store
    name       the namespace of the limits; gates of one name on one store count together
    room       says how much room elastic limits have now, from 0 to 1
    functions  what rules may call by name, as `otherwise`
    """

    coloured = False

    check = GateBase.check_now

    def check_many(self, calls: Sequence[Facts | Each]) -> list[Verdict]:
        """Independent verdicts on several calls, in order, from one call to the store.

        None waits, whatever the rules say. `Each` says more of a call than its facts.
        """
        return many_now(self, calls)

    def enter(
        self, resource: str | Facts, *, args: Sequence[Any] | dict[str, Any] = (), **known: Any
    ) -> Entry:
        """A call as a block: `with gate.enter("orders", origin="shop", args=[sku]):`.

        Raises `Refused` on the way in. Blocks inside know the chain of those around them, and
        their origin unless they say another. An exception inside is a failure, but an interrupt
        or a cancellation is neither failure nor success.
        """
        return Entry(self, resource, {"args": args, **known} if args else known)

    def close(self) -> None:
        """Follow the rules no more, and let go of the store if this gate opened it."""
        self._stop()
        run(self._closing(), self.store)

    def __enter__(self) -> Gate:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


class AsyncGate(GateBase):
    """Rules for tasks: the names of Gate, awaited; `reload` and `status` never wait."""

    coloured = True

    check = GateBase.check_soon

    async def check_many(self, calls: Sequence[Facts | Each]) -> list[AsyncVerdict]:
        """Independent verdicts on several calls, in order, from one call to the store."""
        return await many_soon(self, calls)

    def enter(
        self, resource: str | Facts, *, args: Sequence[Any] | dict[str, Any] = (), **known: Any
    ) -> AsyncEntry:
        """A call as a block: `async with gate.enter("orders", origin="shop", args=[sku]):`."""
        return AsyncEntry(self, resource, {"args": args, **known} if args else known)

    async def close(self) -> None:
        """Follow the rules no more, and let go of the store if this gate opened it."""
        self._stop()
        if self.store.blocking:  # what was sent on its way still needs the store
            await errands_done()
            await run_async(self._closing(), self.store)
        else:
            run(self._closing(), self.store)

    async def __aenter__(self) -> AsyncGate:
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.close()
