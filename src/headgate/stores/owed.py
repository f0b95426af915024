"""Owed: what a store that did not answer is still to be told, once it does.

Undoing by token (a permit released, a reservation settled at 0) changes nothing when it is done
twice, so it is sent until it is answered. But whoever was refused may take with the same token
again, and then it must not come behind that take: it is sent first, or nothing is taken. What
gives back by an amount is sent once at most.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterable, Sequence
from typing import TypeAlias

from ..decision import Ask
from ..errors import StoreUnavailable
from ..keys import Key
from .steps import Flow, Step, Verb

__all__ = ["MOST", "Owed", "Place", "again", "place_of"]

MOST = 1 << 16
"""How many of each kind are kept."""
Place: TypeAlias = tuple[int, str, str, Key]
"""A token and where it counts: one call may hold permits of several limits by one token."""


def again(ask: Ask) -> bool:
    """Whether an ask may be sent a second time: done twice, it changes nothing.

    A settlement above 0 is not of this kind: without its reservation all of it is charged.
    """
    return ask.op == "release" or (ask.op == "settle" and not ask.cost)


def place_of(ask: Ask) -> Place:
    """What is taken and given back by an ask's token."""
    return ask.token, ask.space, ask.limit.id, ask.key


class Owed:
    """What one process owes its store."""

    def __init__(self) -> None:
        self.forget()

    def forget(self) -> None:
        """Owe nothing, as in a new process: its parent will say it."""
        self._lock = threading.Lock()
        self._once: deque[Ask] = deque(maxlen=MOST)
        self._by_token: dict[Place, Ask] = {}
        self._sending: set[Place] = set()

    def __bool__(self) -> bool:
        return bool(self._by_token or self._once or self._sending)

    @property
    def by_token(self) -> bool:
        """Whether there is anything that must not come behind a take."""
        return bool(self._by_token or self._sending)

    def keep(self, ask: Ask, *, sent: bool) -> None:
        """Keep an ask, if it may be sent; `sent` says whether it was sent before."""
        with self._lock:
            self._keep(ask, sent)

    def some(self, most: int) -> list[Ask]:
        """Take out some, to send them; `told` or `kept` follows."""
        with self._lock:
            found = self._taken_out(list(self._by_token)[:most])
            while self._once and len(found) < most:
                found.append(self._once.popleft())
            return found

    def before(self, asks: Sequence[Ask]) -> list[Ask] | None:
        """Take out what has to be sent before these asks; None if some is on its way just now."""
        places = [place_of(ask) for ask in asks if ask.token and ask.op in ("take", "shadow")]
        with self._lock:
            return None if self._sending.intersection(places) else self._taken_out(places)

    def told(self, asks: Iterable[Ask]) -> None:
        """The store has answered."""
        with self._lock:
            self._sending.difference_update(map(place_of, asks))

    def kept(self, asks: Iterable[Ask], *, sent: bool) -> None:
        """The store has not answered: keep what may be sent again."""
        with self._lock:
            for ask in asks:
                self._keep(ask, sent)
                self._sending.discard(place_of(ask))

    def telling(self, verb: Verb, asks: Sequence[Ask]) -> Flow[None]:
        """The flow that tells the store what was taken out."""
        try:
            yield Step(verb, ([[ask] for ask in asks],))
        except StoreUnavailable as error:
            self.kept(asks, sent=error.sent)
            raise
        except Exception:
            self.told(asks)  # and it has said no: this is not sent again
            raise
        except BaseException:  # cancelled, and perhaps sent
            self.kept(asks, sent=True)
            raise
        self.told(asks)

    # -- what holds while the lock is held

    def _keep(self, ask: Ask, sent: bool) -> None:
        if again(ask):
            self._by_token[place_of(ask)] = ask
            if len(self._by_token) > MOST:
                del self._by_token[next(iter(self._by_token))]
        elif not sent:
            self._once.append(ask)

    def _taken_out(self, places: Iterable[Place]) -> list[Ask]:
        found = [self._by_token.pop(place) for place in places if place in self._by_token]
        self._sending.update(map(place_of, found))
        return found
