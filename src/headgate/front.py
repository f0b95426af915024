"""Front: what Limiter and AsyncLimiter share."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

from .callers import errand
from .clock import Clock
from .decision import Ask, Decision, check_cost, joined
from .flows import Assign, Assigned, Close, Decide, DecideMany, Flow, run, run_async
from .keys import Key, canonical
from .limit import Limit
from .patience import take, take_async
from .queues import queues_of
from .stores import MemoryStore, open_store
from .waiting import lines_of
from .workers import made

if TYPE_CHECKING:
    from asyncio import Task


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
        store: Any = None,
        clock: Clock | None = None,
        limit_for: LimitFor | None = None,
        room: Callable[[], float] | None = None,
        refuse_share: float = 1.0,
        on_error: str | None = None,
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
        if on_error not in (None, "allow", "deny", "local"):
            raise ValueError(
                f"on_error is 'allow', 'deny' or 'local' (None: as the store has it), "
                f"not {on_error!r}"
            )
        self.name = name
        self._limit_for = limit_for
        self._room = room
        self._concurrent = next((x for x in self.limits if x.algorithm == "concurrency"), None)
        self._owns = not hasattr(store, "decide")  # made here: of a URL, a client, or nothing
        self.store = open_store(store, clock)
        blocks = self.store.blocking
        self._lines: Any = queues_of(self.store) if blocks else lines_of(self.store)
        self._on_error = on_error or "" if blocks else ""
        self._far_options = {"on_error": on_error} if on_error else {}
        self._ids = tuple(limit.id for limit in self.limits)
        self._share = refuse_share
        self._over = 0.0
        self._over_lock = threading.Lock()
        plain = limit_for is None and refuse_share == 1
        way = None if blocks else self.store.quick(name, self.limits)
        self._prepared = way if plain else None
        self.open()
        self._far: Any = self.far(self.store) if blocks and plain else None
        if isinstance(self.store, MemoryStore):
            made(self)

    def open(self) -> None:
        """Let hits take the prepared way, if there is one; a Limiter's door does."""

    def far(self, store: Any) -> Any:
        """The prepared way of a store that blocks, in this limiter's colour."""
        raise NotImplementedError

    # -- asking

    def asks(self, op: str, key: Key, cost: int, **more: Any) -> list[Ask]:
        """One ask for each limit, with the key's own limits where it has them."""
        if self._lines.put_off:
            self._lines.catch_up()
        room = self._permille()
        if self._on_error:
            more["on_error"] = self._on_error
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

    def _taking(self, key: Key, cost: int, partial: bool) -> Flow[Decision]:
        self._refuse_concurrent("hit")
        check_cost(cost)
        asks = self.asks("take", key, cost, least=min(1, cost) if partial else -1)
        return self.let_some_pass(joined(tuple((yield Decide(asks)))))

    def let_some_pass(self, decision: Decision) -> Decision:
        """Of the calls over the line refuse only a share, evenly spread."""
        if decision.allowed or self._share == 1:
            return decision
        with self._over_lock:
            self._over += self._share
            if self._over >= 1:
                self._over -= 1
                return decision
        return decision.let_pass()

    def _peeking(self, key: Key, cost: int) -> Flow[Decision]:
        check_cost(cost)
        return joined(tuple((yield Decide(self.asks("check", key, cost)))))

    def _taking_many(self, keys: list[Key], cost: int) -> Flow[list[Decision]]:
        for key in keys:  # bad input is found before anything is taken
            canonical(key)
        self._refuse_concurrent("hit_many")
        groups = [self.asks("take", key, cost) for key in keys]
        answers = yield DecideMany(groups)
        return [self.let_some_pass(joined(tuple(decisions))) for decisions in answers]

    def _refuse_concurrent(self, what: str) -> None:
        if self._concurrent is not None:
            raise TypeError(
                f"'{self._concurrent}' counts calls under way, and {what}() would never give it "
                "back; use hold()"
            )

    def give(self, asks: Sequence[Ask], key: Key) -> list[bool]:
        """Give something back, and tell whoever waits for the key."""
        return run(self.giving(asks, key), self.store)

    def give_later(self, asks: Sequence[Ask], key: Key) -> Task[list[bool]]:
        """The same in a task of its own, which goes on even if its maker is cancelled."""
        return errand(run_async(self.giving(asks, key), self.store))

    def giving(self, asks: Sequence[Ask], key: Key) -> Flow[list[bool]]:
        """The flow of giving back: whether each was still there to be given."""
        decisions = yield Decide(asks)
        if self.store.deciding():  # a finaliser, in the middle of another decision
            self._lines.put_off.append((self.name, canonical(key)))
        else:
            self._lines.kick(self.name, canonical(key))
        return [decision.allowed for decision in decisions]

    # -- waiting

    def wait_for(
        self, key: Key, asks: list[Ask], timeout: float | None, priority: int = 0
    ) -> Decision:
        """Take, blocking this thread until it can be."""
        return take(self, key, asks, timeout, priority)

    async def await_for(
        self, key: Key, asks: list[Ask], timeout: float | None, priority: int = 0
    ) -> Decision:
        """Take, letting other tasks run until it can be."""
        return await take_async(self, key, asks, timeout, priority)

    # -- the rest of the administrator's calls

    def _resetting(self, key: Key) -> Flow[None]:
        yield from self.giving(self.asks("reset", key, 0), key)

    def _setting(self, key: Key, limits: Sequence[Own]) -> Flow[None]:
        if len(limits) == 1 and limits[0] is None:
            limits = (None,) * len(self.limits)
        filed = self._filed(limits, "set_limit")
        for base, given, limit in zip(self.limits, limits, filed, strict=True):
            yield Assign(self.name, base.id, key, None if given is None else limit)
        self._lines.kick(self.name, canonical(key))

    def getting(self, key: Key) -> Flow[tuple[Limit, ...]]:
        """The flow that finds the limits which hold for a key."""
        found = []
        for base, limit in zip(self.limits, self._limits(key), strict=True):
            own = yield Assigned(self.name, base.id, key)
            found.append(own or limit)
        return tuple(found)

    def _closing(self) -> Flow[None]:
        if self._owns:
            yield Close()
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
