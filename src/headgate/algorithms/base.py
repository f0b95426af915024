"""What every algorithm is: a pure rule over a few whole numbers.

An algorithm object holds what a limit fixes (rate, window, capacity) and no state. Time is in
ticks of its limit. The state of a key is three words whose meaning each algorithm defines; a
key that was never seen is `fresh`. Answers to `take` begin with the wait in ticks: 0 or more
admits; REFUSED returns the state as it was, except that a time which a broken clock left more
than a window ahead is brought back to now, so that nobody waits for it to come round.

Algorithms with more state than three words (cells, log, concurrency) are `Spread`: their state
is one mutable object, changed in place by `put` after `take` has said yes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ..limit import Limit

__all__ = ["MOST", "NEVER", "REFUSED", "Algorithm", "Outcome", "Spread", "State"]

REFUSED = -1
NEVER = -1
MOST = 2**62
"""The largest word of a state; a debt beyond it (a thousand years) is forgiven."""

State = tuple[int, int, int]
Outcome = tuple[int, int, int, int]
FRESH: State = (0, 0, 0)


class Rule:
    """What a limit fixes for both kinds of algorithm."""

    def __init__(self, limit: Limit, permille: int = 0) -> None:
        self.limit = limit
        self.permille = permille
        """How many thousandths of the elastic part are open."""
        self.tick = limit.tick
        self.per_second = 1_000_000 // limit.tick
        self.quota = limit.raised(limit.amount, permille)
        self.window = limit.window // limit.tick
        self.words = False
        """Whether the state is three words."""
        self.sticky = False
        """Whether a refused first call must be remembered too, and a full key kept."""
        self.books = False
        """Whether a call can be admitted for a later instant."""
        self.horizon = self.window
        """How many ticks ahead a call may be booked."""
        self.shape: tuple[object, ...] = (limit.algorithm, self.tick, self.window)
        """Two rules of the same shape read each other's state."""


class Algorithm(Rule):
    """A rule whose state is three words."""

    def __init__(self, limit: Limit, permille: int = 0) -> None:
        super().__init__(limit, permille)
        self.words = True

    def fresh(self, now: int) -> State:
        """The state of a key never seen before."""
        return FRESH

    def take(self, a: int, b: int, c: int, now: int, cost: int, max_wait: int) -> Outcome:
        """Take `cost`, perhaps after a wait of up to `max_wait`; pure."""
        raise NotImplementedError

    def look(self, a: int, b: int, c: int, now: int, cost: int) -> tuple[int, int, int]:
        """`remaining`, `retry` for this cost, and `reset`."""
        raise NotImplementedError

    def charge(self, a: int, b: int, c: int, now: int, cost: int) -> State:
        """Take `cost` whatever the limit says."""
        raise NotImplementedError

    def refund(self, a: int, b: int, c: int, now: int, cost: int, at: int) -> State:
        """Give back `cost` that was to pass, or passed, at the instant `at`."""
        raise NotImplementedError

    def forecast(self, a: int, b: int, c: int, now: int, ahead: int, cost: int) -> int:
        """Not before how many ticks `cost` can pass once `ahead` has; a lower bound."""
        raise NotImplementedError

    def used(self, a: int, b: int, c: int, now: int) -> tuple[int, int]:
        """What is in use now, as a fraction: for a limit that takes over from this one."""
        raise NotImplementedError

    def inherit(self, old: Rule, state: State, now: int) -> State | None:
        """A state of another rule, where there is more to keep than what is used; or None."""
        return None

    def spent(self, now: int, top: int, bottom: int) -> State:
        """A state in which top/bottom has just been used."""
        return self.charge(*FRESH, now, -(-top // bottom))


class Spread(Rule):
    """A rule whose state is one mutable object."""

    def empty(self) -> Any:
        """A new key's state."""
        raise NotImplementedError

    def roll(self, state: Any, now: int) -> int:
        """Drop what time has undone; the instant it is by this state."""
        raise NotImplementedError

    def take(self, state: Any, now: int, cost: int) -> int:
        """Whether `cost` fits now: 0, or REFUSED. Changes nothing but what time has undone."""
        raise NotImplementedError

    def put(self, state: Any, now: int, cost: int, token: int = 0, expires: int = 0) -> None:
        """Enter `cost`, whatever the limit says, into a state just brought up to now."""
        raise NotImplementedError

    def view(self, state: Any, now: int, cost: int) -> State:
        """Three words that say what a decision may want to know, of a state just brought up
        to now."""
        raise NotImplementedError

    def hit(self, state: Any, now: int, cost: int) -> Outcome:
        """Take at once or not at all: `take`, `put` and `view` in one step."""
        wait = self.take(state, now, cost)
        if wait == 0:
            self.put(state, now, cost)
        return wait, *self.view(state, now, cost)

    def look(self, a: int, b: int, c: int, now: int, cost: int) -> tuple[int, int, int]:
        """`remaining`, `retry` for this cost, and `reset`, from a view."""
        raise NotImplementedError

    def read(self, state: Any, now: int, cost: int) -> tuple[int, int, int]:
        """`remaining`, `retry` for this cost, and `reset`, from the state itself."""
        self.roll(state, now)
        return self.look(*self.view(state, now, cost), now, cost)

    def refund(self, state: Any, now: int, cost: int, at: int) -> None:
        """Give back `cost` that was taken at the instant `at`."""
        raise NotImplementedError

    def forecast(self, state: Any, now: int, ahead: int, cost: int) -> int:
        """Not before how many ticks `cost` can pass once `ahead` has; a lower bound."""
        raise NotImplementedError

    def dump(self, state: Any) -> bytes:
        """The state in few bytes."""
        raise NotImplementedError

    def load(self, data: bytes) -> Any:
        """The state again; ValueError if these are not the bytes of one."""
        raise NotImplementedError

    def used(self, state: Any, now: int) -> tuple[int, int]:
        """What is in use now, as a fraction."""
        raise NotImplementedError

    def spent(self, now: int, top: int, bottom: int) -> Any:
        """A state in which top/bottom has just been used."""
        state = self.empty()
        self.roll(state, now)
        self.put(state, now, -(-top // bottom))
        return state
