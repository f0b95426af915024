"""Guards: the policies in force, alive: who may go ahead, and how it went.

Policies are asked before the store, so a call that they refuse takes nothing from any limit.
What they gave goes back when a later one refuses, or a limit does, or the check ends by an error:
a breaker's probe that was not made is somebody else's to make.
"""

from __future__ import annotations

import threading
from collections import OrderedDict, deque
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from ..errors import RulesError
from ..resilience.breaker import IGNORED
from ..resilience.errors import BreakerOpen, BulkheadFull
from ..resilience.forking import begin_anew
from ..resilience.overload import Refusal
from ..resilience.timing import TimeLimit
from ..rules.policies import Policies
from ..verdict import Shed
from .parts import adaptive_of, breaker_of, bulkhead_of, retry_of, state_of, system_of
from .passage import Passage

if TYPE_CHECKING:
    from ..clock import Clock
    from ..facts import Facts
    from ..flows import Flow
    from ..keys import Key
    from ..resilience.adaptive import AdaptiveLimiter
    from ..resilience.breaker import Breaker
    from ..resilience.bulkhead import Bulkhead
    from ..resilience.notices import Notice
    from ..resilience.retry import Retry
    from ..resilience.system import SystemGuard
    from ..rules.match import Matched
    from ..rules.model import PolicyRule, RuleSet, SystemRule

__all__ = ["Guards", "Live", "Seat"]

KEYS = 10_000
"""So many keys of a policy have parts of their own; beyond, those that are idle are forgotten."""
UNKNOWN = float("inf")


class Live:
    """The parts of one policy for one key."""

    __slots__ = ("adaptive", "breaker", "bulkhead", "lost")

    def __init__(self, rule: PolicyRule, clock: Clock | None, listeners: list[Any]) -> None:
        name = rule.name
        self.breaker: Breaker | None = None
        self.bulkhead: Bulkhead | None = None
        self.adaptive: AdaptiveLimiter | None = None
        self.lost: deque[Any] = deque()
        """Tokens of calls whose end nobody told."""
        if rule.breaker is not None:
            self.breaker = breaker_of(name, rule.breaker, clock, listeners)
        if rule.bulkhead is not None:
            self.bulkhead = bulkhead_of(name, rule.bulkhead, clock)
        if rule.adaptive is not None:
            self.adaptive = adaptive_of(name, rule.adaptive, clock, listeners)

    def enter(self, passage: Passage, priority: int, patient: bool) -> Flow[Shed | None]:
        """Ask all parts in turn; what lets the call in is noted in the passage at once."""
        breaker, bulkhead, adaptive = self.breaker, self.bulkhead, self.adaptive
        if breaker is not None:
            while self.lost:
                breaker.told(self.lost.popleft(), IGNORED)
            try:
                passage.broke(self, breaker.enter())
            except BreakerOpen as refusal:
                wait = refusal.retry_after
                return Shed("breaker", refusal.problem, UNKNOWN if wait is None else wait)
        if adaptive is not None:
            found = adaptive.admit(priority=priority)
            if isinstance(found, Refusal):
                return _overload("adaptive", found)
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


class Seat:
    """The step that waits for a place in a bulkhead."""

    __slots__ = ("_bulkhead",)

    def __init__(self, bulkhead: Bulkhead) -> None:
        self._bulkhead = bulkhead

    def ask(self, store: Any) -> Any:
        return self._bulkhead.enter()

    def ask_async(self, store: Any) -> Any:
        return self._bulkhead.enter_async()


class Kept:
    """What lives on when the rules change, as long as the policy stays as it was."""

    def __init__(self, rule: PolicyRule, clock: Clock | None, listeners: list[Any]) -> None:
        self.state = state_of(rule)
        self._made = rule, clock, listeners
        self._lives: OrderedDict[Key, Live] = OrderedDict()
        self._lock = threading.Lock()
        self.alone = None if rule.key else Live(*self._made)
        self.limit: TimeLimit | None = None
        self.retry: Retry | None = None
        if rule.timeout:
            self.limit = TimeLimit(rule.timeout, name=rule.name, clock=clock)
        if rule.retry is not None:
            self.retry = retry_of(rule.name, rule.retry, clock, listeners)
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

    def after_fork(self) -> None:
        """In a child: whoever held the lock stayed behind."""
        self._lock = threading.Lock()


