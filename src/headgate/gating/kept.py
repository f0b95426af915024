"""Kept: the parts of one policy, alive, for all of its keys; they outlive a change of the rules."""

from __future__ import annotations

import threading
from collections import OrderedDict, deque
from typing import TYPE_CHECKING, Any

from ..resilience.breaker import IGNORED
from ..resilience.entrance import Wants
from ..resilience.errors import BreakerOpen, BulkheadFull
from ..resilience.forking import begin_anew
from ..resilience.overload import Overloaded, Refusal
from ..resilience.timing import TimeLimit
from ..verdict import Shed
from .fleets import Joined
from .parts import (
    adaptive_of,
    breaker_of,
    bulkhead_of,
    collapse_of,
    last_good_of,
    pool_of,
    retry_of,
    state_of,
)

if TYPE_CHECKING:
    from ..clock import Clock
    from ..flows import Flow
    from ..keys import Key
    from ..resilience.adaptive import AdaptiveLimiter
    from ..resilience.breaker import Breaker
    from ..resilience.bulkhead import Bulkhead
    from ..resilience.collapse import Collapse
    from ..resilience.last_good import LastGood
    from ..resilience.pools import Pool
    from ..resilience.retry import Retry
    from ..rules.model import PolicyRule
    from ..rules.policy_model import FleetRule
    from ..stores.redis.commands import Commands
    from .passage import Passage

__all__ = ["Kept", "Live", "overload"]

KEYS = 10_000
"""So many keys of a policy have parts of their own; beyond, those that are idle are forgotten."""
UNKNOWN = float("inf")
SWITCHED = {"forced_open": "force_open", "disabled": "disable", "metrics_only": "metrics_only"}
BY_RULES = "the rules say so"


class Live:
    """The parts of one policy for one key."""

    __slots__ = ("adaptive", "breaker", "bulkhead", "lines", "lost")

    def __init__(self, rule: PolicyRule, clock: Clock | None, listeners: list[Any]) -> None:
        name = rule.name
        self.breaker: Breaker | None = None
        self.bulkhead: Bulkhead | None = None
        self.adaptive: AdaptiveLimiter | None = None
        self.lines = False
        """Whether calls may wait for the adaptive limit."""
        self.lost: deque[Any] = deque()
        """Tokens of calls whose end nobody told."""
        if rule.breaker is not None:
            self.breaker = breaker_of(name, rule.breaker, clock, listeners)
        if rule.bulkhead is not None:
            self.bulkhead = bulkhead_of(name, rule.bulkhead, clock)
        if rule.adaptive is not None:
            self.adaptive = adaptive_of(name, rule.adaptive, clock, listeners)
            self.lines = rule.adaptive.queue > 0

    def enter(
        self, passage: Passage, partition: str, priority: int, patient: bool
    ) -> Flow[Shed | None]:
        """Ask all parts in turn; what lets the call in is noted in the passage at once."""
        breaker, bulkhead, adaptive = self.breaker, self.bulkhead, self.adaptive
        if breaker is not None:
            while self.lost:
                breaker.told(self.lost.popleft(), IGNORED)
            try:
                passage.broke(self, breaker.enter())
            except BreakerOpen as refusal:
                wait = refusal.wait
                return Shed("breaker", refusal.problem, UNKNOWN if wait is None else wait)
        if adaptive is not None:
            if self.lines and patient:
                try:
                    found: Any = yield Turn(adaptive, Wants(partition, priority))
                except Overloaded as late:
                    return overload("adaptive", late.refusal)
                passage.waited = True
            else:
                found = adaptive.admit(partition, priority)
                if isinstance(found, Refusal):
                    return overload("adaptive", found)
            passage.let_in(found)
        if bulkhead is not None:
            room = bulkhead.room
            if not room.take():
                try:
                    if patient and bulkhead._queue != 0:
                        passage.waited = True
                        yield Seat(bulkhead)
                    else:
                        raise bulkhead._full(room)
                except BulkheadFull as refusal:
                    return Shed("bulkhead", refusal.problem)
            passage.seated(bulkhead, room)
        return None

    def idle(self) -> bool:
        """Whether nothing would be forgotten with it that anybody could miss."""
        if self.bulkhead is not None and self.bulkhead.in_flight:
            return False
        if self.adaptive is not None and self.adaptive.in_flight:
            return False
        return self.breaker is None or self.breaker.state == "closed"

    def switched(self, before: str, state: str) -> None:
        """Have the breaker held in a state, or let go of it."""
        breaker = self.breaker
        if breaker is None:
            return
        if state:
            getattr(breaker, SWITCHED[state])(BY_RULES)
        elif breaker.state == before:  # else somebody has switched it since
            breaker.close(f"no longer held {before}: {BY_RULES}")


