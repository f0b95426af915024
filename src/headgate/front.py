"""Front: what Limiter and AsyncLimiter share."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

from .clock import Clock, ticks_of
from .decision import Ask, Decision, check_cost, joined
from .errors import LimitExceeded, NeverFits
from .keys import Key, canonical
from .limit import Limit
from .stores import MemoryStore, open_store
from .waiters import AsyncWaiter, ThreadWaiter, Waiter
from .waiting import FOREVER, lines_of, too_large, turned_away
from .workers import made

if TYPE_CHECKING:
    from .stores.base import Store

__all__ = ["Front", "LimitFor", "Own"]

Own: TypeAlias = Limit | str | None
LimitFor: TypeAlias = Mapping[Any, Own | Sequence[Own]] | Callable[[Any], Own | Sequence[Own]]


class Front:
    """What both limiters share: limits, asks, and the way a caller waits."""

    coloured: bool
    """Whether callers await."""

    def __init__(
        self,
        *limits: Limit | str,
        name: str = "",
        store: Store | str | None = None,
        clock: Clock | None = None,
        limit_for: LimitFor | None = None,
        room: Callable[[], float] | None = None,
        refuse_share: float = 1.0,
    ) -> None:
        if not limits:
            raise TypeError("a limiter needs at least one limit, such as '100/minute'")
        self.limits = tuple(Limit.of(limit) for limit in limits)
        if len({limit.id for limit in self.limits}) < len(self.limits):
            raise ValueError("two limits of one limiter have the same id; give one a name")
        if not isinstance(name, str):
            raise TypeError(f"name is a str, not {type(name).__name__}")
        if room is not None and not callable(room):
            raise TypeError(f"room is a function that says how much room there is, not {room!r}")
        if limit_for is not None and not callable(limit_for) and not hasattr(limit_for, "get"):
            raise TypeError(f"limit_for is a function or a mapping, not {limit_for!r}")
        if not 0 <= refuse_share <= 1:
            raise ValueError(f"refuse_share lies between 0 and 1, not {refuse_share!r}")
        self.name = name
        self._limit_for = limit_for
        self._room = room
        self._concurrent = next((x for x in self.limits if x.algorithm == "concurrency"), None)
        self._owns = store is None or isinstance(store, str)
        self.store = open_store(store, clock)
        self._lines = lines_of(self.store)
        self._ids = tuple(limit.id for limit in self.limits)
        self._share = refuse_share
        self._over = 0.0
        self._over_lock = threading.Lock()
        way = self.store.quick(name, self.limits)
        plain = limit_for is None and refuse_share == 1
        self._prepared = way if plain else None
        self.open()
        if isinstance(self.store, MemoryStore):
            made(self)

    def open(self) -> None:
        """Let hits take the prepared way, if there is one; a Limiter's door does."""

    # -- asking

    def asks(self, op: str, key: Key, cost: int, **more: Any) -> list[Ask]:
        """One ask for each limit, with the key's own limits where it has them."""
        if self._lines.put_off:
            self._lines.catch_up()
        room = self._permille()
        return [
            Ask(op, limit, key, cost, self.name, room=room, **more) for limit in self._limits(key)
        ]

    def _limits(self, key: Key) -> Sequence[Limit]:
        if self._limit_for is None:
            return self.limits
        if callable(self._limit_for):
            own = self._limit_for(key)
        else:
            own = self._limit_for.get(key)
            if own is None and not isinstance(key, str):  # bytes are the text they encode
                own = self._limit_for.get(canonical(key))
        if own is None:
            return self.limits
        return self._filed(own, "limit_for")

    def _filed(self, own: Own | Sequence[Own], what: str) -> list[Limit]:
        """A key's own limits, each filed under the limit it stands for."""
        if own is None or isinstance(own, str | Limit):
            own = (own,)
        if not isinstance(own, Sequence):
            raise TypeError(f"{what} gives limits or their texts, not {type(own).__name__}")
        if len(own) != len(self.limits):
            count = len(self.limits)
            raise ValueError(
                f"{what} needs a limit for each of this limiter's {count}: {self._ids}"
            )
        filed = []
        for limit, new in zip(self.limits, own, strict=True):
            given = limit if new is None else Limit.of(new).named(limit.id)
            if (given.algorithm == "concurrency") != (limit.algorithm == "concurrency"):
                raise ValueError(
                    f"{what}: '{given}' cannot stand for '{limit}': one of them is given back"
                )
            filed.append(given)
        return filed

    def _permille(self) -> int:
        if self._room is None:
            return 0
        try:
            room = float(self._room())
        except Exception:  # a broken signal must not break the caller: no room is the safe answer
            return 0
        return max(0, min(1000, int(room * 1000))) if math.isfinite(room) else 0

    def _take(self, key: Key, cost: int, partial: bool) -> Decision:
        self._refuse_concurrent("hit")
        check_cost(cost)
        asks = self.asks("take", key, cost, least=min(1, cost) if partial else -1)
        return self._let_some_pass(joined(tuple(self.store.decide(asks))))

    def _let_some_pass(self, decision: Decision) -> Decision:
        """Of the calls over the line refuse only a share, evenly spread."""
        if decision.allowed or self._share == 1:
            return decision
        with self._over_lock:
            self._over += self._share
            if self._over >= 1:
                self._over -= 1
                return decision
        return decision.let_pass()

    def _peek(self, key: Key, cost: int) -> Decision:
        check_cost(cost)
        return joined(tuple(self.store.decide(self.asks("check", key, cost))))

    def _take_many(self, keys: Iterable[Key], cost: int) -> list[Decision]:
        check_cost(cost)
        keys = list(keys)
        prepared = self._prepared  # once, as it may be taken away for a moment: see workers
        if prepared is not None:
            return prepared.hit_many(keys, cost)
        for key in keys:  # bad input is found before anything is taken
            canonical(key)
        self._refuse_concurrent("hit_many")
        groups = [self.asks("take", key, cost) for key in keys]
        answers = [joined(tuple(decisions)) for decisions in self.store.decide_many(groups)]
        return [self._let_some_pass(answer) for answer in answers]

    def _refuse_concurrent(self, what: str) -> None:
        if self._concurrent is not None:
            raise TypeError(
                f"'{self._concurrent}' counts calls under way, and {what}() would never give it "
                "back; use hold()"
            )

    def give(self, asks: Sequence[Ask], key: Key) -> list[bool]:
        """Give something back, and tell whoever waits for the key."""
        decisions = self.store.decide(asks)
        if self.store.deciding():  # a finaliser, in the middle of another decision
            self._lines.put_off.append((self.name, canonical(key)))
        else:
            self._lines.kick(self.name, canonical(key))
        return [decision.allowed for decision in decisions]

    # -- waiting

    def _start(
        self, make: Callable[[int | None], Waiter], key: Key, asks: list[Ask], timeout: float | None
    ) -> Decision | Waiter:
        """Take at once if nobody waits; otherwise a waiter in its line."""
        timeout = _timeout(timeout)
        name = (self.name, canonical(key), self._ids)
        queues = any(limit.queues for limit in self._get_limit(key))
        if queues or timeout == 0 or asks[0].cost == 0 or not self._lines.waiting(name):
            if queues:  # a queue limit is its own line: everybody asks at once
                most = FOREVER if timeout is None else ticks_of(timeout, "timeout")
                asks = [ask._replace(max_wait=most) for ask in asks]
            decision = joined(tuple(self.store.decide(asks)))
            if decision.allowed and decision.delay:
                waiter = make(None)
                self._lines.sleep(waiter, decision)
                return waiter
            if decision.allowed or timeout == 0 or too_large(decision) or turned_away(decision):
                return decision
        deadline = None
        if timeout is not None:
            deadline = self.store.clock.micros() + ticks_of(timeout, "timeout")
        waiter = make(deadline)
        self._lines.join(name, waiter)
        return waiter

    def _done(self, done: Decision | Waiter, key: Key) -> Decision:
        """What came of it: the decision, or an exception."""
        if isinstance(done, Waiter):
            if done.error is not None:
                raise done.error
            assert done.decision is not None
            done = done.decision
        done = self._let_some_pass(done)
        if done.allowed:
            return done
        raise (NeverFits if too_large(done) else LimitExceeded)(done, key)

    def wait_for(
        self, key: Key, asks: list[Ask], timeout: float | None, priority: int = 0
    ) -> Decision:
        """Take, blocking this thread until it can be."""
        _check_priority(priority)
        started = self._start(
            lambda deadline: ThreadWaiter(asks, deadline, priority), key, asks, timeout
        )
        if isinstance(started, ThreadWaiter):
            try:
                started.block(self.store.clock)
            except BaseException:
                self._lines.leave(started)
                raise
        return self._done(started, key)

    async def await_for(
        self, key: Key, asks: list[Ask], timeout: float | None, priority: int = 0
    ) -> Decision:
        """Take, letting other tasks run until it can be."""
        import asyncio

        _check_priority(priority)
        loop = asyncio.get_running_loop()
        started = self._start(
            lambda deadline: AsyncWaiter(loop, asks, deadline, priority, self.store.clock),
            key, asks, timeout,
        )  # fmt: skip
        if isinstance(started, AsyncWaiter):
            try:
                await started.future
            except BaseException:
                self._lines.leave(started)
                raise
        return self._done(started, key)

    # -- the rest of the administrator's calls

    def _reset(self, key: Key) -> None:
        self.give(self.asks("reset", key, 0), key)

    def _set_limit(self, key: Key, limits: Sequence[Own]) -> None:
        if len(limits) == 1 and limits[0] is None:
            limits = (None,) * len(self.limits)
        filed = self._filed(limits, "set_limit")
        for base, given, limit in zip(self.limits, limits, filed, strict=True):
            self.store.assign(self.name, base.id, key, None if given is None else limit)
        self._lines.kick(self.name, canonical(key))

    def _get_limit(self, key: Key) -> tuple[Limit, ...]:
        return tuple(
            self.store.assigned(self.name, base.id, key) or limit
            for base, limit in zip(self.limits, self._limits(key), strict=True)
        )

    def _close(self) -> None:
        if self._owns:
            self.store.close()
            self._lines.kick_all()  # whoever waits is told

    def refuse_reserving(self, what: str) -> None:
        """Refuse what counts costs on a limiter that counts calls."""
        if self._concurrent is not None:
            raise TypeError(
                f"'{self._concurrent}' counts calls, not costs: use hold(), not {what}()"
            )

    def __repr__(self) -> str:
        texts = ", ".join(repr(str(limit)) for limit in self.limits)
        return f"{type(self).__name__}({texts})"


def _check_priority(priority: int) -> None:
    if isinstance(priority, bool) or not isinstance(priority, int):
        raise TypeError(f"priority is a whole number, not {priority!r}")


def _timeout(timeout: float | None) -> float | None:
    if timeout is None or timeout == math.inf:
        return None
    if isinstance(timeout, bool) or not isinstance(timeout, int | float):
        raise TypeError(f"timeout is a number of seconds or None, not {timeout!r}")
    if not timeout >= 0:
        raise ValueError(f"timeout is at least 0 seconds, not {timeout!r}")
    return timeout