class Guards:
    """All policies of a set of rules, alive."""

    def __init__(
        self,
        rules: RuleSet,
        clock: Clock | None,
        tell: Callable[[Notice], object],
        before: Guards | None,
    ) -> None:
        self.matching = Policies(rules.policies, rules.source)
        self.rules = rules.policies
        self.kept: list[Kept] = []
        self._clock = clock
        listeners = [tell]
        then = {} if before is None else {kept.state.name: kept for kept in before.kept}
        for rule in rules.policies:
            old = then.get(rule.name)
            if old is None or old.state != state_of(rule):
                try:
                    old = Kept(rule, clock, listeners)
                except (ValueError, TypeError) as error:
                    raise RulesError(str(error), rules.source, rule.line, rule.name) from error
            self.kept.append(old)
        self.outer = any(rule.retry or rule.fallback for rule in rules.policies)
        """Whether there is anything to do around a call that was refused or failed."""
        self.system: SystemGuard | None = None
        self.system_rule: SystemRule | None = rules.system
        if rules.system is not None:
            same = before is not None and _signs(before.system_rule) == _signs(rules.system)
            self.system = before.system if same and before is not None else None
            if self.system is None:
                self.system = system_of(rules.system, clock, listeners)
        self._lags = self.system is not None and "lag" in self.system.bounds
        self._loop: Any = None

    def enter(
        self, passage: Passage, facts: Facts, matched: Matched, patient: bool
    ) -> Flow[tuple[Any, Key, Shed] | None]:
        """Let a call in, or say which policy refuses it, for which key and why."""
        priority = facts.priority or _priority(matched)
        if self.system is not None and self.system_rule is not None:
            found = self.system.admit(priority)
            if not isinstance(found, Refusal):
                passage.let_in(found)
            elif self.system_rule.shadow:
                passage.shadowed.append(self.system_rule)
            else:
                return self.system_rule, "", _overload("system", found)
        for place, key in self.matching.match(facts):
            rule, kept = self.rules[place], self.kept[place]
            mark = passage.mark()
            shed = yield from kept.of(key).enter(passage, priority, patient and not rule.shadow)
            if shed is not None:
                if not rule.shadow:
                    return rule, key, shed
                passage.shadowed.append(rule)
                passage.back_to(mark)
            elif kept.limit is not None:
                passage.limit = _shorter(passage.limit, kept.limit)
        return None

    def around(self, facts: Facts) -> tuple[Retry | None, PolicyRule | None]:
        """Who makes the call again, and what stands in for it: the first policy's that has it."""
        retry: Retry | None = None
        fallback: PolicyRule | None = None
        for place, _ in self.matching.match(facts):
            rule = self.rules[place]
            retry = retry or self.kept[place].retry
            if fallback is None and rule.fallback is not None:
                fallback = rule
        return retry, fallback

    def watch_loop(self, loop: Any) -> None:
        """Watch how late this event loop is, if that is of interest."""
        if self._lags and self.system is not None and loop is not self._loop:
            self._loop = loop
            self.system.watch_loop()

    def breaker(self, name: str, key: Key = "") -> Breaker:
        """The breaker of a policy."""
        for rule, kept in zip(self.rules, self.kept, strict=True):
            if rule.name == name:
                found = kept.of(key).breaker if key or not rule.key else None
                if found is not None:
                    return found
                raise LookupError(
                    f"the policy {name!r} has a breaker for each key: say which"
                    if rule.breaker is not None
                    else f"the policy {name!r} has no breaker"
                )
        known = ", ".join(rule.name for rule in self.rules)
        raise LookupError(f"there is no policy {name!r}; there are: {known}")

    def all(self) -> Iterator[tuple[str, Key, Live]]:
        """Every policy by name, with its parts for every key."""
        for rule, kept in zip(self.rules, self.kept, strict=True):
            for key, live in kept.all():
                yield rule.name, key, live


def _overload(part: str, refusal: Refusal) -> Shed:
    wait = refusal.retry_after
    return Shed(part, refusal.why(), UNKNOWN if wait is None else wait)


def _signs(rule: SystemRule | None) -> Any:
    return rule and (rule.bounds, rule.shed, rule.every)


def _shorter(one: TimeLimit | None, other: TimeLimit) -> TimeLimit:
    return other if one is None or other.seconds < one.seconds else one


def _priority(matched: Matched) -> int:
    """The highest that a rule gives a call."""
    given = [bound.rule.rule.priority for bound in matched.bounds if bound.rule.rule.priority]
    return max(given) if given else 0
