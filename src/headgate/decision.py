"""Ask and Decision: what a store is asked, and what it answers."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Protocol

from .record import Record

if TYPE_CHECKING:
    from .keys import Key
    from .limit import Limit

__all__ = ["Ask", "Decision", "JointDecision", "Refusal", "Seen", "check_cost", "decided", "joined"]

INFINITY = float("inf")


def check_cost(cost: int) -> int:
    """A cost as it is, or an error that says what is wrong with it."""
    if type(cost) is not int:
        if isinstance(cost, bool) or not isinstance(cost, int):
            raise TypeError(f"a cost is an int, not {type(cost).__name__} {cost!r}")
        cost = int(cost)
    if not 0 <= cost < 2**53:
        raise ValueError(f"a cost is an int from 0 to 2**53 - 1, not {cost}")
    return cost


class Ask(NamedTuple):
    """One question to a store about one key and one limit.

    `op` is one of
    take     take `cost` or be refused (and then so is every other take of the same call)
    check    would it pass? takes nothing, vetoes nothing
    shadow   take if it fits, but never veto the others
    charge   take whatever the limit says
    refund   give back `cost` taken at the instant `at`
    settle   replace what the reservation `token` took by `cost`
    release  give back the permit `token`
    renew    let the permit `token` live for `ttl` from now
    reset    forget the key
    """

    op: str
    limit: Limit
    key: Key = ""
    cost: int = 1
    space: str = ""
    """The namespace: limits of the same id and namespace share their state."""
    max_wait: int = 0
    """How many microseconds of delay the caller accepts."""
    least: int = -1
    """With a partial take, the smallest grant that is worth having; -1 asks for all of it."""
    token: int = 0
    """Names a permit or a reservation, made by the caller."""
    ttl: int = 0
    """Microseconds until a permit or reservation comes back by itself; 0: never."""
    at: int = 0
    """For refund: the instant, in microseconds, at which it was taken."""
    room: int = 0
    """Of the elastic part, how many thousandths are open now."""
    on_error: str = ""
    """Who answers if the store cannot: "allow", "deny" or "local"; "" leaves it to the store."""


class Source(Protocol):
    """What a decision reads its numbers from: a limit's algorithm, or numbers already known."""

    @property
    def limit(self) -> Limit: ...

    @property
    def per_second(self) -> int:
        """How many ticks a second has."""
        ...

    def look(self, a: int, b: int, c: int, now: int, cost: int) -> tuple[int, int, int]:
        """`remaining`, and in ticks `retry` and `reset`; -1 stands for never."""
        ...


