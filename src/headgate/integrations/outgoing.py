"""Outgoing calls: ask before calling out, and listen to what the server says of its own limits.

What happens stands here once, as flows; a transport only tells what it knows of a request and
of its response. A call waits for its turn, or is refused before anything is sent, and holds
what it holds until the body of its response has ended.
"""

from __future__ import annotations

import asyncio
import math
import random
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypedDict

from ..clock import Clock, SystemClock, ticks_of
from ..facts import Facts
from ..flows import Flow, run, run_async
from ..gate import AsyncGate, Gate
from ..keys import Key
from ..limit import Limit
from ..limiter import AsyncLimiter, Limiter
from ..rules.keys import key_reader
from ..verdict import Refused
from .asked import AskedToWait, Asks
from .common import Find, Finder, gate_of, known_of, rules_of
from .meter import Cost, Settle, estimate
from .steps import Check, Enter, Place, Sleep
from .ticket import Ticket
from .told import Told, told

__all__ = ["AskedToWait", "Options", "Outgoing"]

SPREAD = 10.0
"""Whoever waited for the server comes back within so many seconds of the others at most."""
LEAST = 1_000
"""Between two questions to a gate, in microseconds."""


class Options(TypedDict, total=False):
    """What every transport takes beside its limits; see `Outgoing`."""

    limiter: Limiter | AsyncLimiter | None
    gate: Gate | AsyncGate | None
    rules: Any
    store: Any
    name: str
    clock: Clock | None
    key: str | Sequence[str] | Callable[[Any], Key]
    resource: str | Finder
    wait: float | None
    longest: float
    keys: int
    jitter: float
    learn: bool
    cost: Cost
    settle: Settle | None
    failed: Callable[[Any], bool] | None
    user: Finder | None
    device: Finder | None
    api_key: Finder | None
    origin: str | Finder | None
    attributes: Finder | None
    priority: Finder | None


