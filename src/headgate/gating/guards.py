"""Guards: the policies in force, alive: who may go ahead, and how it went.

Policies are asked before the store, so a call that they refuse takes nothing from any limit.
What they gave goes back when a later one refuses, or a limit does, or the check ends by an error:
a breaker's probe that was not made is somebody else's to make.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

from ..errors import RulesError
from ..resilience.overload import Refusal
from ..rules.keys import text_of
from ..rules.policies import Policies
from .fleets import commands_of, space_of
from .kept import Kept, Live, overload
from .parts import state_of, system_of

if TYPE_CHECKING:
    from ..clock import Clock
    from ..facts import Facts
    from ..flows import Flow
    from ..keys import Key
    from ..resilience.breaker import Breaker, Fleet
    from ..resilience.collapse import Collapse
    from ..resilience.last_good import LastGood
    from ..resilience.notices import Notice
    from ..resilience.retry import Retry
    from ..resilience.system import SystemGuard
    from ..resilience.timing import TimeLimit
    from ..rules.keys import Reader
    from ..rules.match import Matched
    from ..rules.model import PolicyRule, RuleSet, SystemRule
    from ..stores.redis.commands import Commands
    from ..verdict import Shed
    from .passage import Passage

__all__ = ["Around", "Guards", "check_policies"]


class Around(NamedTuple):
    """What is done around a call of a function: of each part, that of the first policy."""

    retry: Retry | None
    collapse: Collapse | None
    alike: Reader | None
    """What tells calls apart that are to become one; None: all that is known of them."""
    last_good: LastGood | None
    kept_by: Reader | None
    """The same for results."""
    fallback: PolicyRule | None


class Guards:
    """All policies of a set of rules, alive."""

    def __init__(
        self,
        rules: RuleSet,
        clock: Clock | None,
        tell: Callable[[Notice], object],
        before: Guards | None,
        store: Any = None,
        name: str = "",
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
        self.outer = any(
            rule.retry or rule.fallback or rule.last_good or rule.collapse or kept.pool
            for rule, kept in zip(rules.policies, self.kept, strict=True)
        )
        """Whether there is anything to do around a call of a function."""
        self._client: Commands | None = None
        self._space = ""
        self._fleets = [
            (rule, kept)
            for rule, kept in zip(rules.policies, self.kept, strict=True)
            if rule.breaker is not None and rule.breaker.fleet is not None
        ]
        if self._fleets:
            self._find_fleets(store, name)
        self.system: SystemGuard | None = None
        self.system_rule: SystemRule | None = rules.system
        if rules.system is not None:
            same = before is not None and _signs(before.system_rule) == _signs(rules.system)
            self.system = before.system if same and before is not None else None
            if self.system is None:
                try:
                    self.system = system_of(rules.system, clock, listeners)
                except (ValueError, TypeError) as error:
                    line = rules.system.line
                    raise RulesError(str(error), rules.source, line, "system") from error
        self._lags = self.system is not None and "lag" in self.system.bounds
        self._loop: Any = None

    def enter(
        self, passage: Passage, facts: Facts, matched: Matched, patient: bool
    ) -> Flow[tuple[Any, Key, Shed] | None]:
        """Let a call in, or say which policy refuses it, for which key and why."""
        if self._fleets:
            self._join()
        priority = facts.priority or _priority(matched)
        if self.system is not None and self.system_rule is not None:
            found = self.system.admit(priority)
            if not isinstance(found, Refusal):
                passage.let_in(found)
            elif self.system_rule.shadow:
                passage.shadowed.append(self.system_rule)
            else:
                return self.system_rule, "", overload("system", found)
        for place, key in self.matching.match(facts):
            rule, kept = self.rules[place], self.kept[place]
            mark = passage.mark()
            read = self.matching.readers[place].partition
            partition = "" if read is None else _name(read(facts))
            live, waits = kept.of(key), patient and not rule.shadow
            shed = yield from live.enter(passage, partition, priority, waits)
            if shed is not None:
                if not rule.shadow:
                    return rule, key, shed
                passage.shadowed.append(rule)
                passage.back_to(mark)
            elif not rule.shadow:
                if kept.limit is not None:
                    passage.limit = _shorter(passage.limit, kept.limit)
                if kept.pool is not None and passage.pool is None:
                    assert live.bulkhead is not None  # whose threads these are
                    passage.pool = kept.pool, live.bulkhead
        return None

    def around(self, facts: Facts) -> Around:
        """What is done around a call of a function: of each part, that of the first policy."""
        retry = collapse = alike = last_good = kept_by = fallback = None
        for place, _ in self.matching.match(facts):
            rule, kept, readers = self.rules[place], self.kept[place], self.matching.readers[place]
            if rule.shadow:
                continue
            retry = retry or kept.retry
            if collapse is None and kept.collapse is not None:
                collapse, alike = kept.collapse, readers.collapse
            if last_good is None and kept.last_good is not None:
                last_good, kept_by = kept.last_good, readers.last_good
            if fallback is None and rule.fallback is not None:
                fallback = rule
        return Around(retry, collapse, alike, last_good, kept_by, fallback)

    # -- from when they are in force until they are not

    def begin(self) -> None:
        """They are in force now: breakers are held in the states that the rules say."""
        for rule, kept in zip(self.rules, self.kept, strict=True):
            if rule.breaker is not None:
                kept.switched(rule.breaker.switch)

    def end(self, after: Guards | None) -> None:
        """Others are in force: go by what they say of fleets, or leave them."""
        wanted = {} if after is None else {id(kept): rule for rule, kept in after._fleets}
        self._fleets = []
        for kept in self.kept:
            joined, rule = kept.fleet, wanted.get(id(kept))
            said = None if rule is None or rule.breaker is None else rule.breaker.fleet
            if joined is not None and said is None:
                kept.fleet = None
                joined.leave()
            elif joined is not None and said is not None and said != joined.rule:
                joined.change(said)

    def close(self) -> None:
        """The gate is closed: leave all fleets."""
        self._fleets = []
        for kept in self.kept:
            joined, kept.fleet = kept.fleet, None
            if joined is not None:
                joined.stop()

    # -- fleets

    def _find_fleets(self, store: Any, name: str) -> None:
        self._client = commands_of(store)
        if self._client is not None:
            self._space = space_of(self._client, name)
            return
        import logging

        for rule, _ in self._fleets:
            logging.getLogger("headgate").warning(
                "policy %s: a fleet needs a store in Redis, and the gate has none; "
                "the breaker of this process is on its own", rule.name,
            )  # fmt: skip
        self._fleets = []

    def _join(self) -> None:
        """Join the fleets, at the first call of this process: not before it was forked."""
        for rule, kept in self._fleets:
            joined = kept.fleet
            if joined is None or not joined.started:
                self._join_one(rule, kept)

    def _join_one(self, rule: PolicyRule, kept: Kept) -> None:
        said, client = rule.breaker, self._client
        assert said is not None  # or it would not be among those with a fleet
        assert said.fleet is not None
        assert client is not None
        kept.join(said.fleet, client, self._space)

    def fleet(self, name: str) -> Fleet:
        """The fleet of a policy's breaker."""
        for rule, kept in self._fleets:
            if rule.name == name:
                self._join_one(rule, kept)
                if kept.fleet is not None:
                    return kept.fleet.fleet
        known = ", ".join(rule.name for rule, _ in self._fleets) or "none"
        raise LookupError(f"the policy {name!r} has no fleet in Redis; those that have: {known}")

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