class Decision(Record):
    """The answer to one hit; true when it may go ahead.

    The numbers are computed when they are first read, so a caller who only wants the verdict
    does not pay for them.
    """

    __slots__ = ()

    # No __init__: a call without one is the cheapest way to make an object, and every hit makes
    # one. `decided` below is the constructor.
    _source: Source
    _outcome: tuple[int, int, int, int]
    """The wait in ticks (-1: refused), then the state it leaves, or a view of it."""
    _now: int
    _cost: int
    _seen: tuple[int, int, int]

    allowed: ClassVar[bool] = True
    """Whether the call may go ahead, after `delay` seconds. A Refusal says no, and is false."""

    @property
    def limit(self) -> Limit:
        """The limit that binds: the one that refused, or the one with the least left."""
        return self._source.limit

    @property
    def granted(self) -> int:
        """How much was taken."""
        return self._cost if self.allowed else 0

    @property
    def remaining(self) -> int:
        """How many further hits of cost 1 would pass at this instant."""
        return self._look()[0]

    @property
    def retry_after(self) -> float:
        """Seconds until the same call would pass: 0 if it passed, infinity if it never will."""
        return 0.0 if self.allowed else self._seconds(self._look()[1])

    @property
    def reset_after(self) -> float:
        """Seconds until the key is as if never used."""
        return self._seconds(self._look()[2])

    @property
    def reset_at(self) -> float:
        """The instant, in seconds since the epoch, at which the key is as if never used."""
        reset = self._look()[2]
        return INFINITY if reset < 0 else (self._now + reset) / self._source.per_second

    @property
    def delay(self) -> float:
        """Seconds the caller must let pass before acting."""
        wait = self._outcome[0]
        return wait / self._source.per_second if wait > 0 else 0.0

    @property
    def degraded(self) -> bool:
        """Whether a stand-in decided because the store could not."""
        return bool(getattr(self._source, "degraded", False))

    @property
    def parts(self) -> tuple[Decision, ...]:
        """One decision for each limit."""
        return (self,)

    @property
    def at(self) -> int:
        """The instant of the decision, in microseconds since the epoch."""
        return self._now * (1_000_000 // self._source.per_second)

    @property
    def cost(self) -> int:
        """How much the decision is about: of a partial take, as much as could be had."""
        return self._cost

    def after_delay(self) -> Decision:
        """The same decision once its delay has passed."""
        wait, a, b, c = self._outcome
        return decided(self._source, (0, a, b, c), self._now + max(0, wait), self._cost)

    def let_pass(self) -> Decision:
        """The same call let through, although nothing could be taken for it."""
        seen = Seen(self.limit, self._source.per_second, self.degraded)
        passed = Glance()
        passed._source, passed._now, passed._cost = seen, self._now, self._cost
        left, _, reset = self._look()
        passed._outcome = (0, left, 0, reset)
        return passed

    def glance(self) -> Decision:
        """The same answer to somebody who only looks."""
        if not self.allowed:
            return self
        looked = Glance()
        looked._source, looked._now, looked._cost = self._source, self._now, self._cost
        looked._outcome = self._outcome
        return looked

    def refused(self) -> Decision:
        """The same numbers, as a refusal."""
        _, a, b, c = self._outcome
        return decided(self._source, (-1, a, b, c), self._now, self._cost)

    def in_place(self, limit: Limit) -> Decision:
        """The same decision as made in place of a store, about the limit that it was asked for."""
        return _restored(
            type(self), StandIn(self._source, limit), self._outcome, self._now, self._cost
        )

    def _look(self) -> tuple[int, int, int]:
        try:
            seen: tuple[int, int, int] | None = self._seen
        except AttributeError:
            seen = None
        if seen is None:  # in the compiled form nothing is unset, only None
            _, a, b, c = self._outcome
            seen = self._seen = self._source.look(a, b, c, self._now, self._cost)
        return seen

    def _seconds(self, ticks: int) -> float:
        return INFINITY if ticks < 0 else ticks / self._source.per_second

    def __repr__(self) -> str:
        verdict = "allowed" if self.allowed else "refused"
        retry = "" if self.allowed else f", retry_after={self.retry_after:g}"
        delay = f", delay={self.delay:g}" if self.delay else ""
        return (
            f"<Decision {verdict} by {str(self.limit)!r}: remaining={self.remaining}"
            f"{retry}, reset_after={self.reset_after:g}{delay}>"
        )

    def __reduce__(self) -> tuple[Any, ...]:
        wait = self._outcome[0]
        seen = Seen(self.limit, self._source.per_second, self.degraded)
        state = (seen, (wait, *self._look()), self._now, self._cost)
        return _restored, (type(self), *state)


class Refusal(Decision):
    """The answer to a hit that may not go ahead."""

    __slots__ = ()

    allowed: ClassVar[bool] = False

    def __bool__(self) -> bool:
        return False


with suppress(TypeError):  # the compiled form has no frames to save
    Refusal.__bool__ = staticmethod(bool)  # type: ignore[method-assign, assignment] # bool() is False


class Glance(Decision):
    """The answer to a look: it would pass, and nothing was taken."""

    __slots__ = ()

    @property
    def granted(self) -> int:
        return 0


class Seen:
    """The source of a decision whose numbers are known: they stand where a state would."""

    __slots__ = ("degraded", "limit", "per_second")

    def __init__(self, limit: Limit, per_second: int, degraded: bool = False) -> None:
        self.limit = limit
        self.per_second = per_second
        self.degraded = degraded

    def look(self, a: int, b: int, c: int, now: int, cost: int) -> tuple[int, int, int]:
        return a, b, c


class StandIn:
    """The source of a decision that was made in place of a store that could not."""

    __slots__ = ("_source", "degraded", "limit", "per_second")

    def __init__(self, source: Source, limit: Limit) -> None:
        self._source = source
        self.limit = limit
        self.per_second = source.per_second
        self.degraded = True

    def look(self, a: int, b: int, c: int, now: int, cost: int) -> tuple[int, int, int]:
        return self._source.look(a, b, c, now, cost)


class JointDecision(Decision):
    """The answer of several limits together: all of them or none."""

    __slots__ = ("_parts",)

    _parts: tuple[Decision, ...]

    def _binding(self) -> Decision:
        refusing = [part for part in self._parts if not part.allowed]
        if refusing:
            return max(refusing, key=lambda part: part.retry_after)
        return min(self._parts, key=lambda part: part.remaining)

    @property
    def limit(self) -> Limit:
        return self._binding().limit

    @property
    def at(self) -> int:
        return self._binding().at

    @property
    def cost(self) -> int:
        return self._binding().cost

    @property
    def granted(self) -> int:
        return max(part.granted for part in self._parts) if self.allowed else 0

    @property
    def retry_after(self) -> float:
        return 0.0 if self.allowed else self._binding().retry_after

    @property
    def remaining(self) -> int:
        return min(part.remaining for part in self._parts)

    @property
    def reset_after(self) -> float:
        return max(part.reset_after for part in self._parts)

    @property
    def reset_at(self) -> float:
        return max(part.reset_at for part in self._parts)

    @property
    def delay(self) -> float:
        return max(part.delay for part in self._parts) if self.allowed else 0.0

    @property
    def degraded(self) -> bool:
        return any(part.degraded for part in self._parts)

    @property
    def parts(self) -> tuple[Decision, ...]:
        return self._parts

    def let_pass(self) -> Decision:
        return joined(tuple(part.let_pass() for part in self._parts))

    def glance(self) -> Decision:
        return joined(tuple(part.glance() for part in self._parts))

    def after_delay(self) -> Decision:
        return joined(tuple(part.after_delay() for part in self._parts))

    def refused(self) -> Decision:
        if not self.allowed:
            return self
        return joined(tuple(part.refused() for part in self._parts))

    def __reduce__(self) -> tuple[Any, ...]:
        return joined, (self._parts,)


class JointRefusal(JointDecision, Refusal):
    """Several limits together, of which at least one refused."""

    __slots__ = ()


def decided(source: Source, outcome: tuple[int, int, int, int], now: int, cost: int) -> Decision:
    """A decision of one limit."""
    decision = Decision() if outcome[0] >= 0 else Refusal()
    decision._source = source
    decision._outcome = outcome
    decision._now = now
    decision._cost = cost
    return decision


def _restored(kind: type[Decision], *state: Any) -> Decision:
    decision = kind()
    decision._source, decision._outcome, decision._now, decision._cost = state
    return decision


def joined(parts: tuple[Decision, ...]) -> Decision:
    """Several limits' decisions as one: refused if one refuses, and bound by the tightest."""
    if len(parts) == 1:
        return parts[0]
    passed = all(part.allowed for part in parts)
    decision = JointDecision() if passed else JointRefusal()
    decision._parts = parts
    return decision