class Seat:
    """The step that waits for a place in a bulkhead."""

    __slots__ = ("_bulkhead",)

    def __init__(self, bulkhead: Bulkhead) -> None:
        self._bulkhead = bulkhead

    def ask(self, store: Any) -> Any:
        return self._bulkhead.enter()

    def ask_async(self, store: Any) -> Any:
        return self._bulkhead.enter_async()


class Turn:
    """The step that waits for a place of an adaptive limit."""

    __slots__ = ("_adaptive", "_wants")

    def __init__(self, adaptive: AdaptiveLimiter, wants: Wants) -> None:
        self._adaptive = adaptive
        self._wants = wants

    def ask(self, store: Any) -> Any:
        return self._adaptive._take(self._wants)

    def ask_async(self, store: Any) -> Any:
        return self._adaptive._take_async(self._wants)


class Kept:
    """What lives on when the rules change, as long as the policy stays as it was."""

    fleet: Joined | None = None
    """The fleet that the breaker belongs to, once a call has come."""

    def __init__(self, rule: PolicyRule, clock: Clock | None, listeners: list[Any]) -> None:
        self.state = state_of(rule)
        self._made = rule, clock, listeners
        self._lives: OrderedDict[Key, Live] = OrderedDict()
        self._lock = threading.Lock()
        self._switch = ""
        name = rule.name
        self.alone = None if rule.key else Live(*self._made)
        self.limit: TimeLimit | None = None
        self.retry: Retry | None = None
        self.collapse: Collapse | None = None
        self.last_good: LastGood | None = None
        self.pool: Pool | None = None
        if rule.timeout:
            self.limit = TimeLimit(rule.timeout, name=name, clock=clock)
        if rule.retry is not None:
            self.retry = retry_of(name, rule.retry, clock, listeners)
        if rule.collapse is not None:
            self.collapse = collapse_of(name, clock, listeners)
        if rule.last_good is not None:
            self.last_good = last_good_of(name, rule.last_good, clock, listeners)
        if rule.bulkhead is not None and rule.bulkhead.pool:
            self.pool = pool_of(name, rule.bulkhead, clock)
        if rule.key:
            Live(*self._made)  # what is wrong with it is told now
        begin_anew(self)

    def of(self, key: Key) -> Live:
        """The parts for a key."""
        if self.alone is not None:
            return self.alone
        live = self._lives.get(key)
        if live is None:
            with self._lock:
                live = self._lives.get(key)
                if live is None:
                    while len(self._lives) >= KEYS:
                        self._forget()
                    live = self._lives[key] = Live(*self._made)
                switch = self._switch
            if switch:  # those who listen are told without the lock
                live.switched("", switch)
        return live

    def _forget(self) -> None:
        """Forget the oldest that is idle; if none of the oldest few is, the oldest."""
        oldest = [key for key, _ in zip(self._lives, range(8), strict=False)]
        idle = (key for key in oldest if self._lives[key].idle())
        self._lives.pop(next(idle, oldest[0]))

    def all(self) -> list[tuple[Key, Live]]:
        """All parts there are, with their keys."""
        if self.alone is not None:
            return [("", self.alone)]
        with self._lock:
            return list(self._lives.items())

    def switched(self, state: str) -> None:
        """Have all breakers held in a state; an empty one lets them go again."""
        with self._lock:
            before, self._switch = self._switch, state
        if state != before:
            for _, live in self.all():
                live.switched(before, state)

    def join(self, rule: FleetRule, client: Commands, space: str) -> None:
        """Join the fleet of the breaker, unless this process has done that."""
        breaker = self.of("").breaker
        assert breaker is not None  # or it would have no fleet
        with self._lock:
            if self.fleet is None:
                self.fleet = Joined(breaker, rule, client, space)
            if not self.fleet.started:
                self.fleet.start()

    def after_fork(self) -> None:
        """In a child: whoever held the lock stayed behind."""
        self._lock = threading.Lock()
        if self.fleet is not None:
            self.fleet.started = False  # its thread did, too


def overload(part: str, refusal: Refusal) -> Shed:
    """What an adaptive limit or the machine says, as a verdict has it."""
    wait = refusal.retry_after
    return Shed(part, refusal.why(), UNKNOWN if wait is None else wait)
