"""Cell: one key under one rule at one instant, whichever kind of state the rule keeps."""

from __future__ import annotations

from typing import Any

from ..algorithms import Concurrency
from ..decision import Decision, decided

__all__ = ["Cell"]


class Cell:
    """Reads a key's state once, works on it, and says what to keep."""

    __slots__ = ("again", "handle", "now", "rule", "seen", "state", "table")

    def __init__(self, table: Any, handle: Any, rule: Any, micros: int) -> None:
        self.table = table
        self.handle = handle
        self.rule = rule
        self.again = False
        """Whether a permit was taken that its token held before."""
        self.now = micros // rule.tick
        state = table.read(handle, rule, micros)
        self.seen = state is not None
        if state is None:
            state = rule.fresh(self.now) if rule.words else rule.empty()
        self.state = state

    @property
    def permits(self) -> bool:
        return isinstance(self.rule, Concurrency)

    def decision(self, wait: int, cost: int) -> Decision:
        """What the state says to a call of this cost."""
        view = self.state
        if not self.rule.words:
            self.rule.roll(view, self.now)
            view = self.rule.view(view, self.now, cost)
        return decided(self.rule, (wait, *view), self.now, cost)

    def fits(self, cost: int, max_wait: int) -> int:
        """The wait of a call that is not made, or REFUSED."""
        rule = self.rule
        if not rule.words:
            return int(rule.take(self.state, self.now, cost))
        max_wait = min(max_wait // rule.tick, rule.horizon) if rule.books else 0
        return int(rule.take(*self.state, self.now, cost, max_wait)[0])

    def take(self, cost: int, max_wait: int, token: int, ttl: int) -> int:
        """Make the call, if it fits; its wait, or REFUSED."""
        rule = self.rule
        if rule.words:
            max_wait = min(max_wait // rule.tick, rule.horizon) if rule.books else 0
            wait, *state = rule.take(*self.state, self.now, cost, max_wait)
            self.state = tuple(state)
            return int(wait)
        wait = rule.take(self.state, self.now, cost)
        if wait == 0:
            expires = self.now + -(-ttl // rule.tick) if ttl else 0
            self.again = self.permits and token in self.state.held
            rule.put(self.state, self.now, cost, token, expires)
        return int(wait)

    def untake(self, cost: int, token: int) -> None:
        """Undo a take of this instant in a state that was changed in place."""
        if self.again:
            return
        if self.permits:
            self.rule.release(self.state, token)
        else:
            self.rule.refund(self.state, self.now, cost, self.now)

    def settle_up(self) -> None:
        """Bring the state up to now."""
        if self.rule.words:
            self.state = self.rule.charge(*self.state, self.now, 0)
        else:
            self.rule.roll(self.state, self.now)

    def charge(self, cost: int) -> None:
        """Take whatever the limit says."""
        if self.rule.words:
            self.state = self.rule.charge(*self.state, self.now, cost)
        else:
            self.rule.roll(self.state, self.now)
            self.rule.put(self.state, self.now, cost)

    def refund(self, cost: int, at: int) -> None:
        """Give back what was taken at the instant `at`, in microseconds."""
        at //= self.rule.tick
        if self.rule.words:
            self.state = self.rule.refund(*self.state, self.now, cost, at)
        else:
            self.rule.refund(self.state, self.now, cost, at)

    def forget(self) -> None:
        """As if never used."""
        self.state = self.rule.fresh(self.now) if self.rule.words else self.rule.empty()

    def release(self, token: int) -> bool:
        """Give a permit back; False if it was not held any more."""
        if not self.permits:
            return False
        self.rule.roll(self.state, self.now)
        return bool(self.rule.release(self.state, token))

    def renew(self, token: int, ttl: int) -> bool:
        """Let a permit live on; False if it was not held any more."""
        if not self.permits:
            return False
        self.rule.roll(self.state, self.now)
        expires = self.now + -(-ttl // self.rule.tick) if ttl else 0
        return bool(self.rule.renew(self.state, token, expires))

    def forecast(self, ahead: int, cost: int) -> int:
        """Not before how many microseconds the cost can pass behind `ahead`."""
        rule = self.rule
        state = self.state if rule.words else (self.state,)
        return int(rule.forecast(*state, self.now, ahead, cost) * rule.tick)
