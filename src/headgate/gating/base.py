"""GateBase: what Gate and AsyncGate share."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, TypeVar

from ..flows import Close, Flow, run, run_async
from ..stores import open_store
from ..verdict import AsyncVerdict, Verdict
from .call import Call
from .desk import Desk
from .guard import Guarded
from .keeper import Keeper
from .permit import ASYNC_NOTHING, NOTHING
from .watched import Watch, watched

if TYPE_CHECKING:
    from ..clock import Clock
    from ..decision import Decision
    from ..facts import Facts
    from ..rules.match import Matched
    from ..stores.base import Store
    from .book import Book

__all__ = ["GateBase"]

Verdict_ = TypeVar("Verdict_", bound=Verdict)
Hook = Callable[["Facts", Verdict], object]


class GateBase(Keeper):
    """Rules in front of a store."""

    def __init__(
        self,
        rules: Any,
        store: Store | str | None = None,
        *,
        name: str = "rules",
        clock: Clock | None = None,
        room: Callable[[], float] | None = None,
        functions: Mapping[str, Callable[..., Any]] | None = None,
    ) -> None:
        if not isinstance(name, str):
            raise TypeError(f"name is a str, not {type(name).__name__}")
        super().__init__(functions)
        self.name = name
        self.on_verdict: list[Hook] = []
        """Called with facts and verdict after every check; what they raise is dropped."""
        self._owns = store is None or isinstance(store, str)
        self.store = open_store(store, clock)
        self._far = self.store.blocking
        self._clock = clock if clock is not None or self._far else self.store.clock
        self._desk = Desk(self.store, name, room)
        self._roomy = room is not None
        try:
            self._open(rules)
        except BaseException:
            if self._owns:
                self._drop_store()
            raise

    # -- checks

    def check_now(self, facts: Facts) -> Verdict:
        """Say whether a call may go ahead, and take what it costs.

        Never waits longer than the rules say. Whoever lets the call go ahead ends it by
        `verdict.permit.release(outcome)`.
        """
        book = self._book
        if book.guards is not None:
            from .guarded import guarded

            flow = guarded(self, book, facts, Verdict, None, coloured=False)
            verdict: Verdict = run(flow, self.store)
            return verdict
        matched = book.match(facts)
        bounds, ways = matched.bounds, self._prepared
        if len(bounds) == 1 and ways is not None:
            bound = bounds[0]
            way = ways.get(id(bound.limits))
            if way is not None:
                return self._short(facts, matched, way(bound.key, bound.cost), Verdict)
            passed = self._book.at_once(bound)
            if passed is not None:
                return self._short(facts, matched, passed, Verdict)
        if not bounds:
            return self._unasked(facts, matched, Verdict)
        call = self.asks(facts, matched, Verdict)
        steps = call.steps(None, coloured=False)
        if self._desk.watch is not None:
            steps = watched(steps, self._desk.watch)
        return self._told(facts, run(steps, self.store))

    async def check_soon(self, facts: Facts) -> AsyncVerdict:
        """Say whether a call may go ahead, and take what it costs.

        Never waits longer than the rules say. Whoever lets the call go ahead ends it by
        `await verdict.permit.release(outcome)`.
        """
        book = self._book
        if book.guards is not None:
            return await self._guarded_soon(book, facts)
        matched = book.match(facts)
        bounds, ways = matched.bounds, self._prepared
        if len(bounds) == 1 and ways is not None:
            bound = bounds[0]
            way = ways.get(id(bound.limits))
            if way is not None:
                answer = way(bound.key, bound.cost)
                if self._far:
                    answer = await answer
                return self._short(facts, matched, answer, AsyncVerdict)
            passed = self._book.at_once(bound)
            if passed is not None:
                return self._short(facts, matched, passed, AsyncVerdict)
        if not bounds:
            return self._unasked(facts, matched, AsyncVerdict)
        call, loop = self.asks(facts, matched, AsyncVerdict), None
        if self.store.blocking:
            import asyncio

            loop = asyncio.get_running_loop()
        steps: Any = call.steps(loop, coloured=True)
        if self._desk.watch is not None:
            steps = watched(steps, self._desk.watch)
        verdict: AsyncVerdict = await run_async(steps, self.store)
        self._told(facts, verdict)
        return verdict

    async def _guarded_soon(self, book: Book, facts: Facts) -> AsyncVerdict:
        import asyncio

        from .guarded import guarded

        assert book.guards is not None  # or nobody would come here
        loop = asyncio.get_running_loop()
        book.guards.watch_loop(loop)
        leases = loop if self.store.blocking else None
        steps: Any = guarded(self, book, facts, AsyncVerdict, leases, coloured=True)
        verdict: AsyncVerdict = await run_async(steps, self.store)
        return verdict

    def asks(
        self, facts: Facts, matched: Matched, kind: type[Verdict], book: Book | None = None
    ) -> Call:
        """A call, with all that it asks the store for."""
        self._desk.catch_up()
        return Call(self._desk, book or self._book, facts, matched, kind)

    def _short(
        self, facts: Facts, matched: Matched, answer: Decision, kind: type[Verdict_]
    ) -> Verdict_:
        """The verdict of one rule that takes and no more."""
        verdict = kind()
        verdict.allowed = allowed = answer.allowed
        verdict.permit = NOTHING if kind is Verdict else ASYNC_NOTHING  # type: ignore[assignment] # by kind
        verdict._bounds = matched.bounds
        verdict._answers = (answer,)
        verdict._format = self._book.format
        verdict._place = -1
        if allowed and not matched.shadowed and not self.on_verdict:
            verdict._rule = None
            verdict._key = ""
            verdict._shadowed = ()
            return verdict
        verdict._rule, verdict._key = None, ""
        if not allowed:
            bound = matched.bounds[0]
            verdict._rule, verdict._key, verdict._place = bound.rule.rule, bound.key, 0
        verdict._shadowed = tuple(rule.name for rule in matched.shadowed)
        return self._told(facts, verdict)

    def _unasked(
        self, facts: Facts, matched: Matched, kind: type[Verdict_], *, heard: bool = True
    ) -> Verdict_:
        """The verdict on a call that no limit is asked about."""
        verdict = kind()
        verdict.allowed = matched.denied is None
        verdict.permit = NOTHING if kind is Verdict else ASYNC_NOTHING  # type: ignore[assignment] # by kind
        verdict._bounds = verdict._answers = ()
        verdict._format = self._book.format
        verdict._rule = matched.exempt if matched.denied is None else matched.denied
        verdict._key, verdict._place = "", -1
        verdict._shadowed = tuple(rule.name for rule in matched.shadowed)
        return self._told(facts, verdict) if heard else verdict

    def _told(self, facts: Facts, verdict: Verdict_) -> Verdict_:
        """The verdict, after everybody has heard of it who is to."""
        if not verdict.allowed:
            _log(verdict)
        for hook in self.on_verdict:
            try:
                hook(facts, verdict)
            except Exception:  # who watches must not break what is watched
                continue
        return verdict

    def watched_by(self, watch: Watch | None) -> None:
        """Tell somebody how long the store takes and what is held; None: nobody any more."""
        if watch is not None and self._desk.watch not in (None, watch):
            raise ValueError(f"{self!r} is watched by somebody already")
        self._desk.watch = watch
        self._book = self._book.anew()  # what is prepared has a watch built in, or none
        self.open()

    # -- faces

    def limited(self, resource: str | None = None, **known: Any) -> Guarded:
        """A decorator: the calls of a function go through the gate.

        The resource is the function's name unless it is said. What is known of a call beside its
        arguments is given as for Facts, by a value or a function of the call's arguments. A
        refused call answers with what its rule has as `otherwise` (data, or the result of a
        function, called with the same arguments); without one, `Refused` is raised.
        """
        return Guarded(self, resource, known)

    def _closing(self) -> Flow[None]:
        if self._owns:
            yield Close()
            self._desk._lines.kick_all()  # whoever waits is told

    def _drop_store(self) -> None:
        if not self.store.blocking:
            self.store.close()

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name!r}: {self._book.count} rules>"


def _log(verdict: Verdict) -> None:
    """One line for a refusal, at the level of its rule; it never breaks the call."""
    try:
        import logging

        level = logging.getLevelName(verdict._rule.log_level.upper())
        logger = logging.getLogger("headgate")
        if isinstance(level, int) and logger.isEnabledFor(level):
            what = "refused by rule %s, key %r, retry after %g s"
            known = verdict.rule, verdict.key, verdict.retry_after
            if verdict.why:
                what, known = f"{what}: %s", (*known, verdict.why)  # type: ignore[assignment] # one more
            logger.log(level, what, *known)
    except Exception:  # whoever logs may fail, the call does not
        pass