class Outgoing:
    """Calls to others: limits of ours in front of them, and an ear for theirs.

    limits    as text; or `limiter=`, `gate=`, `rules=`; with none, only the server's words count
    store     where counts are kept; a URL of a Redis for many processes with one quota
    key       what is counted together: a word or several, as in rules, or a function of the
              request; the host unless it is said, and with it the port if that is not the usual
    resource  what is called, in place of the host: a text, or a function of the request
    wait      how many seconds a call may wait before it is made (None: as long as it takes)
    longest   no server can hold us back for longer, in seconds
    keys      how many keys' waits are remembered
    jitter    by how much those who waited for a server come back apart, as a share of the wait
    learn     whether to listen to the server at all
    cost      what a call costs, or a function of the request that estimates it
    settle    a function of the reply that finds the real cost; None leaves the estimate
    failed    a function of the response that says whether it was a failure
    """

    def __init__(
        self,
        coloured: bool,
        limits: Sequence[str | Limit] = (),
        *,
        limiter: Limiter | AsyncLimiter | None = None,
        gate: Gate | AsyncGate | None = None,
        rules: Any = None,
        store: Any = None,
        name: str = "outgoing",
        clock: Clock | None = None,
        key: str | Sequence[str] | Callable[[Any], Key] = "resource",
        resource: str | Finder = "",
        wait: float | None = 30.0,
        longest: float = 3600.0,
        keys: int = 10_000,
        jitter: float = 0.1,
        learn: bool = True,
        cost: Cost = 1,
        settle: Settle | None = None,
        failed: Callable[[Any], bool] | None = None,
        user: Finder | None = None,
        device: Finder | None = None,
        api_key: Finder | None = None,
        origin: str | Finder | None = None,
        attributes: Finder | None = None,
        priority: Finder | None = None,
    ) -> None:
        given = {"limits": limits, "limiter=": limiter, "gate=": gate, "rules=": rules}
        said = [word for word, value in given.items() if value is not None and value != ()]
        if len(said) > 1:
            raise TypeError(f"give limits, or limiter=, gate= or rules=; not {' and '.join(said)}")
        if store is not None and not limits and rules is None:
            raise TypeError("store= goes with limits or rules; what is given has its own")
        own = {"name": name, "clock": clock}
        self.limiter: Any = _limiter_of(coloured, limits, limiter, store, own)
        self.gate: Any = None
        if gate is not None or rules is not None:
            more: Any = {} if gate is not None else own
            kind = AsyncGate if coloured else Gate
            self.gate = gate_of(kind, (), rules=rules, gate=gate, store=store, **more)
        front = self.limiter or self.gate
        self._owned = front if limits or rules is not None else None
        self.place: Any = Place(clock or SystemClock()) if front is None else front.store
        self.blocking = front is not None and front.store.blocking
        self.leaving: set[asyncio.Task[None]] = set()
        """Calls that are over, and whose permits are on their way back."""
        self._wait = None if wait in (None, math.inf) else ticks_of(wait or 0, "wait")
        if self._wait is not None and self._wait < 0:
            raise ValueError(f"wait is at least 0 seconds, not {wait!r}")
        if ticks_of(longest, "longest") < 0 or keys < 1 or not 0 <= jitter <= 1:
            raise ValueError("longest is at least 0 seconds, keys at least 1, jitter from 0 to 1")
        self.asks = Asks(longest, keys)
        self._jitter = jitter
        self._learn = learn
        self._key = key if callable(key) else None
        self._reader = None if callable(key) else key_reader(rules_of((), key).rules[0].key)
        self._resource = resource
        self._cost, self.settle, self.failed = cost, settle, failed
        self._ours = origin if isinstance(origin, str) else ""
        finder = None if isinstance(origin, str) else origin
        self._find = Find(user, device, api_key, finder, attributes, priority)
        if settle is not None:
            if self.limiter is None:
                raise TypeError("settle= needs limits or a limiter, which take a cost back")
            self.limiter.refuse_reserving("settle")

    # -- what is known of a call

    def facts(
        self, request: Any, method: str, scheme: str, host: str, port: int | None, path: str,
        headers: Mapping[str, str],
    ) -> Facts:  # fmt: skip
        """What is known of a request before it is sent."""
        host = host.lower()
        length = headers.get("content-length", "")
        size = int(length) if length.isascii() and length.isdigit() and len(length) < 16 else 0
        usual = port is None or port == {"http": 80, "https": 443}.get(scheme)
        where = f"[{host}]" if ":" in host else host
        where = where if usual else f"{where}:{port}"
        named = self._resource
        resource = named(request) if callable(named) else named
        known = {"origin": self._ours, **known_of(self._find, request)}
        return Facts(
            method=method.upper(), host=host, path=path, resource=resource or where,
            headers=headers, size=size, **known,
        )  # fmt: skip

    # -- the two colours

    def enter(self, request: Any, facts: Facts) -> Ticket:
        """Wait for the call's turn; LimitExceeded if it may not be made."""
        return run(self._entering(request, facts), self.place)

    async def enter_async(self, request: Any, facts: Facts) -> Ticket:
        """The same, awaited."""
        if self._wait == 0 and self.leaving:  # whoever cannot wait must not miss what comes back
            loop = asyncio.get_running_loop()
            mine = [task for task in self.leaving if task.get_loop() is loop]
            if mine:
                await asyncio.wait(mine)
        return await run_async(self._entering(request, facts), self.place)

    def close(self) -> None:
        """Let go of what was opened here."""
        if self._owned is not None:
            self._owned.close()

    async def aclose(self) -> None:
        """The same, awaited."""
        if self._owned is not None:
            await self._owned.close()

    def heard(self, key: Key, status: int, headers: Mapping[str, str]) -> None:
        """Note what a server says of its limits; it never breaks the call."""
        if self._learn:
            self.noted(key, told(status, headers, self.place.clock.now()))

    def noted(self, key: Key, found: Told | None) -> None:
        """Note what was found in a response."""
        if found is not None and self._learn:
            self.asks.note(key, found, self.place.clock.micros())

    # -- the flow

    def _entering(self, request: Any, facts: Facts) -> Flow[Ticket]:
        clock = self.place.clock
        end = None if self._wait is None else clock.micros() + self._wait
        key: Key = self._key(request) if self._key else self._reader(facts) if self._reader else ""
        key = key or ""
        yield from self._patience(key, end)
        cost = estimate(self._cost, request)
        if self.gate is not None:
            ticket = yield from self._checked(key, facts, cost, end)
        elif self.limiter is not None:
            left = None if end is None else max(0, end - clock.micros()) / 1_000_000
            take = self.limiter.hold if self.settle is None else self.limiter.reserve
            taking = take(key, cost, timeout=left, priority=facts.priority)
            ticket = Ticket(self, key, taking, (yield Enter(taking)))
        else:
            ticket = Ticket(self, key)
        try:
            if len(self.asks):  # it may have been said while we waited for our turn
                yield from self._patience(key, end)
        except BaseException:
            yield from ticket.leaving("ignored", 0)
            raise
        return ticket

    def _patience(self, key: Key, end: int | None) -> Flow[None]:
        """Wait for as long as the server asked, if there is time for it."""
        clock = self.place.clock
        while asked := self.asks.find(key, now := clock.micros()):
            if end is not None and asked.until > end:
                raise AskedToWait(key, asked.words, (asked.until - now) / 1_000_000, now)
            spread = min(asked.wait * self._jitter, SPREAD) * random.random() * 1_000_000
            until = asked.until + int(spread)
            yield Sleep(self.place, until if end is None else min(until, end))

    def _checked(self, key: Key, facts: Facts, cost: int, end: int | None) -> Flow[Ticket]:
        """Ask the gate, again and again if there is time for it."""
        if cost != 1 or callable(self._cost):
            facts.args = {**facts.args, "cost": cost}
        facts = self.gate.enter(facts)._facts()  # with what was entered around it
        while True:
            verdict = yield Check(self.gate, facts)
            if verdict.allowed:
                return Ticket(self, key, None, verdict.permit)
            if verdict.retry_after == math.inf:
                raise Refused(verdict)
            wait = max(LEAST, math.ceil(verdict.retry_after * 1_000_000))
            again = self.place.clock.micros() + wait
            if end is not None and again > end:
                raise Refused(verdict)
            yield Sleep(self.place, again)


def _limiter_of(
    coloured: bool, limits: Sequence[str | Limit], limiter: Any, store: Any, own: dict[str, Any]
) -> Any:
    """The limiter that was given, or one for limits as text; None if there is neither."""
    kind: Any = AsyncLimiter if coloured else Limiter
    if limits:
        return kind(*limits, store=store, **own)
    if limiter is not None and not isinstance(limiter, kind):
        raise TypeError(f"this transport needs an {kind.__name__}, not a {type(limiter).__name__}")
    return limiter