def check_policies(rules: RuleSet) -> None:
    """Raise what is wrong with policies that can be read, and yet not made: all of it."""
    wrong: list[RulesError] = []
    for rule in rules.policies:
        try:
            Policies((rule,), rules.source)
            Kept(rule, None, [])
        except RulesError as error:
            wrong.append(error)
        except (ValueError, TypeError) as error:
            wrong.append(RulesError(str(error), rules.source, rule.line, rule.name))
    if rules.system is not None:
        try:
            system_of(rules.system, None, [])
        except (ValueError, TypeError) as error:
            wrong.append(RulesError(str(error), rules.source, rules.system.line, "system"))
    if wrong:
        first = wrong[0]
        raise RulesError(first.problem, first.file, first.line, first.rule, tuple(wrong[1:]))


def _signs(rule: SystemRule | None) -> Any:
    return rule and (rule.bounds, rule.shed, rule.every)


def _name(value: Any) -> str:
    """The name of a partition, as it was read from a call."""
    text = text_of(value)
    return text if isinstance(text, str) else text.decode("utf-8", "replace")


def _shorter(one: TimeLimit | None, other: TimeLimit) -> TimeLimit:
    return other if one is None or other.seconds < one.seconds else one


def _priority(matched: Matched) -> int:
    """The highest that a rule gives a call."""
    given = [bound.rule.rule.priority for bound in matched.bounds if bound.rule.rule.priority]
    return max(given) if given else 0
