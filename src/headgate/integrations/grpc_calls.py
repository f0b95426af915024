"""Calls of a gRPC server, each from the gate to its end: of a thread, of a task, or of both."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Protocol

from ..callers import errand
from ..gating.chain import Around, entered

if TYPE_CHECKING:
    from ..facts import Facts
    from ..gate import Verdict

__all__ = ["AsyncCall", "Call", "LentCall", "Metadata", "metadata_of"]

Metadata = tuple[tuple[str, str], ...]


class Rules(Protocol):
    """What a call asks of its interceptor."""

    gate: Any

    def facts(self, method: str, context: Any) -> Facts:
        """A call as the gate sees it."""
        ...

    def refusal(self, verdict: Verdict) -> tuple[Any, str, Metadata]:
        """The code, the details and the trailing metadata of a refusal."""
        ...

    def outcome(self, context: Any, error: BaseException | None) -> str:
        """How a call ended."""
        ...


class AsyncCall:
    """A call of a task, from the gate to its end."""

    around: Around | None
    """What is around all that is entered inside."""

    def __init__(self, rules: Rules, method: str, task: Any, context: Any) -> None:
        self.rules = rules
        self.method = method
        self.task = task
        self.context = context

    async def __aenter__(self) -> AsyncCall:
        facts = self.rules.facts(self.method, self.context)
        verdict = await self.rules.gate.check(facts)
        if not verdict.allowed:
            await self.context.abort(*self.rules.refusal(verdict))
        self.around = entered(facts)
        self.permit = verdict.permit
        self.metadata = metadata_of(verdict)
        tell(self.context, self.metadata)  # now, for an abort sends it
        return self

    async def __aexit__(self, _kind: object, error: BaseException | None, _: object) -> None:
        tell(self.context, self.metadata)  # again, for a handler may have set its own
        outcome = "failure"
        try:
            outcome = self.rules.outcome(self.context, error)
        finally:
            with suppress(Exception):  # the call itself is over, and a lease ends by itself
                await self.permit.release(outcome)

    def until_left(self) -> None:
        """Hold no longer than the client stays: nobody may ask a stream for more, or close it."""
        if self.permit:
            self.task.add_done_callback(lambda _: errand(self.permit.release("ignored")))


class Call:
    """A call of a thread, from the gate to its end."""

    around: Around | None
    """What is around all that is entered inside."""

    def __init__(self, rules: Rules, method: str, context: Any) -> None:
        self.rules = rules
        self.method = method
        self.context = context

    def __enter__(self) -> Call:
        facts = self.rules.facts(self.method, self.context)
        verdict = self.check(facts)
        if not verdict.allowed:
            code, details, metadata = self.rules.refusal(verdict)
            self.context.set_trailing_metadata(metadata)
            self.context.abort(code, details)
        self.around = entered(facts)
        self.permit: Any = verdict.permit
        self.metadata = metadata_of(verdict)
        tell(self.context, self.metadata)
        return self

    def __exit__(self, _kind: object, error: BaseException | None, _: object) -> None:
        tell(self.context, self.metadata)
        outcome = "failure"
        try:
            outcome = self.rules.outcome(self.context, error)
        finally:
            self.give(outcome)

    def check(self, facts: Facts) -> Verdict:
        """Ask the gate."""
        verdict: Verdict = self.rules.gate.check(facts)
        return verdict

    def give(self, outcome: str = "ignored") -> None:
        """Give back what is held."""
        with suppress(Exception):  # the call itself is over, and a lease ends by itself
            self.permit.release(outcome)

    def until_left(self) -> None:
        """Hold no longer than the client stays: nobody may ask a stream for more, or close it."""
        if self.permit and self.context.add_callback(self.give) is False:
            self.give()


class LentCall(Call):
    """A call of a server of tasks that runs in a thread."""

    def __init__(self, rules: Rules, method: str, task: Any, context: Any) -> None:
        super().__init__(rules, method, Noted(context))
        self.task = task
        self.loop = task.get_loop()

    def check(self, facts: Facts) -> Verdict:
        asked = asyncio.run_coroutine_threadsafe(self.rules.gate.check(facts), self.loop)
        verdict: Verdict = asked.result()
        return verdict

    def give(self, outcome: str = "ignored") -> None:
        self._there(lambda: errand(self.permit.release(outcome)))

    def until_left(self) -> None:
        if self.permit:
            self._there(lambda: self.task.add_done_callback(lambda _: self.give()))

    def _there(self, work: Callable[[], object]) -> None:
        with suppress(RuntimeError):  # the loop is closed
            self.loop.call_soon_threadsafe(work)


class Noted:
    """The context of a plain function on a server of tasks, which can be set but not read."""

    def __init__(self, context: Any) -> None:
        self._context = context
        self._code: Any = None
        self._metadata: Any = ()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._context, name)

    def code(self) -> Any:
        """What was set."""
        return self._code

    def trailing_metadata(self) -> Any:
        """What was set."""
        return self._metadata

    def set_code(self, code: Any) -> None:
        """Set it, and remember."""
        self._code = code
        self._context.set_code(code)

    def set_trailing_metadata(self, metadata: Any) -> None:
        """Set it, and remember."""
        self._metadata = metadata
        self._context.set_trailing_metadata(metadata)

    def abort(self, code: Any, *more: Any) -> None:
        """End the call, and remember how."""
        self._code = code
        self._context.abort(code, *more)


def metadata_of(verdict: Verdict) -> Metadata:
    """The headers of a verdict as gRPC has them; none if they cannot be written."""
    with suppress(Exception):  # a response without them is better than none
        return tuple((name.lower(), value) for name, value in verdict.headers())
    return ()


def tell(context: Any, metadata: Metadata) -> None:
    """Add to the trailing metadata what is not among them."""
    with suppress(Exception):
        told = tuple(context.trailing_metadata() or ())
        more = tuple(pair for pair in metadata if pair not in told)
        if more:
            context.set_trailing_metadata(told + more)
